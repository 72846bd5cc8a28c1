"""The script that asks whether GRPO finds binary search: its arithmetic."""

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


def test_the_picture_is_that_of_the_reward_that_was_asked_for(tmp_path, monkeypatch):
    table = tmp_path / "rows.csv"
    table.write_text("pay,kl,seed,numbers\nin time,0,0,asked\nfaster,0,7,asked\n")
    drawn = []
    monkeypatch.setattr(binary_search, "draw", lambda rows, path: drawn.extend(rows))
    options = binary_search.Options(out=table, picture_only=True, pay=("faster",))
    binary_search.main(options)
    assert [row["seed"] for row in drawn] == ["7"]
    table.write_text("pay,kl,seed,numbers\nin time,0,0,asked\n")
    with pytest.raises(UserError, match='has no run with --pay "faster"'):
        binary_search.main(options)


def test_a_run_that_is_never_measured_is_refused(tmp_path):
    for every in (0, 5):
        options = binary_search.Options(out=tmp_path / "none.csv", steps=4, every=every)
        with pytest.raises(UserError, match=f"--every is {every}"):
            binary_search.main(options)
