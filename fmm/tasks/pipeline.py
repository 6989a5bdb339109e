"""`task=pipeline`: train, measure all explanations with MaSF beside them, and report. Done steps are skipped."""

from __future__ import annotations

from omegaconf import DictConfig, OmegaConf

from fmm.records import Record
from fmm.tasks import racu, report, train

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
    if cfg.checkpoint is None:
        strategies = [cfg.masking.strategy] + (["none"] if cfg.task.plain and cfg.masking.strategy != "none" else [])
        for strategy in strategies:
            print(f"== train ({strategy})", flush=True)
            train.run(_changed(cfg, "masking.strategy", strategy))
    if cfg.measures is None:
        cfg = _changed(cfg, "measures", list(MEASURES))
    if cfg.dry_run and cfg.checkpoint is None:
        print("the forecast of the curves needs the trained model: train first, or give checkpoint=")
        return None
    print("== curves and MaSF", flush=True)
    racu.run(cfg)
    if cfg.dry_run:
        return None
    print("== report", flush=True)
    return report.run(cfg)


def _changed(cfg: DictConfig, key: str, value: object) -> DictConfig:
    changed = cfg.copy()
    OmegaConf.update(changed, key, value)
    return changed
