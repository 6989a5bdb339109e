"""Random-masking test of all trained models as CSV: `python benchmarks/random_masking.py <output_dir> > table.csv`.

A row for each finished `task=train` record: the checkpoint metric in percent at each ratio, and the majority's.
"""

from __future__ import annotations

import csv
import sys

from fmm import records


def main() -> None:
    """Print the table, sorted by dataset, masking and seed."""
    trained = records.load_all(sys.argv[1], "train")
    trained.sort(key=lambda run: (run.dataset, run.settings["masking"]["strategy"], run.settings["seed"]))
    writer, ratios = csv.writer(sys.stdout, lineterminator="\n"), None
    for run in trained:
        table, metric = run.results["test_table"], run.results["checkpoint_metric"]
        if ratios is None:
            ratios = [step["masking_ratio"] for step in table]
            shares = [f"{ratio:.0%}" for ratio in ratios]
            writer.writerow(["dataset", "masking", "seed", "metric", "n", *shares, "majority"])
        values = [f"{100 * step[metric]:.1f}" for step in table]
        majority = f"{100 * run.results['majority'][metric]:.1f}"
        settings = run.settings
        kind = [run.dataset, settings["masking"]["strategy"], settings["seed"], metric, table[0]["n"]]
        writer.writerow([*kind, *values, majority])


if __name__ == "__main__":
    main()
