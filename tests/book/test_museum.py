"""The museum of failures: each room is repaired by one change, and shown before it is explained."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "ch07")]

import museum  # noqa: E402
from regime_findings import findings, stored_rows  # noqa: E402
from regimes import REGIMES  # noqa: E402

from reasoning_from_scratch.problems import Problem  # noqa: E402
from reasoning_from_scratch.report.curves import COLORS  # noqa: E402
from reasoning_from_scratch.run.options import configure  # noqa: E402

STORED = ROOT / "ch07" / "regimes.csv"
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


def test_a_sick_run_is_orange_and_dashed_alone_and_beside_its_repair(small):
    for titles, looks in ((["sick"], ["sick"] * 2), (["repaired", "sick"], ["repaired"] * 2)):
        right = museum.drawn(2, titles).axes[1]
        bold = [line for line in right.lines if line.get_linewidth() > 1]
        assert len(bold) == 2 * len(titles)  # two seeds
        for line, title in zip(bold, looks, strict=False):
            assert line.get_color() == COLORS[museum.LOOKS[title]]
        assert bold[-1].get_color() == COLORS[1] and bold[-1].get_linestyle() == "--"


def test_the_sweep_begins_with_the_sick_rate(small):
    line, sick = museum.sweep().axes[0].lines
    assert list(line.get_xdata()) == [1e-6, 1e-5] and list(sick.get_xdata()) == [1e-6]
    assert museum.ROOMS[5].sick["lr"] == museum.RATES[0]
    assert sick.get_color() == COLORS[1]


def test_the_intro_names_the_rooms_with_two_seeds():
    two = [number for number, room in museum.ROOMS.items() if len(room.seeds) == 2]
    assert two == [1, 2, 3, 5] and "Rooms 1, 2, 3 and 5" in CELLS["how-to-look"]


def test_the_time_to_read_it_is_counted():
    """100 words a minute, 3 minutes for the curves of a room and for the sweep, 1 for a guess."""
    rooms = len(museum.ROOMS)
    minutes = sum(len(text.split()) for text in CELLS.values()) / 100 + 3 * (rooms + 1) + rooms
    assert 50 <= minutes <= 70 and "about an hour" in CELLS["how-to-look"], minutes


def test_room_4_says_what_the_laboratory_found():
    """Four passes without a clip."""
    found = findings({"epochs": REGIMES["epochs"]}, stored_rows(STORED))
    clip, *_ = [one for one in found if one.theirs == "4 passes, no clip" and one.decides]
    said = CELLS["room-4-laboratory"]
    assert f"{100 * clip.effect.mean:.1f} points" in said and clip.rates[1] == 2e-4
    assert f"(s.e. {100 * clip.effect.error:.1f})" in said and clip.effect.sure
    assert f"{100 * fmean(clip.without.values()):.1f} %" in said


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
