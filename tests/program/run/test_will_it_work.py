"""Will it work? `rfs preflight`, a run before its first step and `--smoke` say the same."""

import re
from dataclasses import replace

import pytest
from command_world import commands, make_world
from toy import toy_config, toy_model, toy_problems, toy_tokenizer

from rfs.config import replaced
from rfs.run.options import resolved
from rfs.run.start import load_for_dry_run
from rfs.run.will_it_work import run_time_text, will_it_work

SMALL = (
    "--model tiny-toy --problems problems.jsonl --rollouts 4 --max-new-tokens 4 --seed 3 "
    "--temperature 1.5 --few-shot 1 --steps 1 --device cpu"
).split()


def test_three_places_one_verdict(tmp_path, capsys):
    """Of the same options, with the same problems, prompts and answers."""
    make_world(tmp_path)
    verdicts = set()
    for command, before in {
        "preflight --num-problems 8": "\n\n",
        "train --out run": "preflight: ",
        "train --smoke --out small": "  outlook   ",
    }.items():
        name, *more = command.split()
        assert commands([name, *SMALL, *more], tmp_path) in (0, 1)  # 1: preflight's verdict
        said = capsys.readouterr()
        found = re.findall(f"{before}(.*\\.)\n", f"{said.err}\n{said.out}")
        verdicts.add(found[-1])
    assert len(verdicts) == 1


def test_what_a_run_would_begin_with(tmp_path):
    """The options are filled in as for a run, and nothing is written."""
    make_world(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    config = toy_config(tmp_path / "run", problems=f"{tmp_path}/problems.jsonl", few_shot=2)
    config, opened = load_for_dry_run(
        replaced(config, model=f"{tmp_path}/tiny-toy", kl="k3", kl_coef=0.1)
    )
    assert config.micro_batch_tokens and opened.reference is not None
    assert len(opened.problems) == 6 and opened.problems[0].prefix.count("Question:") == 2
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("faulty", [0, 3])
def test_worked_solutions_are_judged_as_answers(tmp_path, faulty):
    problems = toy_problems(8)
    problems[:faulty] = [replace(problem, solution="\\boxed{3}") for problem in problems[:faulty]]
    config = resolved(toy_config(tmp_path, objective="cross_entropy", recipe="sft", steps=4))
    seen = will_it_work(config, toy_model(), toy_tokenizer(tmp_path), problems)
    assert seen.verdict.endswith("4 steps of 4 are 2 passes over 8 worked solutions.")
    assert seen.can_work == seen.verdict.startswith("Training can work: ") == (faulty == 0)
    words = "3 of the first 8 worked solutions would get no reward as answers, such as that of"
    assert seen.verdict.startswith(words) == (faulty == 3)


@pytest.mark.parametrize(
    "seconds, says",
    [
        (0.1, "60 steps of 8 x 4 answers take about 1 minute here"),
        (48, "take about 48 minutes here"),
        (120, "take about 2.0 hours here"),
    ],
)
def test_the_time_of_a_run(tmp_path, seconds, says):
    config = toy_config(tmp_path, steps=60, problems_per_step=8, rollouts=4)
    assert says in run_time_text(config, seconds, at_most=False)
    solutions = replaced(config, objective="cross_entropy")
    assert "60 steps of 8 worked solutions take at most" in run_time_text(solutions, seconds, True)
