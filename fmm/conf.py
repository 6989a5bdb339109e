"""The configuration folders: their groups, and composing one configuration; errors of Hydra become sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path

from hydra import compose, version
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from fmm.errors import FmmError
from fmm.setting import shown
from fmm.settings import measure_options

SEARCHPATH = "hydra.searchpath="


@dataclass(frozen=True)
class Conf:
    """A folder of configuration.

    Attributes:
        folder: the main folder. name: its main file, without .yaml.
        more: a person's own folders, in which what the main one lacks is looked for.
    """

    folder: Path
    name: str = "config"
    more: tuple[Path, ...] = ()

    @classmethod
    def running(cls, cfg: DictConfig) -> Conf:
        """The folders that a running Hydra has composed `cfg` from."""
        sources = [source for source in cfg.hydra.runtime.config_sources if source.schema in ("file", "pkg")]
        main = next(source for source in sources if source.provider == "main")
        others = [source for source in sources if source.provider not in ("main", "hydra")]
        more = tuple(_folder(f"{source.schema}://{source.path}") for source in others)
        return cls(Path(main.path), str(cfg.hydra.job.config_name), more)

    @cached_property
    def groups(self) -> dict[str, list[str]]:
        """The groups and the options of each, sorted."""
        options: dict[str, set[str]] = {}
        for folder in (self.folder, *self.more):
            for group, names in groups_of(folder).items():
                options.setdefault(group, set()).update(names)
        return {group: sorted(options[group]) for group in sorted(options)}

    @cached_property
    def measures(self) -> dict[str, tuple[str, ...]]:
        """The measures that have a YAML, and the options of each."""
        folders = (*reversed(self.more), self.folder)
        files = [path for folder in folders for path in sorted((folder / "measure").glob("*.yaml"))]
        return measure_options({path.stem: path for path in files})

    def with_searchpath(self, searchpath: object) -> Conf:
        """These folders and those of `hydra.searchpath`. Raises `FmmError` for one that is not there."""
        if not isinstance(searchpath, list) or not all(isinstance(place, str) for place in searchpath):
            raise FmmError(
                f"hydra.searchpath={shown(searchpath)} is no list of folders, such as [file:///home/me/conf]"
            )
        return replace(self, more=(*self.more, *(_folder(place) for place in searchpath)))

    def compose(self, arguments: Sequence[str], with_hydra: bool = False) -> DictConfig:
        """The configuration of these overrides, with that of Hydra under `hydra` or not. Raises `FmmError`."""
        try:
            return _compose(self, tuple(arguments), with_hydra)
        except (HydraException, OmegaConfBaseException) as error:
            raise _explained(error, arguments) from error


@lru_cache(maxsize=8)
def groups_of(folder: Path) -> dict[str, list[str]]:
    """The groups of a configuration folder and the options of each; Hydra's own groups are left to Hydra."""
    inside = [path for path in folder.iterdir() if path.is_dir() and path.name != "hydra"]
    return {group.name: sorted(path.stem for path in group.glob("*.yaml")) for group in sorted(inside)}


@lru_cache(maxsize=4096)
def _compose(conf: Conf, arguments: tuple[str, ...], with_hydra: bool) -> DictConfig:
    if GlobalHydra.instance().is_initialized():  # inside a sweep: Hydra is already running on these very folders
        return compose(conf.name, _with_folders(conf, arguments), return_hydra_config=with_hydra)
    version.setbase("1.3")
    path = create_config_search_path(str(conf.folder))
    for folder in conf.more:  # where Hydra puts --config-dir
        path.prepend("command-line", f"file://{folder}", SearchPathQuery(provider="schema"))
    try:
        Hydra.create_main_hydra2("run", path)
        return compose(conf.name, list(arguments), return_hydra_config=with_hydra)
    finally:
        GlobalHydra.instance().clear()


def _with_folders(conf: Conf, arguments: Sequence[str]) -> list[str]:
    """The overrides, with a person's own folders, of which the running Hydra may have got some by an override only."""
    if not conf.more:
        return list(arguments)
    places = ",".join(f"'file://{folder}'" for folder in conf.more)
    others = [argument for argument in arguments if not argument.startswith(SEARCHPATH)]
    return [f"{SEARCHPATH}[{places}]", *others]


def _folder(place: str) -> Path:
    """The folder of one entry of `hydra.searchpath`: `file:///a/folder`, `a/folder` or `pkg://a.package`."""
    if place.startswith("pkg://"):
        try:
            package = find_spec(place.removeprefix("pkg://").replace("/", "."))
        except (ImportError, ValueError):
            package = None
        locations = list(package.submodule_search_locations or ()) if package else []
        folder = Path(locations[0]) if locations else None
    else:
        folder = Path(place.removeprefix("file://")).absolute()
    if folder is None or not folder.is_dir():
        raise FmmError(f"hydra.searchpath holds {place}, which is no folder; give one with groups as in conf/")
    return folder


def _explained(error: Exception, arguments: Sequence[str]) -> FmmError:
    lines = [line.strip() for line in f"{error}\n{error.__cause__ or ''}".splitlines() if line.strip()]
    launcher = next((a.split("=", 1)[1] for a in arguments if a.startswith("hydra/launcher=")), None)
    if launcher and "hydra/launcher" in lines[0]:
        package = "submitit" if launcher == "slurm" else launcher.split("_")[0]
        return FmmError(f"hydra/launcher={launcher} is not installed: pip install hydra-{package}-launcher")
    return FmmError(f"these settings do not fit together: {'; '.join(dict.fromkeys(lines[:2])).rstrip('.:')}")
