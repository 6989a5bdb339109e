"""The LightningDataModule of every dataset: raw rows from a reader, tokens from the cache, batches to the trainer."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from fmm.data.cache import VERSION, EncodedSplit, encode_split, locked, read_split, write_split
from fmm.data.encoding import tokenizer_hash
from fmm.data.labels import rename_labels
from fmm.data.loader import EvaluationBatches, TrainingBatches, make_loader
from fmm.data.matching import LabelMap, read_map
from fmm.data.raw import SPLITS, DatasetInfo, RawData, RawSplit
from fmm.data.splits import shared_texts, split_rule, stratified_subset
from fmm.errors import FmmError, first_line, unknown

log = logging.getLogger(__name__)
_hits: set[Path] = set()  # cached splits that this process has told of

STAGES = {"fit": ("train", "validation"), "validate": ("validation",), "test": ("test",)}
FILES = ("path", "train", "validation", "test", "id_list", "noteevents", "diagnoses")  # keys of `data`, but the mirror
LIMITS = {"train": "max_train_rows", "validation": "max_eval_rows", "test": "max_test_rows"}


class TextClassificationDataModule(pl.LightningDataModule):
    """One dataset. `read()` gives raw rows, `attach_tokenizer()` + `prepare_data()` + `setup()` gives tokens.

    `dataset` is the dataset's YAML, `data` the options of the run (mirror, row limits, files), `seed` orders the
    training batches; which rows a split holds depends on `data.split_seed` only, so that seeds stay comparable.
    `batches_done` is (epoch, batches): where a run that goes on within an epoch takes it up.
    """

    def __init__(
        self,
        dataset: Mapping[str, Any],
        data: Mapping[str, Any],
        *,
        seed: int,
        split: str,
        batch_size: int,
        cache_dir: Path,
    ) -> None:
        super().__init__()
        split_rule(split, 0)  # refuses an unknown one before anything is read
        self.dataset, self.data, self.seed, self.split = dict(dataset), dict(data), seed, split
        self.batch_size, self.cache_dir = batch_size, Path(cache_dir)
        self._raw: RawData | None = None
        self.label_map = LabelMap({}, [])
        """What of the `label_map` is used; known once the data are read."""
        self._encoded: dict[str, EncodedSplit] = {}
        self._tokenizer: Any = None
        self._max_length = 0
        self.batches_done = (0, 0)

    def read(self) -> TextClassificationDataModule:
        """Read raw rows and make the splits, once. Raises FmmError for missing or broken data."""
        if self._raw is None:
            reader = _reader(self.dataset)
            _check_files(self.dataset, self.data, reader)
            raw = reader(self.dataset, self.data, split=self.split, cache_dir=self.cache_dir)
            self.label_map = read_map(self.data.get("label_map"), raw.info.label_names, self.dataset["name"])
            for line in self.label_map.said(f"dataset={self.dataset['name']}"):
                print(line, flush=True)
            names = rename_labels(raw.info.label_names, self.label_map.names)
            origin = raw.origin | self._renaming(dict(zip(raw.info.label_names, names)))
            self._raw = RawData(replace(raw.info, label_names=names), self._limited(raw.splits), origin)
        return self

    @property
    def _renames(self) -> bool:
        return bool(self.data.get("label_map"))

    def _renaming(self, names: dict[str, str]) -> dict[str, Any]:
        """What a record says of a `label_map`."""
        if not self._renames:
            return {}
        unused = {"label_map_unused": self.label_map.unused} if self.label_map.unused else {}
        return {"label_map": names, **unused}

    def name_labels(self, names: list[str]) -> None:
        """Call the labels otherwise, such as by the names of a model's classes; the rows stay what they are."""
        raw = self._read()
        self._raw = replace(raw, info=replace(raw.info, label_names=list(names)))

    def _limited(self, splits: dict[str, RawSplit]) -> dict[str, RawSplit]:
        limited = {}
        for name, rows in splits.items():
            limit = self.data.get(LIMITS[name])
            if limit is not None and int(limit) < 1:
                raise FmmError(f"data.{LIMITS[name]}={limit} leaves no row; give at least 1 or null")
            index = stratified_subset(rows.labels, None if limit is None else int(limit), self.split_seed)
            limited[name] = rows if len(index) == len(rows) else rows.take(index)
        return limited

    @property
    def split_seed(self) -> int:
        """Seed of random splits and row limits."""
        return int(self.data.get("split_seed") or 0)

    @property
    def info(self) -> DatasetInfo:
        """Facts of the dataset: labels, texts, metrics."""
        return self._read().info

    @property
    def origin(self) -> dict[str, Any]:
        """Where the rows come from and what was done to their labels, as plain JSON."""
        return self._read().origin

    def raw(self, split: str) -> RawSplit:
        """Raw rows of `train`, `validation` or `test`."""
        if split not in SPLITS:
            raise unknown("split", split, SPLITS)
        return self._read().splits[split]

    def _read(self) -> RawData:
        self.read()
        assert self._raw is not None
        return self._raw

    @property
    def fingerprint(self) -> str:
        """Content identity of the rows before tokenisation: source bytes, columns, split and row limits."""
        return self._identity(LIMITS.values())

    @property
    def training_fingerprint(self) -> str:
        """Content identity of what a model is trained on: as `fingerprint`, but without the limit on test rows."""
        return self._identity(key for name, key in LIMITS.items() if name != "test")

    def _identity(self, keys: Iterable[str]) -> str:
        limits = {key: self.data.get(key) for key in keys}
        raw = self._read()
        renamed = [list(raw.origin["label_map"].values())] if self._renames else []
        seed = self.split_seed if any(limits.values()) else None
        return _digest([raw.origin["identity"], limits, seed, *renamed])

    @property
    def cache_key(self) -> str:
        """Content identity of the tokenised rows."""
        return _digest([self.fingerprint, tokenizer_hash(self.tokenizer), self._max_length, VERSION])

    @property
    def tokenizer(self) -> Any:
        """The attached tokenizer. Raises FmmError before `attach_tokenizer`."""
        if self._tokenizer is None:
            raise FmmError(f"dataset {self.dataset['name']} has no tokenizer yet; call attach_tokenizer first")
        return self._tokenizer

    def attach_tokenizer(self, tokenizer: Any, max_length: int) -> None:
        """Choose the tokenizer and the number of tokens a row may have (`data.max_length` can only lower it)."""
        own = self.data.get("max_length")
        self._tokenizer, self._max_length = tokenizer, min(max_length, int(own)) if own else max_length
        self._encoded = {}

    def prepare_data(self) -> None:
        """Tokenise what the cache lacks. Safe in any number of processes: one builds, the others wait."""
        self.setup()

    def setup(self, stage: str | None = None) -> None:
        """Open the tokenised splits of a stage (fit, validate, test; None: all); what the cache lacks is tokenised."""
        for name in STAGES.get(stage or "", SPLITS):
            self._split(name)

    def _open(self, directory: Path, rows: RawSplit) -> dict[str, Any]:
        try:
            arrays = read_split(directory)
            if arrays is not None:
                log.log(logging.DEBUG if directory in _hits else logging.INFO, "cache hit: %s", directory)
                _hits.add(directory)
                return arrays
        except ValueError as error:
            log.warning("tokenised data in %s is corrupt (%s); building it again", directory, error)
        log.info("tokenising %d rows into %s", len(rows), directory)
        write_split(directory, encode_split(rows, self.tokenizer, self._max_length))
        arrays = read_split(directory)
        assert arrays is not None
        return arrays

    def _split(self, name: str) -> EncodedSplit:
        if name not in self._encoded:
            folder = self.cache_dir / self.dataset["name"] / self.cache_key
            with locked(folder):
                folder.mkdir(exist_ok=True)
                arrays = self._open(folder / name, self._read().splits[name])
            self._encoded[name] = EncodedSplit(arrays, self.tokenizer)
        return self._encoded[name]

    @property
    def train(self) -> EncodedSplit:
        """Tokenised training rows."""
        return self._split("train")

    @property
    def validation(self) -> EncodedSplit:
        """Tokenised validation rows."""
        return self._split("validation")

    @property
    def test(self) -> EncodedSplit:
        """Tokenised test rows."""
        return self._split("test")

    def train_dataloader(self) -> DataLoader:
        """Shuffled batches of similar lengths; the order depends on (seed, epoch), see `TrainingBatches`."""
        sampler = TrainingBatches(self.train.lengths, self.batch_size, self.seed)
        if self.trainer is not None:  # Lightning sets the epoch of a resumed run after it has drawn the first batches
            progress: Any = self.trainer.fit_loop.epoch_progress.current
            sampler.set_epoch(progress.processed)
        sampler.done = self.batches_done
        return self._loader(self.train, sampler)

    def val_dataloader(self) -> DataLoader:
        """Validation batches, longest rows first; `example_id` says which rows they are."""
        return self._loader(self.validation, EvaluationBatches(self.validation.lengths, self.batch_size))

    def test_dataloader(self) -> DataLoader:
        """Test batches, longest rows first; `example_id` says which rows they are."""
        return self._loader(self.test, EvaluationBatches(self.test.lengths, self.batch_size))

    def _loader(self, split: EncodedSplit, sampler: TrainingBatches | EvaluationBatches) -> DataLoader:
        return make_loader(split, sampler, int(self.data.get("num_workers") or 0), torch.cuda.is_available())

    @cached_property
    def _shared_texts(self) -> dict[str, int]:
        """Texts that splits share, where the reader has not counted them: looked for, and warned of, once."""
        splits = self._read().splits
        return shared_texts({name: (splits[name].texts, splits[name].pairs) for name in SPLITS})

    def record(self) -> dict[str, Any]:
        """Where the rows come from and what was done to them, as plain JSON for the run's record."""
        raw = self._read()
        classes = len(raw.info.label_names)
        origin = {key: value for key, value in raw.origin.items() if key != "identity"}
        record = origin | {
            "rows": {name: len(rows) for name, rows in raw.splits.items()},
            "class_counts": {name: rows.class_counts(classes) for name, rows in raw.splits.items()},
            "limits": {key: self.data[key] for key in LIMITS.values() if self.data.get(key) is not None},
            "split_seed": self.split_seed,
            "fingerprint": self.fingerprint,
        }
        if "texts_shared" not in record:
            record["texts_shared"] = self._shared_texts
        if self._tokenizer is not None:
            self.setup()
            record["truncated"] = {name: int(split.truncated.sum()) for name, split in self._encoded.items()}
            record["without_tokens"] = {name: split.without_tokens for name, split in self._encoded.items()}
            record |= {"max_length": self._max_length, "cache_key": self.cache_key}
        return record


def _reader(dataset: Mapping[str, Any]) -> Any:
    name = str(dataset["reader"])
    module, _, function = name.rpartition(".")
    try:
        reader = getattr(import_module(module), function)
        signature(reader).bind({}, {}, split="", cache_dir=Path())
        return reader
    except (ImportError, AttributeError, ValueError, TypeError) as error:  # the last: no function, or not of these
        raise FmmError(
            f"dataset.reader={name} is no function that can be imported and reads data ({first_line(error)}); give one "
            "such as fmm.data.local.read, or leave it to the dataset's own file"
        ) from error


def _check_files(dataset: Mapping[str, Any], data: Mapping[str, Any], reader: Any) -> None:
    """Refuse files that this dataset would not read. A reader's module names in OPTIONS what it reads."""
    read = getattr(import_module(reader.__module__), "OPTIONS", FILES)
    for name in FILES:
        if data.get(name) is not None and name not in read:
            raise FmmError(
                f"data.{name}={data[name]} is not read by dataset={dataset['name']}; leave it out, or give "
                "dataset=local for files of your own"
            )


def _digest(parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
