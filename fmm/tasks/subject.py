"""What an evaluation is about: the trained model and the rows, loaded when they are first needed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from omegaconf import DictConfig

from fmm.data import encode
from fmm.data.labels import suspected_order, target_label
from fmm.data.matching import Matching, match_labels
from fmm.errors import FmmError, unknown
from fmm.inference import Rows, evaluate
from fmm.models import build
from fmm.models.classifier import Classifier, load_classifier
from fmm.tasks.common import TrainedModel, container, datamodule, train_command, trained_model

_ORDER_ROWS = 256  # validation rows on which the order of another's labels is tried


@dataclass
class Subject:
    """The model and data of a configuration. `classifier` and tokenised rows cost seconds and come on demand."""

    cfg: DictConfig
    data: Any
    trained: TrainedModel
    matching: Matching

    @classmethod
    def of(cls, cfg: DictConfig) -> Subject:
        """Find the model. Raises FmmError with the command that trains it where there is none."""
        data = datamodule(cfg)
        data.read()
        trained = trained_model(cfg, data)
        if cfg.checkpoint is not None:
            return cls(cfg, data, trained, matched_labels(data, trained))
        own = data.info.label_names  # of a model that was trained on these very labels
        return cls(cfg, data, trained, match_labels(own, own, str(trained.directory)))

    @property
    def strategy(self) -> str | None:
        """Masking strategy of the model's training; None for a checkpoint that fmm did not train."""
        masking = None if self.trained.record is None else self.trained.record.settings["masking"]
        return None if masking is None else masking["strategy"]

    @property
    def max_ratio(self) -> float:
        """Largest masking ratio of the model's training."""
        return 1.0 if self.trained.record is None else float(self.trained.record.settings["masking"]["max_ratio"])

    @property
    def trained_seed(self) -> int:
        """Seed of the model's training; 0 for a checkpoint that fmm did not train."""
        return 0 if self.trained.record is None else int(self.trained.record.settings["seed"])

    def _say_suspected_order(self, classifier: Classifier, tokenizer: Any) -> None:
        """Point out, of a model that fmm did not train, labels that seem to stand in another order than its names."""
        rows = self.data.raw("validation")
        texts, pairs = rows.rows(0, _ORDER_ROWS)
        batch = encode(tokenizer, texts, pairs, classifier.max_length).batch(tokenizer)
        predicted = evaluate(classifier, Rows.from_batch(batch)).logits.argmax(dim=1)
        suspicion = suspected_order(rows.labels[: len(texts)], predicted.numpy(), classifier.num_labels)
        if suspicion is not None:
            print(f"warning: {suspicion.sentence(classifier.label_names)}", flush=True)

    @cached_property
    def target(self) -> str:
        """What is explained: `gold`, `predicted` or a label of the data. Raises FmmError for another."""
        return target_label(container(self.cfg.target), self.matching.class_names, container(self.cfg.label_map))

    def check_target(self) -> None:
        """Raise FmmError where the configuration explains a label that the data have not."""
        _ = self.target

    def model_settings(self) -> dict[str, Any]:
        """What a record says of the model; `masking` is the strategy's name."""
        return {**self.trained.settings(), "masking": self.strategy}

    def labels_record(self) -> dict[str, Any]:
        """What a record says of the labels: how they were matched, mapped and spelt."""
        names = ("label_map", "label_map_unused", "labels_respelt", "labels_merged")
        return {**self.matching.record(), **{key: self.data.origin[key] for key in names if key in self.data.origin}}

    @cached_property
    def classifier(self) -> Classifier:
        """The model, its labels in the data's order; tokenises the data with its tokenizer."""
        dtype = str(self.cfg.inference.dtype)
        if dtype not in ("float32", "bfloat16"):
            raise unknown("inference.dtype", dtype, ("float32", "bfloat16"))
        device = "cpu" if self.cfg.trainer.accelerator == "cpu" else "auto"
        try:
            classifier, tokenizer = load_classifier(str(self.trained.directory), device, getattr(torch, dtype))
        except FmmError as error:
            if self.cfg.checkpoint is not None:
                raise
            reason = str(error).rpartition(";")[0] or str(error)  # its remedy is for a model of another's making
            raise FmmError(f"{reason}; train it again with: {train_command(self.cfg)} force=true") from error
        with classifier.explaining():  # the first pass tries a shortcut out: no part of any curve's cost
            classifier.logits({"input_ids": torch.tensor([[classifier.mask_id]], device=classifier.device)})
        order_labels(classifier, self.matching)
        self.data.attach_tokenizer(tokenizer, classifier.max_length)
        self.data.setup("test")  # the validation rows are tokenised when MaSF asks for them
        if self.trained.record is None:
            self._say_suspected_order(classifier, tokenizer)
        return classifier


def matched_labels(data: Any, trained: TrainedModel) -> Matching:
    """Which class of the model each label of the data is; the data's labels take the names of classes for numbers.

    Says what is assumed. Raises FmmError where a label is none of the model's.
    """
    directory = str(trained.directory)
    names = build.class_names(directory)
    matching = match_labels(names, data.info.label_names, directory, data.label_map.numbers)
    for line in matching.said(directory):
        print(line, flush=True)
    data.name_labels(matching.names)
    return matching


def order_labels(classifier: Classifier, matching: Matching) -> None:
    """Put the logits in the order of the data's labels, by name; classes that the data lack come last."""
    order = matching.order
    classifier.label_names = matching.ordered_names
    if order == list(range(len(order))):
        return

    def reorder(module: Any, inputs: Any, output: Any) -> Any:
        output["logits"] = output["logits"][:, order]
        return output

    classifier.model.register_forward_hook(reorder)
