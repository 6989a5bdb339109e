"""What the data tests share: small tokenizers, a mirror in the hub's layout, and a data module over it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from omegaconf import OmegaConf
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

import fmm.data

CONF = Path(__file__).resolve().parent.parent / "conf" / "dataset"
WORDS = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "good", "bad", "not", "the", "was"]


def word_tokenizer(style: str = "bert") -> PreTrainedTokenizerFast:
    """One token a word, with BERT's or RoBERTa's special tokens; the padding id is not 0."""
    special = ["[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]"]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(special + WORDS)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    process = processors.BertProcessing if style == "bert" else processors.RobertaProcessing
    backend.post_processor = process(("[SEP]", 1), ("[CLS]", 0))
    names = dict(zip(("cls_token", "sep_token", "pad_token", "unk_token", "mask_token"), special))
    inputs = ["input_ids", "token_type_ids", "attention_mask"] if style == "bert" else ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_input_names=inputs, **names)


def dataset_config(name: str) -> dict[str, Any]:
    """A dataset's YAML as a plain dict."""
    config: Any = OmegaConf.to_container(OmegaConf.load(CONF / f"{name}.yaml"))
    return config.get("dataset", config)


def write_parquet(path: Path, columns: dict[str, list], label_names: list[str] | None = None) -> None:
    """A Parquet file as the hub has them, with the label names in its metadata."""
    table = pa.table(columns)
    if label_names is not None:
        feature = {"label": {"names": label_names, "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": feature}})})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def build(dataset: str | dict[str, Any], cache: Path, **options: Any) -> Any:
    """A data module; `options` are `data.` options, besides seed, split and batch_size."""
    own = {"seed": 0, "split": "authors", "batch_size": 4}
    arguments = own | {key: options.pop(key) for key in list(options) if key in own}
    config = dataset_config(dataset) if isinstance(dataset, str) else dataset
    return fmm.data.build_datamodule(config, options, cache_dir=cache, **arguments)


def small_toy(train: int = 200) -> dict[str, Any]:
    """The toy dataset with few rows."""
    return dataset_config("toy") | {"rows": {"train": train, "validation": 40, "test": 40}}
