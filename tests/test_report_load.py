"""Which records go into one report: refusals by name, groups of rows."""

import json
import re

import pytest

from fmm.errors import FmmError
from fmm.report import consistency
from fmm.report.analyse import analyse
from fmm.report.load import load
from tests import fabricated

MEASURES = ("rand", "inp_grad_abs", "loo_sign")


@pytest.mark.parametrize(
    ("setting", "other", "named"),
    [
        ({}, {"target": "predicted"}, "target"),
        ({}, {"ratios": [0.0, 1.0]}, "ratios"),
        ({}, {"data": fabricated.DATA | {"max_test_rows": 30}}, "data.max_test_rows"),
        ({}, {"data": fabricated.DATA | {"fingerprint": "beef"}}, "data.fingerprint"),
        ({}, {"dtype": "bfloat16"}, "dtype"),
    ],
)
def test_records_that_differ_are_refused_by_name(tmp_path, setting, other, named):
    model = fabricated.train(tmp_path, "sst2", "half_det", 0)
    fabricated.racu(tmp_path, model, "rand", rows=20, **setting)
    fabricated.racu(tmp_path, model, "grad_l2", rows=20, **other)
    with pytest.raises(FmmError, match=re.escape(f"differ in {named} ")):
        load(tmp_path, ["sst2"])


def test_recursive_and_not_of_one_measure_are_refused(tmp_path):
    model = fabricated.train(tmp_path, "sst2", "half_det", 0)
    fabricated.racu(tmp_path, model, "rand", rows=20)
    fabricated.racu(tmp_path, model, "grad_l2", rows=20)
    fabricated.racu(tmp_path, model, "grad_l2", rows=20, recursive=False)
    with pytest.raises(FmmError, match="differ in recursive"):
        load(tmp_path, ["sst2"])


def test_models_trained_differently_are_refused(tmp_path):
    for seed, epochs in ((0, 8), (1, 2)):
        model = fabricated.train(tmp_path, "sst2", "half_det", seed, training={"max_epochs": epochs})
        fabricated.racu(tmp_path, model, "rand", rows=20)
    with pytest.raises(FmmError, match=r"train\.training\.max_epochs"):
        load(tmp_path, ["sst2"])
    (group,), _ = load(tmp_path, ["sst2"], where=["train.training.max_epochs=8"])
    assert group.seeds == [0]


def test_versions_are_compared(tmp_path):
    model = fabricated.train(tmp_path, "sst2", "half_det", 0)
    fabricated.racu(tmp_path, model, "rand", rows=20)
    path = fabricated.racu(tmp_path, model, "grad_l2", rows=20).directory / "record.json"
    record = json.loads(path.read_text())
    record["versions"]["torch"] = "1.0"
    path.write_text(json.dumps(record))
    with pytest.raises(FmmError, match=r"versions\.torch"):
        load(tmp_path, ["sst2"])
    assert load(tmp_path, ["sst2"], allow=["versions.torch"])


def test_fewer_rows_give_a_second_group_on_the_rows_all_share(tmp_path):
    model = fabricated.train(tmp_path, "sst2", "half_det", 0)
    for measure in MEASURES:
        fabricated.racu(tmp_path, model, measure, rows=60)
    fabricated.racu(tmp_path, model, "beam_10", rows=20, data=fabricated.DATA | {"max_test_rows": 20})
    whole, common = load(tmp_path, ["sst2"], allow=["data.max_test_rows"])[0]
    assert whole.n_rows == "60" and whole.measures == ["inp_grad_abs", "loo_sign"]
    assert common.n_rows == "20" and common.measures == ["beam_10", "inp_grad_abs", "loo_sign"]
    assert "20 rows" in common.name
    costs = {result.measure: result.cost for result in analyse(common, (0,), 200).results}
    assert costs["loo_sign"].rows == 60 and costs["loo_sign"].forwards_per_row == costs["loo_sign"].forwards / 60


def test_rows_are_shared_across_seeds_too(tmp_path):
    """A seed that lacks the measure with few rows keeps no more rows than the others."""
    for seed in (0, 1):
        model = fabricated.train(tmp_path, "sst2", "half_det", seed)
        for measure in MEASURES:
            fabricated.racu(tmp_path, model, measure, rows=60)
        if seed == 0:
            fabricated.racu(tmp_path, model, "beam_10", rows=20, data=fabricated.DATA | {"max_test_rows": 20})
    whole, common = load(tmp_path, ["sst2"], allow=["data.max_test_rows"])[0]
    assert (whole.n_rows, common.n_rows) == ("60", "20")
    assert {len(curve.example_id) for found in common.curves.values() for curve in found.values()} == {20}


