"use strict";
// Draws the examples of the embedded JSON. All text goes in as text nodes, never as HTML.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const STEP = 25;
let found = [], shown = 0;

function node(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function wordNode(text, score, largest, rank, measure) {
  const made = node("span", "w", text);
  const share = largest > 0 ? Math.abs(score) / largest : 0;
  if (share > 0.02) {
    made.style.background = `rgb(var(--${score < 0 ? "against" : "for"}) / ${(0.9 * share).toFixed(3)})`;
  }
  if (measure.signed && score < 0 && share > 0.25) made.classList.add("minus");
  if (rank === 0) made.classList.add("top");
  made.title = `${measure.name}: ${Number(score.toPrecision(4))}, rank ${rank + 1}`;
  return made;
}

// spans: [start, end, which text (0 first, 1 second)]; cut: where the model's input ended
function textNode(text, which, row, number, cut) {
  const box = node("span"), measure = data.measures[number];
  const scores = row.s[number], largest = Math.max(0, ...scores.filter((s) => s !== null).map(Math.abs));
  let at = 0;
  row.w.forEach(([start, end, of], i) => {
    if (of !== which || scores[i] === null) return;
    if (start > at) box.append(text.slice(at, start));
    const word = wordNode(text.slice(start, end), scores[i], largest, row.r[number][i], measure);
    if (row.e && row.e.includes(i)) word.classList.add("framed");
    box.append(word);
    at = end;
  });
  if (cut !== null && cut < text.length) {
    if (cut > at) box.append(text.slice(at, cut));
    box.append(node("span", "cut", text.slice(Math.max(at, cut))));
  } else if (at < text.length) box.append(text.slice(at));
  return box;
}

function article(row) {
  const made = node("article"), head = node("div", "head");
  head.append(node("span", "", `#${row.id}`));
  const predicted = node("span", "", "prediction ");
  predicted.append(node("b", row.gold === null ? "" : row.gold === row.predicted ? "right" : "wrong",
    `${row.gold === null ? "" : row.gold === row.predicted ? "✓ " : "✗ "}${row.predicted}`), ` ${(100 * row.probability).toFixed(1)}%`);
  head.append(predicted);
  if (row.gold !== null) { const gold = node("span", "", "gold "); gold.append(node("b", "", row.gold)); head.append(gold); }
  head.append(node("span", "", `explained: ${row.target}`));
  if (row.cut) head.append(node("span", "wrong", `${row.cut} characters did not fit and are struck out`));
  made.append(head);
  const grid = node("div", "grid");
  data.measures.forEach((measure, number) => {
    if (!$(`m${number}`).checked) return;
    const cell = node("div"), words = node("div", "words");
    cell.append(node("div", "name", measure.name));
    words.append(textNode(row.text, 0, row, number, row.ends[0]));
    cell.append(words);
    if (row.pair !== null) {
      const pair = node("div", "pair words");
      pair.append(node("i", "", "second text  "), textNode(row.pair, 1, row, number, row.ends[1]));
      cell.append(pair);
    }
    grid.append(cell);
  });
  made.append(grid);
  return made;
}

function select() {
  const gold = $("gold").value, predicted = $("predicted").value, kind = $("kind").value, query = $("query").value.toLowerCase();
  found = data.rows.filter((row) =>
    (gold === "" || row.gold === gold) && (predicted === "" || row.predicted === predicted) &&
    (kind === "" || (row.gold !== null && (row.gold === row.predicted) === (kind === "right"))) &&
    (query === "" || row.text.toLowerCase().includes(query) || (row.pair !== null && row.pair.toLowerCase().includes(query))));
  const by = $("order").value;
  if (by === "sure") found.sort((a, b) => b.probability - a.probability);
  if (by === "unsure") found.sort((a, b) => a.probability - b.probability);
  $("list").replaceChildren();
  shown = 0;
  more();
}

function more() {
  const next = found.slice(shown, shown + STEP);
  $("list").append(...next.map(article));
  shown += next.length;
  $("count").textContent = `${found.length} of ${data.rows.length} examples`;
  $("more").hidden = shown >= found.length;
  $("more").textContent = `Show ${Math.min(STEP, found.length - shown)} more`;
}

function options(id, key) {
  const values = [...new Set(data.rows.map((row) => row[key]).filter((value) => value !== null))].sort();
  values.forEach((value) => { const o = node("option", "", value); o.value = value; $(id).append(o); });
  $(id).closest("label").hidden = values.length < 2;
}

data.measures.forEach((measure, number) => {
  const label = node("label"), box = node("input");
  box.type = "checkbox"; box.id = `m${number}`; box.checked = number < 4;
  label.append(box, measure.name);
  $("measures").append(label);
});
options("gold", "gold");
options("predicted", "predicted");
$("kind").closest("label").hidden = data.rows.every((row) => row.gold === null);
$("form").addEventListener("input", select);
$("form").addEventListener("submit", (event) => event.preventDefault());
$("more").addEventListener("click", more);
if (data.rows.length < 2) $("form").hidden = data.measures.length < 2;
select();
