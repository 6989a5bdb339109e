"""Labels by name: spellings, numbers, orders, maps; never shifted and never upside down in silence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.metrics import f1_score, matthews_corrcoef
from transformers import BertConfig, BertForSequenceClassification

from fmm import metrics, statistics
from fmm.curves import read_curve
from fmm.data import encode, labels
from fmm.data.labels import class_numbers, label_column, rename_labels, suspected_order, target_label
from fmm.errors import FmmError
from fmm.measures import attribute
from fmm.models import build, tiny
from fmm.models.classifier import load_classifier
from fmm.tasks import explain, masf, racu

STARS = [f"{n} star{'s' * (n > 1)}" for n in range(1, 6)]
TEXTS = ["a great film", "a dull plot", "so so acting"] * 40


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1.0", "0", "", None], ["1", "0", None, None]),
        ([1.0, 0.0, float("nan")], ["1", "0", None]),
        (["nan", "ok", "null", "None", "true"], ["nan", "ok", "null", "None", "true"]),
        (["007", "1e3"], ["007", "1e3"]),
        ([True, False], ["True", "False"]),
        (["e\u0301te\u0301", "\u00e9t\u00e9", " \u00e9t\u00e9\u200b"], ["\u00e9t\u00e9"] * 3),
        (["not  good", "not\u00a0good", "not good"], ["not good"] * 3),
        (["a", "a\u200d", "a\u200c", "\u200ea\u200f", "\ufeffa", "a\u2069", "a\u3164", "a\x00", "\u2800a"], ["a"] * 9),
        (["\u06a9\u200c\u06a9", "\U0001f469\u200d\U0001f680"], ["\u06a9\u200c\u06a9", "\U0001f469\u200d\U0001f680"]),
        (["\u2764\ufe0f", "\U0001f3f4\U000e0067\U000e007f"], ["\u2764\ufe0f", "\U0001f3f4\U000e0067\U000e007f"]),
    ],
)
def test_cells_become_labels(cells: list[Any], expected: list[str | None]) -> None:
    assert label_column(cells).values == expected


def test_what_is_respelt_is_counted_and_said() -> None:
    column = label_column(["caf\u00e9", "cafe\u0301", "tea", "tea "])
    assert column.respelt == 1 and column.merged == {"caf\u00e9": 2}
    assert column.said("a.csv") == [
        "a.csv: 1 labels respelt (Unicode form, invisible characters, blanks); 2 spellings of 'caf\u00e9' are one label"
    ]


@pytest.mark.parametrize(
    ("values", "proposal"),
    [
        (["1", "2", "3", "4"], '1: "1 star", 2: "2 stars", 3: "3 stars", 4: "4 stars"'),
        (["0", "1", "2", "3", "4"], '0: "1 star", 1: "2 stars"'),  # from 0 they can only be meant in order
    ],
)
def test_a_number_is_no_class_where_names_hold_numbers(values: list[str], proposal: str) -> None:
    """gladiaio/gladia#517: 1 was read as class number 1, which is "2 stars"."""
    with pytest.raises(FmmError, match=r"label '\d'.*label_map=\{") as error:
        class_numbers(values, STARS, "f.csv")
    assert proposal in str(error.value)


def test_a_number_is_a_class_where_all_of_them_occur() -> None:
    names = ["negative", "neutral", "positive"]
    assert class_numbers(["2", "0", None, "1", "-1"], names, "f").tolist() == [2, 0, -1, 1, -1]
    with pytest.raises(FmmError, match=r"not all numbers from 0 to 2 occur.*'label_map=\{1: negative, 2: neutral\}'"):
        class_numbers(["1", "2"], names, "f")
    assert class_numbers(["Positive", "NEGATIVE"], names, "f").tolist() == [2, 0]


@pytest.mark.parametrize(
    ("values", "names", "expected"),
    [
        (["neg", "neu", "pos"], ["negative", "neutral", "positive"], "neg: negative, neu: neutral, pos: positive"),
        (["gut", "schlecht"], ["bad", "good"], "gut: ?, schlecht: ?"),
        (["0", "1", "2"], ["1 star", "2 stars", "3 stars"], '0: "1 star", 1: "2 stars", 2: "3 stars"'),
        (["-1", "0", "1"], ["neg", "neu", "pos"], '"-1": neg, 0: neu, 1: pos'),
        (["1", "2", "3"], ["LABEL_0", "LABEL_1", "LABEL_2"], "1: LABEL_0, 2: LABEL_1, 3: LABEL_2"),
        (["a", "b"], ["alpha", "beta"], "a: alpha, b: beta"),
    ],
)
def test_a_proposal_guesses_nothing(values: list[str], names: list[str], expected: str) -> None:
    assert labels.proposed_map(values, names) == f"'label_map={{{expected}}}'"


