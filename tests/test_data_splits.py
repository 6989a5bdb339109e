"""The authors' split from row keys alone, and the seeded, stratified choices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fmm.data.splits import authors_cut, split_rule, storage_order, stratified_parts, stratified_subset
from fmm.errors import FmmError
from tests.data_helpers import dataset_config

GOLDEN = Path(__file__).parent / "goldens" / "authors_split.npz"  # labels and, for MRPC, the keys of the public files

# Class counts stored in the authors' dataset classes: train, validation, test.
COUNTS = {
    "cola": ([2014, 4827], [514, 1196], [322, 721]),
    "sst2": ([23825, 30054], [5955, 7515], [428, 444]),
    "mrpc": ([961, 1973], [233, 501], [129, 279]),
    "rte": ([995, 997], [254, 244], [146, 131]),
    "cb": ([88, 100, 12], [27, 19, 4], [23, 28, 5]),
    "babi1": (
        [1315, 1328, 1317, 1316, 1317, 1407],
        [348, 329, 327, 343, 327, 326],
        [187, 154, 157, 182, 171, 149],
    ),
    "babi2": (
        [1417, 1387, 1235, 1298, 1390, 1273],
        [353, 342, 315, 316, 365, 309],
        [187, 160, 165, 146, 167, 175],
    ),
}


def labels_of(golden: np.lib.npyio.NpzFile, name: str) -> np.ndarray:
    labels = golden[name]
    return np.unpackbits(labels)[: int(golden[f"{name}_n"])] if f"{name}_n" in golden else labels


@pytest.mark.parametrize("name", COUNTS)
def test_authors_split_has_the_authors_class_counts(name: str) -> None:
    with np.load(GOLDEN) as golden:
        train = labels_of(golden, f"{name}_train")
        test = labels_of(golden, f"{name}_test" if name.startswith("babi") else f"{name}_validation")
        keys = golden[f"{name}_keys"].tolist() if f"{name}_keys" in golden else []
    keys = keys or [f"0-{i}" if name.startswith("babi") else i for i in range(len(train))]
    kept, held_out = authors_cut(keys)
    found = tuple(np.bincount(labels).tolist() for labels in (train[kept], train[held_out], test))
    assert found == COUNTS[name]
    assert sorted([*kept, *held_out]) == list(range(len(train)))


@pytest.mark.parametrize("name", COUNTS)
def test_configuration_states_the_authors_counts(name: str) -> None:
    counts = dataset_config(name)["counts"]
    assert tuple(counts[split] for split in ("train", "validation", "test")) == COUNTS[name]


def test_storage_order_depends_on_salt_and_text_of_the_key() -> None:
    assert storage_order(range(50), "train").tolist() != storage_order(range(50), "validation").tolist()
    assert storage_order(range(50)).tolist() == storage_order([str(i) for i in range(50)]).tolist()


def test_unknown_split_rule() -> None:
    with pytest.raises(FmmError, match="did you mean authors"):
        split_rule("author", 0)


def test_stratified_parts_keep_proportions_and_every_row() -> None:
    labels = np.array([0] * 900 + [1] * 100)
    parts = stratified_parts(labels, (0.8, 0.1, 0.1), seed=3)
    assert sorted(np.concatenate(parts)) == list(range(1000))
    assert [np.bincount(labels[part]).tolist() for part in parts] == [[720, 80], [90, 10], [90, 10]]
    assert not np.array_equal(parts[1], stratified_parts(labels, (0.8, 0.1, 0.1), seed=4)[1])


def test_stratified_parts_reach_every_split_with_three_rows_a_class() -> None:
    parts = stratified_parts(np.array([0, 0, 0, 1, 1, 1]), (0.8, 0.1, 0.1), seed=0)
    assert [len(part) for part in parts] == [2, 2, 2]


@pytest.mark.parametrize("limit", [1, 7, 50, 99])
def test_subset_is_seeded_and_of_the_asked_size(limit: int) -> None:
    labels = np.array([0] * 70 + [1] * 20 + [2] * 10)
    chosen = stratified_subset(labels, limit, seed=1)
    assert len(chosen) == len(set(chosen.tolist())) == limit
    assert np.array_equal(chosen, stratified_subset(labels, limit, seed=1))
    assert np.abs(np.bincount(labels[chosen], minlength=3) - np.array([0.7, 0.2, 0.1]) * limit).max() <= 1


def test_subset_without_limit_is_everything() -> None:
    assert stratified_subset(np.zeros(5, dtype=int), None, 0).tolist() == list(range(5))
    assert stratified_subset(np.zeros(5, dtype=int), 9, 0).tolist() == list(range(5))
