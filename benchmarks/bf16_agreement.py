"""Does bfloat16 change a user's conclusion? Rank agreement of importance scores between bfloat16 and float32 weights.

    python benchmarks/bf16_agreement.py --checkpoint <model folder> --texts <Parquet file> --column sentence [--rows 60]

Prints, for each measure, Spearman's correlation of the two rankings of a row's tokens (median and 1st percentile over
rows of at least three tokens) and the share of its three top tokens that stay.
"""

from __future__ import annotations

import argparse

import numpy as np
import pyarrow.parquet as pq
import torch
from scipy.stats import spearmanr

import fmm
from fmm.data import encode
from fmm.tasks.pipeline import MEASURES as PIPELINE

MEASURES = [name for name in PIPELINE if name not in ("rand", "beam_10")]


def scores(
    checkpoint: str, dtype: torch.dtype, texts: list[str], target: torch.Tensor | None
) -> tuple[dict, torch.Tensor]:
    """Scores by measure as (scores, rankable) arrays, and the explained labels [B]: those predicted, unless given."""
    classifier, tokenizer = fmm.load_classifier(checkpoint, dtype=dtype)
    batch = encode(tokenizer, texts, None, classifier.max_length).batch(tokenizer)
    found = {}
    for name in MEASURES:
        attribution = fmm.attribute(classifier, batch, name, target="predicted" if target is None else target)
        found[name] = attribution.scores.cpu().numpy(), attribution.rankable.cpu().numpy()
        target = attribution.target
    return found, target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--texts", required=True)
    parser.add_argument("--column", default="sentence")
    parser.add_argument("--rows", type=int, default=60)
    options = parser.parse_args()
    texts = pq.read_table(options.texts, columns=[options.column])[options.column].to_pylist()[: options.rows]
    full, target = scores(options.checkpoint, torch.float32, texts, None)
    half, _ = scores(options.checkpoint, torch.bfloat16, texts, target)
    print(f"{len(texts)} rows; bfloat16 against float32")
    print("| measure | Spearman, median | 1st percentile | top 3 that stay (%) |\n|---|---:|---:|---:|")
    for name in MEASURES:
        correlations, overlaps = [], []
        for a, b, rankable in zip(full[name][0], half[name][0], full[name][1]):
            if rankable.sum() >= 3:
                a, b = a[rankable], b[rankable]
                correlations.append(spearmanr(a, b).statistic)
                top = [set(np.argsort(-values, kind="stable")[:3].tolist()) for values in (a, b)]
                overlaps.append(len(top[0] & top[1]) / 3)
        low = np.nanpercentile(correlations, 1)
        print(f"| {name} | {np.nanmedian(correlations):.3f} | {low:.3f} | {100 * np.mean(overlaps):.1f} |")


if __name__ == "__main__":
    main()
