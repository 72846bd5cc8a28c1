"""The script that asks whether GRPO finds binary search: its arithmetic."""

import random

import binary_search
import pytest

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.tiny.guessing import MOST
from rfs.files.tables import write_table


def play(number, choose):
    """A game: guesses until the number is found."""
    guesses = []
    while number not in guesses and len(guesses) < binary_search.TURNS:
        guesses.append(choose(*binary_search.possible_range(guesses, number, MOST)))
    return number, guesses


def measured(choose, times=1):
    """What the script says of a player that is known."""
    return binary_search.summary(
        [play(number, choose) for number in range(1, MOST + 1) for _ in range(times)]
    )


def found(row):
    return [float(row[f"within {k}"]) for k in range(1, binary_search.TURNS + 1)]


def test_bisection_is_the_best_that_is_possible():
    row = measured(lambda low, high: (low + high) // 2)
    assert found(row) == pytest.approx([*binary_search.best_play(MOST), 1.0][1:9], abs=1e-4)
    assert (row["middle"], row["legal"]) == ("1.0000", "1.0000")
    first = [int(count) for count in row["first"].split()]
    assert len(first) == first[MOST // 2 - 1] == MOST  # every game began with 32


def test_uniform_play_is_measured_as_what_it_is():
    row = measured(random.Random(0).randint, times=40)
    expected = [binary_search.uniform_play(MOST)[k] for k in range(1, binary_search.TURNS + 1)]
    assert found(row) == pytest.approx(expected, abs=0.04)


def test_the_picture_is_that_of_the_reward_that_was_asked_for(tmp_path):
    """The rows of the other one, which have no numbers, could not be drawn."""
    table = tmp_path / "rows.csv"
    head = {"kl": "0", "seed": "7", "numbers": "asked", "leave out": "0"}
    drawn = [{"pay": "faster", "step": step} | head | measured(max) for step in "02"]
    write_table(table, [*drawn, {"pay": "in time"} | head])
    options = binary_search.Options(out=table, picture_only=True, reward=("faster",))
    binary_search.main(options)
    assert table.with_suffix(".png").exists()
    write_table(table, [{"pay": "in time"} | head])
    with pytest.raises(UserError, match='has no run with --reward "faster"'):
        binary_search.main(options)


def test_a_run_that_is_never_measured_is_refused(tmp_path):
    for every in (0, 5, 3):  # with 3, the last weights are not measured
        options = binary_search.Options(out=tmp_path / "none.csv", steps=4, eval_every=every)
        with pytest.raises(UserError, match=f"--eval-every is {every}"):
            binary_search.main(options)
