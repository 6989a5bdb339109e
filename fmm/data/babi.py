"""Reader of the bAbI tasks 1 to 3 (en-10k), from the archive or the folder it unpacks to.

Source: ecoroar/dataset/babi at AndreasMadsen/faithfulness-measurable-models 8a941dcd; parsed alike.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tarfile
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fmm.data.hub import cut, kind_of_split
from fmm.data.raw import SPLITS, DatasetInfo, RawData, RawSplit, Spans, raw_split
from fmm.data.sources import TIMEOUT, download
from fmm.data.splits import split_rule
from fmm.errors import FmmError
from fmm.records import atomic_path

log = logging.getLogger(__name__)

FOLDER = "tasks_1-20_v1-2"
ARCHIVE = f"{FOLDER}.tar.gz"

OPTIONS = ("mirror", "path")  # keys of `data` that name files which are read here


def read(dataset: Mapping[str, Any], data: Mapping[str, Any], *, split: str, cache_dir: Path) -> RawData:
    """Read the questions of one task and cut 20% off train for validation by the rule `split`."""
    place, origin = _place(dataset, data, cache_dir)
    content = {name: _content(place, str(dataset["files"][name])) for name in ("train", "test")}
    sums = {name: hashlib.md5(text, usedforsecurity=False).hexdigest() for name, text in content.items()}
    rows = {name: parse(text.decode("utf-8"), dataset["labels"], place) for name, text in content.items()}
    keys = [f"0-{number}" for number in range(len(rows["train"]))]
    expected = dataset["rows"]
    reasons = [
        f"{n} has {len(rows[n])} rows, the official one {expected[n]}" for n in rows if len(rows[n]) != expected[n]
    ]
    seed = int(data.get("split_seed") or 0)
    rule = split_rule(split, seed)
    rows |= cut(rows["train"], keys, rule, seed, "train")
    kind = kind_of_split(rule, dataset, rows, reasons)
    if differing := [name for name, known in (dataset.get("md5") or {}).items() if sums[name] != known]:
        log.warning("%s: the %s file differs from the official one", dataset["name"], " and ".join(differing))
    identity = hashlib.sha256(json.dumps([sums, list(dataset["labels"]), rule]).encode()).hexdigest()
    checksums = {"md5": sums, "checksums": f"differ: {', '.join(differing)}" if differing else "equal"}
    splits = {name: rows[name] for name in SPLITS}
    return RawData(DatasetInfo.from_config(dataset), splits, origin | checksums | kind | {"identity": identity})


def parse(text: str, label_names: list[str], source: Path) -> RawSplit:
    """Questions of a bAbI file: paragraph (all statements of the story so far), question, answer.

    The supporting statements are kept as evidence. Ids are question numbers over the whole file.
    """
    paragraphs: list[str] = []
    questions: list[str] = []
    labels: list[int] = []
    evidence: list[Spans] = []
    numbers = {name: i for i, name in enumerate(label_names)}
    for paragraph, question, answer, spans in _questions(text, source):
        if answer not in numbers:
            raise FmmError(
                f"{source} has the answer {answer!r}, known are {', '.join(label_names)}; use the original files"
            )
        paragraphs.append(paragraph)
        questions.append(question)
        labels.append(numbers[answer])
        evidence.append(spans)
    return raw_split(paragraphs, questions, labels, evidence=evidence)


def _questions(text: str, source: Path) -> Iterator[tuple[str, str, str, Spans]]:
    story: list[str] = []
    place: dict[int, int] = {}
    for row, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        number, _, content = line.partition(" ")
        fields = content.split("\t")
        if not number.isdigit() or len(fields) not in (1, 3):
            raise FmmError(f"{source} line {row} is no bAbI line ({line[:40]!r}); use the original files")
        if int(number) == 1:
            story, place = [], {}
        if len(fields) == 1:
            place[int(number)] = len(story)
            story.append(content.strip())
            continue
        supporting = [place[int(n)] for n in fields[2].split() if int(n) in place]
        yield " ".join(story), fields[0].strip(), fields[1].strip(), _spans(story, supporting)


def _spans(story: list[str], supporting: list[int]) -> Spans:
    starts = [0]
    for statement in story:
        starts.append(starts[-1] + len(statement) + 1)
    return [(starts[i], starts[i] + len(story[i])) for i in sorted(supporting)]


def _place(dataset: Mapping[str, Any], data: Mapping[str, Any], cache_dir: Path) -> tuple[Path, dict[str, Any]]:
    hub = dataset["hub"]
    if data.get("path"):
        return Path(str(data["path"])).expanduser(), {"source": f"path:{data['path']}", "revision": None}
    if data.get("mirror"):
        mirror = Path(str(data["mirror"])).expanduser()
        places = [mirror / hub["id"] / hub["file"], mirror / "babi" / FOLDER, mirror / FOLDER]
        found = next((place for place in places if place.exists()), None)
        if found is None:
            raise FmmError(f"mirror {mirror} lacks bAbI; put the archive at {places[0]}, or set data.mirror=null")
        return found, {"source": f"mirror:{hub['id']}", "mirror": str(mirror), "revision": None}
    try:
        archive = download(hub["id"], hub["file"], hub["revision"])
        return archive, {"source": f"hub:{hub['id']}", "revision": hub["revision"], "commit": hub["revision"]}
    except FmmError as error:
        log.info("%s; trying %s", error, dataset["url"])
        return _original(dataset["url"], cache_dir, error), {"source": dataset["url"], "revision": None}


def _original(url: str, cache_dir: Path, hub_error: FmmError) -> Path:
    target = cache_dir / "hub" / ARCHIVE
    if target.is_file():
        return target
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
            content = answer.read()
    except OSError as error:
        raise FmmError(f"{hub_error}; the original host {url} does not answer either ({error})") from error
    with atomic_path(target) as draft:
        draft.write_bytes(content)
    return target


def _content(place: Path, file: str) -> bytes:
    name = f"{FOLDER}/en-10k/{file}"
    if place.is_dir():
        folders = (place, place / "en-10k", place / FOLDER / "en-10k")
        found = next((folder / file for folder in folders if (folder / file).is_file()), None)
        if found is None:
            raise FmmError(f"{place} lacks en-10k/{file}; unpack {ARCHIVE} there or give the archive itself")
        return found.read_bytes()
    try:
        with tarfile.open(place) as archive:
            member = archive.extractfile(name)
            return member.read() if member else b""
    except KeyError as error:
        raise FmmError(f"{place} lacks {name}; give the complete archive as data.path") from error
    except (tarfile.TarError, OSError, EOFError) as error:
        raise FmmError(f"{place} is no readable archive ({error}); fetch {ARCHIVE} again") from error
