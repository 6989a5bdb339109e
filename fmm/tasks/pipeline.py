"""`task=pipeline`: train, measure all explanations with MaSF beside them, and report. Done steps are skipped."""

from __future__ import annotations

from omegaconf import DictConfig, OmegaConf

from fmm.records import Record
from fmm.tasks import racu, report, train
from fmm.tasks.common import datamodule, train_run

MEASURES = (
    "rand",
    "grad_l2",
    "grad_l1",
    "inp_grad_sign",
    "inp_grad_abs",
    "int_grad_sign",
    "int_grad_abs",
    "loo_sign",
    "loo_abs",
    "beam_10",
)


def run(cfg: DictConfig) -> Record | None:
    """Run every step that is not done yet. Returns the report's record; None after `dry_run=true`.

    Measures are those of `measures=`, default all of the paper's with beam_10. `task.plain=true` trains the plain
    model too, so that the report can say what masked fine-tuning costs on unmasked text.
    """
    if cfg.measures is None:
        cfg = _changed(cfg, "measures", list(MEASURES))
    racu.check_values(cfg)  # what would fail after training fails before it
    if cfg.checkpoint is None:
        racu.check_rows(cfg, datamodule(cfg))
        strategies = [cfg.masking.strategy] + (["none"] if cfg.task.plain and cfg.masking.strategy != "none" else [])
        for strategy in strategies:
            print(f"== train ({strategy})", flush=True)
            step = _changed(cfg, "masking.strategy", strategy)
            if cfg.dry_run and _trained(step):
                print("done already")
            else:
                train.run(step)
    if cfg.dry_run and not _trained(cfg):
        print("the forecast of the curves needs the trained model: train first, or give checkpoint=")
        return None
    print("== curves and MaSF", flush=True)
    racu.run(cfg)
    if cfg.dry_run:
        return None
    print("== report", flush=True)
    return report.run(cfg)


def _trained(cfg: DictConfig) -> bool:
    """Whether the model of this configuration is there."""
    return cfg.checkpoint is not None or train_run(cfg, datamodule(cfg).training_fingerprint).done


def _changed(cfg: DictConfig, key: str, value: object) -> DictConfig:
    changed = cfg.copy()
    OmegaConf.update(changed, key, value)
    return changed
