"""Verdicts on fabricated records: which measure, its preconditions, and what does not count."""

import json

import numpy as np
import pytest

from fmm.report.analyse import analyse
from fmm.report.verdict import judge
from tests import fabricated

SEEDS = (0, 1, 2)
MEASURES = ("rand", "inp_grad_abs", "loo_sign")


def test_unmasked_performance_that_is_lost_fails(tmp_path):
    for seed in SEEDS:
        model = fabricated.train(tmp_path, "sst2", "half_det", seed, unmasked=0.7)
        fabricated.train(tmp_path, "sst2", "none", seed, unmasked=0.9)
        for measure in MEASURES:
            fabricated.racu(tmp_path, model, measure, rows=60)
    group, groups, trained = fabricated.group_of(tmp_path)
    verdict = judge(analyse(group, SEEDS, 200), groups, trained, margin=0.02, tolerance=0.05)
    assert verdict.checks[0].status == "no" and verdict.trust == "no"


def test_one_seed_gives_no_interval_over_seeds_and_a_verdict_on_that_model_only(tmp_path):
    fabricated.experiment(tmp_path, seeds=(0,), strategies=("half_det",), measures=MEASURES, rows=60)
    group, groups, trained = fabricated.group_of(tmp_path)
    found = analyse(group, range(5), 200)
    assert found.results[0].acu.lower is None and found.results[0].acu_papers.lower is None
    verdict = judge(found, groups, trained, 0.02, 0.05)
    assert verdict.measure == found.results[0].measure and "this one model only" in verdict.sentence
    assert verdict.trust == "no"


def test_seeds_without_measures_do_not_count(tmp_path):
    """Random masking on more models than the measures: MaSF needs no more, and a verdict speaks of the one model."""
    for seed in SEEDS:
        model = fabricated.train(tmp_path, "sst2", "half_det", seed)
        for measure in MEASURES if seed == 1 else MEASURES[:1]:
            fabricated.racu(tmp_path, model, measure, rows=60)
    group, groups, trained = fabricated.group_of(tmp_path)
    verdict = judge(analyse(group, SEEDS, 200), groups, trained, margin=0.02, tolerance=0.05)
    assert verdict.measure == "loo_sign" and "one seed speaks of this one model only" in verdict.sentence
    assert verdict.checks[-1].detail.startswith("1 of the papers' 5")


def test_a_measure_of_fewer_seeds_is_no_candidate(tmp_path):
    for seed in SEEDS:
        model = fabricated.train(tmp_path, "sst2", "half_det", seed)
        for measure in (*MEASURES, *(["beam_10"] if seed == 0 else [])):
            fabricated.racu(tmp_path, model, measure, rows=60, **({"faithful": 2.0} if measure == "beam_10" else {}))
    group, groups, trained = fabricated.group_of(tmp_path)
    found = analyse(group, SEEDS, 200)
    assert found.results[0].measure == "beam_10"  # by its mean over one seed
    verdict = judge(found, groups, trained, margin=0.02, tolerance=0.05)
    assert verdict.measure == "loo_sign" and "beam_10" not in verdict.tied


def test_measure_no_better_than_random_is_not_named(tmp_path):
    for seed in SEEDS:
        model = fabricated.train(tmp_path, "sst2", "half_det", seed)
        fabricated.racu(tmp_path, model, "rand", rows=60)
        fabricated.racu(tmp_path, model, "grad_l2", rows=60, faithful=0.0)
    group, groups, trained = fabricated.group_of(tmp_path)
    verdict = judge(analyse(group, SEEDS, 500), groups, trained, 0.02, 0.05)
    assert verdict.measure is None and verdict.trust == "no"


@pytest.mark.parametrize(
    ("strategy", "flagged_from", "status"), [("half_det", 0.9, "unclear"), ("half_det", 0.8, "no"), ("none", 0.9, "no")]
)
def test_rejections_where_fit_rows_are_rare_do_not_fail_a_masked_model(tmp_path, strategy, flagged_from, status):
    """Of half_det's fit rows 5% are masked at 90% or more: a test at 5% may reject all of these and still be right."""
    model = fabricated.train(tmp_path, "sst2", strategy, 0)
    for measure in MEASURES:
        fabricated.racu(tmp_path, model, measure, rows=60)
    group, groups, trained = fabricated.group_of(tmp_path, strategy)
    for curve in group.curves[0].values():
        curve.masf["authors"][:] = np.where(curve.ratios >= flagged_from - 1e-9, 0.001, 0.5)
    check = judge(analyse(group, (0,), 200), groups, trained, margin=0.02, tolerance=0.05).checks[2]
    assert check.status == status


def test_masf_that_cannot_reach_its_level_says_so(tmp_path):
    model = fabricated.train(tmp_path, "sst2", "half_det", 0)
    for measure in MEASURES:
        run = fabricated.racu(tmp_path, model, measure, rows=60)
        stored = json.loads((run.directory / "record.json").read_text())
        stored["results"]["masf"] = {"authors": [{"masking_ratio": 0.0, "below": {"0.05": None}}]}
        (run.directory / "record.json").write_text(json.dumps(stored))
    group, groups, trained = fabricated.group_of(tmp_path)
    found = analyse(group, (0,), 200)
    check = judge(found, groups, trained, margin=0.02, tolerance=0.05).checks[2]
    assert not found.masf and check.status == "unknown" and "few validation rows" in check.detail


@pytest.mark.parametrize(
    ("ends", "status"), [([0.5], "unclear"), ([0.3, 0.7], "unclear"), ([0.5, 0.5], "yes"), ([0.3, 0.3], "no")]
)
def test_models_that_scatter_do_not_show_that_they_end_at_the_majority(tmp_path, ends, status):
    for seed, end in enumerate(ends):
        model = fabricated.train(tmp_path, "sst2", "half_det", seed)
        stored = json.loads((model.directory / "record.json").read_text())
        stored["results"]["test_table"][-1]["accuracy"] = end  # the majority's is 0.5
        (model.directory / "record.json").write_text(json.dumps(stored))
        for measure in MEASURES:
            fabricated.racu(tmp_path, model, measure, rows=60)
    group, groups, trained = fabricated.group_of(tmp_path)
    checks = judge(analyse(group, SEEDS, 200), groups, trained, margin=0.02, tolerance=0.05).checks
    assert checks[1].status == status


def test_random_masking_alone_is_judged_by_masf(tmp_path):
    """A plain model needs no measure to show that its masked text is out of distribution."""
    fabricated.racu(tmp_path, fabricated.train(tmp_path, "sst2", "none", 0), "rand", rows=60)
    group, groups, trained = fabricated.group_of(tmp_path, "none")
    verdict = judge(analyse(group, (0,), 200), groups, trained, margin=0.02, tolerance=0.05)
    statuses = [check.status for check in verdict.checks]
    assert verdict.measure is None and verdict.sentence.startswith("No curve to judge")
    assert statuses[2] == "no" and statuses[3] == "yes"