@pytest.mark.parametrize(
    ("label_map", "expected"),
    [
        ({0: "negative", 1: "positive"}, ["negative", "positive"]),
        ({"1": "pos"}, ["0", "pos"]),
        ({0: None, 1: True}, ["null", "true"]),
        (None, ["0", "1"]),
    ],
)
def test_label_map_renames(label_map: dict[Any, Any] | None, expected: list[str]) -> None:
    assert rename_labels(["0", "1"], label_map) == expected


@pytest.mark.parametrize(
    ("label_map", "message"),
    [
        ({2: "a"}, "label_map: unknown label '2'.*data have only these"),
        ({0: "a", 1: "A "}, "makes one label 'A' of '0' and '1'"),
        ({0: "1"}, "makes one label '1' of '0' and '1'"),
    ],
)
def test_a_wrong_label_map_is_a_sentence(label_map: dict[Any, Any], message: str) -> None:
    with pytest.raises(FmmError, match=message):
        rename_labels(["0", "1"], label_map)


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({"id2label": {"0": "neg", "1": "pos"}}, ["neg", "pos"]),
        ({"label2id": {"pos": 0, "neg": 1}}, ["pos", "neg"]),
        ({"id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "label2id": {"pos": 0, "neg": 1}}, ["pos", "neg"]),
        ({"id2label": {"0": "neg", "1": "pos"}, "label2id": {"LABEL_0": 0, "LABEL_1": 1}}, ["neg", "pos"]),
        ({}, ["LABEL_0", "LABEL_1"]),
        ({"id2label": {"0": 4, "1": 5}}, ["4", "5"]),
        ({"id2label": {"0": True, "1": None}}, ["true", "null"]),
        ({"label2id": {"pos": "1", "neg": "0"}}, ["neg", "pos"]),
        (
            {"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"b": 1}},
            ["a", "b", "c"],
        ),  # a part, not a contradiction
        ({"id2label": ["a", "b"]}, ["a", "b"]),
    ],
)
def test_labels_of_a_configuration(stored: dict[str, Any], expected: list[str]) -> None:
    assert build.stored_labels(stored, 2, "m") == expected


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (
            {"id2label": {"0": "neg", "1": "pos"}, "label2id": {"pos": 0, "neg": 1}},
            "contradicts itself.*pos, neg",
        ),
        (
            {"id2label": {"0": "a", "2": "c"}},
            r"numbered 0, 2 in its config.json, without 1; name all of them .* from 0 to 2",
        ),
        ({"label2id": {"b": 1, "c": 2}}, r"numbered 1, 2 .* without 0"),
        ({"id2label": {"1": "a", "2": "b"}}, r"without 0"),
        ({"id2label": "pos"}, r"id2label .* is 'pos'; give a map"),
        ({"id2label": {"-1": "a", "0": "b"}}, r"has a label -1"),
        ({"label2id": {"neg": 0, "pos": 0}}, "gives two labels one number"),
        ({"id2label": {"0": "pos", "1": "POS"}}, "two have one name"),
        ({"id2label": {"a": "pos", "b": "neg"}}, "are not numbered"),
    ],
)
def test_a_configuration_that_contradicts_itself_is_refused(stored: dict[str, Any], message: str) -> None:
    with pytest.raises(FmmError, match=message):
        build.stored_labels(stored, 2, "m")


