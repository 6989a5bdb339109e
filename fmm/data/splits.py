"""Which rows are training, validation and test. Pure functions on keys and labels.

The authors' 80/20 cut follows the storage order of TensorFlow Datasets, a fixed pseudo-random order that
is rebuilt here from the rows' keys alone. Source: ecoroar/dataset at AndreasMadsen/faithfulness-measurable-models
8a941dcd and tensorflow-datasets 4.9.2.
"""

from __future__ import annotations

import hashlib
import logging
import unicodedata
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from fmm.draws import Draw
from fmm.errors import unknown

log = logging.getLogger(__name__)

RULES = ("authors", "random")


def split_rule(split: str, seed: int) -> str:
    """What the record calls the rule of `split=`: `authors`, or `random, seed N`. Raises FmmError for another."""
    if split not in RULES:
        raise unknown("split", split, RULES)
    return split if split == "authors" else f"random, seed {seed}"


def storage_order(keys: Sequence[object], salt: str = "train") -> np.ndarray:
    """Order in which TensorFlow Datasets stores rows with these keys: by md5 of salt + key. Returns int64 [N].

    >>> storage_order([0, 1, 2, 3], "train").tolist()
    [0, 3, 1, 2]
    """
    start = hashlib.md5(salt.encode(), usedforsecurity=False)
    digests = []
    for key in keys:
        digest = start.copy()
        digest.update(str(key).encode())
        digests.append(digest.digest())
    return np.array(sorted(range(len(digests)), key=digests.__getitem__), dtype=np.int64)


def authors_cut(keys: Sequence[object], salt: str = "train") -> tuple[np.ndarray, np.ndarray]:
    """Rows of the authors' train and validation sets, each in file order: first 80% in storage order, and the rest."""
    order = storage_order(keys, salt)
    cut = round(0.8 * len(order))
    return np.sort(order[:cut]), np.sort(order[cut:])


def stratified_parts(labels: np.ndarray, shares: Sequence[float], seed: int) -> list[np.ndarray]:
    """Cut rows at random into parts of the given shares (summing to 1), each with the classes' proportions.

    Returns row numbers, sorted. A class of at least as many rows as parts is in every part.
    """
    rng = Draw.SPLIT.generator(seed)
    parts: list[list[np.ndarray]] = [[] for _ in shares]
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        for part, chosen in zip(parts, np.split(rows, _edges(len(rows), shares))):
            part.append(chosen)
    return [np.sort(np.concatenate(part)) for part in parts]


def text_groups(texts: Sequence[str], pairs: Sequence[str] | None = None) -> np.ndarray:
    """Number of each row's text (or pair of texts): equal where the texts are, but for case, blanks and width.

    Returns int64 [N], numbered by first appearance.

    >>> text_groups(["A film", "a  film ", "no film"]).tolist()
    [0, 0, 1]
    """
    keys: Sequence[object] = [_plain(text) for text in texts]
    if pairs is not None:
        keys = list(zip(keys, map(_plain, pairs)))
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def _plain(text: str) -> str:
    """The text by which rows are compared; Unicode's compatible forms (NFKC) are one."""
    whole = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return " ".join(whole.casefold().split())


def shared_texts(splits: Mapping[str, tuple[Sequence[str], Sequence[str] | None]]) -> dict[str, int]:
    """Rows of a later split whose text (or pair) an earlier one has too, such as {"train, test": 3}; warned of.

    `splits` maps names, in their order, to texts and pairs.
    """
    texts = [text for first, _ in splits.values() for text in first]
    pairs = [pair for _, second in splits.values() for pair in second or []]
    groups = text_groups(texts, pairs or None)
    edges = np.cumsum([len(first) for first, _ in splits.values()])[:-1]
    numbers = dict(zip(splits, np.split(groups, edges)))
    counts: dict[str, int] = {}
    for one, other in combinations(splits, 2):
        count = int(np.isin(numbers[other], numbers[one]).sum())
        if count:
            counts[f"{one}, {other}"] = count
            log.warning(
                "%d of %d rows of %s have a text that %s has too; scores on them say what was learnt by heart",
                count,
                len(numbers[other]),
                other,
                one,
            )
    return counts


def grouped_parts(labels: np.ndarray, groups: np.ndarray, shares: Sequence[float], seed: int) -> list[np.ndarray]:
    """As `stratified_parts`, with all rows of a group in one part; groups of one row each give the very same parts.

    Shares are those of groups. A group of several labels counts for the rarest of them, so that no class is lost.
    """
    classes, counts = np.unique(labels, return_counts=True)
    rarity = counts[np.searchsorted(classes, labels)]
    order = np.lexsort((labels, rarity, groups))  # within a group, the rarest label first
    first = order[np.unique(groups[order], return_index=True)[1]]
    parts = stratified_parts(labels[first], shares, seed)
    return [np.flatnonzero(np.isin(groups, groups[first[part]])) for part in parts]


def _edges(n: int, shares: Sequence[float]) -> list[int]:
    sizes = np.array([round(n * share) for share in shares])
    if n >= len(sizes):
        sizes = np.maximum(sizes, 1)
    sizes[0] = n - sizes[1:].sum()
    while sizes.min() < 0:
        sizes[sizes.argmin()] += 1
        sizes[sizes.argmax()] -= 1
    return np.cumsum(sizes)[:-1].tolist()


def stratified_subset(labels: np.ndarray, limit: int | None, seed: int) -> np.ndarray:
    """At most `limit` rows chosen at random with the classes' proportions (largest remainders). Sorted row numbers.

    >>> labels = np.array([0] * 90 + [1] * 10)
    >>> np.bincount(labels[stratified_subset(labels, 20, seed=0)]).tolist()
    [18, 2]
    """
    if limit is None or limit >= len(labels):
        return np.arange(len(labels))
    rng = Draw.ROW_LIMIT.generator(seed)
    classes, counts = np.unique(labels, return_counts=True)
    exact = counts * (limit / len(labels))
    sizes = np.floor(exact).astype(int)
    sizes[np.argsort(-(exact - sizes), kind="stable")[: limit - sizes.sum()]] += 1
    chosen = [rng.permutation(np.flatnonzero(labels == c))[:size] for c, size in zip(classes, sizes)]
    return np.sort(np.concatenate(chosen))
