"""The files of a run: keys, equality of JSONL and CSV, atomic saves, pruning, clear refusals."""

import csv
import json
import logging
import os
import sys
from pathlib import Path

import pytest
from toy import resumed_run, saved, toy_config, toy_model, toy_run, toy_tokenizer, toy_world, train

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.text import read_lines
from rfs.config import RunConfig
from rfs.report.metrics import CSV_COLUMNS
from rfs.run.folder import RunFolder
from rfs.run.options import resumed_config

ALWAYS = """step progress/batch progress/done_frac optim/lr optim/loss optim/grad_norm optim/entropy
optim/kl_sample_train_v1 optim/kl_sample_train_v2 optim/clip_frac optim/ratio_mean optim/ratio_max
env/all/reward/total env/all/correct env/all/format env/all/ac_tokens_per_turn
env/all/ob_tokens_per_turn env/all/turns_per_episode env/all/total_episodes env/all/total_turns
env/all/total_ac_tokens env/all/total_ob_tokens env/all/by_group/frac_mixed
env/all/by_group/frac_all_good env/all/by_group/frac_all_bad time/total time/processor time/sampling
time/reward time/train perf/sample_tokens_per_sec perf/train_tokens_per_sec entropy
ac_tokens_per_turn kl_sample_train_v1 kl_sample_train_v2 reward/total""".split()


# ---- what is written


def test_metrics_lines(run):
    rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert rows == run.rows and [row["step"] for row in rows] == list(range(6))
    for row in rows:
        assert list(row)[0] == "step" and set(ALWAYS) <= set(row)
        assert row["progress/batch"] == row["step"]
        assert row["reward/total"] == row["env/all/reward/total"]
    assert rows[-1]["progress/done_frac"] == 1.0
    evaluated = [row["step"] for row in rows if "tiny-test/env/all/correct" in row]
    assert evaluated == [0, 2, 4, 5]  # before updates 0, 2, 4, and after the last


def test_csv_equals_jsonl(run):
    with open(run.folder / "metrics.csv", newline="") as file:
        table = list(csv.DictReader(file))
    header = (
        "step,total_steps,loss,kl_loss,policy_ratio,reward_avg,format_reward_avg,"
        "tokens_per_sec,avg_response_len,adv_avg,adv_std,entropy_avg,eval_acc"
    )
    assert ",".join(table[0]) == header
    for row, line in zip(run.rows, table, strict=True):
        for column, key in CSV_COLUMNS.items():
            value = (row | {"total_steps": 6}).get(key)
            assert line[column] == ("" if value is None else repr(value))


def test_the_other_files(run):
    config = json.loads((run.folder / "config.json").read_text())
    assert config["steps"] == 6 and config["versions"]["torch"]
    assert (run.folder / "code.diff").exists() and (run.folder / "report.html").exists()
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    assert (run.folder / "logs.log").read_text().splitlines()[0].endswith(f"INFO {command}")
    for row in read_lines(run.folder / "timing_spans.jsonl"):
        assert min(span["wall_start"] for span in row["spans"]) == 0
        assert {"sampling", "reward", "train"} <= {span["name"] for span in row["spans"]}
        for span in row["spans"]:
            assert span["duration"] == pytest.approx(span["wall_end"] - span["wall_start"])
    summaries = read_lines(run.folder / "train_iteration_000000_rollout_summaries.jsonl")
    assert len(summaries) == 32
    assert (run.folder / "eval_tiny-test_iteration_000006.html").exists()


# ---- a folder that is used, or cannot be


def test_used_folder_names_three_choices(run, tmp_path):
    with pytest.raises(UserError) as caught:
        toy_run(run.folder)
    assert all(word in str(caught.value) for word in ("--resume", "--out", "--overwrite"))
    assert len(read_lines(run.folder / "metrics.jsonl")) == 6


def test_overwrite_deletes_the_run_and_nothing_else(tmp_path):
    toy_run(tmp_path / "run", steps=2, save_every=1)
    (tmp_path / "run" / "notes.txt").write_text("mine")
    toy_run(tmp_path / "run", steps=1, overwrite=True)
    assert len(read_lines(tmp_path / "run" / "metrics.jsonl")) == 1
    assert not (tmp_path / "run" / "train_iteration_000001.html").exists()
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"


