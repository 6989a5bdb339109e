"""The report from fabricated records: numbers, verdicts, refusals, forms."""

import dataclasses
import html
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from fmm.curves import curve_faithfulness
from fmm.report.analyse import analyse, mean_curve
from fmm.report.load import BASELINE, load
from fmm.report.published import published_racu
from fmm.report.slices import length_thirds, per_example, slice_table
from fmm.report.tables import percent
from fmm.report.verdict import stored_verdict
from fmm.statistics import student_interval
from fmm.tasks import report
from tests import fabricated

SEEDS = (0, 1, 2)
MEASURES = ("rand", "inp_grad_abs", "loo_sign")


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    output = tmp_path_factory.mktemp("report")
    fabricated.experiment(output, seeds=SEEDS, measures=MEASURES, rows=60)
    return output


@pytest.fixture(scope="module")
def finished(output, compose):
    return report.run(compose("task=report", "dataset=sst2", f"output_dir={output}", "report.resamples=200"))


def test_numbers_are_those_of_the_curves(output):
    group, *_ = fabricated.group_of(output)
    found = analyse(group, range(5), 200)
    assert [result.measure for result in found.results] == ["loo_sign", "inp_grad_abs"]
    best = found.results[0]
    areas = [curve_faithfulness(c["loo_sign"], c[BASELINE], "accuracy").acu for c in group.curves.values()]
    assert best.acu == student_interval(areas)
    assert best.seeds == [0, 1, 2] and best.missing == [3, 4]
    assert best.racu.lower < best.racu.mean < best.racu.upper
    assert best.acu_papers.lower >= min(areas) and best.acu_papers.upper <= max(areas)


def test_every_form_is_written(finished):
    directory = finished.directory
    for name in ("report.md", "report.tex", "report.html", "verdict.json"):
        assert (directory / name).stat().st_size > 100
    assert len(list((directory / "csv").glob("*.csv"))) >= 10
    pictures = {path.suffix for path in (directory / "figures").iterdir()}
    assert pictures == {".png", ".pdf"}
    assert list(directory.glob("per_example-*.parquet"))


class Checker(HTMLParser):
    def __init__(self):
        super().__init__()
        self.ids, self.outside, self.pictures, self.named = [], [], 0, 0

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "svg":
            self.pictures += 1
            self.named += bool(found.get("aria-label"))
        for key in ("src", "href", "xlink:href"):
            if key in found and not found[key].startswith(("#", "data:")):
                self.outside.append(found[key])


def test_page_is_self_contained_and_its_pictures_are_named(finished):
    page = (finished.directory / "report.html").read_text("utf-8")
    checker = Checker()
    checker.feed(page)
    assert not checker.outside and "<script" not in page and not re.search(r"url\(['\"]?(?!#)", page)
    assert checker.pictures == checker.named >= 5
    assert len(checker.ids) == len(set(checker.ids))


def test_table_is_printed_from_the_record(output, finished, compose, capsys):
    report.run(compose("task=report", "dataset=sst2", f"output_dir={output}", "report.resamples=200"))
    printed = capsys.readouterr().out
    row = next(line for line in printed.splitlines() if line.split()[:1] == ["loo_sign"])
    assert percent(finished.results["tables"]["sst2 · half_det"][0]["racu"]) in row


def test_report_is_named_by_its_curves_and_found_again(output, finished, compose):
    arguments = ("task=report", "dataset=sst2", f"output_dir={output}", "report.resamples=200")
    assert report.run(compose(*arguments)).created == finished.created
    assert report.run(compose(*arguments)).key == finished.key


def test_verdicts_tell_masked_from_plain_and_explain_finds_them(output, finished):
    masked, plain = finished.results["verdicts"]
    statuses = {check["question"]: check["status"] for check in masked["checks"]}
    assert masked["measure"] == "loo_sign" and masked["trust"] == "yes"
    assert set(statuses.values()) == {"yes"} and masked["scope"] == "recipe" and not masked["next"]
    assert [model["seed"] for model in masked["each"]] == [0, 1, 2]
    assert plain["trust"] == "no"
    failed = [check["question"] for check in plain["checks"] if check["status"] == "no"]
    assert any("in-distribution" in question for question in failed)
    assert any("majority" in question for question in failed)
    assert stored_verdict(output, masked["models"][0]).measure == "loo_sign"
    assert stored_verdict(output, "no such model") is None


def test_bands_of_one_seed_hold_for_a_metric_that_is_no_share_of_rows(tmp_path):
    """Matthews below 0 has no binomial variance: p (1 - p) would give a band without width."""
    fabricated.experiment(tmp_path, seeds=(0,), strategies=("half_det",), measures=MEASURES, rows=60)
    group = dataclasses.replace(fabricated.group_of(tmp_path)[0], metric="matthews")
    mean, lower, upper = mean_curve(group, "loo_sign")
    assert (lower <= mean).all() and (mean <= upper).all() and (mean < 0).any()
    assert (upper - lower)[mean < 0].min() > 0.1