def simulated(n: int, classes: int, accuracy: float, shift: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    gold = rng.integers(0, classes, n)
    right = rng.random(n) < accuracy
    other = (gold + rng.integers(1, max(classes, 2), n)) % classes
    return gold, (np.where(right, gold, other) + shift) % classes


@pytest.mark.parametrize("classes", [2, 3, 5, 20])
def test_another_order_is_suspected_and_named(classes: int) -> None:
    gold, predicted = simulated(200, classes, 0.9, 1, 0)
    suspicion = suspected_order(gold, predicted, classes)
    assert suspicion is not None and suspicion.permuted > 0.8 and suspicion.accuracy < 0.2
    assert suspicion.order == [(place - 1) % classes for place in range(classes)]
    assert "another order" in suspicion.sentence([f"label {place}" for place in range(classes)])


@pytest.mark.parametrize("classes", [2, 3, 6, 20, 77])
def test_a_model_that_guesses_raises_no_suspicion(classes: int) -> None:
    """The null: predictions that know nothing, of balanced and of rare classes, constant ones too."""
    rng = np.random.default_rng(1)
    for _ in range(300):
        n = int(rng.integers(5, 300))
        level = rng.integers(0, classes, (2, n))
        assert suspected_order(level[0], level[1], classes) is None
        gold = rng.choice(classes, n, p=rng.dirichlet(np.ones(classes)))
        guesses = rng.choice(classes, n, p=rng.dirichlet(np.ones(classes)))
        assert suspected_order(gold, guesses, classes) is None
        assert suspected_order(gold, np.full(n, int(rng.integers(classes))), classes) is None


def test_a_good_model_raises_no_suspicion() -> None:
    gold, predicted = simulated(200, 3, 0.9, 0, 0)
    assert suspected_order(gold, predicted, 3) is None
    assert suspected_order(np.full(5, -1), np.zeros(5, int), 3) is None


@pytest.mark.parametrize("name", ["null", "nan", "true", "no", "None", "1e3", "007", "Ja, sehr", "a=b", "a: b", "👍"])
def test_any_name_can_be_asked_for(name: str) -> None:
    assert target_label(name, ["other", name]) == name


def test_yamls_words_are_names() -> None:
    assert target_label(None, ["null", "x"]) == "null" and target_label(True, ["no", "true"]) == "true"


# Through the real path: a model whose answer is known, with its labels in any order.


MARKS = ["", *(f" {n}" for n in range(1, 40))]  # make other texts of one


def decided_model(folder: Path, names: list[str], marks: Sequence[str] = ("",), **config: Any) -> Path:
    """A classifier that says class 0 of `great`, 1 of `dull`, 2 of anything else, by construction; outputs in the
    order of `names`, given as [name of great, name of dull, name of the rest] in any order."""
    tokenizer = tiny.train_tokenizer(TEXTS, vocab_size=400, max_length=32)
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    meant = ["good", "bad", "none"]
    order = [meant.index(name) for name in names]
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), num_labels=3, **shape)).eval()
    ids = [tokenizer(text + mark, return_tensors="pt")["input_ids"] for mark in marks for text in TEXTS[:3]]
    with torch.no_grad():
        pooled = torch.cat([model.bert(one).pooler_output for one in ids])
        wanted = torch.eye(3).repeat(len(marks), 1) * 10
        head = (torch.linalg.pinv(pooled) @ wanted).T  # [3, D]: logit i is large for text i
        model.classifier.weight.copy_(head[order])
        model.classifier.bias.zero_()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    stored = json.loads((folder / "config.json").read_text())
    stored.pop("id2label", None)
    stored.pop("label2id", None)
    (folder / "config.json").write_text(json.dumps(stored | config))
    return folder


GENERIC = {str(number): f"LABEL_{number}" for number in range(3)}
ORDERS = [["good", "bad", "none"], ["none", "good", "bad"], ["bad", "none", "good"]]


def labelled_file(path: Path, names: dict[str, str], repeats: int = 40) -> Path:
    rows = [(text, names[label]) for text, label in zip(TEXTS * 4, ["good", "bad", "none"] * repeats)]
    path.write_text("text,label\n" + "".join(f"{text} {n},{label}\n" for n, (text, label) in enumerate(rows)))
    return path


def accuracy(record: Any) -> float:
    table = pq.read_table(record.directory / "examples.parquet").to_pylist()
    return sum(row["gold"] == row["predicted"] for row in table) / len(table)


