"""Fabricated train and racu records, for the report's tests and for looking at its page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from fmm import records
from fmm.report.load import load

RATIOS = [round(0.1 * i, 1) for i in range(11)]
MEASURES = {"rand": 0.0, "grad_l2": 0.45, "inp_grad_abs": 0.15, "loo_abs": 0.55, "loo_sign": 0.95}
DATA = {"fingerprint": "f00d", "split": "test", "max_test_rows": None}


def train(output: Path, dataset: str, strategy: str, seed: int, classes: int = 2, unmasked: float = 0.9, **settings):
    """A train record. `settings` are merged into its settings. Returns the Record."""
    base = {"dataset": dataset, "data": {"fingerprint": "f00d"}, "model": {"name": "tiny"}, "seed": seed}
    base |= {"masking": {"strategy": strategy}, "training": {"max_epochs": 8}, **settings}
    run = records.open_run(output, "train", dataset, f"{strategy}-seed{seed}", base)
    rng = np.random.default_rng(seed)
    end = 1 / classes if strategy != "none" else 1 / classes - 0.08
    table = []
    for ratio in RATIOS:
        shape = 1 - ratio if strategy != "none" else (1 - ratio) ** 2.2
        value = end + (unmasked - end) * shape + rng.normal(0, 0.004)
        table.append({"masking_ratio": ratio, "accuracy": value, "macro_f1": value - 0.01, "n": 400})
    majority = {"label": "positive", "accuracy": 1 / classes, "macro_f1": 1 / classes / 2}
    results = {"model_dir": "model", "label_names": _labels(classes), "metrics": ["accuracy", "macro_f1"]}
    results |= {"checkpoint_metric": "accuracy", "convergence_threshold": 0.5, "jain_metric": None, "durations": {}}
    results |= {"test_table": table, "majority": majority, "history": [], "best_epoch": 7, "data": {}}
    return run.finish(results, seconds=60.0)


def _labels(classes: int) -> list[str]:
    return ["negative", "positive"] if classes == 2 else [f"class {i}" for i in range(classes)]


def racu(output: Path, model, measure: str, rows: int = 120, faithful: float | None = None, **settings):
    """A racu record of `measure` on the model of train record `model`, with its curve. Returns the Record."""
    seed, strategy = model.settings["seed"], model.settings["masking"]["strategy"]
    labels = model.results["label_names"]
    base: dict = {
        "model": {"key": model.key, "masking": model.settings["masking"], "trained_seed": seed, "name": "tiny"}
    }
    base |= {"dataset": model.dataset, "data": DATA, "seed": seed}
    base |= {"measure": {"name": measure}, "target": "gold", "explain": "first", "ratios": RATIOS, "masf": "authors"}
    base |= {"recursive": not measure.startswith("beam"), "dtype": "float32", **settings}
    run = records.open_run(output, "racu", model.dataset, f"{measure}-seed{seed}", base)
    strength = MEASURES.get(measure, 0.9) if faithful is None else faithful
    table = curve_table(rows, len(labels), seed, strength, strategy, noise=sum(map(ord, measure)))
    run.write_parquet("curve.parquet", table)
    results = {"n_examples": rows, "metrics": ["accuracy", "macro_f1"], "checkpoint_metric": "accuracy", "curve": []}
    results |= {"seconds": 12.0 + 30 * ("loo" in measure), "n_forward": 1300 * (1 + 9 * ("loo" in measure))}
    results |= {"forward_equivalents": results["n_forward"] * 1.0, "acu": None, "racu": None, "racu_undefined": None}
    return run.finish(results | {"baseline_key": None, "masf": None}, seconds=15.0)


def curve_table(rows: int, classes: int, seed: int, strength: float, strategy: str, noise: int) -> pa.Table:
    """The (example, ratio) table of a measure that hurts the model the faster the larger `strength` is."""
    shared, own = np.random.default_rng(seed), np.random.default_rng(1000 * seed + noise)
    labels = shared.integers(classes, size=rows)
    margin, length = shared.normal(2.2, 1.2, rows), shared.integers(4, 40, rows)
    columns: dict[str, list] = {name: [] for name in ("example_id", "masking_ratio", "label", "target", "logits")}
    columns |= {name: [] for name in ("n_masked", "n_maskable", "n_tokens", "order")}
    columns |= {"masf_authors": [], "masf_calibrated": []}
    for row in range(rows):
        for ratio in RATIOS:
            drop = 3.0 * ratio ** (1 / (1 + 2.5 * strength))
            jitter = own.normal(0, 0.25) if 0 < ratio < 1 else 0.0
            logits = np.zeros(classes, np.float32)
            logits[labels[row]] = margin[row] - drop + jitter
            shift = 0.0 if strategy != "none" else 0.9 * ratio
            p = float(own.uniform() ** (1 + 6 * shift))
            values = (row, ratio, labels[row], labels[row], logits, int(np.float32(ratio) * np.float32(length[row])))
            values += (length[row], length[row] + 2, [], p, None)
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
    types = {"example_id": pa.int64(), "masking_ratio": pa.float64(), "logits": pa.list_(pa.float32())}
    types |= {"order": pa.list_(pa.int32()), "masf_authors": pa.float64(), "masf_calibrated": pa.float64()}
    arrays = {name: pa.array(values, types.get(name, pa.int32())) for name, values in columns.items()}
    return pa.table(arrays)


def experiment(output: Path, dataset="sst2", seeds=(0, 1, 2), strategies=("half_det", "none"), measures=MEASURES, **kw):
    """Train and racu records of every strategy, seed and measure. `kw` goes to `racu`. Returns the racu Records."""
    found = []
    for strategy in strategies:
        for seed in seeds:
            model = train(output, dataset, strategy, seed, classes=6 if dataset.startswith("babi") else 2)
            found += [racu(output, model, measure, **kw) for measure in measures]
    return found


def group_of(output: Path, strategy: str = "half_det"):
    """The first group of a strategy of sst2, all groups, and the models trained alike."""
    groups, trained = load(output, ["sst2"])
    return next(g for g in groups if g.strategy == strategy), groups, trained
