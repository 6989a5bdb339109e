"""Prints what preparing data costs: time on SST2, memory on a QQP-size file, padding in training batches.

    python benchmarks/data.py --mirror <folder in the hub's layout> --tokenizer <folder or hub id>

Each measurement runs in a process of its own; imports are not counted in times, but are in memory.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from omegaconf import OmegaConf

CONF = Path(__file__).resolve().parent.parent / "conf" / "dataset"
BATCH = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mirror", required=True, help="folder in the hub's layout with SST2 and RTE")
    parser.add_argument("--tokenizer", required=True, help="folder or hub id of a tokenizer")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        for turn in ("first", "second"):
            seconds, cpu, memory, _ = alone("sst2", options.mirror, options.tokenizer, cache)
            print(f"SST2, {turn} time: {seconds:.2f} s ({cpu:.2f} s of CPU), peak memory {memory:.2f} GB")
        write_qqp(cache / "mirror")
        seconds, cpu, memory, _ = alone("qqp", str(cache / "mirror"), options.tokenizer, cache)
        print(f"QQP size (404,276 made-up pairs): {seconds:.1f} s ({cpu:.1f} s of CPU), peak memory {memory:.2f} GB")
        for name in ("sst2", "rte"):
            *_, waste = alone(name, options.mirror, options.tokenizer, cache)
            print(f"{name}: {100 * waste:.2f}% of the tokens of an epoch at batch {BATCH} are padding")


def alone(*arguments: Any) -> tuple[float, float, float, float]:
    """Run `prepare` in a fresh process, so that its peak memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(prepare, arguments)


def prepare(name: str, mirror: str, tokenizer: str, cache: Path) -> tuple[float, float, float, float]:
    """Prepare a dataset. Returns seconds, seconds of CPU, peak memory in GB and the share of padding."""
    from transformers import AutoTokenizer

    import fmm.data.datamodule
    import fmm.data.hub
    from fmm.data.loader import padding_waste, training_batches

    config: Any = OmegaConf.to_container(OmegaConf.load(CONF / f"{name}.yaml"))
    loaded = AutoTokenizer.from_pretrained(tokenizer)
    start, start_cpu = time.perf_counter(), time.process_time()
    dm = fmm.data.build_datamodule(
        config, {"mirror": mirror}, seed=0, split="authors", batch_size=BATCH, cache_dir=cache
    )
    dm.attach_tokenizer(loaded, 512)
    dm.prepare_data()
    dm.setup()
    seconds = time.perf_counter() - start
    cpu = time.process_time() - start_cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    lengths = dm.train.lengths
    return seconds, cpu, peak, padding_waste(lengths, training_batches(lengths, BATCH, seed=0, epoch=0))


def write_qqp(mirror: Path) -> None:
    """A mirror with as many pairs as QQP, of about the same lengths."""
    rng = random.Random(0)
    words = [f"{a}{b}" for a in ("how", "what", "can", "best", "learn") for b in ("", "ing", "er", "able", "s")]
    for split, rows in (("train", 363846), ("validation", 40430)):
        columns = {
            "question1": [" ".join(rng.choices(words, k=rng.randint(5, 17))) for _ in range(rows)],
            "question2": [" ".join(rng.choices(words, k=rng.randint(5, 17))) for _ in range(rows)],
            "label": [rng.randrange(2) for _ in range(rows)],
            "idx": list(range(rows)),
        }
        place = mirror / "nyu-mll/glue/qqp" / f"{split}-00000-of-00001.parquet"
        place.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), place)


if __name__ == "__main__":
    main()
