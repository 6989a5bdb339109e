"""task=explain on a small random model: files, texts, splits; resuming; bad input."""

import json
import re

import numpy as np
import pyarrow.parquet as pq
import pytest

from fmm import records
from fmm.errors import FmmError
from fmm.explain import work
from fmm.explain.source import of_file
from fmm.tasks import explain
from tests.conftest import save_tiny_model

TEXTS = [
    "not a great film",
    "the plot was dull, dull and wonderfully unremarkable",
    "great",
    "I’d say 👍🏽 it's 好片",
] * 12


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a random two-layer encoder and a byte-level tokenizer that cuts words into pieces."""
    folder = tmp_path_factory.mktemp("model") / "model"
    return save_tiny_model(folder, TEXTS, 32)


@pytest.fixture
def settings(model, compose, tmp_path):
    def _settings(*overrides: str):
        return compose("task=explain", f"output_dir={tmp_path}", f"checkpoint={model}", *overrides)

    return _settings


def read(record, name):
    return pq.read_table(record.directory / f"{name}.parquet")


def test_free_text_explains_the_prediction_and_prints_it(settings, capsys):
    record = explain.run(settings('text="not a great film"', "measures=[loo_sign,grad_l2]"))
    out = capsys.readouterr().out
    (example,) = read(record, "examples").to_pylist()
    assert example["gold"] is None and example["target_is_prediction"] and example["target"] == example["predicted"]
    assert f"prediction: {example['predicted']}" in out and "(the prediction)" in out
    assert record.results["predicted_targets"] == 1
    tokens = read(record, "tokens").to_pylist()
    assert {row["measure"] for row in tokens} == {"loo_sign", "grad_l2"}
    for row in tokens:
        if row["text"] == "first":
            assert example["text"][row["start"] : row["end"]].strip() == row["token"].replace("Ġ", "").strip()
        else:
            assert row["start"] is None and row["rank"] is None


def test_places_in_an_order_are_not_summed_to_words(settings, capsys):
    record = explain.run(settings('text="wonderfully unremarkable plot"', "measures=[beam_2]"))
    tokens, words = read(record, "tokens").to_pylist(), read(record, "words").to_pylist()
    assert max(word["score"] for word in words) == max(row["score"] for row in tokens)
    assert "against" not in capsys.readouterr().out


def test_dry_run_forecasts_and_leaves_nothing(settings, capsys, tmp_path):
    assert explain.run(settings("text=great", "measures=[grad_l2,grad_l2]", "dry_run=true")) is None
    assert "forecast: 1 row by grad_l2, about" in capsys.readouterr().out
    assert not list(tmp_path.glob("explain/*/*"))


def test_words_pool_their_pieces_and_are_ranked(settings):
    record = explain.run(settings('text="wonderfully unremarkable plot"', "measures=[loo_sign,grad_l2]"))
    tokens, words = read(record, "tokens").to_pylist(), read(record, "words").to_pylist()
    assert max(word["tokens"] for word in words) > 1
    for word in words:
        pieces = [
            row["score"]
            for row in tokens
            if row["measure"] == word["measure"] and row["rank"] is not None
            and word["start"] <= row["start"] < word["end"]
        ]  # fmt: skip
        assert len(pieces) == word["tokens"]
        expected = sum(pieces) if word["signed"] else max(pieces)
        assert word["score"] == pytest.approx(expected, rel=1e-5, abs=1e-7)
    ranked = [word for word in words if word["measure"] == "grad_l2"]
    assert [w["rank"] for w in sorted(ranked, key=lambda w: -w["score"])] == list(range(len(ranked)))


def write_csv(path, rows, header="text,label"):
    path.write_text(header + "\n" + "\n".join(rows) + "\n", "utf-8")
    return path


def test_file_with_and_without_labels(settings, tmp_path):
    labelled = write_csv(tmp_path / "a.csv", ["a great film,positive", "a dull film,0", "so so,"])
    record = explain.run(settings(f"data.path={labelled}", "measure=grad_l2"))
    found = read(record, "examples").to_pylist()
    assert [row["gold"] for row in found] == ["positive", "negative", None]
    assert [row["target"] for row in found[:2]] == ["positive", "negative"]
    assert [row["target_is_prediction"] for row in found] == [False, False, True]
    bare = write_csv(tmp_path / "b.csv", ["great", "dull"], header="text")
    assert explain.run(settings(f"explanation.file={bare}")).results["n_labelled"] == 0


@pytest.mark.parametrize(("names", "expected"), [(["0", "1"], [1, 0, -1, -1, -1]), (["-1", "1"], [1, 0, 0, -1, -1])])
def test_labels_of_a_file_are_read_as_those_of_training_data(tmp_path, names, expected):
    path = write_csv(tmp_path / "a.csv", ["a,1.0", f"b,{names[0]}", "c,-1", "d,nan", "e,"])
    assert of_file(path, {}, {}).gold(names).tolist() == expected


def test_half_a_character_in_a_file_is_a_sentence(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "\\ud800"}\n')
    with pytest.raises(FmmError, match="row 1 has half a character"):
        of_file(tmp_path / "a.jsonl", {}, {})


def test_order_and_scores_do_not_depend_on_the_parts(settings, tmp_path, monkeypatch):
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), "utf-8")
    whole = explain.run(settings(f"explanation.file={path}", "measures=[loo_abs]"))
    monkeypatch.setattr(work, "ROWS_PER_PART", 5)
    parts = explain.run(settings(f"explanation.file={path}", "measures=[loo_abs]", f"output_dir={tmp_path / 'other'}"))
    one, other = read(whole, "tokens"), read(parts, "tokens")
    assert one.drop_columns("score").equals(other.drop_columns("score"))
    assert np.allclose(one["score"].to_numpy(), other["score"].to_numpy(), atol=1e-5)
    assert read(whole, "examples")["row"].to_pylist() == list(range(len(TEXTS)))


def test_killed_half_way_it_continues(settings, tmp_path, monkeypatch, capsys):
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), "utf-8")
    monkeypatch.setattr(work, "ROWS_PER_PART", 10)
    real, calls = work.explain_rows, []

    def dies(job, rows):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(len(rows))
        return real(job, rows)

    monkeypatch.setattr(work, "explain_rows", dies)
    arguments = (f"explanation.file={path}", "measures=[grad_l2]")
    with pytest.raises(KeyboardInterrupt):
        explain.run(settings(*arguments))
    (broken,) = tmp_path.glob("explain/*/*/parts/00001-tokens.parquet")
    broken.write_bytes(broken.read_bytes()[:50])
    monkeypatch.setattr(work, "explain_rows", lambda job, rows: (calls.append(len(rows)), real(job, rows))[1])
    capsys.readouterr()
    record = explain.run(settings(*arguments))
    out = capsys.readouterr().out
    assert len(calls) == 3 + 1 + 2 and "part 1" in out and "20 of them found" in out
    fresh = explain.run(settings(*arguments, f"output_dir={tmp_path / 'fresh'}"))
    for name in ("tokens", "words", "examples"):
        assert read(record, name).equals(read(fresh, name))
    assert not (record.directory / "parts").exists()
    assert explain.run(settings(*arguments)).created == record.created


def test_a_label_is_one_run_however_it_is_named(settings):
    keys = {explain.run(settings("text=great", f"target={name}")).key for name in ("1", "positive", "Positive")}
    assert len(keys) == 1


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (['text=" "'], "text is empty"),
        (["text=great", "target=neutral"], "unknown target 'neutral'"),
        (["text=great", "target=7"], "target=7 is no label"),
        (["text=great", "target=null"], "unknown target 'null'"),
        (["text=great", "target=1.0"], "unknown target '1.0'"),
        (["text=great", "target=[0,1]"], "unknown target"),
        (["text=great", "target=true"], "unknown target 'True'"),
        (["text=great", "measures=[{steps:3}]"], "has no name"),
        (["text=great", "measures=[lo_sign]"], "did you mean"),
        (["text=great", "measures=[int_grad_abs,{name:int_grad_abs,steps:3}]"], "twice with different"),
        (["text=great", "measures=[]"], "no measure"),
        (["text=great", "explain=second"], "one text only"),
        (["text=great", "explanation.file=x.csv"], "both given"),
        (["explanation.split=tset"], "unknown explanation.split"),
    ],
)
def test_bad_settings_are_one_sentence(settings, overrides, message):
    with pytest.raises(FmmError, match=re.escape(message)):
        explain.run(settings(*overrides))


def test_bad_files_are_one_sentence(settings, tmp_path):
    bad = {
        "latin.csv": (b"text\ncaf\xe9\n", "not UTF-8"),
        "column.csv": (b"txt\ngreat\n", "explanation.text=txt"),
        "empty.csv": (b"text,label\ngreat,\n,\n", "row 2 has an empty text"),
        "label.csv": (b"text,label\ngreat,neutral\n", "unknown label 'neutral'"),
        "header.csv": (b"text\n", "no rows"),
    }
    for name, (content, message) in bad.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FmmError, match=re.escape(message)):
            explain.run(settings(f"explanation.file={tmp_path / name}"))
    for name, what in (("nowhere.csv", "is not there"), ("", "is a folder")):
        with pytest.raises(FmmError, match=rf"explanation\.file=.* {what}"):
            explain.run(settings(f"explanation.file={tmp_path / name}"))
    assert not [path for path in tmp_path.rglob("label.csv-*") if path.is_dir()]  # nothing is left of a refused run


def test_labels_of_the_checkpoint_must_be_those_of_the_dataset(settings):
    small = ["dataset.rows.train=8", "dataset.rows.validation=4", "dataset.rows.test=4"]
    with pytest.raises(FmmError, match=r"negative, positive.*bad, good"):
        explain.run(settings(*small, "dataset.labels=[bad,good]"))
    assert explain.run(settings(*small, "measure=grad_l2")).results["n_labelled"] == 4


def test_long_text_and_literal_mask_are_reported(settings, capsys):
    record = explain.run(settings(f'text="{"great dull " * 40}"', "measure=loo_sign"))
    (example,) = read(record, "examples").to_pylist()
    assert example["cut_characters"] > 100 and "Cut at the model" in capsys.readouterr().out
    page = (record.directory / "explain.html").read_text("utf-8")
    assert f'"cut":{example["cut_characters"]}' in page
    record = explain.run(settings('text="a <mask> film"', "measure=loo_sign"))
    assert "literal mask string '<mask>'" in capsys.readouterr().out
    masked = [row for row in read(record, "tokens").to_pylist() if row["token"] == "<mask>"]
    assert masked[0]["score"] == 0


def test_page_cannot_be_broken_by_its_texts(settings, tmp_path):
    path = tmp_path / "x.jsonl"
    evil = "</script><script>alert(1)</script> <!-- & \u2028 <b>"
    path.write_text(json.dumps({"text": evil}) + "\n", "utf-8")
    record = explain.run(settings(f"explanation.file={path}", "measure=grad_l2"))
    page = (record.directory / "explain.html").read_text("utf-8")
    assert page.count("<script") == 2 and page.count("</script>") == 2 and "\u2028" not in page
    data = json.loads(re.search(r"id=data>(.*?)</script>", page, re.DOTALL).group(1))
    assert data["rows"][0]["text"] == evil
    assert "innerHTML" not in page and not re.search(r"https?://", page)


def test_spans_on_the_page_are_those_of_utf16(settings):
    text = "I say 👍🏽 great"
    record = explain.run(settings(f'text="{text}"', "measure=grad_l2"))
    page = (record.directory / "explain.html").read_text("utf-8")
    row = json.loads(re.search(r"id=data>(.*?)</script>", page, re.DOTALL).group(1))["rows"][0]
    units = text.encode("utf-16-le")
    words = [units[2 * a : 2 * b].decode("utf-16-le") for a, b, _ in row["w"]]
    assert words == ["I", "say", "👍🏽", "great"]


def test_report_decides_the_default_measure(settings, tmp_path, model, capsys):
    from fmm.models.build import folder_digest

    run = records.open_run(tmp_path, "report", "sst2", "report", {})
    verdict = {"dataset": "sst2", "strategy": "half_det", "measure": "inp_grad_sign", "trust": "yes"}
    verdict |= {"sentence": "Use it.", "checks": [], "tied": [], "models": [folder_digest(model)[:12]]}
    with run.lock():
        run.finish({"verdicts": [verdict]})
    record = explain.run(settings("text=great"))
    assert record.settings["measures"] == [{"name": "inp_grad_sign"}]
    assert "by the report" in capsys.readouterr().out


@pytest.mark.parametrize("which", ["first", "second", "both"])
def test_pairs_are_explained_in_the_text_that_is_asked_for(settings, which):
    pair = ('text="a great film"', 'text_pair="the plot was dull"', f"explain={which}", "measure=loo_sign")
    record = explain.run(settings(*pair))
    found = {row["text"] for row in read(record, "words").to_pylist()}
    assert found == ({"first", "second"} if which == "both" else {which})
    page = (record.directory / "explain.html").read_text("utf-8")
    assert '"pair":"the plot was dull"' in page