@pytest.fixture
def settings(compose: Any, tmp_path: Path) -> Any:
    def _settings(task: str, *overrides: str) -> Any:
        return compose(f"task={task}", f"output_dir={tmp_path}/out", "measures=[grad_l2]", *overrides)

    return _settings


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
@pytest.mark.parametrize("form", ["id2label", "label2id"])
def test_the_order_of_labels_is_read_from_either_map(
    tmp_path: Path, settings: Any, order: list[str], form: str
) -> None:
    """TextAttack#684, transformers#12822: labels in another order gave an accuracy of 0.048 for 0.952."""
    maps = {"id2label": {str(i): name for i, name in enumerate(order)}, "label2id": {n: i for i, n in enumerate(order)}}
    folder = decided_model(tmp_path / "model", order, **{form: maps[form]})
    assert load_classifier(str(folder))[0].label_names == order
    path = labelled_file(tmp_path / "a.csv", {name: name for name in order})
    cut = path.read_text().splitlines()[:4]
    path.write_text("\n".join([cut[0], *(line.rsplit(" ", 1)[0] + "," + line.rsplit(",", 1)[1] for line in cut[1:])]))
    record = explain.run(settings("explain", f"checkpoint={folder}", f"explanation.file={path}"))
    assert accuracy(record) == 1.0


def test_a_target_is_one_class_for_a_text_and_a_split(tmp_path: Path, settings: Any) -> None:
    order = ["none", "good", "bad"]
    folder = decided_model(tmp_path / "model", order, id2label={str(i): name for i, name in enumerate(order)})
    path = labelled_file(tmp_path / "a.csv", {name: name for name in order})
    local = ["dataset=local", f"data.path={path}"]
    text = explain.run(settings("explain", f"checkpoint={folder}", "text=a great film", "target=1"))
    split = explain.run(settings("explain", f"checkpoint={folder}", *local, "explanation.split=test", "target=1"))
    curve = racu.run(settings("racu", f"checkpoint={folder}", *local, "target=1", "masf=none", "ratios=[0,1]"))
    assert pq.read_table(text.directory / "examples.parquet")["target"].to_pylist() == ["good"]
    assert set(pq.read_table(split.directory / "examples.parquet")["target"].to_pylist()) == {"good"}
    assert curve.settings["target"] == "good"


def test_numbers_are_classes_where_all_of_them_occur_in_every_task(tmp_path: Path, settings: Any, capsys: Any) -> None:
    """One rule: a file with 0, 1, 2 and a model with names are read alike by racu and explain, which say so."""
    folder = decided_model(tmp_path / "model", ORDERS[0], id2label={str(i): name for i, name in enumerate(ORDERS[0])})
    path = labelled_file(tmp_path / "a.csv", {"good": "0", "bad": "1", "none": "2"})
    given = ["dataset=local", f"data.path={path}", f"checkpoint={folder}", "masf=none", "ratios=[0,1]"]
    record = racu.run(settings("racu", *given, "target=bad"))
    assert "read as those of the model's classes: 0 good, 1 bad, 2 none" in capsys.readouterr().out
    assert record.results["curve"][0]["accuracy"] > 0.9 and record.settings["target"] == "bad"
    assert record.results["labels"]["by_number"] and record.results["labels"]["data"]["1"] == "bad"
    record = explain.run(settings("explain", f"explanation.file={path}", f"checkpoint={folder}"))
    assert record.results["accuracy"] > 0.9
    assert any("0 good, 1 bad, 2 none" in note for note in record.results["notes"])
    test = labelled_file(tmp_path / "b.csv", {"good": "0", "bad": "1", "none": "2"}, repeats=20)
    parts = [f"data.train={path}", f"data.test={test}"]
    split = explain.run(settings("explain", given[0], *parts, given[2], "explanation.split=test"))
    assert split.results["accuracy"] > 0.9 and split.results["labels"]["by_number"]


@pytest.mark.parametrize("numbers", [{"good": "1", "bad": "2", "none": "3"}, {"good": "0", "bad": "1"}])
def test_numbers_that_may_count_otherwise_are_asked_for_in_every_task(
    tmp_path: Path, settings: Any, numbers: dict[str, str]
) -> None:
    folder = decided_model(
        tmp_path / "model", ORDERS[0], MARKS, id2label={str(i): name for i, name in enumerate(ORDERS[0])}
    )
    path = subset_file(tmp_path / "a.csv", numbers)
    proposal = ", ".join(f"{number}: {name}" for name, number in numbers.items())
    local = ["dataset=local", f"data.path={path}", "masf=none", "ratios=[0,1]"]
    for task, given in ((racu, ["racu", *local]), (explain, ["explain", f"explanation.file={path}"])):
        with pytest.raises(FmmError, match=f"label_map={{{proposal}}}"):
            task.run(settings(*given, f"checkpoint={folder}"))
        record = task.run(settings(*given, f"checkpoint={folder}", f"label_map={{{proposal}}}"))
        assert record.results["labels"]["label_map"]
        numbered = f"label_map={{{', '.join(f'{n}: {ORDERS[0].index(name)}' for name, n in numbers.items())}}}"
        again = task.run(settings(*given, f"checkpoint={folder}", numbered))  # the user says so
        assert again.results.get("accuracy", 1) > 0.9


