"""Fourteen scripts through task=explain: no character is lost in words.parquet, on the page or on the terminal."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console
from transformers import BertConfig, BertForSequenceClassification

from fmm.report import terminal
from fmm.tasks import explain
from tests.test_models_tokenizers import SOUND

SCRIPTS = {
    "Latin": ("Not great, isn't it? naïve cafe\u0301", ["Not", "great", "isn't", "naïve", "cafe\u0301"]),
    "Greek": ("Ωραία ταινία.", ["Ωραία", "ταινία", "."]),
    "Cyrillic": ("Очень скучный фильм!", ["Очень", "скучный", "фильм", "!"]),
    "Hebrew": ("סרט טוב מאוד", ["סרט", "טוב", "מאוד"]),
    "Arabic": ("فيلم جميل جدا", ["فيلم", "جميل", "جدا"]),
    "Persian": ("می\u200cخواهم فیلم", ["می\u200cخواهم", "فیلم"]),
    "Devanagari": ("यह हिन्दी फ़िल्म", ["यह", "हिन्दी", "फ़िल्म"]),
    "Bengali and Tamil": ("বাংলা ছবি தமிழ் படம்", ["বাংলা", "ছবি", "தமிழ்", "படம்"]),
    "Korean": ("영화가 재미있어요", ["영화가", "재미있어요"]),
    "Chinese": ("这部电影非常好看，𠀀。", None),
    "Japanese": ("映画はﾃｽﾄです。カタカナ", None),
    "Thai and Lao": ("ภาพยนตร์เรื่องนี้ ລາວ", None),
    "Khmer and Burmese": ("ភាសាខ្មែរ မြန်မာ", None),
    "signs": ("👩‍👩‍👧 🇩🇪 ok\x1b[31m\r\nb\u200bc \ufeff\ufffd @user <b>x</b> &amp; \u2028 x²", None),
}
KINDS = ["byte-level", "unigram, Chinese", "wordpiece, uncased"]


@pytest.fixture(scope="module", params=KINDS)
def words(request: Any, compose: Any, tmp_path_factory: Any) -> tuple[Path, list[dict[str, Any]]]:
    """The folder of an explanation of all scripts, and its words by the one measure."""
    folder = tmp_path_factory.mktemp("scripts")
    tokenizer = SOUND[request.param]()
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), **shape)).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    rows = [json.dumps({"text": text}) for text, _ in SCRIPTS.values()]
    (folder / "a.jsonl").write_text("\n".join([*rows, json.dumps({"text": "long " * 700 + "end"})]), "utf-8")
    given = [f"output_dir={folder}/out", f"checkpoint={folder}/model", f"explanation.file={folder}/a.jsonl"]
    record = explain.run(compose("task=explain", "measure=grad_l2", "trainer.accelerator=cpu", *given))
    assert record is not None
    return record.directory, pq.read_table(record.directory / "words.parquet").to_pylist()


def visible(text: str) -> list[str]:
    return [character for character in text if not character.isspace()]


def test_words_hold_every_character_once_and_in_order(words: Any) -> None:
    _, table = words
    for number, (text, expected) in enumerate(SCRIPTS.values()):
        found = [row for row in table if row["row"] == number]
        assert visible("".join(row["word"] for row in found)) == visible(text)
        assert all(text[row["start"] : row["end"]] == row["word"] for row in found)
        assert all((row["score"] is None) == (row["rank"] is None) == (row["tokens"] == 0) for row in found)
        if expected is not None:
            assert [row["word"] for row in found if row["word"] in expected] == expected
    long = [row for row in table if row["row"] == len(SCRIPTS)]
    assert len(long) == 701 and long[-1]["word"] == "end" and long[-1]["score"] is None and long[0]["score"] is not None


def test_no_word_of_a_script_without_blanks_spans_a_phrase(words: Any) -> None:
    """Where there are no blanks the tokenizer's pieces are words: none is longer than the piece it comes from."""
    directory, table = words
    tokens = pq.read_table(directory / "tokens.parquet").to_pylist()
    for name in ("Chinese", "Japanese", "Thai and Lao", "Khmer and Burmese"):
        number = list(SCRIPTS).index(name)
        starts = {row["start"] for row in tokens if row["row"] == number and row["start"] is not None}
        for row in (row for row in table if row["row"] == number):
            inside = [at for at in starts if row["start"] < at < row["end"]]
            letters = re.sub(r"[\u0e30-\u0e4e\u0eb0-\u0ecd\u102b-\u103e\u17b4-\u17d3]", "", row["word"])
            assert not inside or len(letters) <= 2, row["word"]  # a letter with its signs, or a run of signs


def test_the_page_holds_every_text_and_every_word_that_was_read(words: Any) -> None:
    directory, table = words
    page = (directory / "explain.html").read_text("utf-8")
    match = re.search(r"<script type=\"application/json\" id=data>(.*?)</script>", page, re.DOTALL)
    assert match is not None
    for row, (number, (text, _)) in zip(json.loads(match[1])["rows"], enumerate(SCRIPTS.values())):
        assert row["text"] == text
        shown = text.encode("utf-16-le")
        spans = [shown[2 * start : 2 * end].decode("utf-16-le") for start, end, _ in row["w"]]
        assert spans == [word["word"] for word in table if word["row"] == number and word["score"] is not None]


@pytest.mark.parametrize("colours", [True, False])
def test_the_terminal_shows_every_character(words: Any, monkeypatch: pytest.MonkeyPatch, colours: bool) -> None:
    _, table = words
    for number, (text, _) in enumerate(SCRIPTS.values()):
        spans = [(row["start"], row["end"], row["score"]) for row in table if row["row"] == number]
        screen = io.StringIO()
        console = Console(file=screen, force_terminal=colours, color_system="truecolor" if colours else None, width=500)
        monkeypatch.setattr(terminal, "Console", lambda console=console, **_: console)
        terminal.print_explanation(text, None, {"grad_l2": (False, spans, [])}, [])
        shown = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue()).split("grad_l2\n", 1)[1]
        pictures = [character.translate(terminal.PICTURES) for character in visible(text)]
        assert not set(pictures) - set(shown) and "\x1b" not in shown
        if colours:
            assert visible(shown) == visible(text.translate(terminal.PICTURES))
