"""The script that asks whether GRPO finds binary search: a few steps of it, and its arithmetic."""

import csv
import random
import sys
from pathlib import Path

import pytest

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.tasks.problem_sets import load_problems
from reasoning_from_scratch.tiny.guessing import MOST

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ch07"))
import binary_search  # noqa: E402


def play(number, choose):
    """A game: guesses until the number is found."""
    guesses = []
    while number not in guesses and len(guesses) < binary_search.TURNS:
        guesses.append(choose(*binary_search.possible_after(guesses, number, MOST)))
    return number, guesses


def measured(monkeypatch, choose, times=1):
    """What the script says of a player that is known."""
    numbers = load_problems("guess")
    games = [play(int(problem.answer), choose) for problem in numbers for _ in range(times)]
    monkeypatch.setattr(binary_search, "played", lambda name, problems, plays: games)
    return binary_search.measured("nobody", numbers, times)


def found(row):
    return [float(row[f"within {k}"]) for k in range(1, binary_search.TURNS + 1)]


def test_bisection_is_the_best_that_is_possible(monkeypatch):
    row = measured(monkeypatch, lambda low, high: (low + high) // 2)
    assert found(row) == pytest.approx([*binary_search.best_play(MOST), 1.0][1:9], abs=1e-4)
    assert (row["middle"], row["legal"]) == ("1.0000", "1.0000")
    first = [int(count) for count in row["first"].split()]
    assert len(first) == first[MOST // 2 - 1] == MOST  # every game began with 32


def test_uniform_play_is_measured_as_what_it_is(monkeypatch):
    row = measured(monkeypatch, random.Random(0).randint, times=40)
    expected = [binary_search.uniform_play(MOST)[k] for k in range(1, binary_search.TURNS + 1)]
    assert found(row) == pytest.approx(expected, abs=0.04)


def test_a_few_steps_and_the_picture(tmp_path, monkeypatch, capsys):
    plan = {"problems_per_step": 2, "rollouts": 2}
    monkeypatch.setattr(binary_search, "PLAN", binary_search.PLAN | plan)
    small = {"steps": 2, "every": 1, "plays": 1, "seeds": (3,)}
    out = tmp_path / "guesses.csv"
    for leave_out in (0, 8, 8):  # the last takes the place of the one before
        binary_search.main(binary_search.Options(out=out, leave_out=leave_out, **small))
    rows = list(csv.DictReader(out.open(newline="", encoding="utf-8")))
    told = [(row["kl"], row["leave out"], row["step"], row["numbers"]) for row in rows]
    weights, sides = ("0", "0.05"), ("asked", "left out")
    assert told == [(kl, "0", step, "asked") for kl in weights for step in "012"] + [
        (kl, "8", step, numbers) for kl in weights for step in "012" for numbers in sides
    ]
    games = [sum(map(int, row["first"].split())) for row in rows]
    assert games == [*6 * [64], *6 * [56, 8]]
    drawn = out.with_suffix(".png").read_bytes()
    text = out.read_text(encoding="utf-8")
    binary_search.main(binary_search.Options(out=out, picture_only=True))
    assert out.read_text(encoding="utf-8") == text
    assert out.with_suffix(".png").read_bytes() == drawn
    assert "seed 3: 2 steps in" in capsys.readouterr().out


def test_a_run_that_is_never_measured_is_refused(tmp_path):
    for every in (0, 5):
        options = binary_search.Options(out=tmp_path / "none.csv", steps=4, every=every)
        with pytest.raises(UserError, match=f"--every is {every}"):
            binary_search.main(options)
