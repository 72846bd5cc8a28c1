"""A run folder is a model: which of its saves it stands for, and every command that takes one."""

import json
import shutil

import pytest
import torch
from toy import toy_config, toy_world, train

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.weights import load_state, load_weights
from reasoning_from_scratch.text import json_lines, read_lines
from rfs import Policy, load_model_and_tokenizer
from rfs.commands.cli import main
from rfs.commands.ending import before_and_after
from rfs.files.saved_models import accuracy_by_step, which_weights
from rfs.run.options import PRESETS, configure, preset, resumed_config

BEFORE = "before/eval_acc"


def said(name):
    """The place of the weights below the run, and what is said about the choice."""
    words = []
    place = which_weights(name, words.append)
    return place.rpartition("checkpoints/")[2], " ".join(words)


@pytest.fixture
def run(tmp_path):
    """Four steps, each saved; of the five weights those after one and two steps are the best."""
    path = tmp_path / "mine"
    train(toy_config(path, save_every=1, eval_every=1), quiet=True, **toy_world(tmp_path))
    rewrite(path / "checkpoints.jsonl", lambda line: line.pop("eval_acc", None))
    accuracy = {0: 0.2, 1: 0.6, 2: 0.6, 3: 0.4}
    rewrite(path / "metrics.jsonl", lambda row: row.update(eval_acc=accuracy[row["step"]]))
    # The last line has the evaluation before its step and, with the usual names, the one after.
    rewrite(path / "metrics.jsonl", lambda row: row.update({BEFORE: 0.3} if BEFORE in row else {}))
    return path


def rewrite(path, change):
    rows = read_lines(path)
    for row in rows:
        change(row)
    path.write_text(json_lines(rows))


def test_the_best_of_equal_ones_the_latest(run):
    assert accuracy_by_step(run) == {0: 0.2, 1: 0.6, 2: 0.6, 3: 0.3, 4: 0.4}
    place, words = said(run)
    assert place == "000002" and f"taking {run}@000002" in words
    assert "60.0% held-out accuracy" in words


def test_never_evaluated_the_last(run):
    rewrite(run / "metrics.jsonl", lambda row: [row.pop(key, None) for key in ("eval_acc", BEFORE)])
    place, words = said(run)
    assert place == "000004" and "taking" in words and "last weights" in words


def test_deleted_saves_are_passed_over(run):
    shutil.rmtree(run / "checkpoints" / "000002")
    assert said(run)[0] == "000001"
    (run / "checkpoints" / "000001" / "config.json").unlink()  # killed in the middle of deleting
    assert said(run)[0] == "000004"
    shutil.rmtree(run / "training_state" / "000004")  # of no use to a model
    assert said(run)[0] == "000004"


@pytest.mark.parametrize(
    "save, place", [("000001", "000001"), ("1", "000001"), ("final", "000004"), ("4", "000004")]
)
def test_a_save_by_its_name(run, save, place):
    assert said(f"{run}@{save}") == (place, "")  # the name says it all


def test_a_save_that_is_not_there(run):
    with pytest.raises(UserError, match="has no save 000009; it has 000000"):
        which_weights(f"{run}@000009")
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints.jsonl").unlink()
    for name in (run, f"{run}@1"):
        with pytest.raises(UserError, match="nothing yet"):
            which_weights(name)


def test_a_run_that_was_moved(run, tmp_path, monkeypatch):
    run.rename(tmp_path / "there@9")  # and the name of a folder may have an @
    assert said(tmp_path / "there@9")[0] == "000002"
    assert said(f"{tmp_path / 'there@9'}@1")[0] == "000001"
    monkeypatch.chdir(tmp_path)
    assert which_weights("there@9", print) == "there@9/checkpoints/000002"


def test_other_names_stay(run, tmp_path):
    for name in ("tiny", "base", str(run / "checkpoints" / "000001"), "nothing@1", f"{tmp_path}@1"):
        assert which_weights(name, pytest.fail) == name


def test_an_extended_run(tmp_path):
    """The evaluation at its former end stays one of the weights after three steps."""
    config = toy_config(tmp_path / "run", steps=3, eval_every=3)
    train(config, quiet=True, **toy_world(tmp_path))
    train(resumed_config(tmp_path / "run", steps=5), quiet=True, **toy_world(tmp_path))
    assert sorted(accuracy_by_step(tmp_path / "run")) == [0, 3, 5]


