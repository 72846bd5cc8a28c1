"""Problems of one's own are judged on problems of their own, and those are not trained on."""

import json
from dataclasses import replace

import pytest
from command_world import SHORT, commands, make_world
from toy import toy_config, toy_tokenizer

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.text import read_lines
from rfs.commands.evaluate import default_problems
from rfs.config import replaced
from rfs.evaluation.options import EvaluateOptions
from rfs.run import chosen_problems
from rfs.run.chosen_problems import load_sets, prepare_problems
from rfs.run.options import configure, resolved
from rfs.tasks.problem_sets import load_problems, source_of
from rfs.tasks.source import is_held_out, split_off_held_out


def many(count: int = 80) -> list[Problem]:
    """Each with a text of its own, in letters that the toy tokenizer knows."""
    letters = "abcdefghij"
    names = ["".join(letters[int(digit)] for digit in f"{i:03d}") for i in range(count)]
    return [Problem(f"own/{i}", names[i], str(i % 4)) for i in range(count)]


@pytest.fixture
def world(tmp_path):
    make_world(tmp_path)
    rows = [{"problem": p.problem, "answer": p.answer} for p in many()]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "task.py").write_text(
        "import json, pathlib\n"
        "def problems():\n"
        "    text = (pathlib.Path(__file__).parent / 'mine.jsonl').read_text()\n"
        "    return [json.loads(line) for line in text.splitlines()]\n"
    )
    return tmp_path


def test_a_tenth_is_kept_aside_by_its_text_alone():
    rest, aside = split_off_held_out(many(800))
    assert 50 <= len(aside) <= 110 and len(rest) + len(aside) == 800
    assert not {p.problem for p in rest} & {p.problem for p in aside}
    assert split_off_held_out([*many(800)[::-1], Problem("new", "zzz", "1")])[1][-1] in aside
    assert set(split_off_held_out(many(400))[1]) <= set(aside), "more problems move none across"
    twice = [*many(800), *many(800)]
    assert len(split_off_held_out(twice)[1]) == 2 * len(aside), "equal texts are on one side"
    spaced = [replace(p, problem=f" {p.problem.replace(' ', '  ')}\n") for p in many(800)]
    assert {p.id for p in split_off_held_out(spaced)[1]} == {p.id for p in aside}


def one_text_for_all(world, count: int | None, aside: bool) -> str:
    """A task whose problems have one text, as in a game: one that is kept aside, or one that is
    not. Without a count it never ends."""
    text = next(p.problem for p in many(800) if is_held_out(p) == aside)
    (world / "same.py").write_text(
        "from itertools import count, islice\n"
        "def problems():\n"
        f"    for number in islice(count(), {count}):\n"
        f"        yield {{'problem': {text!r}, 'answer': str(number)}}\n"
    )
    return f"{world}/same.py:problems"


def test_a_text_that_all_problems_have_is_not_kept_aside(world):
    """That would leave nothing to train on."""
    config = toy_config(world, problems=one_text_for_all(world, 80, aside=True))
    config = replaced(config, eval_problems=[f"{config.problems}@held-out"], eval_every=0)
    problems, sets = load_sets(config)
    assert len(problems) == 80 and not sets
    with pytest.raises(UserError, match="that would be all 80 of .*: measure on all of them"):
        load_sets(replaced(config, eval_every=1))


def test_an_endless_task_is_read_as_far_as_a_run_goes(world):
    """Also to find out that it has too few problems to keep some aside."""
    source = source_of(one_text_for_all(world, None, aside=False))
    assert source.is_too_small_to_split() and len(source.problems()) == 12_000


@pytest.mark.parametrize("source", ["mine.jsonl", "task.py:problems"])
def test_a_file_of_ones_own_is_evaluated_on_its_own_share(world, source, capsys):
    words = ["train", "--model", f"{world}/tiny-toy", "--problems", f"{world}/{source}", *SHORT]
    assert commands([*words, "--log-path", f"{world}/run"]) == 0
    rest, aside = split_off_held_out(many())
    name = f"{source}@held-out"
    said = [x for x in capsys.readouterr().err.splitlines() if x.startswith("held out")]
    assert said == [
        f"held out for evaluation: {len(aside)} of 80 problems, under the name {name}; "
        "--eval-problems chooses others"
    ]
    rows = read_lines(world / "run" / "metrics.jsonl")
    assert any(f"{name}/env/all/correct" in row for row in rows)
    assert not any("tiny-test" in key for row in rows for key in row)
    pages = [p.name for p in (world / "run").glob("eval_*_rollout_summaries.jsonl")]
    lines = (world / "run" / pages[0]).read_text().splitlines()
    assert len(lines) == len(aside)
    trained = (world / "run").glob("train_*_rollout_summaries.jsonl")
    seen = {json.loads(line)["problem_id"] for path in trained for line in path.open()}
    texts = {f"{p.id}": p.problem for p in load_problems(f"{world}/{source}")}
    assert seen and {texts[name] for name in seen} <= {p.problem for p in rest}


