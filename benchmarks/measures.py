"""Speed, memory and parity of the measures, side by side with Captum: python benchmarks/measures.py

Workload: a seeded RoBERTa of 6 layers × 384 (make_model.py) on 64 rows of 32 tokens, and 8 of 16 for beam search;
`data/measures.npz` holds inputs and what the authors' TensorFlow code computed on them. Both sides run in their own
process and take turns; Captum runs at the fastest of the settings in SETTINGS. Seconds are medians, ratios medians of
ratios of neighbouring runs. Needs `pip install -e .[bench]`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
DATA = np.load(HERE / "data" / "measures.npz")
# perturbations per evaluation of FeatureAblation; rows × steps in one pass of LayerIntegratedGradients
SETTINGS = {"loo_sign": (1, 2, 4), "int_grad_sign": (64, 128, 320)}
BARS = {"float32": {"loo_sign": 0.90, "int_grad_sign": 0.90}, "bfloat16": {"loo_sign": 0.42, "int_grad_sign": 0.50}}


class Worker:
    """A process that does named work on demand (measures_worker.py)."""

    def __init__(self, side: str, folder: str, dtype: str, threads: int) -> None:
        command = [sys.executable, str(HERE / "measures_worker.py"), side, folder, dtype, str(threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, work: str, setting: int = 0) -> dict[str, Any]:
        """Do `work`; returns its seconds, the process's peak memory in gigabytes, and the result."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{work} {setting}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"the process for {work} has ended; its message is above")
        return json.loads(answer)

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def parity(result: list, golden: str) -> str:
    """Largest difference from the authors' array, relative to max(1, the row's largest value)."""
    wanted, got = DATA[golden], np.asarray(result)
    scale = np.maximum(1, np.abs(wanted).max(axis=1, keepdims=True))
    return f"{(np.abs(got - wanted) / scale).max():.1e}"


def line(work: str, seconds: float, ratio: float, bar: float, note: str) -> None:
    """Print a row of the table."""
    verdict = "met" if ratio <= bar else "MISSED"
    print(f"{work:32} {seconds:9.3f} s   ratio {ratio:5.2f}   bar {bar:4.2f} {verdict:7} {note}", flush=True)


def against_captum(ours: Worker, captum: Worker, work: str, bar: float, repeats: int) -> None:
    """Paired runs of one work. Captum runs in float32, also where ours has bf16 weights."""
    tried = {setting: captum.run(work, setting)["seconds"] for setting in SETTINGS[work]}
    best = min(tried, key=tried.__getitem__)
    ours.run(work)
    pairs = [(ours.run(work), captum.run(work, best)) for _ in range(repeats)]
    ratio = statistics.median(a["seconds"] / b["seconds"] for a, b in pairs)
    theirs = statistics.median(b["seconds"] for _, b in pairs)
    note = f"Captum {theirs:.3f} s at setting {best}; parity {parity(pairs[0][0]['result'], f'{work}_64x32')}"
    line(work, statistics.median(a["seconds"] for a, _ in pairs), ratio, bar, note)


def against_forward(ours: Worker, repeats: int) -> None:
    """grad_l2 and beam_10 in forward passes of the same model."""
    ours.run("grad_l2"), ours.run("forward")
    pairs = [(ours.run("grad_l2"), ours.run("forward")) for _ in range(repeats)]
    ratio = statistics.median(a["seconds"] / b["seconds"] for a, b in pairs)
    seconds = statistics.median(a["seconds"] for a, _ in pairs)
    line("grad_l2", seconds, ratio, 2.2, f"forwards; parity {parity(pairs[0][0]['result'], 'grad_l2_64x32')}")
    counts = ours.run("beam_count")["result"]
    total = sum(counts)
    pairs = [(ours.run("beam_10"), ours.run("forwards_8x16", total)) for _ in range(repeats)]
    ratio = statistics.median(a["seconds"] / b["seconds"] for a, b in pairs)
    seconds = statistics.median(a["seconds"] for a, _ in pairs)
    note = f"of {total} forwards {counts}; parity {parity(pairs[0][0]['result'], 'beam_10_8x16')}"
    line("beam_10 8x16", seconds, ratio, 1.1, note)


def texts_of(path: str | None) -> list[list[int]]:
    """Token ids of SST2's test sentences (a Parquet with `sentence`), or of 872 synthetic rows of mixed length."""
    if path is None:
        noise = np.random.default_rng(0)
        lengths = noise.gamma(4.0, 6.0, 872).astype(int).clip(2, 66)
        return [noise.integers(5, 3000, n).tolist() for n in lengths]
    import pyarrow.parquet as pq

    sentences = pq.read_table(path)["sentence"].to_pylist()
    return [[5 + zlib.crc32(word.encode()) % 30000 for word in text.split()][:66] for text in sentences]


def count_tokens(path: str | None) -> None:
    """Tokens that loo_sign evaluates on rows of mixed length, against those it needs. Counted, not timed."""
    import torch
    from transformers import RobertaConfig, RobertaForSequenceClassification

    import fmm
    from fmm.models.classifier import Classifier

    class Counter(Classifier):
        tokens = 0

        def logits(self, batch: Any) -> torch.Tensor:
            self.tokens += batch["input_ids"].numel()
            return torch.zeros(len(batch["input_ids"]), self.num_labels)

    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    counter = Counter(RobertaForSequenceClassification(RobertaConfig(vocab_size=30522, **size)), mask_id=4)
    rows = [[0, *row, 2] for row in texts_of(path)]
    needed = sum(map(len, rows))
    for start in range(0, len(rows), 64):
        part = rows[start : start + 64]
        width = max(map(len, part))
        ids = torch.tensor([row + [1] * (width - len(row)) for row in part])
        sequence = torch.tensor([[0] + [1] * (len(r) - 2) + [0] * (width - len(r) + 1) for r in part])
        batch = {"input_ids": ids, "attention_mask": (ids != 1).long(), "sequence_id": sequence}
        fmm.attribute(counter, {**batch, "labels": torch.zeros(len(ids), dtype=torch.int64)}, "loo_sign")
        for row in part:
            copies = {(*row[:t], 4, *row[t + 1 :]) for t in range(1, len(row) - 1)}
            needed += len(row) * len(copies)
    name = "SST2 test, words for tokens" if path else "synthetic lengths"
    line(f"loo_sign, mixed lengths ({len(rows)})", 0.0, counter.tokens / needed, 1.02, f"tokens of needed; {name}")


def main() -> None:
    """Run the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bfloat16", action="store_true", help="also bf16 weights (slow on CPUs without bf16)")
    parser.add_argument("--data", help="SST2's test or validation Parquet, for the count of tokens")
    parser.add_argument("--only", choices=["loo_sign", "int_grad_sign", "forward", "tokens"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, str(HERE / "make_model.py"), folder], check=True, stderr=subprocess.DEVNULL)
        captum = Worker("captum", folder, "float32", options.threads)
        for dtype in ["float32", "bfloat16"][: 2 if options.bfloat16 else 1]:
            print(dtype)
            ours = Worker("fmm", folder, dtype, options.threads)
            for work, bar in BARS[dtype].items():
                if options.only in (None, work):
                    against_captum(ours, captum, work, bar, options.repeats)
            if options.only in (None, "forward") and dtype == "float32":
                against_forward(ours, options.repeats)
            peak = ours.run("grad_l2")["gigabytes"]
            print(f"peak memory {peak:.2f} GB, bar 3 GB {'met' if peak <= 3 else 'MISSED'}")
            ours.close()
        captum.close()
    if options.only in (None, "tokens"):
        count_tokens(options.data)


if __name__ == "__main__":
    main()