def subset_file(path: Path, names: dict[str, str], numbers: Sequence[int] = range(40)) -> Path:
    """Rows of those labels alone, under the names that are given; each text is another, by its mark."""
    said = {"good": TEXTS[0], "bad": TEXTS[1], "none": TEXTS[2]}
    rows = [f"{said[label]}{MARKS[n]},{name}" for n in numbers for label, name in names.items()]
    path.write_text("text,label\n" + "\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("label_map", [None, {"gut": "good", "egal": "none", "schlecht": "bad"}])
@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_data_may_hold_a_part_of_the_models_classes(
    tmp_path: Path, settings: Any, capsys: Any, order: list[str], label_map: dict[str, str] | None
) -> None:
    """Metrics are over the labels of the data, the classes without rows are named, any class can be explained."""
    folder = decided_model(tmp_path / "model", order, MARKS, id2label={str(i): name for i, name in enumerate(order)})
    names = {"good": "good", "none": "none"} if label_map is None else {"good": "gut", "none": "egal"}
    path = subset_file(tmp_path / "a.csv", names)
    given = ["dataset=local", f"data.path={path}", f"checkpoint={folder}", "masf=none", "ratios=[0,0.5,1]"]
    given += [] if label_map is None else ["label_map={gut: good, egal: none, schlecht: bad}"]
    record = racu.run(settings("racu", *given))
    out = capsys.readouterr().out
    assert "hold 2 of the 3 labels" in out and "without rows: bad" in out
    assert ("1 label not used" in out) is (label_map is not None)
    assert record.results["curve"][0]["accuracy"] == record.results["curve"][0]["macro_f1"] == 1.0
    assert record.results["labels"]["absent"] == ["bad"]
    curve = read_curve(record.directory)
    assert curve.logits.shape[2] == 3 and curve.classes == 2
    again = metrics.compute(["macro_f1"], torch.from_numpy(curve.logits[:, 1, :2]), torch.from_numpy(curve.label))
    if (curve.predictions[:, 1] < 2).all():
        assert record.results["curve"][1]["macro_f1"] == pytest.approx(again["macro_f1"])
    other = racu.run(settings("racu", *given, f"target={order.index('bad')}"))  # a class that the data lack
    assert other.settings["target"] == "bad"
    parts = [f"data.train={path}", f"data.test={subset_file(tmp_path / 'b.csv', names, range(20))}"]
    split = explain.run(settings("explain", given[0], *parts, *given[2:], "explanation.split=test"))
    assert split.results["accuracy"] == 1.0 and split.results["labels"]["absent"] == ["bad"]


def test_a_macro_average_is_over_the_labels_of_the_data() -> None:
    """Two labels of a model of three: predictions of the third are wrong ones, and it is no class of the average."""
    gold, predicted = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 0, 2, 1, 1, 0])
    counts = statistics.confusion(gold, predicted, 3)
    expected = f1_score(gold, predicted, labels=[0, 1], average="macro")
    assert statistics.metric_from_confusion("macro_f1", counts, 2) == pytest.approx(expected)
    assert statistics.metric_from_confusion("macro_f1", counts) == pytest.approx(expected * 2 / 3)
    expected = matthews_corrcoef(gold, predicted)
    assert statistics.metric_from_confusion("matthews", counts, 2) == pytest.approx(expected)
    assert statistics.metric_from_confusion("accuracy", counts, 2) == pytest.approx(4 / 6)


@pytest.mark.parametrize(
    ("label_map", "message"),
    [
        ("{gut: good, schlecht: bda, egal: none}", "'schlecht' a class that the model does not have.*did you mean bad"),
        ("{gut: good, schlect: bad, egal: none}", "label_map: unknown label 'schlect'; did you mean schlecht"),
        ("{good: gut, bad: schlecht, none: egal}", r"class that the model does not have"),
        ("{x: good}", "label_map: unknown label 'x'"),
    ],
)
def test_a_wrong_label_map_of_a_file_is_a_sentence(tmp_path: Path, settings: Any, label_map: str, message: str) -> None:
    folder = decided_model(tmp_path / "model", ORDERS[0], id2label={str(i): name for i, name in enumerate(ORDERS[0])})
    path = labelled_file(tmp_path / "b.csv", {"good": "gut", "bad": "schlecht", "none": "egal"})
    with pytest.raises(FmmError, match=message):
        explain.run(settings("explain", f"explanation.file={path}", f"checkpoint={folder}", f"label_map={label_map}"))


