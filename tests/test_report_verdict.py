"""Verdicts on fabricated records: which measure, its preconditions, and what does not count."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fmm.report.analyse import Analysis, Shares, analyse
from fmm.report.preconditions import in_distribution
from fmm.report.verdict import as_json, from_json, judge
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
    assert verdict.trust == "unclear" and verdict.scope == "model"  # no plain model to hold it against
    assert found.results[0].acu_rows.lower > 0 and found.results[0].racu_rows.lower > 0


def test_seeds_without_measures_do_not_count(tmp_path):
    """Random masking on more models than the measures: MaSF needs no more, and a verdict speaks of the one model."""
    for seed in SEEDS:
        model = fabricated.train(tmp_path, "sst2", "half_det", seed)
        for measure in MEASURES if seed == 1 else MEASURES[:1]:
            fabricated.racu(tmp_path, model, measure, rows=60)
    group, groups, trained = fabricated.group_of(tmp_path)
    verdict = judge(analyse(group, SEEDS, 200), groups, trained, margin=0.02, tolerance=0.05)
    assert verdict.measure == "loo_sign" and "One seed speaks of this one model only" in verdict.sentence
    assert verdict.seeds == [1] and verdict.checks[-1].status == "yes"


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


@pytest.mark.parametrize(("strategy", "flagged_from", "status"), [("half_det", 0.9, "no"), ("none", 0.9, "no")])
def test_rejections_at_the_highest_ratios_fail_any_model(tmp_path, strategy, flagged_from, status):
    """MaSF is valid at each ratio: no ratio is excused."""
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
        step = {"masking_ratio": 0.0, "below": {"0.05": None}, "n_fit": 498, "n_calibration": 498}
        stored["results"]["masf"] = {"authors": [step]}
        (run.directory / "record.json").write_text(json.dumps(stored))
    group, groups, trained = fabricated.group_of(tmp_path)
    found = analyse(group, (0,), 200)
    check = judge(found, groups, trained, margin=0.02, tolerance=0.05).checks[2]
    assert not found.masf and check.status == "unknown" and "few validation rows" in check.detail
    assert "498 fit it" in check.detail and "takes some 600" in check.detail


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


def one_model(tmp_path, measures=MEASURES, rows=60, **kw):
    """The verdict on one masked model; fabricated MaSF flags 5% at every ratio."""
    model = fabricated.train(tmp_path, "sst2", "half_det", 0)
    for measure in measures:
        fabricated.racu(tmp_path, model, measure, rows=rows, **kw)
    group, groups, trained = fabricated.group_of(tmp_path)
    return group, groups, trained


def verdict_of(group, groups, trained):
    return judge(analyse(group, (0,), 400), groups, trained, margin=0.02, tolerance=0.05)


def test_what_is_open_says_how_many_rows_would_settle_it_and_how(tmp_path):
    verdict = verdict_of(*one_model(tmp_path, data=fabricated.DATA | {"max_test_rows": 60}))
    masf = verdict.checks[2]
    assert masf.status == "unclear" and f"about {masf.rows} rows would settle it; you have 60" in masf.detail
    command = next(step for step in verdict.next if "data.max_test_rows" in step)
    assert f"data.max_test_rows={masf.rows}" in command and "checkpoint=" in command and "task=racu" in command


def test_where_all_rows_are_used_no_command_is_made_up(tmp_path):
    verdict = verdict_of(*one_model(tmp_path))
    assert any("all 60 test rows are used" in step for step in verdict.next)


def test_a_normaliser_within_noise_leaves_racu_undefined_and_acu_standing(tmp_path):
    """MRPC's kind: random masking lowers nothing, the normaliser is 0 give or take."""
    group, groups, trained = one_model(tmp_path, rows=200)
    rng = np.random.default_rng(0)
    baseline = group.curves[0]["rand"]
    wrong = rng.random(baseline.logits.shape[:2]) < 0.3
    answered = np.where(wrong, 1 - baseline.label[:, None], baseline.label[:, None])
    baseline.logits[:] = np.eye(2, dtype=np.float32)[answered]
    verdict = verdict_of(group, groups, trained)
    check = verdict.checks[3]
    assert check.status in ("unclear", "no") and "ACU stands alone" in check.detail
    assert verdict.racu is None and verdict.acu[1] is not None and verdict.trust != "yes"


def test_where_nothing_differs_from_random_no_measure_is_named(tmp_path):
    names = ["rand", *(f"beam_{k}" for k in range(1, 13))]
    group, groups, trained = one_model(tmp_path, names, rows=100, faithful=0.0)
    verdict = verdict_of(group, groups, trained)
    assert verdict.measure is None and "No measure is shown to beat random" in verdict.sentence
    assert "would settle" in verdict.checks[4].detail or "too small" in verdict.checks[4].detail


@pytest.mark.parametrize("rows", [1, 2])
def test_one_row_and_two_decide_nothing_and_break_nothing(tmp_path, rows):
    verdict = verdict_of(*one_model(tmp_path, rows=rows))
    assert verdict.measure is None and verdict.trust == "no"
    assert {check.status for check in verdict.checks[2:]} == {"unclear"}


