"""The museum of failures: each room is repaired by one change, and shown before it is explained."""

from dataclasses import replace
from unittest.mock import Mock

import museum
import pytest

from reasoning_from_scratch.policy import LocalPolicy
from rfs.run.options import configure


@pytest.fixture
def small(monkeypatch):
    """Rooms of one small step."""
    size = {"steps": 1, "problems_per_step": 2, "rollouts": 2}
    rooms = {n: replace(room, sick=room.sick | size) for n, room in museum.ROOMS.items()}
    monkeypatch.setattr(museum, "ROOMS", rooms)


@pytest.mark.parametrize("number", museum.ROOMS)
def test_one_change_repairs_a_room(number):
    room = museum.ROOMS[number]
    assert len(room.repair) == 1
    before, after = room.sick, room.sick | room.repair
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == set(room.repair)
    for repaired in (False, True):
        configure("grpo", **museum.room_settings(number, repaired)[0])


def test_a_visit_and_a_repair(small, capsys):
    figure = museum.visit(2)
    told = capsys.readouterr().out
    assert told.count("wrote:") == 2 and "reward" in told and "sixtieth" not in told
    assert [panel.get_title() for panel in figure.axes][0] == "reward"
    figure = museum.repair(2)
    told = capsys.readouterr().out
    assert told.startswith(museum.ROOMS[2].diagnosis)
    quiet = [f"{title}, seed {seed}: no alarm" for title in ("sick", "repaired") for seed in (2, 3)]
    assert told.splitlines()[1:] == quiet
    named = [text.get_text() for text in figure.legends[0].get_texts()]
    assert named == ["repaired", "sick"]


def test_an_interrupted_visit_trains_anew(small, monkeypatch):
    museum.trained_once.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(LocalPolicy, "sample", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            museum.trained(2)
    assert len(museum.trained(2).rows) == 1
