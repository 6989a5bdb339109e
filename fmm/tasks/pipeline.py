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
    model too, so that the report can say what masked fine-tuning costs on unmasked text, and whether masked text is
    foreign to a model that was never trained on it.
    """
    if cfg.measures is None:
        cfg = _changed(cfg, "measures", list(MEASURES))
    racu.check_values(cfg)  # what would fail after training fails before it
    if cfg.checkpoint is None:
        racu.check_rows(cfg, datamodule(cfg))
        strategies = [cfg.masking.strategy] + (["none"] if _plain_too(cfg) else [])
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
    if _plain_too(cfg) and cfg.masf != "none":
        print("== random masking of the plain model and MaSF", flush=True)
        racu.run(_changed(_changed(cfg, "masking.strategy", "none"), "measures", [racu.BASELINE]))
    print("== report", flush=True)
    if not cfg.report.where:
        cfg = _changed(cfg, "report.where", _own_curves(cfg))
    return report.run(cfg)


def _own_curves(cfg: DictConfig) -> list[str]:
    """What tells this pipeline's curves from others in the same folder, of fewer rows or orders, say."""
    names = ("data.max_test_rows", "data.max_length", "baseline.draws", "masf", "explain", "inference.dtype")
    conditions = {name: OmegaConf.select(cfg, name) for name in names}
    return [f"{name.removeprefix('inference.')}={value}" for name, value in conditions.items()]


def _plain_too(cfg: DictConfig) -> bool:
    """Whether the plain model is trained and looked at beside the masked one."""
    return bool(cfg.checkpoint is None and cfg.task.plain and cfg.masking.strategy != "none")


def _trained(cfg: DictConfig) -> bool:
    """Whether the model of this configuration is there."""
    return cfg.checkpoint is not None or train_run(cfg, datamodule(cfg).training_fingerprint).done


def _changed(cfg: DictConfig, key: str, value: object) -> DictConfig:
    changed = cfg.copy()
    OmegaConf.update(changed, key, value)
    return changed
