"""The settings of one run as a whole: resolved, each as it is declared, and fitting to one another."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fmm.errors import FmmError, first_line, nearest, unknown
from fmm.schema import SETTINGS, TRAINER_RESERVED, check_measure, check_value, declared, sections
from fmm.setting import shown

LONGEST_NAME = 255  # bytes of one file name, on every common file system


def resolved(cfg: DictConfig, prefix: str = "") -> dict[str, Any]:
    """Every full key with its plain value. What only a running Hydra knows (`${hydra:...}`) is left out.

    Raises FmmError for a value that refers to nothing, to itself or to a missing environment variable.
    """
    flat: dict[str, Any] = {}
    for name in cfg:
        key = f"{prefix}{name!s}"
        try:
            value = cfg[name]
            if isinstance(value, DictConfig) and len(value) and declared(key) is None:
                flat |= resolved(value, f"{key}.")
            else:
                flat[key] = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        except (OmegaConfBaseException, RecursionError) as error:
            if "HydraConfig" in str(error):
                continue
            reason = "it refers to itself" if isinstance(error, RecursionError) else first_line(error)
            raise FmmError(f"{key}={_raw(cfg, name)} cannot be resolved ({reason}); give a value") from error
    return flat


def _raw(cfg: DictConfig, name: Any) -> str:
    return shown(OmegaConf.to_container(cfg, resolve=False)[name])  # type: ignore[index, call-overload]


def check_settings(flat: Mapping[str, Any], measures: Mapping[str, tuple[str, ...]] | None = None) -> None:
    """Raise `FmmError` unless every setting is as declared and they fit together.

    `flat` maps full keys to values, `measures` names to their options (None: not checked).
    """
    for key, value in flat.items():
        check_declared(key, flat)
        check_value(key, value)
    if measures is not None:
        check_measures(flat, measures)
    for check in (_check_dataset, _check_texts, _check_model, _check_output):
        check(flat)


def check_declared(key: str, flat: Mapping[str, Any]) -> None:
    """Raise `FmmError` for a key inside one of our sections that nothing would read.

    A key of a person's own stands beside our sections; a dataset with a reader of their own has any keys.
    """
    section, _, name = key.partition(".")
    if not name or section not in sections() or declared(key) is not None or section == "measure":
        return
    if section == "trainer" and name in TRAINER_RESERVED:
        return
    inside = [other for other in SETTINGS if other.startswith(f"{section}.") and "*" not in other]
    if section == "dataset":
        of_ours = str(flat.get("dataset.reader", "")).startswith("fmm.")
        missing = [other for other in inside if other not in flat]
        if not of_ours or "." in name or not nearest(key, missing, cutoff=0.85):
            return
        inside = missing
    raise unknown("key", key, inside)


def check_measures(flat: Mapping[str, Any], options: Mapping[str, tuple[str, ...]]) -> None:
    """Raise `FmmError` unless `measure` and `measures` are measures with options of theirs."""
    single = {key.removeprefix("measure."): value for key, value in flat.items() if key.startswith("measure.")}
    if single:
        check_measure(single, options)
    for one in flat.get("measures") or []:
        check_measure(one, options)


def _check_dataset(flat: Mapping[str, Any]) -> None:
    metrics, metric = flat.get("dataset.metrics"), flat.get("dataset.checkpoint_metric")
    if metrics and metric is not None and metric not in metrics:
        raise unknown("dataset.checkpoint_metric", str(metric), metrics)
    labels = flat.get("dataset.labels")
    if labels is None:
        return
    counts = {key: value for key, value in flat.items() if key.startswith("dataset.counts.") and value is not None}
    classes = {len(value): f"{key} counts" for key, value in counts.items()}
    if flat.get("dataset.reader") == "fmm.data.toy.read":
        classes = {2: "the generated reviews have"}
    for n, source in classes.items():
        if n != len(labels):
            raise FmmError(f"dataset.labels={shown(labels)} names {len(labels)} classes, but {source} {n}; name each")


def _check_texts(flat: Mapping[str, Any]) -> None:
    if flat.get("text_pair") is not None and flat.get("text") is None:
        raise FmmError("text_pair= is given without text=, so nothing would be explained; give text= too")
    if flat.get("text") is not None and flat.get("explanation.file") is not None:
        raise FmmError(f"text= and explanation.file={flat['explanation.file']} are both given; explain one of them")


def _check_model(flat: Mapping[str, Any]) -> None:
    size, heads = flat.get("model.hidden_size"), flat.get("model.num_heads")
    if size and heads and size % heads:
        raise FmmError(f"model.hidden_size={size} is no multiple of model.num_heads={heads}; change one of them")


def _check_output(flat: Mapping[str, Any]) -> None:
    for key in ("output_dir", "data.cache_dir", "trainer.default_root_dir"):
        if flat.get(key) is not None:
            check_folder(key, Path(os.path.expanduser(str(flat[key]))))


def check_folder(key: str, folder: Path) -> None:
    """Raise `FmmError` unless files could be written into a folder, which need not be there yet."""
    long = next((part for part in folder.parts if len(os.fsencode(part)) > LONGEST_NAME), None)
    if long is not None or "\0" in str(folder):
        raise FmmError(
            f"{key} holds a name that no disk takes ({shown(long or str(folder))[:60]}…); give a shorter one"
        )
    try:
        there = next((place for place in (folder, *folder.parents) if place.exists()), None)
    except OSError as error:
        raise FmmError(f"{key}={folder} cannot be used: {error.strerror}; give another folder") from error
    if there is None:
        raise FmmError(f"{key}={folder} cannot be made, as the working folder is gone; change into one that is there")
    if not there.is_dir():
        raise FmmError(f"{key}={folder} cannot be a folder, as {there} is a file; give another")
    if not os.access(there, os.W_OK | os.X_OK):
        raise FmmError(f"{key}={folder} cannot be written to: no permission in {there.absolute()}; give another folder")


def settled(cfg: DictConfig) -> DictConfig:
    """The configuration that a task gets: checked as a whole, with ~ as the home folder in paths."""
    flat = resolved(cfg)
    check_settings(flat)
    homes = {key: value for key, value in flat.items() if isinstance(value, str) and value.startswith("~")}
    changed = {key: value for key, value in homes.items() if (setting := declared(key)) and setting.path}
    if not changed:
        return cfg
    cfg = cfg.copy()
    for key, value in changed.items():
        OmegaConf.update(cfg, key, os.path.expanduser(value))
    return cfg


def unfolded(key: str, value: Any) -> dict[str, Any]:
    """A value that may be a section, as full keys; a declared key has what it is given as its value, a map too.

    >>> unfolded("data", {"num_workers": 2, "more": {"path": "a"}})
    {'data.num_workers': 2, 'data.more.path': 'a'}
    """
    if not isinstance(value, Mapping) or declared(key) is not None:
        return {key: value}
    return {full: inner for name in value for full, inner in unfolded(f"{key}.{name}", value[name]).items()}


def measure_options(files: Mapping[str, Path]) -> dict[str, tuple[str, ...]]:
    """The options of each measure: the keys of its YAML beside its name."""
    return {name: tuple(option for option in _keys(path) if option != "name") for name, path in files.items()}


def _keys(path: Path) -> Sequence[str]:
    try:
        content = OmegaConf.load(path)
    except (OSError, ValueError):
        return ()
    return [str(key) for key in content] if isinstance(content, DictConfig) else ()