def test_a_label_map_that_is_turned_round_is_recognised(tmp_path: Path, settings: Any) -> None:
    folder = decided_model(tmp_path / "model", ORDERS[0], id2label={str(i): name for i, name in enumerate(ORDERS[0])})
    path = labelled_file(tmp_path / "b.csv", {"good": "gut", "bad": "schlecht", "none": "egal"})
    given = ["dataset=local", f"data.path={path}", f"checkpoint={folder}"]
    with pytest.raises(FmmError, match=r"the other way round\? label_map=\{gut: good, schlecht: bad, egal: none\}"):
        racu.run(settings("racu", *given, "label_map={good: gut, bad: schlecht, none: egal}"))


def test_a_label_map_beside_a_text(tmp_path: Path, settings: Any, capsys: Any) -> None:
    folder = decided_model(tmp_path / "model", ORDERS[0], id2label={str(i): name for i, name in enumerate(ORDERS[0])})
    given = [f"checkpoint={folder}", "text=a great film"]
    with pytest.raises(FmmError, match=r"class that the model does not have.*did you mean bad"):
        explain.run(settings("explain", *given, "label_map={gut: bdd}"))
    record = explain.run(settings("explain", *given, "label_map={schlecht: bad}", "target=schlecht"))
    assert record.settings["target"] == "bad" and "not used" not in capsys.readouterr().out
    explain.run(settings("explain", *given, "label_map={schlecht: bad}", "target=none"))
    assert "label_map: 1 label not used, as text= has none" in capsys.readouterr().out
    with pytest.raises(FmmError, match=r"target=1 is the model's class 'bad', and by label_map .* 'good'"):
        explain.run(settings("explain", *given, "label_map={1: good, 0: bad}", "target=1"))


def test_what_was_read_and_done_to_labels_is_in_every_record(tmp_path: Path, settings: Any) -> None:
    folder = decided_model(tmp_path / "model", ORDERS[0], id2label={str(i): name for i, name in enumerate(ORDERS[0])})
    weights = load_file(folder / "model.safetensors")
    save_file({f"module.{key}": w.half() for key, w in weights.items()}, folder / "model.safetensors", {"format": "pt"})
    path = labelled_file(tmp_path / "a.csv", {"good": "gut", "bad": "schlecht", "none": "egal\u200d"})
    path.write_text(path.read_text().replace("egal\u200d", "egal", 5))
    given = [f"checkpoint={folder}", "label_map={gut: good, schlecht: bad, egal: none}"]
    local = ["dataset=local", f"data.path={path}", "ratios=[0,1]", *given]
    runs = [
        explain.run(settings("explain", f"explanation.file={path}", *given)),
        explain.run(settings("explain", *local)),
        racu.run(settings("racu", *local)),
        masf.run(settings("masf", *local)),
    ]
    for record in runs:
        loading, labels = record.results["loading"], record.results["labels"]
        assert loading["stored_dtypes"] == ["float16"] and loading["trained_dtype"] == "float32"
        assert loading["removed_prefix"] == "module."
        assert labels["label_map"]["egal"] == "none"
        assert labels.get("respelt") == 35 or labels["labels_respelt"] == {"path": 35}


def test_label_map_joins_a_file_and_a_checkpoint(tmp_path: Path, settings: Any) -> None:
    folder = decided_model(tmp_path / "model", ORDERS[0], id2label={str(i): name for i, name in enumerate(ORDERS[0])})
    german = labelled_file(tmp_path / "b.csv", {"good": "gut", "bad": "schlecht", "none": "egal"})
    named = [f"explanation.file={german}", f"checkpoint={folder}"]
    with pytest.raises(FmmError, match="label_map="):
        explain.run(settings("explain", *named))
    record = explain.run(settings("explain", *named, "label_map={gut: good, schlecht: bad, egal: none}"))
    assert record.results["accuracy"] > 0.9


