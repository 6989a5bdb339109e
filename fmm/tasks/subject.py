"""What an evaluation is about: the trained model and the rows, loaded when they are first needed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from omegaconf import DictConfig

from fmm.errors import FmmError, unknown
from fmm.models.classifier import Classifier, load_classifier
from fmm.tasks.common import TrainedModel, datamodule, label_mapping, train_command, trained_model


@dataclass
class Subject:
    """The model and data of a configuration. `classifier` and tokenised rows cost seconds and come on demand."""

    cfg: DictConfig
    data: Any
    trained: TrainedModel

    @classmethod
    def of(cls, cfg: DictConfig) -> Subject:
        """Find the model. Raises FmmError with the command that trains it where there is none."""
        data = datamodule(cfg)
        data.read()
        return cls(cfg, data, trained_model(cfg, data))

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

    def model_settings(self) -> dict[str, Any]:
        """What a record says of the model; `masking` is the strategy's name."""
        return {**self.trained.settings(), "masking": self.strategy}

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
        _order_labels(classifier, self.data.info.label_names, str(self.trained.directory))
        self.data.attach_tokenizer(tokenizer, classifier.max_length)
        self.data.setup("test")  # the validation rows are tokenised when MaSF asks for them
        return classifier


def _order_labels(classifier: Classifier, names: list[str], directory: str) -> None:
    mapping = label_mapping(dict(enumerate(classifier.label_names)), names, directory)
    classifier.label_names = list(names)
    if mapping == list(range(len(mapping))):
        return

    def reorder(module: Any, inputs: Any, output: Any) -> Any:
        output["logits"] = output["logits"][:, mapping]
        return output

    classifier.model.register_forward_hook(reorder)
