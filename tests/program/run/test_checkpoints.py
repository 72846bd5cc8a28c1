"""Saves: whole or not there, pruned, the best ones kept."""

import errno
import json
import math
import os
import shutil
from pathlib import Path

import pytest
import transformers
from command_world import equal
from toy import resumed_run, toy_config, toy_run, toy_world, train

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.weights import load_state
from reasoning_from_scratch.text import json_lines, read_lines
from rfs import load_model_and_tokenizer
from rfs.run import checkpoints
from rfs.run.checkpoints import Checkpoints


def test_checkpoint_lines(run):
    lines = read_lines(run.folder / "checkpoints.jsonl")
    assert [line["final"] for line in lines] == [False] * (len(lines) - 1) + [True]
    assert lines[-1]["name"] == "final" and lines[-1]["batch"] == 6
    for line in lines:
        assert list(line)[:3] == ["name", "batch", "final"]
        model, _ = load_model_and_tokenizer(line["sampler_path"])
        assert model.cfg["emb_dim"] == 32
    states = [line["batch"] for line in lines if "state_path" in line]
    assert states == [4, 6]  # keep_last 1, the rolling saves are gone
    on_disk = {path.name for path in (run.folder / "checkpoints").iterdir()}
    assert on_disk == {f"{line['batch']:06d}" for line in lines}
    assert sum(bool(line.get("best")) for line in lines) >= 1


def test_the_folder_of_a_save_is_a_model_and_nothing_else(run):
    """Engines read every .safetensors of a folder that has no index."""
    for line in read_lines(run.folder / "checkpoints.jsonl"):
        place = Path(line["sampler_path"])
        assert [path.name for path in place.rglob("*.safetensors")] == ["model.safetensors"]
        assert not (place / "trainer_state.json").exists()
        theirs = transformers.AutoModelForCausalLM.from_pretrained(place)
        assert theirs.config.model_type == "qwen3"
        if "state_path" in line:
            state = Path(line["state_path"])
            assert place not in (state, *state.parents) and state.parents[1] == run.folder
            names = {path.name for path in state.iterdir()}
            assert names == {"optimizer.safetensors", "trainer_state.json"}
    states = {path.name for path in (run.folder / "training_state").iterdir()}
    assert states == {"000004", "000006"}  # those of pruned saves are gone


def as_earlier_versions_wrote_it(run):
    """The optimizer's state beside the weights, in one folder."""
    rows = read_lines(run / "checkpoints.jsonl")
    for row in rows:
        row["files"] = {"model.safetensors": [7, 7]}  # what they knew of each file
        if "state_path" in row:
            row["state_path"] = row["sampler_path"]
            for path in (run / "training_state" / f"{row['batch']:06d}").iterdir():
                path.rename(Path(row["sampler_path"]) / path.name)
    (run / "checkpoints.jsonl").write_text(json_lines(rows))
    shutil.rmtree(run / "training_state")
    for card in run.glob("checkpoints/*/README.md"):
        card.unlink()


@pytest.mark.parametrize("lost", ["nothing", "index", "newest"])
def test_a_run_of_the_old_layout_goes_on(tmp_path, lost):
    often = {"save_every": 1, "keep_last": 1, "eval_every": 2, "report_every": 0}
    whole = toy_run(tmp_path / "other", steps=4)
    run = tmp_path / "run"
    toy_run(run, steps=2, **often | {"keep_last": 0})
    as_earlier_versions_wrote_it(run)
    if lost == "index":
        (run / "checkpoints.jsonl").unlink()
    if lost == "newest":
        (run / "checkpoints" / "000002" / "config.json").unlink()
    result = resumed_run(run, steps=4, **often)
    assert equal(result.model.state_dict(), whole.model.state_dict())
    left = {path.relative_to(run).parts[:2] for path in run.rglob("optimizer.safetensors")}
    assert left == {("training_state", "000003"), ("training_state", "000004")}


def test_an_old_save_keeps_its_weights_when_its_state_is_pruned(tmp_path):
    run = tmp_path / "run"
    toy_run(run, steps=2, save_every=1)
    as_earlier_versions_wrote_it(run)
    saves = Checkpoints(run).read()
    saves.delete_state(saves.saves[1])
    left = {path.name for path in (run / "checkpoints" / "000001").iterdir()}
    assert not left & {"optimizer.safetensors", "trainer_state.json"} and "config.json" in left
    assert states(saves) == [2] and batches(saves) == [0, 1, 2]
    load_model_and_tokenizer(f"{run}@1")
    assert saves.newest_complete().batch == 2


# ---- saves


def test_full_disk_during_a_save_loses_nothing(tmp_path, monkeypatch):
    config = toy_config(tmp_path / "run", steps=4, save_every=1)

    def fails_at_three(state, path, save=checkpoints.save_state):
        if path.parent.name == "000003":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(state, path)

    monkeypatch.setattr(checkpoints, "save_state", fails_at_three)
    with pytest.raises(UserError, match="No space left.*000002, is intact.*--resume"):
        train(config, quiet=True, **toy_world(tmp_path))
    lines = read_lines(tmp_path / "run" / "checkpoints.jsonl")
    assert [line["batch"] for line in lines] == [0, 1, 2]


