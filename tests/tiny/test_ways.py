"""The ways to answer: how each is written, and that the text alone tells which one it is."""

import random
import re

import pytest
from four_ways import SLIPS, slip, written

from reasoning_from_scratch.tiny.ways import WAYS, way_of
from reasoning_from_scratch.tiny.world import tiny_problem

LINES = ["12 + 9 = 21", "Ana: 2 * 21 = 42", "x = 42 - 5 = 37"]


def text(way, lines=LINES, seed=0):
    return "".join(text for text, _ in written(lines, "37", way, random.Random(seed)))


def test_each_way_as_it_is_written():
    assert text("answer only") == "\n\\boxed{37}"
    start = " Let's see.\n"
    assert text("full") == start + "\n".join(LINES) + "\n\\boxed{37}"
    assert text("rough") == start + f"{LINES[0]}\n{LINES[2]}\n\\boxed{{37}}"
    assert text("rough", LINES[:2]) == start + f"{LINES[1]}\n\\boxed{{37}}"
    without = re.sub(r"\S+\? No, ", "", text("checked")).replace("? Yes", "")
    assert without == text("full")


def test_a_check_says_yes_or_mends():
    verdicts = {"Yes": 0, "No": 0}
    for seed in range(200):
        for line, right in zip(text("checked", seed=seed).split("\n")[1:-1], LINES, strict=True):
            if line.endswith("? Yes"):
                assert line == f"{right}? Yes"
                verdicts["Yes"] += 1
            else:
                wrong, mended = line.split("? No, ")
                assert wrong != right and wrong.rpartition(" ")[0] == right.rpartition(" ")[0]
                assert mended == right.rpartition(" ")[2]
                verdicts["No"] += 1
    assert abs(verdicts["No"] / 600 - SLIPS) < 0.06


def test_a_slip_is_read_and_never_learned():
    pieces = [list(written(LINES, "37", "checked", random.Random(seed))) for seed in range(50)]
    assert {what for parts in pieces for _, what in parts} == {"plain", "result", "slip"}
    for parts in pieces:
        for (slipped, what), (mended, _) in zip(parts[:-1], parts[1:], strict=True):
            if what == "slip":
                assert mended.startswith("? No, ") and slipped != mended.removeprefix("? No, ")


def test_a_guess_is_not_learned_and_what_can_be_seen_at_once_is():
    for lines, what in ((LINES, "guess"), (LINES[:1], "plain")):
        pieces = list(written(lines, "37", "answer only", random.Random(0)))
        assert pieces == [("\n\\boxed{", "plain"), ("37", what), ("}", "plain")]


@pytest.mark.parametrize("result", ["7", "105", "23/15"])
def test_a_slip_changes_one_digit(result):
    for seed in range(50):
        other = slip(result, random.Random(seed))
        assert len(other) == len(result)
        assert sum(a != b for a, b in zip(result, other, strict=True)) == 1
        assert re.fullmatch(r"\d+(/\d+)?", other)


@pytest.mark.parametrize("split", ["train", "longer-train"])
def test_every_way_is_told_from_the_text(split):
    for index in range(300):
        row = tiny_problem(split, index)
        lines = row["solution"].splitlines()[1:-1]
        for way in WAYS:
            seen = text(way, lines, index)
            if way == "rough" and len(lines) == 1:  # nothing to leave out
                assert way_of(seen, 1) == "full"
            else:
                assert way_of(seen, len(lines)) == way


def test_what_a_model_may_write_instead():
    assert way_of("", 3) == way_of("I do not know", 3) == "answer only"
    assert way_of("Let's see.\n12 + 9 = 21\n2 * 21", 3) == "rough"  # cut off
    assert way_of("Let's see.\n1 + 1 = 2? Yes\n2 + 2 = 4\n4 + 4 = 8\n", 3) == "full"
