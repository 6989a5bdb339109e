"""Masked fine-tuning and scoring on a GPU: rows a second in bf16-mixed precision, and agreement with the CPU.

    python benchmarks/gpu.py [--steps 60] [--device cuda] [--layers 12]

Uses a RoBERTa-base-sized encoder with random weights, so that it needs no download. `--device cpu --layers 1 --steps 3`
tries the script out.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch
from omegaconf import OmegaConf
from torch.utils.data import DataLoader
from training import BATCH, TOKENS, Clock, make_batches, make_model, median_step

import fmm
from fmm.checkpoints import EpochHistory
from fmm.finetune import MaskedFineTuning
from fmm.inference import Rows, evaluate
from fmm.masking import mask_for_training
from fmm.models.classifier import Classifier
from fmm.trainer import build_trainer

VOCABULARY, MASK = 30522, 103


def train(device: str, steps: int, size: tuple[int, int, int, int]) -> None:
    """Train in bf16-mixed and print rows a second."""
    batches = make_batches(steps, VOCABULARY)
    model = make_model(size, VOCABULARY)
    module = MaskedFineTuning(model, mask_id=MASK, num_labels=2, metric_names=[], batches_per_epoch=steps)
    trainer_options = {"accelerator": device.replace("cuda", "gpu"), "devices": 1, "precision": "bf16-mixed"}
    cfg = OmegaConf.create({"trainer": trainer_options | {"default_root_dir": tempfile.gettempdir()}})
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        callbacks = [clock, EpochHistory(Path(folder) / "log", [])]
        build_trainer(cfg, callbacks=callbacks, logger=None, max_epochs=1).fit(
            module, DataLoader(batches, batch_size=None)
        )
    rows = BATCH / median_step(clock.ends)
    work = f"batch {BATCH} x {TOKENS}, {size[1]} layers of {size[0]}"
    print(f"training in bf16-mixed on {device}: {rows:.0f} rows a second ({work})")


def masks_agree(device: str) -> None:
    """Masks drawn on the device equal those drawn on the CPU."""
    batch = make_batches(1, VOCABULARY)[0]
    drawn = []
    for place in ("cpu", device):
        ids, sequence, example = (batch[name].to(place) for name in ("input_ids", "sequence_id", "example_id"))
        masked = mask_for_training(ids, sequence > 0, MASK, example, strategy="uniform", seed=0, epoch=3)
        drawn.append(masked.cpu())
    print(f"masks on {device} equal those on the CPU: {torch.equal(*drawn)}")


def score(device: str, size: tuple[int, int, int, int]) -> None:
    """Rows a second of scoring, and the largest difference of leave-one-out scores to the CPU's."""
    classifier = Classifier(make_model(size, VOCABULARY).eval(), mask_id=MASK)
    batch = make_batches(1, VOCABULARY)[0]
    few = {name: values[:2] for name, values in batch.items()}
    reference = fmm.attribute(classifier, few, "loo_sign").scores
    classifier.to(device)
    scores = fmm.attribute(classifier, few, "loo_sign").scores.cpu()
    print(f"leave-one-out, largest difference of {device} to the CPU: {(scores - reference).abs().max():.2e}")
    rows = Rows.concatenate([Rows.from_batch(b) for b in make_batches(64, VOCABULARY)])
    evaluate(classifier, rows)
    started = time.perf_counter()
    evaluate(classifier, rows)
    print(f"scoring in float32 on {device}: {len(rows) / (time.perf_counter() - started):.0f} rows a second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--layers", type=int, default=12)
    options = parser.parse_args()
    size = (768, options.layers, 12, 3072)
    masks_agree(options.device)
    train(options.device, options.steps, size)
    score(options.device, size)


if __name__ == "__main__":
    main()