def test_seeds_with_different_numbers_of_rows_are_said(tmp_path):
    for seed, rows in ((0, 60), (1, 40)):
        model = fabricated.train(tmp_path, "sst2", "half_det", seed)
        for measure in MEASURES:
            data = fabricated.DATA | {"max_test_rows": rows}
            fabricated.racu(tmp_path, model, measure, rows=rows, data=data)
    whole, common = load(tmp_path, ["sst2"], allow=["data.max_test_rows"])[0]
    assert (whole.n_rows, common.n_rows) == ("40 to 60", "40")


def test_other_ratios_are_never_let_through(tmp_path):
    model = fabricated.train(tmp_path, "sst2", "half_det", 0)
    fabricated.racu(tmp_path, model, "rand", rows=20)
    fabricated.racu(tmp_path, model, "grad_l2", rows=20, ratios=[0.0, 1.0])
    with pytest.raises(FmmError, match=r"differ in ratios .*report\.where") as refusal:
        load(tmp_path, ["sst2"], allow=["ratios"])
    assert "report.allow" not in str(refusal.value)


@pytest.mark.parametrize("damage", ["truncate", "remove"])
def test_damaged_curve_is_named(tmp_path, damage):
    model = fabricated.train(tmp_path, "sst2", "half_det", 0)
    path = fabricated.racu(tmp_path, model, "rand", rows=20).directory / "curve.parquet"
    path.write_bytes(path.read_bytes()[:100]) if damage == "truncate" else path.unlink()
    with pytest.raises(FmmError, match=r"curve\.parquet"):
        load(tmp_path, ["sst2"])


def test_missing_baseline_and_missing_curves_print_the_command(tmp_path):
    with pytest.raises(FmmError, match="task=racu dataset=sst2"):
        load(tmp_path, ["sst2"])
    fabricated.racu(tmp_path, fabricated.train(tmp_path, "rte", "half_det", 0), "rand", rows=20)
    with pytest.raises(FmmError, match="there are curves of rte"):
        load(tmp_path, ["sst2"])
    model = fabricated.train(tmp_path, "sst2", "half_det", 0)
    fabricated.racu(tmp_path, model, "grad_l2", rows=20)
    with pytest.raises(FmmError, match="measure=rand seed=0"):
        load(tmp_path, ["sst2"])


def test_where_names_what_it_does_not_know(tmp_path):
    fabricated.racu(tmp_path, fabricated.train(tmp_path, "sst2", "half_det", 0), "rand", rows=20)
    with pytest.raises(FmmError, match=r"dat\.split"):
        load(tmp_path, ["sst2"], where=["dat.split=test"])
    with pytest.raises(FmmError, match="name=value"):
        load(tmp_path, ["sst2"], where=["seed"])
    assert consistency.flatten({"a": {"b": {"c": 1}}}) == {"a.b.c": 1}


def test_datasets_of_ones_own_are_told_apart_by_their_files(tmp_path):
    for seed, sums in ((0, {"path": "aa"}), (1, {"path": "bb"})):
        model = fabricated.train(tmp_path, "local", "half_det", seed)
        stored = json.loads((model.directory / "record.json").read_text())
        stored["results"]["data"] = {"sha256": sums}
        (model.directory / "record.json").write_text(json.dumps(stored))
        fabricated.racu(tmp_path, model, "rand", rows=20)
    (group,), _ = load(tmp_path, ["local"], files=["bb"])
    assert group.seeds == [1]
    with pytest.raises(FmmError, match="no finished curve of local"):
        load(tmp_path, ["local"], files=["cc"])


def test_baselines_of_different_orders_are_not_mixed_and_old_records_have_one(tmp_path):
    """A record from before there were several orders is one of a single order."""
    model = fabricated.train(tmp_path, "sst2", "half_det", 0)
    fabricated.racu(tmp_path, model, "rand", rows=20)
    fabricated.racu(tmp_path, model, "grad_l2", rows=20)
    groups, _ = load(tmp_path, ["sst2"])
    assert groups[0].measures == ["grad_l2"]
    fabricated.racu(tmp_path, model, "loo_abs", rows=20, baseline={"draws": 5})
    with pytest.raises(FmmError, match=r"differ in baseline.draws.*report.where=\[\"baseline.draws=1\"\]"):
        load(tmp_path, ["sst2"])
    groups, _ = load(tmp_path, ["sst2"], ["baseline.draws=1"])
    assert groups[0].measures == ["grad_l2"]
