"""Passes through the classifier that erasure curves need, against the distinct inputs among them.

    python benchmarks/curves.py [--rows 16] [--measures rand grad_l2 loo_sign]

A random tiny encoder, rows of 8 to 24 words, MaSF's signals on. `explaining` inputs (occluded copies) count as distinct
inputs too, as each is needed once.
"""

from __future__ import annotations

import argparse
import time

import torch
from transformers import RobertaConfig, RobertaForSequenceClassification

from fmm.cost import Cost
from fmm.erasure import Eraser
from fmm.measures import build
from fmm.models.classifier import Classifier

MASK = 4


def rows_of(count: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """A padded batch of random rows and their targets."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(8, 25, (count,), generator=generator)
    position = torch.arange(26)
    words = (position >= 1) & (position <= lengths[:, None])
    ids = torch.randint(5, 500, (count, 26), generator=generator).where(words, torch.tensor(1))
    ids[:, 0] = 0
    ids[torch.arange(count), lengths + 1] = 2
    attended = (position <= lengths[:, None] + 1).long()
    batch = {"input_ids": ids, "attention_mask": attended, "sequence_id": words.long()}
    return batch | {"example_id": torch.arange(count)}, torch.randint(0, 2, (count,), generator=generator)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--measures", nargs="+", default=["rand", "grad_l2", "inp_grad_abs", "loo_sign", "beam_10"])
    options = parser.parse_args()
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    model = RobertaForSequenceClassification(RobertaConfig(vocab_size=500, **sizes)).eval()
    classifier = Classifier(model, mask_id=MASK, pad_id=1)
    classifier.logits({"input_ids": torch.tensor([[MASK]])})  # the first pass tries a shortcut out
    batch, target = rows_of(options.rows)
    for name in options.measures:
        seen, cost, started = set(), Cost(), time.perf_counter()

        def remember(module, args, kwargs, seen=seen):  # type: ignore[no-untyped-def]
            seen.update(row.numpy().tobytes() for row in kwargs["input_ids"].cpu())

        handle = model.register_forward_pre_hook(remember, with_kwargs=True)
        with cost.counting(classifier):
            Eraser(classifier, build(name), [i / 10 for i in range(11)], signals=True)(batch, target, cost=cost)
        handle.remove()
        print(
            f"{name:14} {cost.forward:6} passes for {len(seen):6} distinct inputs = {cost.forward / len(seen):.3f}, "
            f"{cost.scored} of them the curve's; {time.perf_counter() - started:.1f} s"
        )


if __name__ == "__main__":
    main()
