"""What training through fmm costs beside a bare PyTorch loop over the same batches, and what masking costs.

    python benchmarks/training.py [--repeats 5] [--steps 12]

Both train the same model with the same optimiser, schedule and batches in turn; the ratio is taken pair by pair and
its median printed. The bare loop does not mask, keeps no history and saves nothing: all that is part of fmm's cost.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import torch
from omegaconf import OmegaConf
from pytorch_lightning import Callback
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification

from fmm.checkpoints import EpochHistory
from fmm.finetune import MaskedFineTuning, learning_rate_factor
from fmm.masking import mask_for_training, maskable_tokens
from fmm.trainer import build_trainer

BATCH, TOKENS, VOCABULARY = 16, 32, 30522
SIZES = {
    "MiniLM size (6 x 384)": (384, 6, 12, 1536),
    "tiny (1 x 16)": (16, 1, 2, 16),
}  # hidden size, layers, heads, intermediate size


class Clock(Callback):
    """Notes when each step ends; between two notes lies all that a step costs."""

    def on_train_start(self, trainer, module):
        self.ends = []

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        self.ends.append(time.perf_counter())


def median_step(ends: list[float]) -> float:
    """Median seconds between the ends of neighbouring steps, the first of which warms up."""
    return statistics.median(b - a for a, b in pairwise(ends))


def make_model(size: tuple[int, int, int, int], vocabulary: int) -> BertForSequenceClassification:
    """A BERT with random weights, the same at every call."""
    torch.manual_seed(0)
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    return BertForSequenceClassification(BertConfig(vocab_size=vocabulary, **dict(zip(names, size)))).train()


def make_batches(steps: int, vocabulary: int) -> list[dict[str, torch.Tensor]]:
    """Unpadded random batches."""
    draw = torch.Generator().manual_seed(1)
    batches = []
    for step in range(steps):
        ids = torch.randint(1000 % vocabulary, vocabulary, (BATCH, TOKENS), generator=draw)
        sequence = torch.ones_like(ids)
        sequence[:, 0] = sequence[:, -1] = 0
        batches.append(
            {
                "input_ids": ids,
                "attention_mask": torch.ones_like(ids),
                "sequence_id": sequence,
                "labels": torch.arange(BATCH) % 2,
                "example_id": torch.arange(BATCH) + step * BATCH,
            }
        )
    return batches


def bare_step_seconds(model: torch.nn.Module, batches: list[dict[str, torch.Tensor]]) -> float:
    """Seconds a step of a plain loop."""
    decayed = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}]
    optimizer = AdamW(groups, lr=2e-5, eps=1e-8, fused=True)
    schedule = LambdaLR(optimizer, lambda step: learning_rate_factor(step, len(batches), 1))
    ends = []
    for batch in DataLoader(batches, batch_size=None):
        optimizer.zero_grad()
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        torch.nn.functional.cross_entropy(logits, batch["labels"]).backward()
        optimizer.step()
        schedule.step()
        ends.append(time.perf_counter())
    return median_step(ends)


def fmm_step_seconds(model: torch.nn.Module, batches: list[dict[str, torch.Tensor]], folder: Path) -> float:
    """Seconds a step through fmm's module, trainer and history."""
    module = MaskedFineTuning(
        model, mask_id=103 % VOCABULARY, num_labels=2, metric_names=["accuracy"], batches_per_epoch=len(batches)
    )
    clock = Clock()
    cfg = OmegaConf.create(
        {
            "trainer": {
                "accelerator": "cpu",
                "precision": "32-true",
                "enable_progress_bar": False,
                "default_root_dir": str(folder),
            }
        }
    )
    history = EpochHistory(folder / "log", [])
    trainer = build_trainer(cfg, callbacks=[clock, history], logger=None, max_epochs=1)
    trainer.fit(module, DataLoader(batches, batch_size=None))
    return median_step(clock.ends)


def masking_seconds(batch: dict[str, torch.Tensor], repeats: int = 200) -> float:
    """Seconds of masking one mini-batch."""
    started = time.perf_counter()
    for epoch in range(repeats):
        maskable = maskable_tokens(batch["attention_mask"], batch["sequence_id"])
        mask_for_training(
            batch["input_ids"], maskable, 103, batch["example_id"], strategy="half_det", seed=0, epoch=epoch
        )
    return (time.perf_counter() - started) / repeats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    for name, size in SIZES.items():
        tiny = size[0] < 100
        vocabulary, steps = (1200, options.steps * 25) if tiny else (VOCABULARY, options.steps)
        batches = make_batches(steps, vocabulary)
        bare, through, masking = [], [], []
        with tempfile.TemporaryDirectory() as folder:
            for repeat in range(options.repeats):
                for side in ("bare", "fmm") if repeat % 2 == 0 else ("fmm", "bare"):  # whoever goes first gains nothing
                    model = make_model(size, vocabulary)
                    if side == "bare":
                        bare.append(bare_step_seconds(model, batches))
                    else:
                        through.append(fmm_step_seconds(model, batches, Path(folder)))
                masking.append(masking_seconds(batches[0]))
        ratio = statistics.median(b / a for a, b in zip(bare, through))
        extra = statistics.median(b - a for a, b in zip(bare, through)) * 1e3
        share = statistics.median(m / b for m, b in zip(masking, through))
        print(
            f"{name}, batch {BATCH} x {TOKENS}: bare {statistics.median(bare) * 1e3:.1f} ms a step, "
            f"through fmm {statistics.median(through) * 1e3:.1f} ms: ratio {ratio:.3f}, {extra:+.2f} ms; "
            f"masking {statistics.median(masking) * 1e3:.3f} ms = {share:.2%} of a step"
        )


if __name__ == "__main__":
    main()