@pytest.mark.parametrize("source", ["ten.jsonl", "ten.csv", "ten.py:problems"])
def test_ten_problems_are_measured_although_none_can_be_spared(world, source, capsys):
    rows = [{"problem": p.problem, "answer": p.answer} for p in many(10)]
    (world / "ten.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = [f"{row['problem']},{row['answer']}\n" for row in rows]
    (world / "ten.csv").write_text("problem,answer\n" + "".join(lines))
    (world / "ten.py").write_text(f"def problems():\n    yield from {rows!r}\n")
    words = ["train", "--model", f"{world}/tiny-toy", "--problems", f"{world}/{source}", *SHORT]
    assert commands([*words, "--out", f"{world}/run"]) == 0
    (said,) = [x for x in capsys.readouterr().err.splitlines() if "is measured on" in x]
    assert said.startswith(f"{source} is measured on the problems that it trains on")
    assert "takes about 50" in said
    last = read_lines(world / "run" / "metrics.jsonl")[-1]
    assert last["eval_problems"] == 10 and f"{source}/env/all/correct" in last
    assert commands(["evaluate", "--model", f"{world}/run", "--max-new-tokens", "4"]) == 0
    assert f"{source}, 10 problems" in capsys.readouterr().out
    with pytest.raises(UserError, match="takes about 50: measure on all of them") as refused:
        load_problems(f"{world}/{source}@held-out")
    assert "do not evaluate" not in str(refused.value)


def asked_of(config, folder):
    """What the run trains on, and by name what it is evaluated on."""
    config = resolved(config)
    problems, sets = prepare_problems(config, load_sets(config), toy_tokenizer(folder), 512)
    return [problem.problem for problem in problems], sets


def test_the_same_share_whether_it_is_asked_or_not(world, tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(
        chosen_problems.log, "info", lambda words, *given: said.append(words % given)
    )
    source = dict(problems=f"{world}/mine.jsonl")
    whole, _ = asked_of(toy_config(tmp_path / "a", eval_every=0, **source), tmp_path)
    some, _ = asked_of(toy_config(tmp_path / "b", eval_every=2, **source), tmp_path)
    assert whole == some, "kept aside also where this run asks none of them"
    assert "held out for rfs evaluate, since this run does not evaluate: " in said[0]
    assert "held out for evaluation: " in said[-1]


def test_a_resumed_run_holds_out_a_share_of_the_problems_that_it_is_given(world):
    (world / "other").mkdir()
    (world / "mine.jsonl").rename(world / "other" / "mine.jsonl")
    words = ["train", "--model", f"{world}/tiny-toy", *SHORT, "--log-path", f"{world}/run"]
    assert commands([*words, "--problems", f"{world}/problems.jsonl", "--eval-every", "0"]) == 0
    other = f"{world}/other/mine.jsonl"
    again = ["train", "--resume", f"{world}/run", "--steps", "12"]
    assert commands([*again, "--problems", other]) == 0
    pages = [
        world / "run" / f"train_iteration_{step:06d}_rollout_summaries.jsonl" for step in (4, 11)
    ]
    asked = {row["steps"][0]["logs"]["problem"] for page in pages for row in read_lines(page)}
    assert asked and not asked & {problem.problem for problem in load_problems(f"{other}@held-out")}
    assert default_problems(EvaluateOptions(model=(f"{world}/run",))) == (f"{other}@held-out",)
    # What was named stays.
    named = configure(eval_problems=["tiny-test"], resume="run", problems=other)
    assert resolved(named).eval_problems == ["tiny-test"]


def test_the_models_own_problems_are_those_of_rfs_evaluate(world):
    words = ["train", "--model", f"{world}/tiny-toy", "--problems", f"{world}/mine.jsonl", *SHORT]
    assert commands([*words, "--log-path", f"{world}/run"]) == 0
    options = EvaluateOptions(model=(f"{world}/run",))
    assert default_problems(options) == (f"{world}/mine.jsonl@held-out",)
    assert default_problems(EvaluateOptions(model=("tiny", "tiny-grpo"))) == ("tiny-test",)
    assert default_problems(EvaluateOptions(model=("base",))) == ("math-500",)
    with pytest.raises(UserError, match="different problems"):
        default_problems(EvaluateOptions(model=("tiny", f"{world}/run")))
