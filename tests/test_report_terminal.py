"""What people see on a terminal, and what a page embeds."""

from fmm.report.explain_page import embedded
from fmm.report.terminal import coloured, print_faithfulness


def test_colours_on_a_terminal_follow_sign_and_size():
    shown = coloured("good bad so", [(0, 4, 1.0), (5, 8, -0.5), (9, 11, 0.0)], signed=True)
    spans = {(span.start, span.end): span.style for span in shown.spans}
    assert set(spans) == {(0, 4), (5, 8)}
    assert spans[5, 8].underline and not spans[0, 4].underline
    assert not coloured("x", [(0, 1, 0.0)], signed=False).spans


def test_nothing_embedded_ends_a_script():
    assert embedded({"a": "</SCRIPT>&"}) == '{"a":"\\u003c/SCRIPT\\u003e\\u0026"}'


def test_the_main_table_is_never_cut(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    ends = (-1.234, 12.345)
    row = {"measure": "inp_grad_sign", "racu": 2.143, "racu_rows": ends, "acu": -0.171, "acu_rows": ends}
    print_faithfulness("sst2", [row | {"rank": "3 (3–7)", "n": 3}])
    shown = capsys.readouterr().out.splitlines()[-2].split()
    assert shown == ["inp_grad_sign", "214.3", "[−123.4,", "1234.5]", "−17.1", "[−123.4,", "1234.5]", "3", "(3–7)", "3"]


def test_columns_without_any_value_are_left_out(capsys):
    row = {"measure": "rand", "racu": 1.0, "racu_rows": (None, None), "acu": 0.1, "acu_rows": (None, None)}
    print_faithfulness("toy", [row | {"rank": "1", "n": 1}])
    assert "95%" not in capsys.readouterr().out
