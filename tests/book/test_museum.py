"""The museum of failures: each room is repaired by one change, and shown before it is explained."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "ch07")]

import museum  # noqa: E402

from reasoning_from_scratch.problems import Problem  # noqa: E402
from reasoning_from_scratch.run.options import configure  # noqa: E402

NOTEBOOK = json.loads((ROOT / "ch07" / "ch07_museum.ipynb").read_text(encoding="utf-8"))
CELLS = {cell["id"]: "".join(cell["source"]) for cell in NOTEBOOK["cells"]}


@pytest.fixture
def small(monkeypatch):
    """Rooms of one small step."""
    size = {"steps": 1, "problems_per_step": 2, "rollouts": 2}
    rooms = {n: replace(room, sick=room.sick | size) for n, room in museum.ROOMS.items()}
    monkeypatch.setattr(museum, "ROOMS", rooms)
    monkeypatch.setattr(museum, "PLAN", museum.PLAN | size)
    monkeypatch.setattr(museum, "RATES", museum.RATES[:2])


@pytest.mark.parametrize("number", museum.ROOMS)
def test_one_change_repairs_a_room(number):
    room = museum.ROOMS[number]
    assert len(room.repair) == 1
    before, after = room.sick, room.sick | room.repair
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == set(room.repair)
    for repaired in (False, True):
        configure("grpo", **museum.plan_of(number, repaired)[0])


@pytest.mark.parametrize("number", museum.ROOMS)
def test_the_question_has_the_answers_that_are_spoken_to(number, capsys):
    room, asked = museum.ROOMS[number], CELLS[f"room-{number}-question"]
    letters = [line[4] for line in asked.splitlines() if line.startswith("- **")]
    assert letters == list(room.said) == list("abcd")
    for letter in letters:
        museum.guess(number, letter.upper())
        assert capsys.readouterr().out.startswith("Yes.") == (letter == room.truth)
    museum.guess(number)
    assert capsys.readouterr().out == "Choose one of a, b, c, d.\n"


def test_a_visit_and_a_repair(small, capsys):
    figure = museum.visit(2)
    told = capsys.readouterr().out
    assert told.count("it wrote:") == 2 and "paid" in told and "brief" not in told
    assert [panel.get_title() for panel in figure.axes][0] == "reward paid"
    figure = museum.repair(2)
    told = capsys.readouterr().out
    assert told.startswith("It was reward = museum.py:brief_reward; repaired: reward = None\n")
    quiet = [f"{title}, seed {seed}: no alarm" for title in ("sick", "repaired") for seed in (2, 3)]
    assert told.splitlines()[1:] == quiet
    named = [text.get_text() for text in figure.legends[0].get_texts()]
    assert named == ["repaired", "sick"]


def test_room_8_draws_both_distances_with_one_estimator():
    """Only what the loss asks for, k2, differs between the two runs."""
    sick, well = (museum.plan_of(8, repaired)[1] for repaired in (False, True))
    logprobs, reference = torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -0.5])
    k1 = logprobs - reference
    assert torch.equal(sick("k3", logprobs, reference), k1)
    assert torch.equal(well("k3", logprobs, reference), k1)
    assert torch.equal(sick("k2", logprobs, reference), k1)
    assert torch.equal(well("k2", logprobs, reference), k1**2 / 2)
    assert "k1" in museum.CURVES["kl_policy_base"]


def test_the_right_ones_are_counted_by_the_grader(small):
    """Whatever the room pays."""
    (row,) = museum.with_right(museum.trained(2))
    assert 0 <= row["right"] <= 1
    assert museum.last(2, "right") == row["right"]


def test_a_short_wrong_answer_is_better_paid_than_a_long_right_one():
    """That is the fault of room 2."""
    problem = Problem(id="one", problem="What is 2 + 3?", answer="5")
    lines = "\n".join(["Let's see.", *["2 + 3 = 5? Yes"] * 4])
    working = lines + "\n\\boxed{5}"
    assert museum.brief_reward("\\boxed{5}", problem) > museum.brief_reward("\\boxed{6}", problem)
    assert museum.brief_reward("\\boxed{6}", problem) > museum.brief_reward(working, problem)
