"""The experiments behind the chapters' tables: a few steps of each, its rows and its picture."""

import csv
from unittest.mock import Mock

import asking
import binary_search
import long_runs
import pytest
import real_model
import second_try

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.policy import LocalPolicy
from rfs.files.tables import read_table, write_table
from rfs.tasks import problem_sets
from tests.conftest import ROOT

STUDIES = ROOT / "studies"

STEP = {"problems_per_step": 2, "rollouts": 2}
ANSWERED = {"steps": 2, "limit": 3, "samples": 1}
MEASURED = [("0", "greedy"), ("0", "sampled"), ("0", "of the step"), ("1", "of the step")]
MEASURED += [("2", "greedy"), ("2", "sampled")]
LEFT_OUT = [
    (kl, step, side) for kl in ("0", "0.05") for step in "012" for side in ("asked", "left out")
]
# script: its sizes, what tells its rows apart, and the rows that it should write
EXPERIMENTS = {
    asking: (
        ANSWERED | {"model": "tiny-base"},
        ("arm", "step", "answers"),
        [(arm, *row) for arm in ("calculator", "nobody answers") for row in MEASURED],
    ),
    second_try: (
        ANSWERED | {"arms": tuple(second_try.ARMS)},
        ("arm", "step", "answers"),
        [(arm, *row) for arm in second_try.ARMS for row in MEASURED],
    ),
    binary_search: (
        {"steps": 2, "eval_every": 1, "plays": 1, "leave_out": 8},
        ("kl", "step", "numbers"),
        LEFT_OUT,
    ),
    long_runs: (
        {"arms": ("no change", "clip-higher")},
        ("arm", "step"),
        [(arm, step) for arm in ("no change", "clip-higher") for step in "012"],
    ),
    real_model: (
        {"model": "tiny", "task": "arithmetic", "steps": 2, "eval_every": 1} | STEP,
        ("step",),
        [("0",), ("1",), ("2",)],
    ),
}


@pytest.fixture
def small(monkeypatch):
    """What no option makes small."""
    for script in (asking, second_try, binary_search):
        monkeypatch.setattr(script, "RUN_SETTINGS", script.RUN_SETTINGS | STEP)
    load = problem_sets.load_problems
    monkeypatch.setattr(problem_sets, "load_problems", lambda name, limit=8: load(name, limit=2))
    monkeypatch.setattr(long_runs, "load_problems", problem_sets.load_problems)
    monkeypatch.setattr(long_runs, "STEPS", 2)
    monkeypatch.setattr(long_runs, "STEPS_PER_ROW", 1)
    long_runs.measure.cache_clear()
    monkeypatch.setattr(real_model, "HELD_OUT", 2)


def asked_of(script, folder):
    asked = {"out": folder / "table.csv", "seeds": (3,)}
    return asked | ({"folder": folder / "runs"} if hasattr(script.Options, "folder") else {})


@pytest.mark.parametrize("script", EXPERIMENTS, ids=lambda script: script.__name__)
def test_a_few_steps_and_the_picture(script, small, tmp_path):
    sizes, keys, expected = EXPERIMENTS[script]
    asked = asked_of(script, tmp_path)
    out = asked["out"]
    script.main(script.Options(**asked | sizes))
    text = out.read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert sorted(tuple(row[key] for key in keys) for row in rows) == sorted(expected)
    drawn = out.with_suffix(".png").read_bytes()
    assert len(drawn) > 10_000
    script.main(script.Options(**asked | {"picture_only": True}))
    assert out.read_text(encoding="utf-8") == text
    assert out.with_suffix(".png").read_bytes() == drawn


@pytest.mark.parametrize("script", EXPERIMENTS, ids=lambda script: script.__name__)
def test_ctrl_c_ends_the_script_and_leaves_its_table(script, small, tmp_path, monkeypatch):
    sizes, keys, _ = EXPERIMENTS[script]
    asked = asked_of(script, tmp_path) | sizes
    out = asked["out"]
    if "arms" in asked:
        asked["arms"] = asked["arms"][:1]

    with monkeypatch.context() as patched:
        patched.setattr(LocalPolicy, "sample", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            script.main(script.Options(**asked))
    assert not out.exists()
    if "folder" in asked:  # the run is kept, and the same command goes on with it
        script.main(script.Options(**asked))
        written = out.read_text(encoding="utf-8")
        script.main(script.Options(**asked))
        assert out.read_text(encoding="utf-8") == written
        if "eval_every" in asked:  # which is not in the folder's name
            with pytest.raises(UserError, match="choose another --folder"):
                script.main(script.Options(**asked | {"eval_every": 2}))


def test_the_picture_of_long_runs_shows_one_learning_rate(tmp_path):
    """Runs at another one would pass for more seeds of the same."""
    rows = read_table(STUDIES / "long_runs.csv")
    pictures = []
    for name, some in (
        ("one.csv", rows),
        ("two.csv", [*rows, *(row | {"lr": "0.0002", "right": "0.9"} for row in rows)]),
    ):
        write_table(tmp_path / name, some)
        long_runs.main(long_runs.Options(out=tmp_path / name, picture_only=True))
        pictures.append((tmp_path / name).with_suffix(".png").read_bytes())
    assert pictures[0] == pictures[1]
    with pytest.raises(UserError, match="no run with --lr 0.0003 to draw"):
        long_runs.main(long_runs.Options(out=tmp_path / name, picture_only=True, lr=3e-4))


def test_the_picture_of_a_real_model_shows_one_schedule(tmp_path):
    rows = read_table(STUDIES / "real_model_instructions.csv")
    others = [row | {"schedule": "constant", "sampled": "0.01"} for row in rows[:2]]
    task, pictures = real_model.TASKS["instructions"], []
    for number, some in enumerate((rows, [*rows, *others])):
        real_model.draw(some, task, tmp_path / f"{number}.png")
        pictures.append((tmp_path / f"{number}.png").read_bytes())
    assert pictures[0] == pictures[1]


@pytest.mark.parametrize(
    "script, changes, words",
    [
        (asking, {"steps": 2}, "asking.csv has runs with --steps 60, not 2; choose another --out"),
        (second_try, {"lr": 1e-4}, "second_try.csv has runs with --lr 0.0002, not 0.0001"),
        (binary_search, {"plays": 1}, "binary_search.csv has runs with --plays 32, not 1"),
        (real_model, {"steps": 2}, "arithmetic.csv has runs of 200 steps of smollm2; choose"),
        (real_model, {"model": "qwen-0.5b"}, "arithmetic.csv has runs of 200 steps of smollm2"),
    ],
)
def test_the_stored_table_gets_no_rows_of_other_settings(
    script, changes, words, tmp_path, monkeypatch
):
    """Its lines do not say these settings, so a trial with one seed would replace that seed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(LocalPolicy, "sample", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(UserError, match=words):
        script.main(script.Options(**changes))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("script", [asking, second_try])
def test_an_unknown_arm_is_refused(script, tmp_path):
    options = script.Options(out=tmp_path / "table.csv", arms=("cal",), model="tiny-base")
    with pytest.raises(UserError, match="unknown arm 'cal'"):
        script.main(options)


def test_short_and_long_problems_of_the_long_runs_take_turns():
    short, longer = list(long_runs.problems())[:2]
    assert short == problem_sets.load_problems("tiny", limit=1)[0]
    assert longer == problem_sets.load_problems("tiny-longer-train", limit=1)[0]
