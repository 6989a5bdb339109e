"""ACU and RACU against the authors' numbers, and their undefined cases."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fmm.errors import FmmError
from fmm.faithfulness import acu, check_ratios, example_acu, faithfulness, relative_acu

GOLDENS = json.loads((Path(__file__).parent / "goldens/racu.json").read_text())


@pytest.mark.parametrize("case", GOLDENS["compute_acu"], ids=lambda case: case["name"])
def test_acu_and_racu_equal_the_authors(case):
    found = faithfulness(case["masking_ratio"], case["metric"], case["baseline"])
    assert found.acu == pytest.approx(case["acu"], rel=1e-14, abs=1e-16)
    assert found.racu == pytest.approx(case["racu"], rel=1e-14, abs=1e-16)


def test_undefined_racu_says_why():
    flat = faithfulness([0, 0.5, 1], [0.9, 0.5, 0.5], [0.9, 0.9, 0.9])
    assert np.isinf(flat.racu) and "zero" in flat.undefined
    rising = faithfulness([0, 0.5, 1], [0.9, 0.5, 0.5], [0.5, 0.6, 0.9])
    assert "negative" in rising.undefined
    assert faithfulness([0, 0.5, 1], [0.9, 0.5, 0.5], [0.9, 0.8, 0.5]).undefined is None


def test_clip_is_r_roars():
    ratios, metric, baseline = [0, 0.5, 1], [0.9, 0.0, 0.5], [0.9, 0.6, 0.5]
    assert relative_acu(ratios, metric, baseline) > 1 and relative_acu(ratios, metric, baseline, clip=True) == 1


def test_leading_axes_are_replicates():
    rng = np.random.default_rng(0)
    ratios, metric, baseline = np.linspace(0, 1, 11), rng.random((4, 3, 11)), rng.random((3, 11))
    whole = acu(ratios, metric, baseline)
    assert whole.shape == (4, 3)
    assert whole[2, 1] == pytest.approx(acu(ratios, metric[2, 1], baseline[1]), rel=1e-14)


def test_example_acu_is_positive_where_the_target_falls_faster():
    found = example_acu([0, 0.5, 1], [[3, 0, 0], [3, 2, 0]], [[3, 2, 0], [3, 0, 0]])
    assert found.tolist() == [1.0, -1.0]


@pytest.mark.parametrize(
    ("ratios", "said"),
    [([0, 1.5, 1], "1.5 is outside"), ([0.1, 1], "lack 0"), ([0, 0.5], "lack 1"), ([], r"ratios=\[\] holds no")],
)
def test_bad_ratios_are_refused(ratios, said):
    with pytest.raises(FmmError, match=said):
        check_ratios(ratios)
