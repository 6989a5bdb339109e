"""The configuration folders: their groups, and composing one configuration; errors of Hydra become sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from fmm.errors import FmmError
from fmm.settings import measure_options


@dataclass(frozen=True)
class Conf:
    """A folder of configuration with its main file, config.yaml."""

    folder: Path

    @cached_property
    def groups(self) -> dict[str, list[str]]:
        """The groups and the options of each, sorted."""
        return groups_of(self.folder)

    @cached_property
    def measures(self) -> dict[str, tuple[str, ...]]:
        """The measures that have a YAML, and the options of each."""
        return measure_options({path.stem: path for path in sorted((self.folder / "measure").glob("*.yaml"))})

    def compose(self, arguments: Sequence[str]) -> DictConfig:
        """The configuration of these overrides. Raises `FmmError`."""
        try:
            return _compose(self, tuple(arguments))
        except (HydraException, OmegaConfBaseException) as error:
            raise _explained(error, arguments) from error


@lru_cache(maxsize=8)
def groups_of(folder: Path) -> dict[str, list[str]]:
    """The groups of a configuration folder and the options of each; Hydra's own groups are left to Hydra."""
    inside = [path for path in folder.iterdir() if path.is_dir() and path.name != "hydra"]
    return {group.name: sorted(path.stem for path in group.glob("*.yaml")) for group in sorted(inside)}


@lru_cache(maxsize=4096)
def _compose(conf: Conf, arguments: tuple[str, ...]) -> DictConfig:
    if GlobalHydra.instance().is_initialized():  # inside a sweep: Hydra is already running on these very folders
        return compose("config", list(arguments))
    with initialize_config_dir(str(conf.folder), version_base="1.3", job_name="run"):
        return compose("config", list(arguments))


def _explained(error: Exception, arguments: Sequence[str]) -> FmmError:
    lines = [line.strip() for line in f"{error}\n{error.__cause__ or ''}".splitlines() if line.strip()]
    launcher = next((a.split("=", 1)[1] for a in arguments if a.startswith("hydra/launcher=")), None)
    if launcher and "hydra/launcher" in lines[0]:
        package = "submitit" if launcher == "slurm" else launcher.split("_")[0]
        return FmmError(f"hydra/launcher={launcher} is not installed: pip install hydra-{package}-launcher")
    return FmmError(f"these settings do not fit together: {'; '.join(dict.fromkeys(lines[:2])).rstrip('.:')}")
