"""The LightningModule of masked fine-tuning (arXiv 2310.07819, section 3.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from pytorch_lightning import LightningModule
from torch import Tensor
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from fmm import metrics
from fmm.draws import Draw
from fmm.errors import FmmError
from fmm.masking import UniformMasking, mask_for_training, mask_uniformly, maskable_tokens
from fmm.models.classifier import call

SELECTIONS = ("both", "nomask", "mask")


def learning_rate_factor(step: int, total: int, warmup: int) -> float:
    """Linear warm-up over `warmup` steps, then linear to 0 at `total`.

    >>> [learning_rate_factor(s, total=10, warmup=2) for s in (0, 1, 2, 6, 10)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    if step < warmup:
        return step / warmup
    return max(0.0, (total - step) / max(1, total - warmup))


def schedule_lengths(name: str, steps: int, batch_size: int, warmup: float) -> tuple[int, int]:
    """Total and warm-up length of the schedule, in optimiser steps.

    `linear` is what the paper intends. `authors` counts examples where steps are meant, as the authors' code does:
    with batch 16 it warms up during 96% of the run and never decays.
    """
    total = steps * batch_size if name == "authors" else steps
    return total, round(warmup * total)


class MaskedFineTuning(LightningModule):
    """Fine-tunes a sequence classifier with part of every mini-batch masked.

    Batches hold `input_ids`, `attention_mask`, `sequence_id` [B, T], `labels` and `example_id` [B], and for some
    models `token_type_ids`. Logs `train_loss` and, for every metric, `val_<metric>` on the selection set: the
    validation rows as they are (`nomask`), masked once at U[0, 1) (`mask`), or the one followed by the other (`both`).
    `batches_per_epoch` counts the mini-batches of all processes together.
    """

    def __init__(
        self,
        model: Any,
        *,
        mask_id: int,
        num_labels: int,
        metric_names: Sequence[str],
        batches_per_epoch: int,
        strategy: str = "half_det",
        max_ratio: float = 1.0,
        selection: str = "both",
        scheduler: str = "linear",
        seed: int = 0,
        batch_size: int = 16,
        learning_rate: float = 2e-5,
        weight_decay: float = 0.01,
        adam_epsilon: float = 1e-8,
        warmup: float = 0.06,
    ) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["model"])
        self.model = model.train()  # `from_pretrained` leaves dropout off, and Lightning would keep it so
        self.mask_id, self.seed = mask_id, seed
        self.strategy, self.max_ratio, self.selection = strategy, max_ratio, selection
        self.num_labels, self.metric_names = num_labels, list(metric_names)
        self._losses: list[Tensor] = []
        self._validation: list[tuple[Tensor, Tensor]] = []

    def forward(self, batch: dict[str, Tensor], input_ids: Tensor) -> Tensor:
        """Logits [B, C] of `input_ids` with the other inputs of `batch`."""
        names = ("attention_mask", "token_type_ids")
        inputs = {name: batch[name] for name in names if name in batch}
        return call(self.model, input_ids=input_ids, **inputs).logits

    def masked(self, batch: dict[str, Tensor]) -> Tensor:
        """The training view of a batch: input ids [B, T], partly masked, drawn on the batch's device."""
        return mask_for_training(
            batch["input_ids"],
            maskable_tokens(batch["attention_mask"], batch["sequence_id"]),
            self.mask_id,
            batch["example_id"],
            strategy=self.strategy,
            seed=self.seed,
            epoch=self.current_epoch,
            max_ratio=self.max_ratio,
        )

    def on_train_epoch_start(self) -> None:
        """Seed dropout by (seed, epoch, rank), so that a resumed run repeats an uninterrupted one."""
        torch.manual_seed(Draw.DROPOUT.torch_seed(self.seed, self.current_epoch, self.global_rank))
        self._losses.clear()

    def training_step(self, batch: dict[str, Tensor], batch_index: int) -> Tensor:
        """Cross-entropy of the partly masked batch, averaged over its rows."""
        loss = torch.nn.functional.cross_entropy(self(batch, self.masked(batch)).float(), batch["labels"])
        self._losses.append(loss.detach())
        return loss

    def losses(self) -> Tensor:
        """Loss of each of the epoch's batches so far, on this process's share of the rows [N]."""
        return torch.stack(self._losses) if self._losses else torch.zeros(0)

    def resume_losses(self, losses: Tensor) -> None:
        """Take up the losses of an interrupted epoch [N]."""
        self._losses = list(losses.unbind())

    def train_loss(self) -> float:
        """Mean loss of the epoch so far, on this process's share of the rows."""
        return float(self.losses().mean())

    def on_train_epoch_end(self) -> None:
        """Log the epoch's mean loss; once an epoch, as logging each step would cost more than masking.

        Raises FmmError where it is not a number: nothing after that would be learned.
        """
        loss = self.train_loss()
        if self._losses and not math.isfinite(loss):
            raise FmmError(
                f"training diverged: the mean loss of epoch {self.current_epoch + 1} is {loss}; lower "
                f"training.learning_rate (now {self.hparams['learning_rate']:g})"
            )
        self.log("train_loss", loss, sync_dist=True)

    def validation_step(self, batch: dict[str, Tensor], batch_index: int) -> None:
        """Keep predictions on the selection set; metrics are taken over all of it at once."""
        views = []
        if self.selection in ("both", "nomask"):
            views.append(batch["input_ids"])
        if self.selection in ("both", "mask"):
            maskable = maskable_tokens(batch["attention_mask"], batch["sequence_id"])
            draws = UniformMasking.of_selection(self.seed)
            views.append(mask_uniformly(batch["input_ids"], maskable, self.mask_id, batch["example_id"], draws))
        for view in views:
            self._validation.append((self(batch, view).argmax(dim=1), batch["labels"]))

    def on_validation_epoch_end(self) -> None:
        """Log every metric of the selection set."""
        predicted, labels = (torch.cat(parts) for parts in zip(*self._validation))
        self._validation.clear()
        if self.trainer.world_size > 1:
            predicted, labels = self._gathered(predicted), self._gathered(labels)
        known = labels >= 0
        values = metrics.of_predictions(self.metric_names, predicted[known], labels[known], self.num_labels)
        self.log_dict({f"val_{name}": value for name, value in values.items()}, prog_bar=True, sync_dist=False)

    def _gathered(self, values: Tensor) -> Tensor:
        lengths = self.all_gather(torch.tensor(len(values), device=values.device))
        assert isinstance(lengths, Tensor)
        sizes = lengths.flatten().tolist()
        padded = torch.nn.functional.pad(values, (0, max(sizes) - len(values)), value=-1)
        return torch.cat([part[:size] for part, size in zip(self.all_gather(padded), sizes)])

    def configure_optimizers(self) -> Any:
        """AdamW without decay on biases and norms (all 1-D parameters), and the schedule of `scheduler`."""
        options = self.hparams
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": options["weight_decay"]},
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
        ]
        optimizer = AdamW(groups, lr=options["learning_rate"], eps=options["adam_epsilon"], fused=True)
        # Not trainer.estimated_stepping_batches, which draws batches before a resumed run knows its epoch.
        batches = math.ceil(options["batches_per_epoch"] / self.trainer.world_size)
        steps = math.ceil(batches / self.trainer.accumulate_grad_batches) * self.trainer.max_epochs
        lengths = schedule_lengths(options["scheduler"], steps, options["batch_size"], options["warmup"])
        schedule = LambdaLR(optimizer, lambda step: learning_rate_factor(step, *lengths))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
