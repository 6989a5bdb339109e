"""What a folder holds that is given as a model: a sentence for everything that is not a Hugging Face model folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from fmm.errors import FmmError

WEIGHTS = ("model.safetensors", "pytorch_model.bin", "model.safetensors.index.json", "pytorch_model.bin.index.json")
_FOREIGN = {
    ".h5": "TensorFlow",
    ".msgpack": "Flax",
    ".onnx": "ONNX",
    ".gguf": "GGUF",
    ".ot": "rust-bert",
    ".tflite": "TensorFlow Lite",
    ".mlmodel": "Core ML",
}
_TENSORS = (".safetensors", ".bin", ".pt", ".pth")
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z")
_POINTER = b"version https://git-lfs"  # what git leaves in place of a large file where git-lfs is not installed
_DEPTH = 3  # folders below the one that is given in which a model is looked for
_PRETRAINED = "model.save_pretrained(<folder>) and tokenizer.save_pretrained(<folder>)"


def check_model_folder(name: str) -> None:
    """Refuse a path that is no Hugging Face model folder, naming what it is and how to make it one. Hub ids pass.

    Raises FmmError.
    """
    path = Path(name)
    if path.is_file():
        raise FmmError(_of_file(path))
    if not path.is_dir():
        if path.is_absolute() or name.startswith((".", "~")):
            raise FmmError(
                f"model folder {name!r} does not exist; give a folder with config.json, a train record's folder or a "
                "hub id"
            )
        if name.count("/") > 1 or path.suffix in (".ckpt", *_TENSORS, *_FOREIGN):
            raise FmmError(
                f"{name!r} is neither there nor a hub id, which is <owner>/<name>; give a folder with config.json, a "
                "train record's folder or a hub id"
            )
        return
    files = {entry.name for entry in path.iterdir()}
    _check_pointers(path)
    if "adapter_config.json" in files:
        raise FmmError(_of_adapter(path))
    if "config.json" not in files:
        raise FmmError(_without_configuration(path, files))
    configuration = _json(path / "config.json")
    if not configuration and (dangling := _of_dangling_link(path)):
        raise FmmError(dangling)
    if "model_type" not in configuration:
        raise FmmError(
            f"{name}/config.json names no model_type, so that nobody can tell what model it is; "
            "copy the config.json of the model that was trained into the folder"
        )
    if not any((path / weights).exists() for weights in WEIGHTS):
        raise FmmError(_without_weights(path, files))


def _check_pointers(path: Path) -> None:
    for file in sorted(path.iterdir()):
        if not file.is_file() or file.stat().st_size > 1000:
            continue
        with open(file, "rb") as content:
            if content.read(len(_POINTER)) == _POINTER:
                raise FmmError(
                    f"{file} is a pointer of Git LFS and not the file itself; run `git lfs install` and `git lfs pull` "
                    "in that folder"
                )


def _of_file(path: Path) -> str:
    kind = path.suffix.lower()
    if path.name in ("adapter_model.safetensors", "adapter_model.bin"):
        return _of_adapter(path.parent)
    if (path.parent / "config.json").exists() and kind != ".ckpt":
        return f"{path} is a file in a model folder; give the folder {path.parent}"
    if kind == ".ckpt":
        return (
            f"{path} is a Lightning checkpoint, which holds weights but neither configuration nor tokenizer; load it "
            f"into its model (<LightningModule>.load_from_checkpoint) and save that as a folder with {_PRETRAINED}"
        )
    if kind in _TENSORS:
        return (
            f"{path} is a file of weights without configuration and tokenizer; load it into its model "
            f"(model.load_state_dict) and save that as a folder with {_PRETRAINED}"
        )
    if kind in _FOREIGN:
        return (
            f"{path} is a file of {_FOREIGN[kind]}, which PyTorch does not read; give the folder of the model that it "
            "was converted from, with its config.json, model.safetensors and tokenizer"
        )
    if kind in _ARCHIVES:
        return f"{path} is an archive; unpack it and give the folder in it that has config.json, weights and tokenizer"
    return f"{path} is a file; a model is a folder with config.json, weights and tokenizer: give the folder"


def _of_adapter(path: Path) -> str:
    settings = _json(path / "adapter_config.json")
    base = settings.get("base_model_name_or_path")
    if base is None:
        return (
            f"{path} is an adapter ({settings.get('model_name', 'of an unnamed model')}) and no whole model; load its "
            f"base model with it, merge the two, and save the result as a folder with {_PRETRAINED}"
        )
    return (
        f"{path} is a PEFT adapter of {base!r} and no whole model; merge it once and give the new folder: "
        f"model = peft.AutoPeftModelForSequenceClassification.from_pretrained({str(path)!r}, num_labels=<labels>); "
        "model.merge_and_unload().save_pretrained(<folder>); "
        f"AutoTokenizer.from_pretrained({base!r}).save_pretrained(<folder>)"
    )


def _of_dangling_link(path: Path) -> str | None:
    """The sentence for a link that leads nowhere, as in a copy of the hub's cache without its blobs."""
    for name in ("config.json", *WEIGHTS):
        link = path / name
        if link.is_symlink() and not link.exists():
            return (
                f"{link} is a link to {os.readlink(link)}, which is not there; copy the files themselves (cp -rL) or "
                "fetch the model again"
            )
    return None


