"""The Python of the README runs as it stands."""

import re
from pathlib import Path

from fmm.data import toy
from fmm.models import tiny
from fmm.pages import EXAMPLES

README = Path(__file__).resolve().parent.parent / "README.md"


def test_python_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    texts = ["not a great film, a dull one", "a lovely plot"] * 20
    tokenizer = tiny.train_tokenizer(texts, vocab_size=320, max_length=64)
    shape = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "intermediate_size": 16, "max_length": 64}
    tiny.build_model(shape, ["negative", "positive"], len(tokenizer)).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    exec(compile(code, str(README), "exec"), {})
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) > 5 and any(" great" in line for line in lines)


def test_the_toy_models_first_text_is_of_its_words() -> None:
    """The text that README and `--help` explain by `dataset=toy` holds no word that the toy reviews lack."""
    reviews = set(" ".join(toy.generate(2000, "0/train").texts).split())
    for place in (README.read_text(encoding="utf-8"), EXAMPLES):
        (text,) = re.findall(r'task=explain dataset=toy text="(.*?)"', place)
        assert set(text.split()) <= reviews
