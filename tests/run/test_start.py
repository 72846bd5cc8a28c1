"""Two commands on one folder: the second neither loses what the first made nor believes it."""

import json
import shutil
import sys
import types
from pathlib import Path

import pytest
from command_world import commands, contents, equal, make_world, saved, train_words

from reasoning_from_scratch.commands.chat_rl import ChatRLOptions, chat_rl
from reasoning_from_scratch.commands.quickstart import QuickstartOptions, quickstart
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.text import read_lines


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    make_world(folder)
    return folder


@pytest.fixture
def world(made, tmp_path):
    """A folder of this test's own, with a finished run X in it."""
    if not (made / "X").exists():
        assert commands(train_words(made, made / "X")) == 0
    shutil.copytree(made, tmp_path / "world")
    return tmp_path / "world"


def run(world: Path, name: str, *more: object) -> Path:
    assert commands(train_words(world, world / name, *more)) == 0
    return world / name


def refused(words: list[str], capsys, where: Path | None = None) -> str:
    """What was said by a command that must be refused."""
    capsys.readouterr()
    assert commands(words, where) == 2
    (line,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("rfs train: ")]
    return line


def resume(path: Path | str, *more: object) -> list[str]:
    return ["train", "--resume", str(path), *map(str, more)]


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
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("reasoning_from_scratch.trainer.set_advantages", interrupted)
    assert commands(train_words(world, world / "Y")) == 130
    monkeypatch.undo()
    over = run(world, "Y", "--overwrite")
    assert equal(saved(over, 4), saved(world / "X", 4))


@pytest.mark.parametrize("source", ["--load-checkpoint-path X", "--model X/checkpoints/000004"])
def test_a_run_is_not_deleted_for_a_run_that_starts_from_it(world, source, capsys):
    before = contents(world / "X")
    flag, path = source.split()
    words = train_words(world, world / "X", "--overwrite", flag, world / path)
    assert "which --overwrite would delete: choose another --log-path" in refused(words, capsys)
    assert contents(world / "X") == before


# ---- 2: nothing changes before all is checked


NO_ROOM = "--memory-budget 1MB"


@pytest.mark.parametrize(
    "change",
    [
        NO_ROOM,
        "--model nothing",
        "--load-checkpoint-path nothing",
        "--data-path nothing",
        "--few-shot 8",
        "--reward nothing.py:reward",
        "--eval-problems nothing",
        "--max-steps-off-policy 1 --memory-budget 1GB",
        "--load-checkpoint-path tiny-base",
    ],
)
def test_what_is_refused_changes_nothing(world, change, capsys):
    flags = change.split()
    if flags[-1] == "tiny-base":
        flags[-1] = "checkpoints/tiny-base"  # another model
    before = contents(world)
    refused(train_words(world, world / "X", "--overwrite", *flags), capsys)
    refused(train_words(world, world / "new", *flags), capsys)
    assert contents(world) == before and not (world / "new").exists()


