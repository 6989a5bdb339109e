"""One report is about one experiment: records that differ in more than seed, measure and masking are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fmm.errors import FmmError
from fmm.records import Record

_VERSIONS = ("fmm", "torch", "transformers")


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one level of dotted names.

    >>> flatten({"data": {"split": "test"}, "seed": 0})
    {'data.split': 'test', 'seed': 0}
    """
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def check(runs: Sequence[Record], models: Mapping[str, Record], allow: Iterable[str] = ()) -> None:
    """Refuse racu records `runs` that do not belong in one report. `models` maps a model key to its train record.

    `allow` names settings (dotted, a whole subtree by its name) that may differ all the same.
    Raises FmmError that names the setting, its values and the records that hold them.
    """
    allowed = tuple(name for name in allow if name not in _NEVER)
    if "data.max_test_rows" in allowed:
        allowed += ("data.fingerprint",)  # it covers the choice of rows
    _agree(runs, _versions, lambda run: "", (), allowed)
    for group, ignored in _RULES:
        _agree(runs, _settings, group, ignored, allowed)
    used = [models[key] for key in sorted({model_key(run) for run in runs}) if key in models]
    _agree(used, _training, lambda run: run.dataset, _TRAINED_APART, allowed)


_NEVER = ("ratios",)  # an area under a curve says nothing beside one over other ratios
_TRAINED_APART = ("train.seed", "train.masking")


def trained_alike(used: Iterable[Record], trained: Iterable[Record]) -> list[Record]:
    """Those of the `trained` records that differ from one of the `used` models in nothing but seed and masking."""

    def common(model: Record) -> tuple[str, dict[str, Any]]:
        return model.dataset, {k: v for k, v in _training(model).items() if not _matches(k, _TRAINED_APART)}

    wanted = [common(model) for model in used]
    return [model for model in trained if common(model) in wanted]


def _settings(run: Record) -> dict[str, Any]:
    """Settings by dotted name; a record from before there were several random orders has one."""
    return {"baseline.draws": 1} | flatten(run.settings)


def _training(model: Record) -> dict[str, Any]:
    return {f"train.{name}": value for name, value in flatten(model.settings).items()}


def _versions(run: Record) -> dict[str, Any]:
    return {f"versions.{name}": run.versions.get(name) for name in _VERSIONS}


def measure(run: Record) -> str:
    """Name of the measure of a racu record."""
    value = run.settings["measure"]
    return str(value["name"] if isinstance(value, Mapping) else value)


def strategy(run: Record) -> str:
    """Masking strategy that the model of a racu record was fine-tuned with; "unknown" for a checkpoint of the user."""
    masking = run.settings["model"].get("masking") or "unknown"
    return str(masking["strategy"] if isinstance(masking, Mapping) else masking)


def seed(run: Record) -> int:
    """Seed of a racu record."""
    return int(run.settings["seed"])


def model_key(run: Record) -> str:
    """Key of the train record (or checkpoint) whose model a racu record explains."""
    return str(run.settings["model"]["key"])


# What must be equal among whom, and what may differ: a table sets seeds, models and measures side by side.
_SEED = ("seed", "model.key", "model.trained_seed")
_MEASURE = ("measure", "recursive")
_RULES: list[tuple[Callable[[Record], str], tuple[str, ...]]] = [
    (lambda run: run.dataset, (*_SEED, *_MEASURE, "model")),
    (lambda run: f"{run.dataset} {strategy(run)}", (*_SEED, *_MEASURE)),
    (lambda run: f"{run.dataset} {measure(run)}", (*_SEED, "model")),
    (lambda run: f"{run.dataset} {strategy(run)} {measure(run)} {seed(run)}", ()),
]


def _agree(
    runs: Iterable[Record],
    values: Callable[[Record], dict[str, Any]],
    group: Callable[[Record], str],
    ignored: tuple[str, ...],
    allowed: tuple[str, ...],
) -> None:
    """Raise unless all runs of a group have equal values, but for the `ignored` and `allowed` names."""
    seen: dict[tuple[str, str], tuple[Any, Record]] = {}
    for run in runs:
        # the fingerprint last: it only sums up what another setting may name
        for name, value in sorted(values(run).items(), key=lambda item: item[0].endswith("fingerprint")):
            if _matches(name, ignored) or _matches(name, allowed):
                continue
            first, other = seen.setdefault((group(run), name), (value, run))
            if first != value:
                raise FmmError(_sentence(name, first, value, other, run))


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(name == p or name.startswith(p if p.endswith(".") else f"{p}.") for p in patterns)


def _sentence(name: str, first: Any, second: Any, one: Record, other: Record) -> str:
    remedy = "" if name in _NEVER else f", or let it differ with 'report.allow=[{name}]'"
    return (
        f"records that differ in {name} do not go into one report: {first!r} in {one.directory}, {second!r} in "
        f"{other.directory}; choose one with 'report.where=[\"{name}={first}\"]'{remedy}"
    )


def select(runs: Sequence[Record], models: Mapping[str, Record], where: Iterable[str]) -> list[Record]:
    """Runs whose settings match every "name=value" of `where`; names as in the refusals of `check`.

    Raises FmmError for a condition that is not of that form, or that names no setting of any run.
    """
    kept = list(runs)
    for condition in where:
        name, separator, wanted = str(condition).partition("=")
        if not separator:
            raise FmmError(f"report.where holds {condition!r}; write name=value, such as data.max_test_rows=100")
        held = [_described(run, models).get(name, _MISSING) for run in kept]
        if kept and all(value is _MISSING for value in held):
            known = ", ".join(sorted(_described(kept[0], models)))
            raise FmmError(f"report.where names {name!r}, which no record has; choose from {known}")
        kept = [run for run, value in zip(kept, held) if str(value) == wanted]
    return kept


_MISSING = object()


def _described(run: Record, models: Mapping[str, Record]) -> dict[str, Any]:
    model = models.get(model_key(run))
    return _settings(run) | _versions(run) | (_training(model) if model else {})
