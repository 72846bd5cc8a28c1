"""Two commands on one folder: the second neither loses what the first made nor believes it."""

import sys
import types

import pytest
from command_world import commands, contents, equal, refused, resume, run, saved, train_words

from reasoning_from_scratch.text import read_lines
from tests.program.run.test_interrupts import press_at

# ---- 1: --overwrite


@pytest.mark.parametrize(
    "change", ["--seed 9", "--seed 9 --steps 3", "--seed 9 --lora-rank 2", "--seed 9 --steps 6"]
)
def test_overwrite_holds_the_new_weights(world, change):
    fresh = run(world, "fresh", *change.split())
    steps = len(read_lines(fresh / "metrics.jsonl"))
    over = run(world, "X", *change.split(), "--overwrite")
    assert equal(saved(over, steps), saved(fresh, steps))
    places = {path.name for path in (over / "checkpoints").iterdir()}
    assert places == {path.name for path in (fresh / "checkpoints").iterdir()}
    assert all((over / "checkpoints" / place / "model.safetensors").exists() for place in places)
    finals = [line["batch"] for line in read_lines(over / "checkpoints.jsonl") if line["final"]]
    assert finals == [steps]


def test_overwrite_after_ctrl_c(world, monkeypatch):
    press_at("reasoning_from_scratch.trainer.set_advantages", 1, monkeypatch)
    assert commands(train_words(world, world / "Y")) == 130
    monkeypatch.undo()
    over = run(world, "Y", "--overwrite")
    assert equal(saved(over, 4), saved(world / "X", 4))


# ---- 2: nothing changes before all is checked


MINE = """
wrong = {"recipe": "dapo"}

class Env:
    def __init__(self, problem): pass
    def reply(self, turn): return None
    def rewards(self): return {"correct": 1.0, "speed": 0.5}
"""


@pytest.mark.parametrize(
    "change",
    [
        "--model nothing",
        "--load-checkpoint-path nothing",
        "--data-path nothing",
        "--few-shot 8",
        "--reward nothing.py:reward",
        "--environment nothing.py:Env",
        "--environment {}/mine.py:Nothing",
        "--environment {}/mine.py",
        "--environment {}/mine.py:Env --reward-parts correct=1 sped=1",
        "--evaluators {}/mine.py:nothing --eval-every 1",
        "--recipe nothing.py:row",
        "--recipe {}/mine.py:wrong",
        "--prompt nothing",
        "--eval-problems nothing",
        "--load-checkpoint-path tiny-base",
    ],
)
def test_what_is_refused_changes_nothing(world, change, capsys):
    flags = change.format(world).split()
    if flags[-1] == "tiny-base":
        flags[-1] = "checkpoints/tiny-base"  # another model
    (world / "mine.py").write_text(MINE)
    before = contents(world / "X")
    refused(train_words(world, world / "X", "--overwrite", *flags), capsys)
    refused(train_words(world, world / "new", *flags), capsys)
    assert contents(world / "X") == before and not (world / "new").exists()


@pytest.mark.parametrize(
    "change",
    [
        "--steps 3",
        "--optimizer muon --steps 6",
        "--lora-rank 2 --steps 6",
        "--model {}/tiny-other --steps 6",
        "--load-checkpoint-path {}/tiny-other --steps 6",
        "--dtype bfloat16 --steps 6",
        "--eval-problems nothing --steps 6",
    ],
)
def test_a_resume_that_is_refused_changes_nothing(world, change, capsys):
    before = contents(world / "X")
    refused(resume(world / "X", *change.format(world).split()), capsys)
    assert contents(world / "X") == before


# ---- 3: smaller


@pytest.mark.parametrize("more", [[], ["--overwrite"], ["--resume"]], ids=str)
def test_weights_and_biases_that_refuses_leaves_the_folder_alone(world, monkeypatch, capsys, more):
    def init(**options):
        assert options["id"] == ("abc" if "--resume" in more else None)
        raise ConnectionError("no network\nand more")

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    run = world / ("X" if more else "new")
    if more:
        (run / "wandb_id").write_text("abc")
    before = contents(run)
    words = train_words(world, run, *more)
    if "--resume" in more:
        words = resume(run, "--steps", 9)
    line = refused([*words, "--wandb", "mine"], capsys)
    assert "started no run (no network and more): try `wandb login`" in line
    assert contents(run) == before