def test_labels_without_names_in_another_order_are_pointed_out(tmp_path: Path, settings: Any, capsys: Any) -> None:
    folder = decided_model(tmp_path / "model", ["none", "good", "bad"], id2label=GENERIC)
    path = labelled_file(tmp_path / "a.csv", {"good": "0", "bad": "1", "none": "2"}, repeats=120)
    given = ["dataset=local", f"data.path={path}", f"checkpoint={folder}", "masf=none", "ratios=[0,1]"]
    racu.run(settings("racu", *given))
    assert "if the model's labels stood in another order ('0' for '2'" in capsys.readouterr().out
    record = explain.run(settings("explain", f"explanation.file={path}", f"checkpoint={folder}"))
    assert any("another order" in note for note in record.results["notes"])


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_training_starts_with_the_head_in_the_datas_order(tmp_path: Path, order: list[str]) -> None:
    folder = decided_model(tmp_path / "model", order, id2label={str(i): name for i, name in enumerate(order)})
    model, loading = build.load_model(str(folder), ["good", "bad", "none"])
    tokenizer = build.load_tokenizer(str(folder))
    inputs = tokenizer(TEXTS[:3], return_tensors="pt", padding=True)
    assert model.eval()(**inputs).logits.argmax(1).tolist() == [0, 1, 2]
    assert loading.head and any(loading.head in line for line in loading.said("it"))


def test_a_head_of_other_classes_is_not_used_and_it_is_said(tmp_path: Path) -> None:
    order = ORDERS[0]
    folder = decided_model(tmp_path / "model", order, id2label={str(i): name for i, name in enumerate(order)})
    model, loading = build.load_model(str(folder), ["contradiction", "entailment", "neutral"])
    assert "its head is not used, a new one is trained" in str(loading.head) and "label_map=" in str(loading.head)
    stored = load_file(folder / "model.safetensors")
    assert not torch.equal(model.classifier.weight, stored["classifier.weight"])
    assert torch.equal(model.bert.embeddings.word_embeddings.weight, stored["bert.embeddings.word_embeddings.weight"])


def test_a_head_without_names_is_kept_and_the_order_said(tmp_path: Path) -> None:
    folder = decided_model(tmp_path / "model", ORDERS[0], id2label=GENERIC)
    model, loading = build.load_model(str(folder), ["good", "bad", "none"])
    assert "taken to be good, bad, none, in this order" in str(loading.head)
    assert torch.equal(model.classifier.weight, load_file(folder / "model.safetensors")["classifier.weight"])


def test_a_label_map_in_python(tmp_path: Path) -> None:
    order = ["none", "good", "bad"]
    folder = decided_model(tmp_path / "model", order, id2label={str(i): name for i, name in enumerate(order)})
    given = {"gut": "good", "schlecht": "bad", 7: "none"}
    classifier, tokenizer = load_classifier(str(folder), label_map=given)
    assert classifier.labels(["gut", "bad", None, 7]).tolist() == [1, 2, -1, 0]
    batch = encode(tokenizer, TEXTS[:2], None, classifier.max_length).batch(tokenizer)
    for target in ("gut", "good", "GOOD", 1):
        assert attribute(classifier, batch, "grad_l2", target=target).target.tolist() == [1, 1]
    gold = attribute(classifier, {**batch, "labels": classifier.labels(["gut", "schlecht"])}, "grad_l2")
    assert gold.target.tolist() == [1, 2] == gold.logits.argmax(1).tolist()
    with pytest.raises(FmmError, match=r"unknown label 'egal'.*label_map="):
        classifier.labels(["egal"])
    with pytest.raises(FmmError, match="unknown target 'egal'"):
        attribute(classifier, batch, "grad_l2", target="egal")
    with pytest.raises(FmmError, match=r"'gut' a class that the model does not have.*did you mean good"):
        load_classifier(str(folder), label_map={"gut": "goood"})


def test_labels_in_python_follow_the_rule_for_numbers(tmp_path: Path) -> None:
    folder = decided_model(tmp_path / "model", ORDERS[0], id2label={str(i): name for i, name in enumerate(ORDERS[0])})
    classifier, _ = load_classifier(str(folder))
    assert classifier.labels([0, 2, 1]).tolist() == [0, 2, 1]
    with pytest.raises(FmmError, match="not all numbers from 0 to 2 occur"):
        classifier.labels([1, 2])