@pytest.mark.parametrize(
    "change",
    [
        NO_ROOM + " --steps 6",
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
    assert commands(resume(world / "X", "--steps", 5)) == 0
    assert equal(saved(world / "X", 5), saved(run(world, "five", "--steps", 5), 5))


# ---- 3: where a run began


@pytest.mark.parametrize("how", ["--lora-rank 2", "--kl k3 --kl-coef 0.5"])
@pytest.mark.parametrize("fate", ["extended", "overwritten", "deleted", "elsewhere"])
def test_a_run_goes_on_from_where_it_began(world, how, fate):
    flags = ["--load-checkpoint-path", world / "X", *how.split()]
    whole = run(world, "whole", *flags)
    part = run(world, "part", *flags, "--steps", 2)
    if fate == "extended":
        assert commands(resume(world / "X", "--steps", 6)) == 0
    elif fate == "overwritten":
        run(world, "X", "--overwrite", "--seed", 7, "--steps", 6)
    elif fate == "deleted":
        shutil.rmtree(world / "X")
    else:
        world = world.rename(world.parent / "moved")
        part, whole = world / "part", world / "whole"
    task = [
        flag
        for name in ("data-path", "problems", "eval-problems")
        for flag in (f"--{name}", world / "problems.jsonl")
    ]
    assert commands(resume(part, "--steps", 4, *task)) == 0
    assert equal(saved(part, 4), saved(whole, 4))


def test_a_relative_source_is_found_from_another_folder(world, tmp_path):
    words = train_words(Path("."), "part", "--load-checkpoint-path", "X", "--steps", 2)
    words[words.index("--problems") + 1] = words[words.index("--eval-problems") + 1] = "tiny-test"
    assert commands(words, where=world) == 0
    task = ["--problems", world / "problems.jsonl", "--eval-every", 0]
    assert commands(resume(world / "part", "--steps", 4, *task), where=tmp_path) == 0
    config = json.loads((world / "part" / "config.json").read_text())
    assert config["load_checkpoint_path"] == str(world / "X" / "checkpoints" / "000004")


def test_other_weights_under_the_old_name_are_noticed(world, capsys):
    flags = ["--lora-rank", 2, "--steps", 2]
    part = run(world, "part", *flags)
    shutil.rmtree(part / "checkpoints" / "000000")
    assert commands(resume(part, "--steps", 3)) == 0  # the folder still has them
    shutil.rmtree(world / "tiny-toy")
    (world / "tiny-other").rename(world / "tiny-toy")
    before = contents(part)
    assert "began with other weights" in refused(resume(part, "--steps", 4), capsys)
    assert contents(part) == before


# ---- 5: smaller


def test_fewer_steps_are_refused(world, capsys):
    said = refused(resume(world / "X", "--steps", 3), capsys)
    assert "has run 4 steps, more than --steps 3" in said


def test_a_run_may_end_where_it_was_interrupted(world, monkeypatch):
    from reasoning_from_scratch import trainer

    calls, original = [], trainer.set_advantages

    def interrupted(*given):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return original(*given)

    monkeypatch.setattr(trainer, "set_advantages", interrupted)
    assert commands(train_words(world, world / "Y")) == 130
    monkeypatch.undo()
    assert commands(resume(world / "Y", "--steps", 3)) == 0
    fresh = run(world, "fresh", "--steps", 3)
    assert equal(saved(world / "Y", 3), saved(fresh, 3))
    rows, others = (read_lines(x / "metrics.jsonl") for x in (world / "Y", fresh))
    assert [r.get("eval_acc") for r in rows] == [r.get("eval_acc") for r in others]
    lines = read_lines(world / "Y" / "checkpoints.jsonl")
    assert lines[-1]["final"] and lines[-1]["batch"] == 3


@pytest.mark.parametrize("name", ["report.html", "metrics.csv", "config.json", "probes.jsonl"])
def test_a_finished_run_writes_again_what_was_lost(world, name):
    (world / "X" / name).unlink()
    assert commands(resume(world / "X")) == 0
    assert (world / "X" / name).stat().st_size > 0


def test_a_finished_run_makes_its_last_save_again(world):
    before = saved(world / "X", 4)
    before = {name: tensor.clone() for name, tensor in before.items()}
    shutil.rmtree(world / "X" / "checkpoints" / "000004")
    assert commands(resume(world / "X")) == 0
    assert equal(saved(world / "X", 4), before)


def test_a_finished_run_that_is_whole_stays_as_it_is(world):
    assert commands(resume(world / "X")) == 0  # it was copied: checkpoints.jsonl says so now
    before = contents(world / "X")
    assert commands(resume(world / "X")) == 0
    after = contents(world / "X")
    assert {name for name in after if after[name] != before.get(name)} == {"logs.log"}


def test_pages_of_steps_that_are_run_again_are_taken_away(world):
    """Here they are not written again."""
    for batch in ("000003", "000004"):
        shutil.rmtree(world / "X" / "checkpoints" / batch, ignore_errors=True)
    task = ["--num-groups-to-log", 0, "--eval-every", 0, "--steps", 3]
    assert commands(resume(world / "X", *task)) == 0
    pages = [path.name for path in (world / "X").rglob("*.html")]
    assert {"train_iteration_000000.html", "train_iteration_000001.html"} <= set(pages)
    assert not [name for name in pages if "_000002" in name or "_000003" in name]
    assert not list((world / "X").glob("*iteration_000004*"))
    report = (world / "X" / "report.html").read_text()
    assert "train_iteration_000001.html" in report and "iteration_000003.html" not in report


def test_a_run_that_was_moved_says_where_it_is(world):
    shutil.copytree(world / "X", world / "copy")
    (world / "X").rename(world / "moved")
    for name, steps in (("copy", 5), ("moved", 4)):
        assert commands(resume(world / name, "--steps", steps)) == 0
        for line in read_lines(world / name / "checkpoints.jsonl"):
            assert line["sampler_path"] == f"{world}/{name}/checkpoints/{line['batch']:06d}"


def test_an_extended_run_says_how_far_it_is(world):
    assert commands(resume(world / "X", "--steps", 8)) == 0
    rows = read_lines(world / "X" / "metrics.jsonl")
    assert [row["progress/done_frac"] for row in rows] == [(i + 1) / 8 for i in range(8)]


def test_smoke_is_over_when_more_steps_are_asked_for(world):
    small = run(world, "small", "--smoke", "--steps", 50)
    assert commands(resume(small, "--steps", 3)) == 0
    assert len(read_lines(small / "metrics.jsonl")) == 3


def test_quickstart_and_chat_rl_refuse_at_once(world, monkeypatch):
    """With advice that fits their own flags."""
    monkeypatch.chdir(world)
    with pytest.raises(UserError, match="rfs train --resume X, or choose another --log-path$"):
        quickstart(QuickstartOptions(log_path="X"))
    (world / "runs").mkdir()
    (world / "X").rename(world / "runs" / "X")
    with pytest.raises(UserError, match="rfs train --resume runs/X, or choose another --run$"):
        chat_rl(ChatRLOptions(run="X", model="nothing"))


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
    assert "began no run (no network and more): try `wandb login`" in line
    assert contents(run) == before