def test_accuracies_on_other_problems_are_not_compared(tmp_path):
    """The first set's were easier; the best save is the best on the problems of now."""
    config = toy_config(tmp_path / "run", eval_every=1, eval_samples=2, eval_limit=8)
    train(config, quiet=True, **toy_world(tmp_path))
    rewrite(tmp_path / "run" / "metrics.jsonl", lambda row: row.update(eval_acc=1.0))
    rewrite(tmp_path / "run" / "checkpoints.jsonl", lambda line: line.update(eval_acc=1.0))
    train(resumed_config(tmp_path / "run", steps=6, eval_limit=4), quiet=True)
    rows = read_lines(tmp_path / "run" / "metrics.jsonl")
    assert [row["eval_problems"] for row in rows] == [8, 8, 8, 8, 4, 4]
    assert sorted(accuracy_by_step(tmp_path / "run")) == [4, 5, 6]
    best = [line for line in read_lines(tmp_path / "run" / "checkpoints.jsonl") if "best" in line]
    assert best and min(line["batch"] for line in best) >= 4
    assert " after 4 steps, " in before_and_after(rows)


def test_every_loader_takes_a_run(run, capsys):
    second = load_state(run / "checkpoints" / "000002")
    model, tokenizer = load_model_and_tokenizer(run)
    assert "taking" in capsys.readouterr().err  # in a notebook too
    assert same(model, second) and tokenizer.vocab_size == Policy.load(run).tokenizer.vocab_size
    load_weights(model, which_weights(f"{run}@000001"))
    assert same(model, load_state(run / "checkpoints" / "000001")) and not same(model, second)
    for name in (run, f"{run}@000001", run / "checkpoints" / "000001"):
        assert preset(str(name)) == PRESETS["tiny"]  # by its vocabulary, whatever it is called


def same(model, state):
    return all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in state.items())


# ---- the commands


SMALL = {"problems_per_step": 1, "rollouts": 2, "max_new_tokens": 4, "preflight": False}


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory):
    """Two steps of the tiny model, of which the first is said to have been the better one."""
    path = tmp_path_factory.mktemp("runs") / "mine"
    evaluated = {"save_every": 1, "eval_every": 1, "eval_limit": 2}
    moving = {"lr": 1e-3, "drop_uniform_groups": False, "kl": "k3", "kl_coef": 1.0}
    config = configure(steps=2, log_path=str(path), **SMALL, **evaluated, **moving)
    train(config, quiet=True)
    rewrite(path / "checkpoints.jsonl", lambda line: line.pop("eval_acc", None))
    rewrite(path / "metrics.jsonl", lambda row: row.update(eval_acc=0.5, eval_step=1))
    return path


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "--limit", "2", "--max-new-tokens", "4"],
        ["preflight", "--num-problems", "1", "--rollouts", "2", "--max-new-tokens", "4"],
        ["chat", "--max-new-tokens", "4"],
    ],
    ids=lambda words: words[0],
)
def test_every_command_takes_a_run(words, tiny_run, capsys, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: "")
    assert main([*words, "--model", str(tiny_run)]) in (0, 1)  # 1: preflight's verdict
    err = capsys.readouterr().err
    assert f"taking {tiny_run}@000001" in err and "50.0% held-out accuracy" in err
    assert main([*words, "--model", f"{tiny_run}@000002"]) in (0, 1)
    assert "taking" not in capsys.readouterr().err
    assert main([*words, "--model", f"{tiny_run}@000007"]) == 2
    assert "has no save 000007" in capsys.readouterr().err


# ---- training from a run


def config_of(run):
    return json.loads((run / "config.json").read_text())


@pytest.mark.parametrize("option", ["model", "load_checkpoint_path"])
def test_training_begins_with_the_best_save_and_keeps_to_it(option, tiny_run, tmp_path):
    """Later the source is said to be best elsewhere: the run that began with it does not follow."""
    source, run = tmp_path / "source", tmp_path / "run"
    shutil.copytree(tiny_run, source)
    beginning = {option: str(source), "log_path": str(run)}
    config = configure(steps=1, eval_every=0, lr=0.0, **SMALL, **beginning)
    first = train(config, quiet=True)
    best = source / "checkpoints" / "000001"
    assert same(first.model, load_state(best)) and config_of(run)[option] == str(best)
    assert f"taking {source}@000001" in (run / "logs.log").read_text()
    rewrite(source / "metrics.jsonl", lambda row: row.update(eval_acc=0.5, eval_step=2))
    assert which_weights(source).endswith("000002")
    rest = train(resumed_config(run, steps=2), quiet=True)
    assert same(rest.model, load_state(best)) and config_of(run)[option] == str(best)