def test_what_cannot_be_written_as_json_spoils_no_other_save(tmp_path):
    """NaN is none. The line and the state say null, and the save after it is made."""
    toy_run(tmp_path / "run", steps=1, save_every=1)
    saves = Checkpoints(tmp_path / "run").read()
    for batch in (7, 8):
        about = [{"kind": "weights", "name": "a", "metadata": {"x": math.nan}}]
        saves.save(batch, lambda folder: (folder / "config.json").touch(), {}, {}, saved_as=about)
    assert batches(saves) == [0, 1, 7, 8]
    written = (tmp_path / "run" / "training_state" / "000008" / "trainer_state.json").read_text()
    assert json.loads(written, parse_constant=pytest.fail)["line"]["saved_as"][0]["metadata"] == {
        "x": None
    }


def test_a_disk_that_is_full_is_told_with_advice_for_its_user(tmp_path):
    def full(folder):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for advice, says in (("", "make room, then --resume"), ("call a plumber", "call a plumber")):
        with pytest.raises(UserError, match=f"No space left on device; nothing .*{says}"):
            Checkpoints(tmp_path, advice).save(1, full, None, {})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "checkpoints").write_text("no folder")
    with pytest.raises(UserError, match="could not save after step 1"):
        Checkpoints(tmp_path / "other").save(1, full, None, {})


def test_the_newest_complete_save_counts(tmp_path):
    toy_run(tmp_path / "run", steps=3, save_every=1)
    saves, states = Checkpoints(tmp_path / "run"), tmp_path / "run" / "training_state"
    optimizer = states / "000003" / "optimizer.safetensors"
    optimizer.write_bytes(optimizer.read_bytes()[:-5])  # by whatever writes past the file system
    with pytest.raises(UserError, match="000003 is damaged .*delete that folder") as info:
        resumed_run(tmp_path / "run", steps=4)
    assert "\n" not in str(info.value)
    shutil.rmtree(states / "000003")
    assert saves.newest_complete().batch == 2 and batches(saves) == [0, 1, 2, 3]
    shutil.rmtree(states)
    with pytest.raises(UserError, match="no save in .* is complete"):
        saves.newest_complete()


def test_a_save_without_its_line_counts(tmp_path):
    """Killed in between. Whether it was to be kept is known all the same."""
    saves = Checkpoints(tmp_path)
    saves.save(1, weights, {}, {"updates": 1})
    saves.save(2, weights, {}, {"updates": 2}, rolling=True)
    saves.index.unlink()
    again = Checkpoints(tmp_path).read()
    assert [save.rolling for save in again.saves] == [False, True]
    assert again.newest_complete().batch == 2


def test_killed_while_a_save_is_forgotten(tmp_path, monkeypatch):
    saves = Checkpoints(tmp_path)
    saves.save(1, weights, {}, {"updates": 1}, rolling=True)
    saves.save(2, weights, {}, {"updates": 2}, final=True)
    original = checkpoints.delete_folder
    monkeypatch.setattr(checkpoints, "delete_folder", lambda folder: original(folder) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        saves.prune(keep_last=0)
    monkeypatch.undo()
    again = Checkpoints(tmp_path).read()
    again.finish_pruning(keep_last=0)
    assert batches(again) == states(again) == [2]
    left = {path.name for path in tmp_path.glob("*/*")}
    assert left == {"000002"}


def weights(folder):
    (folder / "config.json").write_text("{}")


def test_pruning_keeps_best_newest_and_final(tmp_path):
    saves = Checkpoints(tmp_path)

    def save(batch, **extras):
        saves.save(batch, weights, {}, {"updates": batch}, **extras)
        saves.prune(keep_last=1)

    save(1, best=True, eval_acc=0.5)
    save(2)
    save(3, rolling=True)
    assert states(saves) == [2, 3] and batches(saves) == [1, 2, 3]  # of 1 the weights remain
    saves.save(4, weights, None, {}, best=True, eval_acc=0.7)
    save(5)
    assert states(saves) == [5] and batches(saves) == [4, 5]
    save(6, final=True)
    assert states(saves) == [5, 6] and batches(saves) == [4, 5, 6]
    left = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert left == {"000004", "000005", "000006"}


def states(saves):
    return [save.batch for save in saves.saves if save.state_path]


def batches(saves):
    return [save.batch for save in saves.saves]


def test_best_weights_are_those_that_were_evaluated(run):
    best = max(row["eval_acc"] for row in run.rows if row.get("eval_acc") is not None)
    lines = [x for x in read_lines(run.folder / "checkpoints.jsonl") if x.get("best")]
    assert lines[-1]["eval_acc"] == best
    assert set(load_state(lines[-1]["sampler_path"])) == set(run.model.state_dict())


def test_an_accuracy_of_0_is_kept_when_a_run_is_resumed(tmp_path):
    """Else the next 0% would be its best."""
    (tmp_path / "never.py").write_text("def reward(text, problem):\n    return 0\n")
    toy_run(tmp_path / "run", steps=2, eval_every=1, reward=f"{tmp_path}/never.py:reward")
    resumed_run(tmp_path / "run", steps=4)
    best = [line for line in read_lines(tmp_path / "run" / "checkpoints.jsonl") if "best" in line]
    assert [(line["batch"], line["eval_acc"]) for line in best] == [(0, 0.0)]


def test_weights_that_are_only_as_good_are_no_new_best(tmp_path):
    toy_run(tmp_path / "run", steps=3, eval_every=1, lr=0.0)
    lines = read_lines(tmp_path / "run" / "checkpoints.jsonl")
    assert [line["batch"] for line in lines if line.get("best")] == [0]
