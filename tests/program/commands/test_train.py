"""`rfs train` as people use it: exit codes, help, preflight, no warnings."""

import json
import re
import subprocess
import sys

import pytest
from toy import resumed_run, toy_run

from reasoning_from_scratch.text import read_lines
from rfs.commands import cli
from rfs.commands.other_words import as_option, option_name
from tests.command_world import make_world, train_words


def test_resume_does_not_begin_another_run(tmp_path, capsys):
    make_world(tmp_path)
    run = str(tmp_path / "run")
    assert cli.main(train_words(tmp_path, run, "--steps", 2)) == 0
    before = (tmp_path / "run" / "config.json").read_text()
    for words in (["--log-path", str(tmp_path / "other")], ["--overwrite"]):
        assert cli.main(["train", "--resume", run, "--steps", "3", *words]) == 2
        assert "in its own folder" in capsys.readouterr().err
    assert (tmp_path / "run" / "config.json").read_text() == before
    same = ["--log-path", f"{tmp_path}/x/../run"]
    assert cli.main(["train", "--resume", run, "--steps", "3", *same]) == 0


def test_train_then_resume_then_refuse(tmp_path, capsys):
    make_world(tmp_path)
    run = str(tmp_path / "run")
    words = train_words(tmp_path, run, "--steps", 2, "--preflight")
    assert cli.main(words) == 0
    out = capsys.readouterr()
    assert "step 1/2  reward" in out.out and "step 2/2" in out.out
    *_, end = out.out.partition("correct answers to 8 problems: ")
    assert " after 0 steps, " in end and " after 2\n" in end
    assert "mean reward: " in end and f"done: {run} holds the weights" in end
    (command,) = end.partition("Next:\n")[2].splitlines()  # all 8 problems were measured
    assert f" report {run}  # " in command
    assert "preflight:" in out.err
    assert cli.main(["train", "--resume", run, "--steps", "3"]) == 0
    assert "resuming" in capsys.readouterr().err
    assert len(read_lines(tmp_path / "run" / "metrics.jsonl")) == 3
    assert cli.main(words) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert cli.main([*words, "--overwrite", "--recipe", "rloo"]) == 0


@pytest.mark.parametrize("command", ["train", "evaluate", "compare", "preflight"])
def test_help_is_a_screen_of_what_matters_first(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    text = capsys.readouterr().out
    first = cli.load_function(cli.OPTIONS[command]).FIRST
    options = re.findall(r"(?m)^\W+ (--[a-z-]+)", text)
    assert [name for name in options if name != "--help"] == [
        as_option(option_name(n)) for n in first
    ]
    assert f"rfs {command} --help-all explains all" in text
    assert len(text.splitlines()) <= 40


def test_help_has_the_defaults_of_the_recipe(capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "--recipe", "dapo", "--help"])
    assert "(default: dapo)" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, says",
    [
        ("train --num_generations 1", "--rollouts is 1"),
        ("train --examples-per-step=0", "--problems-per-step is 0"),
        ("evaluate --num-samples 0", "--samples is 0"),
        ("chat --model-name tinny", "did you mean 'tiny'"),
        # what means something similar
        ("train --kl-coeff=0.1", "did you mean --kl-coef?"),
        ("train --device-batch-size 4", "did you mean --micro-batch-rows?"),
        ("evaluate --data-path x.jsonl", "did you mean --problems?"),
        ("compare --learning-rate 1e-4", "there is no option --lr here: --lrs tries one or more"),
    ],
)
def test_other_programs_words_are_taken_or_hinted_at(words, says, capsys):
    assert cli.main(words.split()) == 2
    assert says in capsys.readouterr().err


def test_preflight_speaks_before_the_first_step_only(tmp_path):
    toy_run(tmp_path / "run", steps=1, preflight=True)
    resumed_run(tmp_path / "run", steps=2)
    assert (tmp_path / "run" / "logs.log").read_text().count("preflight:") == 1


def test_no_warning_from_start_to_report(tmp_path):
    """Every warning that Python would show is an error here, also those of what we import; what
    libraries call deprecated in each other it shows to nobody. In one process: what is imported
    needs no second look."""
    run = str(tmp_path / "run")
    small = "--steps 1 --problems-per-step 1 --rollouts 2 --max-new-tokens 8 --eval-every 1"
    small = [*small.split(), "--eval-limit", "2", "--no-preflight"]
    words = (
        ["train", *small, "--log-path", run],
        ["report", run],
        ["plot", run],
        ["evaluate", "--model", "tiny-grpo", "--limit", "2"],
    )
    code = "import sys, json; from rfs.commands.cli import main; "
    code += "sys.exit(max(main(words) for words in json.loads(sys.argv[1])))"
    filters = ["-W", "error", "-W", "ignore::DeprecationWarning"]
    command = [sys.executable, *filters, "-c", code, json.dumps(words)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stdout + done.stderr