def test_a_plain_model_is_warned_of(tmp_path):
    fabricated.experiment(tmp_path, seeds=(0,), measures=MEASURES, rows=200)
    group, groups, trained = fabricated.group_of(tmp_path, "none")
    verdict = verdict_of(group, groups, trained)
    assert verdict.trust == "no" and verdict.sentence.startswith("Do not rely on loo_sign")
    assert any("masking=half_det" in step for step in verdict.next)


def predictions(model, right, labels):
    """Leave the random-masking test's predictions [N, R] beside a train record."""
    answers = np.where(right, labels[:, None], 1 - labels[:, None])
    n, ratios = len(labels), fabricated.RATIOS
    table = fabricated.curve_table(n, 2, 0, 0.0, "half_det", 0)
    logits = pa.array([np.eye(2, dtype=np.float32)[answers[i, j]] for i in range(n) for j in range(len(ratios))])
    columns = {"label": np.repeat(labels, len(ratios)), "target": np.repeat(labels, len(ratios)), "logits": logits}
    for name, values in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values, table[name].type))
    pq.write_table(table, model.directory / "random_masking.parquet")


@pytest.mark.parametrize(
    ("n", "lost", "status"), [(2000, 0.0, "yes"), (2000, 0.1, "no"), (64, 0.0, "unclear"), (300, 0.03, "unclear")]
)
def test_one_model_keeps_its_performance_by_paired_rows(tmp_path, n, lost, status):
    rng, labels = np.random.default_rng(n), np.arange(n) % 2
    masked, plain = (fabricated.train(tmp_path, "sst2", kind, 0) for kind in ("half_det", "none"))
    right = rng.random((n, 11)) < 0.9
    predictions(plain, right, labels)
    predictions(masked, right & (rng.random((n, 11)) >= lost), labels)
    for measure in MEASURES:
        fabricated.racu(tmp_path, masked, measure, rows=60)
    group, groups, trained = fabricated.group_of(tmp_path)
    check = judge(analyse(group, (0,), 200), groups, trained, margin=0.02, tolerance=0.05).checks[0]
    assert f"{n:,} test rows" in check.detail and check.status == status
    assert status != "unclear" or "would settle it" in check.detail


def test_constant_answers_without_words_are_judged_by_the_training_rows_classes(tmp_path):
    """Which class is answered is known, though few rows cannot tell its share from the majority's."""
    labels = np.arange(50) % 2
    model = fabricated.train(tmp_path, "sst2", "half_det", 0)
    right = np.ones((50, 11), bool)
    right[:, -1] = labels == 0  # all rows answered as class 0; the training majority is class 1
    predictions(model, right, labels)
    for measure in MEASURES:
        fabricated.racu(tmp_path, model, measure, rows=60)
    for counts, status in (([499, 501], "yes"), ([100, 900], "unclear")):
        stored = json.loads((model.directory / "record.json").read_text())
        stored["results"]["data"] = {"class_counts": {"train": counts}}
        (model.directory / "record.json").write_text(json.dumps(stored))
        group, groups, trained = fabricated.group_of(tmp_path)
        check = judge(analyse(group, (0,), 200), groups, trained, margin=0.02, tolerance=0.05).checks[1]
        assert check.status == status


def test_verdicts_are_stored_and_read_back_whole(tmp_path):
    verdict = verdict_of(*one_model(tmp_path))
    assert from_json(as_json([verdict])[0]) == verdict
    old = {name: as_json([verdict])[0][name] for name in ("dataset", "strategy", "measure", "trust", "sentence")}
    checks = [{"question": "Are there enough seeds?", "status": "no", "detail": "1 of the papers' 5"}]
    assert from_json(old | {"checks": checks, "tied": [], "models": ["k"]}).checks[0].rows is None


def test_masf_false_alarms_are_rare_and_foreign_text_is_found():
    """Size and power of the precondition: 5% flagged at every ratio, and a rise to 30% at one ratio."""
    rng, alarms, approved, found = np.random.default_rng(0), 0, 0, 0
    for _ in range(60):
        for high in (0.05, 0.30):
            chance = np.full(11, 0.05)
            chance[8] = high
            flags = [(rng.random((400, 11)) < chance).astype(float) for _ in range(4)]
            rises = [shares_of(f"m{i}", rows) for i, rows in enumerate(flags)]
            status = in_distribution(Analysis(None, [], None, rises, {}, {}), 0.05).status
            alarms += high == 0.05 and status == "no"
            approved += high == 0.05 and status == "yes"
            found += high == 0.30 and status == "no"
    assert alarms <= 3 and approved >= 30 and found >= 57


def shares_of(name, flags):
    rise = flags - flags[:, :1]
    return Shares(
        name, "calibrated", np.linspace(0, 1, 11), flags.mean(0), rise.mean(0), rise.min(0), rise.max(0), rise
    )
