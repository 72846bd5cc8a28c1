"""Text that is safe to show and to store, by hand."""

import math

import torch

from reasoning_from_scratch.text import (
    json_line,
    json_lines,
    one_line,
    percent,
    percent_error,
    percent_range,
    points,
    read_json_object,
    read_lines,
    replace_nonfinite,
    scan_json_lines,
    shorten,
    visible,
)


def test_what_would_act_on_a_terminal_is_spelled_out():
    assert visible("a\x1b[31mb\u202ec\ud800\n\t") == "a\\x1b[31mb\\u202ec\\ud800\n\t"


def test_shares():
    shown = {0: "0.0%", 0.0004: "< 0.1%", 0.0005: "0.1%", 1 / 3: "33.3%", 1: "100.0%"}
    assert {share: percent(share) for share in shown} == shown
    assert percent_range(0.25, 1) == "25.0 to 100.0%"
    assert (percent_error(0.6, 0.0123), percent_error(0.6, math.nan)) == ("60.0 ± 1.2%", "60.0%")
    assert (points(0.031), points(-0.031)) == ("+3.1", "-3.1")


def test_a_long_text_keeps_its_beginning_and_its_end():
    text = "a" * 300 + "z" * 300
    shown = shorten(text, 100)
    assert shown == "a" * 75 + "\n[... 500 characters left out ...]\n" + "z" * 25
    assert shorten("a" * 150, 100) == "a" * 150, "about as long as the words about the gap"
    assert one_line("two\nlines\tof it", 100) == "two lines of it"


def test_json_has_no_nan_and_no_half_of_a_pair():
    row = {"a": math.nan, "b": [1, torch.tensor(2.5)], 3: "\ud800"}
    assert json_line(row) == '{"a": null, "b": [1, 2.5], "3": "\\ufffd"}'
    assert replace_nonfinite({"x": math.inf, "y": 1.5, "z": None}) == (
        {"x": None, "y": 1.5, "z": None},
        ["x"],
    )


def test_lines_that_are_torn_are_left_out_and_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json_lines([{"step": 0}, {"step": 1}]) + '[1]\n\n{"step": 2}\n{"st')
    rows, bad = scan_json_lines(path)
    assert rows == read_lines(path) == [{"step": 0}, {"step": 1}, {"step": 2}]
    assert bad == [3, 6]
    assert scan_json_lines(path, wanted={0})[0] == [{"step": 0}]
    assert scan_json_lines(tmp_path / "nowhere.jsonl") == ([], [])


def test_values(tmp_path):
    path = tmp_path / "values.json"
    assert read_json_object(path) == {}
    path.write_text("[1, 2]")
    assert read_json_object(path) == {}
    path.write_text('{"a": [{"b": 1}]}')
    assert read_json_object(path) == {"a": [{"b": 1}]}
