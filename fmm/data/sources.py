"""Where the files of a hub dataset are: in a local mirror, or on the hub at a recorded commit."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fmm.errors import FmmError, first_line
from fmm.records import write_json

log = logging.getLogger(__name__)

TIMEOUT = 10  # seconds for the hub's first answer


@dataclass
class Source:
    """Files of each hub split, and what the record says about them (plain JSON)."""

    files: dict[str, list[Path]]
    origin: dict[str, Any] = field(default_factory=dict)


def locate(dataset: Mapping[str, Any], splits: Iterable[str], mirror: str | None, cache_dir: Path) -> Source:
    """Find the Parquet files of `splits`, with their sha256. Raises FmmError where mirror or network lack them.

    Checksums are compared with the dataset's `hub.sha256` when the files come from the hub; a mirror may have been
    compressed anew.
    """
    hub = dataset["hub"]
    names = sorted(set(splits))
    source = from_mirror(Path(mirror).expanduser(), hub, names) if mirror else from_hub(hub, names, cache_dir)
    sums = {name: [sha256(path) for path in paths] for name, paths in source.files.items()}
    source.origin["sha256"] = sums
    if not mirror:
        source.origin["checksums"] = compare(sums, hub.get("sha256") or {}, hub["id"])
    return source


def from_mirror(mirror: Path, hub: Mapping[str, Any], splits: list[str]) -> Source:
    """Files of a mirror in the hub's layout: <mirror>/<id>/<config>/<split>-*.parquet."""
    if not mirror.is_dir():
        raise FmmError(f"data.mirror={mirror} is not a folder; give a folder in the hub's layout, or null for the hub")
    folder = mirror / hub["id"] / hub["config"]
    files = {}
    for split in splits:
        files[split] = sorted(folder.glob(f"{split}-*.parquet")) or sorted((folder / split).glob("*.parquet"))
        if not files[split]:
            raise FmmError(
                f"mirror {mirror} lacks the split {split!r} of {hub['id']} ({hub['config']}); "
                f"put it at {folder}/{split}-00000-of-00001.parquet, or set data.mirror=null to use the hub"
            )
    return Source(files, {"source": f"mirror:{hub['id']}/{hub['config']}", "mirror": str(mirror), "revision": None})


def from_hub(hub: Mapping[str, Any], splits: list[str], cache_dir: Path) -> Source:
    """Files on the hub at the first of `hub.revisions` that has them as Parquet.

    The commit and the file names are kept beside the cache, so that later runs use the same ones without network.
    """
    note = cache_dir / "hub" / f"{hub['id'].replace('/', '--')}--{hub['config']}.json"
    found = _noted(note, hub, splits)
    if found is None:
        found = _resolve(hub, splits)
        write_json(note, found)
    files = {split: [download(hub["id"], name, found["commit"]) for name in found["files"][split]] for split in splits}
    origin = {"source": f"hub:{hub['id']}/{hub['config']}", "revision": found["revision"], "commit": found["commit"]}
    return Source(files, origin)


def _noted(note: Path, hub: Mapping[str, Any], splits: list[str]) -> dict[str, Any] | None:
    try:
        found = json.loads(note.read_text())
        usable = found["revision"] in hub["revisions"] and set(splits) <= set(found["files"])
        return found if usable else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _resolve(hub: Mapping[str, Any], splits: list[str]) -> dict[str, Any]:
    import datasets

    reasons = []
    for revision in hub["revisions"]:
        commit = _commit(hub, revision)
        if commit is None:
            reasons.append(f"{revision} does not exist")
            continue
        try:
            builder = datasets.load_dataset_builder(hub["id"], hub["config"], revision=commit)
        except (RuntimeError, ValueError, FileNotFoundError) as error:
            # RuntimeError: a script dataset, which `datasets` no longer runs; ValueError: no such configuration.
            reasons.append(f"{revision}: {first_line(error)}")
            continue
        urls = builder.config.data_files or {}
        missing = [split for split in splits if split not in urls]
        if not missing:
            files = {split: [_path_in_repository(url) for url in urls[split]] for split in splits}
            return {"revision": revision, "commit": commit, "files": files}
        reasons.append(f"{revision} lacks the split {missing[0]!r}")
    raise FmmError(
        f"hub dataset {hub['id']} ({hub['config']}) cannot be loaded ({'; '.join(reasons)}); "
        "set data.mirror to a folder that has its Parquet files"
    )


def _commit(hub: Mapping[str, Any], revision: str) -> str | None:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RevisionNotFoundError

    try:
        return HfApi().dataset_info(hub["id"], revision=revision, timeout=TIMEOUT).sha
    except RevisionNotFoundError:
        return None
    except Exception as error:  # the client raises its transport's errors, which differ between versions
        raise unreachable(hub["id"], f"{hub['config']}/<split>-*.parquet", error) from error


def download(hub_id: str, name: str, commit: str) -> Path:
    """Fetch one file of a hub dataset at a commit; from the hub's own cache when it is there."""
    from huggingface_hub import HfApi, hf_hub_download, try_to_load_from_cache

    cached = try_to_load_from_cache(hub_id, name, revision=commit, repo_type="dataset")
    if isinstance(cached, str):
        return Path(cached)
    try:
        # Without network this fails at once, where the download below would retry for half a minute.
        HfApi().dataset_info(hub_id, revision=commit, timeout=TIMEOUT)
        return Path(hf_hub_download(hub_id, name, revision=commit, repo_type="dataset"))
    except Exception as error:
        raise unreachable(hub_id, name, error) from error


def unreachable(hub_id: str, name: str, error: Exception) -> FmmError:
    """The sentence for a hub that does not answer."""
    return FmmError(
        f"cannot reach {hub_id} on the Hugging Face hub ({first_line(error)}); check the network, "
        f"or set data.mirror=<folder> to a copy in the hub's layout (<folder>/{hub_id}/{name})"
    )


def _path_in_repository(url: str) -> str:
    match = re.fullmatch(r"hf://datasets/[^/]+/[^/@]+@[^/]+/(.+)", str(url))
    if match is None:
        raise FmmError(f"cannot tell which file of the hub {url!r} is; set data.mirror to a local copy")
    return match.group(1)


def compare(found: Mapping[str, list[str]], expected: Mapping[str, str], name: str) -> str:
    """Compare sha256 sums of splits with known ones. Returns `equal`, `none known` or a list of what differs."""
    known = [split for split in found if split in expected]
    differing = [split for split in known if found[split] != [expected[split]]]
    if differing:
        log.warning("%s: the files of %s are not those this framework was checked with", name, ", ".join(differing))
        return f"differ: {', '.join(differing)}"
    return "equal" if known else "none known"


def sha256(path: Path) -> str:
    """sha256 of a file's bytes. Raises FmmError when it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise FmmError(f"cannot read {path} ({error.strerror}); check the path and its permissions") from error
