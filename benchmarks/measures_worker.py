"""One side of benchmarks/measures.py: builds the model, then does the work named on each line of standard input.

Each answer is a line of JSON. Two such processes take turns, so that both meet the same state of the machine.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import RobertaForSequenceClassification

MASK, PAD, STEPS = 4, 1, 20
DATA = np.load(Path(__file__).parent / "data" / "measures.npz")


def batch_of(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and labels of the workload `64x32` or `8x16`."""
    return torch.from_numpy(DATA[f"ids{name}"]).long(), torch.from_numpy(DATA[f"y{name.split('x')[0]}"])


def peak_gigabytes() -> float:
    """Most memory this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


class Captum:
    """Captum's way. `setting` is the one number that trades batch size against calls."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model.eval().requires_grad_(False)

    def _logits(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=ids).logits.float()

    def loo_sign(self, setting: int) -> torch.Tensor:
        """FeatureAblation, both special tokens as one feature; `setting`: perturbations per evaluation."""
        from captum.attr import FeatureAblation

        ids, y = batch_of("64x32")
        feature = torch.arange(ids.shape[1])[None].clone()
        feature[0, -1] = 0
        with torch.inference_mode():
            return FeatureAblation(self._logits).attribute(
                ids, baselines=MASK, target=y, feature_mask=feature, perturbations_per_eval=setting
            )

    def int_grad_sign(self, setting: int) -> torch.Tensor:
        """LayerIntegratedGradients on the word embeddings; `setting`: rows times steps in one pass."""
        from captum.attr import LayerIntegratedGradients

        ids, y = batch_of("64x32")
        explainer = LayerIntegratedGradients(self._logits, self.model.get_input_embeddings())
        scores = explainer.attribute(
            ids,
            baselines=torch.full_like(ids, PAD),
            target=y,
            n_steps=STEPS,
            method="riemann_middle",
            internal_batch_size=setting,
        )
        return scores.sum(-1)


class Fmm:
    """Ours. `setting` is not used: there is nothing to set."""

    def __init__(self, model: torch.nn.Module) -> None:
        from fmm.models.classifier import Classifier

        self.classifier = Classifier(model.eval(), mask_id=MASK, pad_id=PAD).requires_grad_(False)

    def _batch(self, name: str) -> dict[str, torch.Tensor]:
        ids, y = batch_of(name)
        sequence = torch.ones_like(ids)
        sequence[:, [0, -1]] = 0
        return {"input_ids": ids, "sequence_id": sequence, "labels": y, "example_id": torch.arange(len(ids))}

    def _scores(self, measure: str, name: str = "64x32") -> torch.Tensor:
        import fmm

        return fmm.attribute(self.classifier, self._batch(name), measure).scores

    def loo_sign(self, setting: int) -> torch.Tensor:
        return self._scores("loo_sign")

    def int_grad_sign(self, setting: int) -> torch.Tensor:
        return self._scores("int_grad_sign")

    def grad_l2(self, setting: int) -> torch.Tensor:
        return self._scores("grad_l2")

    def beam_10(self, setting: int) -> torch.Tensor:
        return self._scores("beam_10", "8x16")

    def forward(self, setting: int) -> torch.Tensor:
        """The model's own forward pass of 64 × 32, the unit of the table."""
        with torch.inference_mode():
            return self.classifier.model(input_ids=batch_of("64x32")[0]).logits.float()

    def forwards_8x16(self, setting: int) -> torch.Tensor:
        """The model's own forward passes of `setting` inputs of 16 tokens, in batches of 128."""
        ids = batch_of("8x16")[0].repeat(setting // 8 + 1, 1)[:setting]
        with torch.inference_mode():
            return torch.cat([self.classifier.model(input_ids=part).logits.float() for part in ids.split(128)])

    def beam_count(self, setting: int) -> torch.Tensor:
        """Inputs that beam_10 evaluates on each row of 8 × 16."""
        from fmm import measures
        from fmm.inference import Rows, evaluate
        from fmm.measures.base import Explained

        batch = self._batch("8x16")
        block = next(Rows.from_batch(batch).blocks())
        asked = Explained(block, batch["sequence_id"] == 1, batch["labels"], 0)
        reference = evaluate(self.classifier, block).logits
        searches = measures.build("beam_10").search(self.classifier, asked, reference)
        return torch.tensor([search.n_evaluated for search in searches])


def timed(work: Callable[[int], torch.Tensor], setting: int) -> dict[str, Any]:
    """The answer to one order: seconds, peak memory so far, and the result."""
    start = time.perf_counter()
    result = work(setting)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "gigabytes": peak_gigabytes(), "result": result.tolist()}


def main() -> None:
    """Arguments: `fmm` or `captum`, model folder, dtype, threads."""
    side, folder, dtype, threads = sys.argv[1:5]
    torch.set_num_threads(int(threads))
    model = RobertaForSequenceClassification.from_pretrained(folder, dtype=getattr(torch, dtype))
    worker = Fmm(model) if side == "fmm" else Captum(model)
    for line in sys.stdin:
        name, setting = line.split()
        print(json.dumps(timed(getattr(worker, name), int(setting))), flush=True)


if __name__ == "__main__":
    main()
