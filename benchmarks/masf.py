"""Time and memory of MaSF's statistics on synthetic signals, without the forward passes.

    python benchmarks/masf.py             fit 2,000 rows, score 500 rows, 7 layers x 384 (the authors' code: about 28 s)
    python benchmarks/masf.py --mnli      fit 78,540 rows, score 9,815 rows x 11 ratios, 13 layers x 768

Signals are written to a file and read layer by layer, as the tasks do. With --mnli give --kind: peaks add up otherwise.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from fmm import masf
from fmm.tasks.masf_fit import Layers


def signals_on_disk(path: Path, layers: int, rows: int, dims: int) -> Layers:
    """Normal signals [layers, rows, dims] in a file."""
    rng = np.random.default_rng(0)
    header = {"descr": "<f4", "fortran_order": False, "shape": (layers, rows, dims)}
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for _ in range(layers):
            rng.standard_normal((rows, dims), dtype=np.float32).tofile(file)
    return Layers(path)


def measure(kind: masf.Kind, fit_rows: int, score_rows: int, ratios: int, layers: int, dims: int) -> None:
    """Print seconds of fitting and scoring; test signals are made chunk by chunk, and not timed."""
    with tempfile.TemporaryDirectory() as folder:
        data = signals_on_disk(Path(folder) / "signals.npy", layers, fit_rows, dims)
        started, cpu = time.perf_counter(), time.process_time()
        model = masf.fit(data, kind, torch.arange(fit_rows) % 2 == 0)
        fitted, fitted_cpu, scored, scored_cpu = time.perf_counter() - started, time.process_time() - cpu, 0.0, 0.0
        for size in [len(part) for part in torch.arange(score_rows * ratios).split(8192)]:
            test = torch.randn(size, layers, dims)
            started, cpu = time.perf_counter(), time.process_time()
            model.score(test)
            scored, scored_cpu = scored + time.perf_counter() - started, scored_cpu + time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{kind}: fit {fitted:.2f} s + score {scored:.2f} s = {fitted + scored:.2f} s "
        f"({fitted_cpu + scored_cpu:.2f} s of CPU on {torch.get_num_threads()} threads), peak {peak:.2f} GiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mnli", action="store_true")
    parser.add_argument("--kind", choices=masf.KINDS, default=None)
    options = parser.parse_args()
    size = (78_540, 9_815, 11, 13, 768) if options.mnli else (2_000, 500, 1, 7, 384)
    for kind in [options.kind] if options.kind else masf.KINDS:
        measure(kind, *size)


if __name__ == "__main__":
    main()