def test_the_log_says_what_a_resumption_changes(tmp_path):
    toy_run(tmp_path / "run", steps=2, save_every=1)
    resumed_run(tmp_path / "run", steps=3, grad_clip=0.5)
    said = (tmp_path / "run" / "logs.log").read_text()
    assert f"from here on: grad_clip {RunConfig().grad_clip} -> 0.5\n" in said


def test_a_model_is_not_taken_for_a_run(tmp_path):
    """Nor is it overwritten: both have a config.json."""
    model = saved(toy_model(), toy_tokenizer(tmp_path), tmp_path)
    before = (Path(model) / "config.json").read_text()
    with pytest.raises(UserError, match="not a run; .* --model"):
        resumed_config(model)
    with pytest.raises(UserError, match="holds a model"):
        train(toy_config(tmp_path, log_path=str(model), overwrite=True))
    assert (Path(model) / "config.json").read_text() == before


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["config.json", "metrics.csv", "checkpoints/notes.txt"])
def test_what_others_keep_under_a_run_s_names_is_left_alone(tmp_path, name, overwrite):
    folder = tmp_path / "project"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text('{"theme": "dark"}')
    with pytest.raises(UserError, match=f"holds no run, but a {name.split('/')[0]} that a run"):
        train(toy_config(tmp_path, log_path=str(folder), overwrite=overwrite))
    assert (folder / name).read_text() == '{"theme": "dark"}'
    with pytest.raises(UserError, match="no run to resume in it"):
        resumed_config(folder)


def test_a_save_makes_durable_what_it_may_not_outlive(tmp_path):
    """With the files open for writing, as Windows wants it (see conftest)."""
    folder = RunFolder(tmp_path)
    for name in ("metrics.jsonl", "metrics.csv", "timing_spans.jsonl"):
        (tmp_path / name).write_text("kept\n")
    folder.sync()
    assert (tmp_path / "metrics.csv").read_text() == "kept\n"
    with open(tmp_path / "metrics.csv", "rb") as file, pytest.raises(OSError, match="reading only"):
        os.fsync(file.fileno())


def test_overwrite_leaves_what_a_link_leads_to(tmp_path):
    toy_run(tmp_path / "run", steps=1)
    elsewhere = tmp_path / "large-disk"
    (tmp_path / "run" / "checkpoints").rename(elsewhere)
    (tmp_path / "run" / "checkpoints").symlink_to(elsewhere)
    toy_run(tmp_path / "run", steps=1, overwrite=True)
    assert (tmp_path / "run" / "checkpoints" / "000001").is_dir() and list(elsewhere.iterdir())


def test_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        train(toy_config(tmp_path / "file" / "run"), quiet=True, **toy_world(tmp_path))
    with pytest.raises(UserError, match="file is not a folder"):
        RunFolder(tmp_path / "file").refuse_used()


def test_advice_is_a_command_also_where_the_path_has_a_space(run, tmp_path):
    (tmp_path / "my runs").symlink_to(run.folder.parent)
    place = tmp_path / "my runs" / run.folder.name
    with pytest.raises(UserError, match=f"rfs train --resume '{place}', "):
        RunFolder(place).refuse_used()


# ---- saves


def test_torn_lines_are_left_out(tmp_path, caplog):
    whole = [
        {"step": step, "env/all/reward/total": 0.5, "progress/done_frac": (step + 1) / 10}
        for step in range(4)
    ]
    lines = [json.dumps(row) for row in whole]
    lines[1] = lines[1][:40]
    lines[2] = lines[2].replace(":", ";")
    (tmp_path / "metrics.jsonl").write_text("\n".join([*lines, '{"st']))
    folder = RunFolder(tmp_path)
    logging.getLogger("reasoning_from_scratch").propagate = True
    folder.rewind(4, 10)
    assert folder.rows == [whole[0], whole[3]]
    assert read_lines(tmp_path / "metrics.jsonl") == folder.rows
    assert "3 torn or damaged lines" in caplog.text
    assert "2 lines lost" in caplog.text