def test_seed_that_did_not_train_is_left_out_and_said(tmp_path):
    for seed in SEEDS:
        model = fabricated.train(tmp_path, "babi1", "half_det", seed, unmasked=0.4 if seed == 1 else 0.9)
        for measure in MEASURES:
            fabricated.racu(tmp_path, model, measure, rows=40)
    (group,), _ = load(tmp_path, ["babi1"])
    assert group.seeds == [0, 2] and "0.5" in group.excluded[1]
    assert analyse(group, SEEDS, 200).results[0].missing == []


def test_undefined_racu_is_a_dash_with_its_reason(output):
    from fmm.report import contents

    group, *_ = fabricated.group_of(output)
    for seed in group.curves:  # random masking that never hurts
        base = group.curves[seed][BASELINE]
        base.logits[:] = base.logits[:, :1]
    found = analyse(group, SEEDS, 200)
    table = contents.faithfulness(found)
    assert table.shown()[0][1] == "–" and "normaliser is zero" in " ".join(table.notes)
    assert np.isfinite(found.results[0].acu.mean)


def test_missing_measure_of_one_seed_is_shown(tmp_path):
    for seed in SEEDS:
        model = fabricated.train(tmp_path, "sst2", "half_det", seed)
        for measure in MEASURES if seed else MEASURES[:2]:
            fabricated.racu(tmp_path, model, measure, rows=60)
    found = analyse(fabricated.group_of(tmp_path)[0], SEEDS, 200)
    lacking = next(result for result in found.results if result.measure == "loo_sign")
    assert lacking.seeds == [1, 2] and lacking.missing == [0] and lacking.acu_rows.n == 2


def test_slices_cover_all_rows_and_short_ones_have_no_number(output):
    group, *_ = fabricated.group_of(output)
    curve = group.curves[0][BASELINE]
    thirds = length_thirds(curve)
    assert sum(rows.sum() for _, rows in thirds) == len(curve.example_id)
    table = slice_table(group, ["negative", "positive"])
    assert [row[0] for row in table.rows[:2]] == ["class negative", "class positive"]
    assert str(sum(row[2] for row in table.rows[:2])) == group.n_rows


def test_per_example_is_the_mean_over_seeds_of_logit_areas(output):
    group, *_ = fabricated.group_of(output)
    ids, values = per_example(group)["loo_sign"]
    assert len(ids) == 60
    row = [
        np.trapezoid((c[BASELINE].target_logit - c["loo_sign"].target_logit)[3], c[BASELINE].ratios)
        for c in group.curves.values()
    ]
    assert values[3] == pytest.approx(np.mean(row), abs=1e-6)


def test_published_numbers_stand_where_the_papers_have_them():
    assert published_racu("babi3", "int_grad_abs") == {"R-ROAR": -0.279}
    assert published_racu("rte", "grad_l2") == {}


def test_python_gives_the_verdicts_that_the_page_and_the_file_have(output, finished):
    import fmm
    from fmm.report.verdict import as_json
    from fmm.report.write import Options

    found = as_json(fmm.report.verdicts(output, "sst2", options=Options(resamples=200)))
    stored = json.loads((finished.directory / "verdict.json").read_text())
    assert found == stored == finished.results["verdicts"]
    page = html.unescape((finished.directory / "report.html").read_text("utf-8"))
    assert all(verdict["sentence"] in page for verdict in found)


def test_main_table_shows_what_decides_and_no_empty_column(finished):
    text = (finished.directory / "report.md").read_text("utf-8")
    head = next(line for line in text.splitlines() if line.startswith("| measure | RACU (%) |"))
    columns = [cell.strip() for cell in head.strip("|").split("|")]
    both = "95% (seeds and rows)"
    assert columns == ["measure", "RACU (%)", both, "ACU (×100)", both, "rank", "passes per row"]
    assert "R-ROAR paper" in text  # in the details


def test_the_report_of_one_model_speaks_of_rows(tmp_path, compose):
    fabricated.experiment(tmp_path, seeds=(0,), strategies=("half_det",), measures=MEASURES, rows=60)
    record = report.run(compose("task=report", "dataset=sst2", f"output_dir={tmp_path}", "report.resamples=200"))
    text = (record.directory / "report.md").read_text("utf-8")
    assert "95% (rows)" in text and "95% (seeds" not in text.split("### Seeds")[0]
    assert "BCa 95%" not in text  # one seed has no papers' interval: the column holds nothing
