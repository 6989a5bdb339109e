"""Kill every task at random moments and compare what the same command ends with: `python benchmarks/kills.py`.

Each command runs once undisturbed. Then it runs in a folder of its own, where it is killed at random moments
(SIGKILL, SIGTERM, SIGINT) a number of times and started again, until it ends by itself. Everything it leaves must
equal what the undisturbed run left, but for times: weights and Parquet files to the byte, records and texts without
their times and paths. Nothing half written may stay behind. Ends with 1 where anything differs.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TOY = (
    "dataset=toy", "trainer=cpu", "logger=csv", "data.max_train_rows=320", "data.max_eval_rows=80",
    "data.max_test_rows=40", "training.max_epochs=4", "training.batch_size=8", "ratios=[0,0.25,0.5,0.75,1]",
    "trainer.save_every_minutes=0.01", "model.hidden_size=32", "model.num_layers=1", "model.num_heads=2",
)  # fmt: skip
TASKS = {  # name: (the settings, the tasks that must be done before)
    "train": (("task=train",), ()),
    "train without saves within epochs": (("task=train", "trainer.save_every_minutes=null"), ()),
    "sweep": (("-m", "task=train", "seed=0,1"), ()),
    "masf": (("task=masf",), ("train",)),
    "racu": (("task=racu", "measures=[rand,grad_l2,loo_sign]"), ("train",)),
    "explain": (("task=explain", "measures=[grad_l2,loo_sign]"), ("train",)),
    "check": (("task=check",), ("train",)),
    "report": (("task=report",), ("train", "racu")),
    "pipeline": (("task=pipeline", "measures=[grad_l2]"), ()),
}
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
STATUS = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGKILL: -9}
TIMES = ("seconds", "durations", "created", "pieces", "date", "test_work", "work", "cost", "seconds_per_row")
LEFTOVERS = ("*.tmp", "checkpoints", "last.ckpt")


def main() -> int:
    """Kill each task and say how often, and what differed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=8, help="how often each task is killed")
    parser.add_argument("--seed", type=int, default=0, help="of the moments and signals")
    parser.add_argument("--tasks", default=",".join(TASKS), help="which tasks, with commas between them")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in options.tasks.split(","):
            kills, early, differences = killed(name, Path(folder) / name.replace(" ", "_"), options.kills, draw)
            print(f"{name}: {kills} kills, {early} of them before it wrote anything, {len(differences)} differences")
            for difference in differences:
                print(f"  {difference}")
            sys.stdout.flush()
            wrong += len(differences)
    return int(wrong > 0)


def killed(name: str, folder: Path, kills: int, draw: random.Random) -> tuple[int, int, list[str]]:
    """Run a task undisturbed, then with `kills` kills. Returns kills, kills that met no file yet, and differences."""
    settings, before = TASKS[name]
    outputs = {kind: folder / kind for kind in ("whole", "again", "killed")}
    for output in outputs.values():
        for needed in before:
            run(TASKS[needed][0], output)
    started = time.monotonic()
    run(settings, outputs["whole"])
    length = time.monotonic() - started
    run(settings, outputs["again"])  # what differs from the first without any kill cannot be compared
    differences: list[str] = []
    early = done = 0
    while done < kills:
        process = start(settings, outputs["killed"])
        number = draw.choice(SIGNALS)
        try:
            process.wait(timeout=draw.uniform(0.15, 1.0) * length)
            if process.returncode != 0:
                differences.append(f"ended by itself with {process.returncode}")
            for record in outputs["killed"].glob("*/*/*/record.json"):
                if not any(record.match(f"{needed}/*/*/*") for needed in before):
                    record.unlink()  # done before it was killed: again, from its last part
            continue
        except subprocess.TimeoutExpired:
            early += not outputs["killed"].exists()
            process.send_signal(number)
            status = process.wait(timeout=120)
        done += 1
        # -number: the signal came before Python could hear it, or when it had stopped listening.
        if status not in (STATUS[number], -number, 0):
            differences.append(f"{number.name} ended with {status}")
    run(settings, outputs["killed"])
    incomparable = {path for path, *_ in compared(outputs["whole"], outputs["again"])}
    for path, reason in compared(outputs["whole"], outputs["killed"]):
        if path not in incomparable:
            differences.append(f"{path}: {reason}")
    differences += [f"left behind: {path}" for path in leftovers(outputs["killed"])]
    return done, early, differences


def start(settings: tuple[str, ...], output: Path) -> subprocess.Popen[bytes]:
    """Start a command in an output folder."""
    sweep = (f"hydra.sweep.dir={output}.sweep",) if "-m" in settings else ()
    command = [sys.executable, str(ROOT / "run.py"), *settings, *TOY, f"output_dir={output}", *sweep]
    given = {setting.split("=")[0] for setting in settings}
    command = [word for word in command if word in settings or word.split("=")[0] not in given]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def run(settings: tuple[str, ...], output: Path) -> None:
    """Run a command to its end."""
    if start(settings, output).wait() != 0:
        raise SystemExit(f"run.py {' '.join(settings)} fails undisturbed")


def compared(one: Path, other: Path) -> Iterator[tuple[Path, str]]:
    """Files that differ, with how."""
    names = {path.relative_to(folder) for folder in (one, other) for path in folder.rglob("*") if path.is_file()}
    for name in sorted(names):
        if name.suffix in (".lock", ".log", ".png") or name.name.startswith("."):
            continue
        if not (one / name).exists() or not (other / name).exists():
            yield name, "missing in one of them"
        elif content(one / name, one) != content(other / name, other):
            yield name, "differs"


def content(path: Path, output: Path) -> Any:
    """What a file says, without times and the name of the folder."""
    if path.suffix == ".json":
        return without_times(json.loads(path.read_text().replace(str(output), "OUT")))
    if path.suffix in (".html", ".csv", ".txt", ".md"):
        return re.sub(r"\d+(\.\d+)? ?(ms|s|min)\b|\d{4}-\d\d-\d\d[T ][\d:+.Z]*", "", path.read_text()).replace(
            str(output), "OUT"
        )
    return path.read_bytes()


def without_times(value: Any) -> Any:
    """A JSON value without the fields that hold times."""
    if isinstance(value, dict):
        return {key: without_times(part) for key, part in value.items() if key not in TIMES}
    if isinstance(value, list):
        return [without_times(part) for part in value]
    return value


def leftovers(output: Path) -> list[Path]:
    """Half-written files and checkpoints that nobody will read again."""
    return [path.relative_to(output) for pattern in LEFTOVERS for path in output.rglob(pattern)]


if __name__ == "__main__":
    sys.exit(main())
