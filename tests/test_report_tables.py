"""One table, four forms."""

import csv
import io

import pytest

from fmm.report.tables import Column, Table, interval, percent, points, pvalue, text, whole


@pytest.fixture
def table() -> Table:
    columns = [
        Column("measure", "measure", text, False),
        Column("racu", "RACU (%)", percent),
        Column("ci", "95%", interval),
        Column("difference", "difference", points),
        Column("p", "p", pvalue),
    ]
    rows = [["grad_l2", 0.404, (0.1, None), -0.034, 0.0004], ["a|b <x>&", None, (0.1, 0.2), 0.0, float("nan")]]
    return Table("main", "Faithfulness & co", columns, rows, ["100% of it"], best=0)


def test_markdown_escapes_bars_and_shows_missing_as_dash(table):
    lines = table.markdown().splitlines()
    assert lines[4] == "| grad_l2 | 40.4 | – | −3.4 | <0.001 |"
    assert lines[5] == "| a\\|b <x>& | – | [10.0, 20.0] | +0.0 | – |"


def test_csv_keeps_raw_values_and_splits_intervals(table):
    rows = list(csv.DictReader(io.StringIO(table.csv())))
    assert rows[0] == {
        "measure": "grad_l2", "racu": "0.404", "ci_low": "0.1", "ci_high": "", "difference": "-0.034", "p": "0.0004"
    }  # fmt: skip
    assert rows[1]["racu"] == "" and rows[1]["p"] == "" and rows[1]["ci_high"] == "0.2"


def test_latex_is_booktabs_and_escaped(table):
    source = table.latex()
    for part in (
        r"\toprule",
        r"\midrule",
        r"\bottomrule",
        r"grad\_l2",
        r"$-$3.4",
        r"Faithfulness \& co",
        r"100\% of it",
    ):
        assert part in source
    assert r"\begin{tabular}{lrrrr}" in source


def test_html_escapes_and_names_its_header_cells(table):
    page = table.html()
    assert "a|b &lt;x&gt;&amp;" in page and "<x>" not in page
    assert page.count('scope="col"') == 5 and page.count('scope="row"') == 2 and page.count("class=best") == 1


def test_counts_have_thin_thousands():
    assert whole(12345.0) == "12\u202f345" and whole(None) == "–"
