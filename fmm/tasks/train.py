"""`task=train`: from raw text to a tested, masked fine-tuned model with its record."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from safetensors import SafetensorError

from fmm import metrics, team
from fmm.checkpoints import (
    BEST,
    LAST,
    AtomicCheckpointIO,
    EpochHistory,
    SavesWithinEpoch,
    checkpoint_callbacks,
    resumable,
    say,
)
from fmm.data.labels import target_label
from fmm.draws import Draw
from fmm.errors import FmmError, first_line
from fmm.finetune import MaskedFineTuning
from fmm.models import build, tiny
from fmm.models.weights import Loading, zero_embeddings
from fmm.records import Record, Run
from fmm.report.training import draw_random_masking
from fmm.tasks import forecast, random_masking
from fmm.tasks.common import check_training, container, datamodule, quiet_transformers, train_run
from fmm.tracking import Tracker, tracker
from fmm.trainer import build_trainer, check_trainer, interruptible

Company = Callable[[DictConfig, str], AbstractContextManager[None]]

# What a record says of the fit; kept where only the test is done again.
_FITTED = ("history", "pieces", "best_epoch", "steps", "precision", "device", "devices", "loading")


def run(cfg: DictConfig) -> Record | None:
    """Train, keep the best epoch, test at every masking ratio, and leave the record. Returns it."""
    check_training(cfg)
    check_trainer(cfg)
    quiet_transformers()
    data = datamodule(cfg)
    # training has no use for the target, but a later task would refuse it
    target_label(container(cfg.target), data.info.label_names, container(cfg.label_map))
    job = train_run(cfg, data.training_fingerprint)
    if cfg.dry_run:
        model, _, _ = _prepare(cfg, data)
        print(forecast.training(cfg, data, model))
        return None
    with job.lock():
        if cfg.force:
            job.clear()
        record = job.record()
        if record is not None and _same_test(record, cfg, data):
            print(f"done already ({record.created}); force=true does it again")
            _remove_checkpoints(job)  # a run that was killed after its record was written left them
        else:
            record = _train_and_test(cfg, job, data)
    print(_summary(record))
    print(f"record: {record.directory / 'record.json'}")
    return record


def _same_test(record: Record, cfg: DictConfig, data: Any) -> bool:
    wanted = {"max_test_rows": cfg.data.max_test_rows, "ratios": sorted(container(cfg.ratios))}
    return record.results["test"] == wanted


def _prepare(cfg: DictConfig, data: Any) -> tuple[Any, Any, Loading | None]:
    """Load (or build) the model and its tokenizer, and the tokenised data. Returns also what was read, if anything."""
    torch.manual_seed(Draw.NEW_WEIGHTS.torch_seed(int(cfg.seed)))  # of the classification head
    data.read()
    names = data.info.label_names
    model_cfg = container(cfg.model)
    if model_cfg["name"] == "tiny":
        train = data.raw("train")
        texts = [*train.texts, *(train.pairs or [])]
        tokenizer: Any = tiny.train_tokenizer(
            texts, vocab_size=model_cfg["vocab_size"], max_length=model_cfg["max_length"]
        )
        model, loading = tiny.build_model(model_cfg, names, len(tokenizer)), None
    else:
        tokenizer = build.load_tokenizer(model_cfg["name"], model_cfg.get("revision"))
        model, loading = build.load_model(
            model_cfg["name"], names, revision=model_cfg.get("revision"), attention=model_cfg.get("attention", "sdpa")
        )
    build.check_vocabulary(model, tokenizer, model_cfg["name"])
    if loading is not None:
        loading = replace(loading, zero_embeddings=zero_embeddings(model, tokenizer, model_cfg["name"]))
    data.attach_tokenizer(tokenizer, build.max_tokens(model, tokenizer, cfg.data.max_length))
    data.prepare_data()
    data.setup("fit")
    return model, tokenizer, loading


def _module(cfg: DictConfig, data: Any, model: Any, tokenizer: Any) -> MaskedFineTuning:
    training = container(cfg.training)
    return MaskedFineTuning(
        model,
        mask_id=tokenizer.mask_token_id,
        num_labels=len(data.info.label_names),
        metric_names=list(data.info.metrics),
        batches_per_epoch=math.ceil(len(data.train) / cfg.training.batch_size),
        strategy=cfg.masking.strategy,
        max_ratio=float(cfg.masking.max_ratio),
        selection=cfg.selection,
        scheduler=cfg.scheduler,
        seed=cfg.seed,
        **{name: value for name, value in training.items() if name != "max_epochs"},
    )


def take_part(cfg: DictConfig, join: Company) -> None:
    """Fit with the main process, in another one: what it has decided, and nothing else."""
    quiet_transformers()
    data = datamodule(cfg)
    job = train_run(cfg, data.training_fingerprint)
    model, tokenizer, _ = _prepare(cfg, data)
    _fit(cfg, job, data, model, tokenizer, Tracker(cfg, job.directory), join)


def _fit(
    cfg: DictConfig,
    job: Run,
    data: Any,
    model: Any,
    tokenizer: Any,
    track: Tracker,
    company: Company = team.lead,
) -> tuple[dict[str, Any], EpochHistory]:
    """Run all epochs and put the best epoch's weights into `model`. Returns what the record says of it.

    `company` brings the processes of a fit together once they know what they fit, and parts them afterwards.
    """
    module = _module(cfg, data, model, tokenizer)
    directory, log = job.directory / "checkpoints", job.directory / "train.log"
    last_path = directory / LAST
    history = EpochHistory(log, list(data.info.metrics), track.epochs)
    place = resumable(last_path)  # before the others look: a damaged one is gone by then
    with company(cfg, f"run {job.key} {place or 'from its start'}"), interruptible() as signals:
        trainer = build_trainer(
            cfg,
            callbacks=[
                *checkpoint_callbacks(directory, data.info.checkpoint_metric),
                SavesWithinEpoch(last_path, signals, cfg.trainer.get("save_every_minutes"), log),
                history,
            ],
            logger=track.lightning_logger(),
            max_epochs=cfg.training.max_epochs,
            plugins=[AtomicCheckpointIO()],
        )
        if place is None:
            trainer.fit(module, datamodule=data)
        else:
            print(f"continuing an interrupted run from {last_path}, saved {place}", flush=True)
            trainer.fit(module, datamodule=data, ckpt_path=str(last_path), weights_only=True)
    if not trainer.is_global_zero:
        return {}, history
    state = torch.load(directory / f"{BEST}.ckpt", map_location="cpu", weights_only=True)["state_dict"]
    module.load_state_dict(state)
    rows = history.history
    chosen = max(rows, key=lambda row: row[f"val_{data.info.checkpoint_metric}"])
    fitted = {
        "history": rows,
        "pieces": history.pieces,
        "best_epoch": chosen["epoch"],
        "steps": trainer.global_step,
        "precision": str(trainer.precision),
        "device": str(trainer.strategy.root_device),
        "devices": trainer.world_size,
    }
    return fitted, history


def _train_and_test(cfg: DictConfig, job: Run, data: Any) -> Record:
    times = {}
    before = job.record()
    started = time.monotonic()
    model, tokenizer, loading = _prepare(cfg, data)
    times["prepare"] = time.monotonic() - started
    log = job.directory / "train.log"
    with tracker(cfg, job.directory) as track:
        if before is None:
            said = loading.said(str(cfg.model.name)) if loading else []
            for line in (*said, forecast.training(cfg, data, model), _data_line(data)):
                say(line, log)
            started = time.monotonic()
            fitted, history = _fit(cfg, job, data, model, tokenizer, track)
            fitted["loading"] = loading.record() if loading else None
            _save_model(job.directory / "model", model, tokenizer)
            earlier = history.earlier_seconds
            times["fit"] = earlier + time.monotonic() - started
        else:  # only the test differs from what was done
            fitted = {key: before.results.get(key) for key in _FITTED}
            earlier, times["fit"] = 0.0, before.results["durations"]["fit"]
        started = time.monotonic()
        table, predictions, work = random_masking.test(cfg, job.directory / "model", data)
        times["test"] = time.monotonic() - started
        job.write_parquet("random_masking.parquet", predictions)
        results = _results(cfg, data, table, fitted, times, work)
        draw_random_masking(job.directory / "random_masking.png", table, results)
        track.curve("random_masking", table)
        track.summary(
            {f"test/{name}": table[0][name] for name in data.info.metrics} | {"best_epoch": fitted["best_epoch"]}
        )
        record = job.finish(results, seconds=earlier + time.monotonic() - job.started)
    _remove_checkpoints(job)
    return record


def _remove_checkpoints(job: Run) -> None:
    shutil.rmtree(job.directory / "checkpoints", ignore_errors=True)


def _results(
    cfg: DictConfig,
    data: Any,
    table: list[dict[str, Any]],
    fitted: dict[str, Any],
    times: dict[str, float],
    work: dict[str, Any],
) -> dict[str, Any]:
    info, rows = data.info, data.record()
    labels = torch.tensor(data.test.labels)
    majority, values = metrics.majority_baseline(info.metrics, rows["class_counts"]["train"], labels)
    return {
        "model_dir": "model",
        "label_names": info.label_names,
        "metrics": info.metrics,
        "checkpoint_metric": info.checkpoint_metric,
        "jain_metric": info.jain_metric,
        "convergence_threshold": info.convergence_threshold,
        "test": {"max_test_rows": cfg.data.max_test_rows, "ratios": sorted(container(cfg.ratios))},
        "test_table": table,
        "majority": {"label": info.label_names[majority], **values},
        "data": rows,
        "durations": {name: round(value, 2) for name, value in times.items()},
        "test_work": work,
        **fitted,
    }


def _save_model(target: Path, model: Any, tokenizer: Any) -> None:
    """Save a Hugging Face folder under a temporary name and rename it, so that a whole one is found or none."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        model.to("cpu").save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        shutil.rmtree(target, ignore_errors=True)
        os.replace(temporary, target)
    except (OSError, SafetensorError) as error:
        reason = first_line(error)
        raise FmmError(f"could not write the model to {target}: {reason}; free space or choose output_dir") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _data_line(data: Any) -> str:
    record = data.record()
    rows = ", ".join(f"{name} {count}" for name, count in record["rows"].items())
    line = f"data: {rows} rows; split {record['split']}"
    for name, what in (("truncated", "truncated rows"), ("without_tokens", "rows of which no text has a token")):
        counts = ", ".join(f"{count} in {split}" for split, count in record[name].items() if count)
        line += f"; {what}: {counts}" if counts else ""
    return line


def _summary(record: Record) -> str:
    results, name = record.results, record.results["checkpoint_metric"]
    table, majority = results["test_table"], results["majority"]
    curve = "  ".join(f"{row['masking_ratio']:.0%} {row[name]:.3f}" for row in table)
    always = f"always {majority['label']!r}: {majority[name]:.3f}"
    return f"test {name} by masking ratio ({table[0]['n']} rows): {curve}; {always}"
