"""Saves: whole or not there, pruned, the best ones kept, damaged ones passed over."""

import logging

import pytest
from toy import toy_config, toy_world

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.weights import load_model_and_tokenizer, load_state
from reasoning_from_scratch.run.checkpoints import Checkpoints
from reasoning_from_scratch.run.options import resumed_config
from reasoning_from_scratch.run.start import train
from reasoning_from_scratch.text import read_lines
from tests.run.conftest import full_disk


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


# ---- saves


def test_full_disk_during_a_save_loses_nothing(tmp_path, monkeypatch):
    config = toy_config(tmp_path / "run", steps=4, save_every=1)
    saves = Checkpoints.save

    def fails_at_three(self, batch, *rest, **extras):
        if batch == 3:
            monkeypatch.setattr("reasoning_from_scratch.run.checkpoints.save_state", full_disk)
        saves(self, batch, *rest, **extras)

    monkeypatch.setattr(Checkpoints, "save", fails_at_three)
    with pytest.raises(UserError, match="No space left.*000002, is intact.*--resume"):
        train(config, quiet=True, **toy_world(tmp_path))
    assert [line["batch"] for line in read_lines(tmp_path / "run" / "checkpoints.jsonl")] == [1, 2]
    monkeypatch.undo()
    result = train(resumed_config(tmp_path / "run"), quiet=True, **toy_world(tmp_path))
    whole = train(toy_config(tmp_path / "other", steps=4), quiet=True, **toy_world(tmp_path))
    for a, b in zip(result.model.parameters(), whole.model.parameters(), strict=True):
        assert a.equal(b)
    assert [row["step"] for row in result.rows] == [0, 1, 2, 3]


def test_damaged_save_is_skipped(tmp_path, caplog):
    config = toy_config(tmp_path / "run", steps=3, save_every=1)
    train(config, quiet=True, **toy_world(tmp_path))
    weights = tmp_path / "run" / "checkpoints" / "000003" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-5] ^= 4
    weights.write_bytes(data)
    saves = Checkpoints(tmp_path / "run")
    logging.getLogger("reasoning_from_scratch").propagate = True
    assert saves.newest_whole()["batch"] == 2
    assert "model.safetensors is missing or damaged" in caplog.text
    for path in (tmp_path / "run" / "checkpoints").glob("*/optimizer.safetensors"):
        path.unlink()
    with pytest.raises(UserError, match="all saves .* are damaged"):
        saves.newest_whole()


def test_pruning_keeps_best_newest_and_final(tmp_path):
    saves = Checkpoints(tmp_path)

    def weights(folder):
        (folder / "model.safetensors").write_text("w")

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
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {
        "000004",
        "000005",
        "000006",
    }


def states(saves):
    return [line["batch"] for line in saves.lines if "state_path" in line]


def batches(saves):
    return [line["batch"] for line in saves.lines]


def test_best_weights_are_those_that_were_evaluated(run):
    best = max(
        (row for row in run.rows if row.get("eval_acc") is not None), key=lambda r: r["eval_acc"]
    )
    lines = [x for x in read_lines(run.folder / "checkpoints.jsonl") if x.get("best")]
    assert lines[-1]["eval_acc"] == best["eval_acc"]
    assert set(load_state(lines[-1]["sampler_path"])) == set(run.model.state_dict())