def _without_configuration(path: Path, files: set[str]) -> str:
    if sharded := _of_sharded_training(path):
        return sharded
    if adapters := sorted(path.glob("checkpoint-*/adapter_config.json")):
        return _of_adapter(adapters[-1].parent)
    nested = _nested_models(path)
    if checkpoints := [folder for folder in nested if folder.name.startswith("checkpoint-")]:
        best = _best_checkpoint(checkpoints) or checkpoints[-1]
        return (
            f"{path} is the output folder of a Trainer, without a model at its top; give one of its "
            f"{len(checkpoints)} checkpoints, such as {best}"
        )
    if "modules.json" in files and nested:
        return f"{path} is a sentence-transformers folder; the encoder lies in {nested[0]}: give that folder"
    if nested:
        return f"{path} has no config.json; a model lies in {nested[0]}: give that folder"
    if lightning := sorted(name for name in files if name.endswith(".ckpt")):
        return _of_file(path / lightning[0])
    if "record.json" in files:
        return f"{path} is the folder of a run whose model is not there: training did not end; run its command again"
    if not files:
        return f"model folder {path} is empty; give a folder with config.json, weights and tokenizer, or a hub id"
    return (
        f"{path} has no config.json (it holds {_listed(files)}); give a folder that "
        "save_pretrained left, or copy the config.json of the model that was trained into it"
    )


def _without_weights(path: Path, files: set[str]) -> str:
    if dangling := _of_dangling_link(path):
        return dangling
    if sharded := _of_sharded_training(path):
        return sharded
    foreign = sorted(file for file in files if Path(file).suffix in _FOREIGN)
    if foreign:
        kind = _FOREIGN[Path(foreign[0]).suffix]
        return (
            f"the weights in {path} are {kind}'s ({foreign[0]}), which PyTorch does not read; convert them and save "
            "the model as model.safetensors"
        )
    others = sorted(file for file in files if file.endswith((".safetensors", ".bin", ".pt", ".pth")))
    if others and "-of-" in others[0]:
        return (
            f"{path} has parts of a model ({others[0]}) without the index that says what lies where "
            "(model.safetensors.index.json); copy it from where the model comes from"
        )
    if others:
        right = WEIGHTS[0] if others[0].endswith(".safetensors") else WEIGHTS[1]
        return (
            f"{path} has weights under another name ({others[0]}); if they are the model's state_dict, rename the file "
            f"to {right}"
        )
    if nested := _nested_models(path):
        return f"{path} has no weights beside its config.json; a model lies in {nested[0]}: give that folder"
    if converted := sorted(file for suffix in _FOREIGN for file in path.glob(f"*/*{suffix}")):
        return (
            f"{path} has weights of {_FOREIGN[converted[0].suffix]} alone ({converted[0].relative_to(path)}), which "
            "PyTorch does not read; fetch its model.safetensors too"
        )
    return (
        f"the weights of {str(path)!r} could not be loaded: there are none beside its config.json "
        "(model.safetensors); save or fetch the model again"
    )


def _of_sharded_training(path: Path) -> str | None:
    """The sentence for what DeepSpeed and FSDP leave: each process's part of the weights."""
    if (path / "zero_to_fp32.py").exists() or any(path.glob("global_step*")):
        return (
            f"{path} is a DeepSpeed checkpoint, in parts; gather it by `python zero_to_fp32.py . . "
            "--safe_serialization` in that folder, beside the model's config.json and tokenizer"
        )
    if any(path.glob("*/*.distcp")):
        return (
            f"{path} is an FSDP checkpoint, in parts; gather it by `accelerate merge-weights` into a folder with the "
            "model's config.json and tokenizer"
        )
    return None


def _nested_models(path: Path) -> list[Path]:
    """Folders below with a model, the nearest first; Trainer checkpoints by step, the last one last."""
    levels = [sorted(path.glob("*/" * depth + "config.json")) for depth in range(1, _DEPTH + 1)]
    folders = [entry.parent for level in levels for entry in level]
    models = [folder for folder in folders if any((folder / weights).exists() for weights in WEIGHTS)]

    def step(folder: Path) -> tuple[int, int, str]:
        number = folder.name.rpartition("-")[2]
        return (len(folder.parts), int(number) if number.isdigit() else -1, folder.name)

    return sorted(models, key=step)


def _best_checkpoint(checkpoints: list[Path]) -> Path | None:
    """The checkpoint that the Trainer's own state calls its best, where it is still there."""
    state = _json(checkpoints[-1] / "trainer_state.json")
    best = Path(str(state.get("best_model_checkpoint"))).name
    return next((folder for folder in checkpoints if folder.name == best), None)


def _json(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is none. Raises FmmError for a configuration that is damaged."""
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise FmmError(f"{path} is damaged ({error}); save or fetch the model again") from error
    return content if isinstance(content, dict) else {}


def _listed(files: set[str]) -> str:
    names = sorted(files)
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
