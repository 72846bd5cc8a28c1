"""`rfs evaluate`: scores of one or several models, and their pass@k curves."""

import csv
import json

import pytest

from reasoning_from_scratch.text import percent
from rfs.commands import evaluate
from rfs.commands.cli import main
from rfs.evaluation import evaluate as sampling_evaluation
from rfs.evaluation.options import EvaluateOptions
from tests.command_world import make_world, run
from tests.program.evaluation.test_evaluate import lines


@pytest.fixture
def command(tmp_path):
    words = "evaluate --samples 3 --temperature 1 --limit 8 --device cpu --out-path"
    return [*words.split(), f"{tmp_path}/a.jsonl"]


def test_the_command_prints_scores_and_where_the_answers_are(command, capsys, tmp_path):
    assert main([*command, "--model", "tiny-grpo", "--problems", "tiny-longer"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("tiny-grpo on tiny-longer, 8 problems\n  accuracy ")
    assert "a.card.json" in captured.out
    assert "tiny-longer: 100%" in captured.err and "8/8" in captured.err
    card = json.loads((tmp_path / "a.card.json").read_text())
    assert (card["model"], card["name"]) == ("tiny-grpo", "tiny-longer")


def test_the_command_asks_a_verifier_of_ones_own(command, capsys, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def pays(text, problem):\n    return 1.0 if '7' in text else 0.25\n")
    assert main([*command, "--reward", f"{file}:pays"]) == 0
    rows = lines(tmp_path / "a.jsonl")
    assert [row["correct"] for row in rows] == ["7" in row["generated_text"] for row in rows]
    assert {row["reward"] for row in rows} == {1.0, 0.25}
    share = sum(row["correct"] for row in rows) / len(rows)
    assert f"accuracy        {percent(share)}" in capsys.readouterr().out


def test_an_interrupted_command_says_how_to_go_on(command, capsys, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("reasoning_from_scratch.rollouts.generate_each", interrupted)
    assert main(command) == 130
    assert "run the same command again" in capsys.readouterr().err


SAMPLED = ["--samples", "2", "--temperature", "1"]


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--samples", "2"], "--samples above 1 needs --temperature"),
        (["--samples", "0"], "--samples is 0"),
        (["--model", "tniy"], "did you mean 'tiny'"),
        (["--problems", "tiny-tset"], "did you mean 'tiny-test'"),
        (["--device", "gpu"], "unknown device 'gpu'"),
        (["--problems", "absent.jsonl"], "no file absent.jsonl"),
        (["--reward", "absent.py:f"], "no file absent.py"),
        (["--model"], "nothing to do: give a --model"),
        (["--figure", "a.png"], "--figure draws pass@k, which needs --samples above 1"),
        (["--figure", "a.xyz", "--samples", "2", "--temperature", "1"], "a.xyz: a picture's name"),
        (
            ["--problems", "tiny-test", "--model", "a/run", "b/run", "--out-path", "a.jsonl"],
            "would share a file",
        ),
        (["--out", "x.csv", "--figure", "x.png", *SAMPLED], "--figure x.png writes to x.csv, too"),
        (["--out", "x.svg", "--figure", "x.svg", *SAMPLED], "--figure x.svg writes to x.svg, too"),
        (
            ["--out", "x.csv", "--figure", "x-tiny.png", "--model", "tiny", "tiny-grpo", *SAMPLED],
            "--figure x-tiny.png writes to x-tiny.csv, too",
        ),
        (["--reward", "gsm8k", "--fallback", "number_only"], "drop one"),
        (["--environment", "guess", "--reward", "gsm8k"], "and so does --reward: drop one"),
        (["--environment", "guess", "--fallback", "number_only"], "judges by itself"),
        (["--environment", "guess.py"], "guess.py is a file: name the class"),
        (["--environment", "gues"], "did you mean 'guess'"),
        (["--problems", "mine.py"], "mine.py is a file: name the function in it, as mine.py:FUNC"),
        (["--max-turns", "3"], "--max-turns 3 does nothing without --environment"),
        (["--max-turn-tokens", "3"], "--max-turn-tokens 3 does nothing without --environment"),
        (["--max-turns", "0", "--environment", "guess"], "--max-turns is 0"),
        (["--max-turn-tokens", "-1", "--environment", "guess"], "--max-turn-tokens is -1"),
        (["--max-rows", "0"], "--sample-rows is 0"),
        (["--top-p", "0.9"], "--top-p 0.9 does nothing at temperature 0"),
        (["--top-k", "5"], "--top-k 5 does nothing at temperature 0"),
        (["--prompt", "bok"], "did you mean 'book'"),
    ],
)
def test_mistakes_on_the_command_line_are_one_line(flags, words, capsys):
    assert main(["evaluate", *flags]) == 2
    captured = capsys.readouterr()
    told = [line for line in captured.err.splitlines() if not line.startswith("loading ")]
    assert len(told) == 1 and words in told[0] and captured.out == ""


# --- several models, several sets ---


def test_several_models_share_a_table_and_a_picture(command, capsys, tmp_path):
    figure = tmp_path / "deep" / "curves.png"
    command += ["--problems", "tiny-longer", "tiny-test", "--figure", str(figure)]
    assert main([*command, "--model", "tiny-base", "tiny-grpo"]) == 0
    out = capsys.readouterr().out
    assert "tiny-base on tiny-longer, 8 problems" in out
    assert "\npass@k on tiny-test, 8 problems, " in out
    rows = [line for line in out.splitlines() if line.startswith("| ") and " to " in line]
    assert [row.split(" | ")[0] for row in rows] == ["| 1", "| 2", "| 3"] * 2
    assert figure.read_bytes().startswith(b"\x89PNG") and f"picture: {figure}" in out

    with open(figure.with_suffix(".csv")) as file:
        numbers = list(csv.DictReader(file))
    assert len(numbers) == 2 * 2 * 3
    card = json.loads((tmp_path / "a-tiny-test-tiny-grpo.card.json").read_text())
    assert (card["model"], card["name"]) == ("tiny-grpo", "tiny-test")
    for row in numbers[-3:]:
        assert (row["problems"], row["model"]) == ("tiny-test, 8 problems", "tiny-grpo")
        assert float(row["pass_at_k"]) == pytest.approx(
            card["result"]["pass_at"][row["k"]], abs=1e-4
        )
        assert float(row["low"]) <= float(row["pass_at_k"]) <= float(row["high"])


@pytest.mark.parametrize(
    "sets, names",
    [
        (["tiny-test"], ["a.jsonl"]),
        (["tiny-test", "x/mine.jsonl"], ["a-tiny-test.jsonl", "a-mine.jsonl"]),
        (["mine.jsonl@held-out", "tiny@held-out"], ["a-mine.jsonl", "a-tiny@held-out.jsonl"]),
        (
            ["mine.jsonl", "mine.jsonl@held-out"],
            ["a-mine.jsonl.jsonl", "a-mine.jsonl_held-out.jsonl"],
        ),
        (
            ["x/task.py:problems", "x/task.py:test_problems", "guess"],
            ["a-task.py_problems.jsonl", "a-task.py_test_problems.jsonl", "a-guess.jsonl"],
        ),
        (["gym:chain_sum", "guess"], ["a-gym_chain_sum.jsonl", "a-guess.jsonl"]),
    ],
)
def test_each_set_has_a_file_that_its_name_can_have_anywhere(sets, names, tmp_path):
    options = EvaluateOptions(model=("tiny",), problems=sets, out_path=tmp_path / "a.jsonl")
    paths = evaluate.answer_paths(options)
    assert paths == {(one, "tiny"): tmp_path / name for one, name in zip(sets, names, strict=True)}


# --- a run is asked as it was trained ---

OWN = """
class Env:
    def __init__(self, problem): self.turns = 0
    def reply(self, turn):
        self.turns += 1
        return "no"
    def rewards(self): return {"correct": float(self.turns == 2)}

def reward(text, problem):
    return 1.0
"""


def made_run(world, *flags):
    make_world(world)
    (world / "own.py").write_text(OWN)
    words = ["--steps", 1, "--max-new-tokens", 40, "--save-every", 0, *flags]
    return run(world, "run", *(str(word).replace("own.py", f"{world}/own.py") for word in words))


def card_of(world, *words):
    (world / "a.jsonl").unlink(missing_ok=True)
    (world / "a.card.json").unlink(missing_ok=True)
    assert main(["evaluate", "--out-path", f"{world}/a.jsonl", *map(str, words)]) == 0
    return json.loads((world / "a.card.json").read_text())


def test_a_run_in_an_environment_is_asked_in_it(tmp_path, capsys):
    flags = ["--environment", "own.py:Env", "--max-turns", 2, "--max-turn-tokens", 5]
    path = made_run(tmp_path, *flags, "--stop", "e", "--prompt", "question", "--calculator")
    card = card_of(tmp_path, "--model", path)
    out = capsys.readouterr().out
    said = "prompted as in training, with --prompt question --stop e --max-new-tokens 40 "
    said += f"--calculator --environment {tmp_path}/own.py:Env --max-turns 2 --max-turn-tokens 5\n"
    assert said in out
    assert card["result"]["accuracy"] == 1.0
    settings = card["settings"]
    assert (settings["max_turns"], settings["max_turn_tokens"], settings["stop"]) == (2, 5, "e")
    assert settings["prompt"] == "?problem?" and settings["calculator"]  # in the toy's letters
    # What is given on the command line wins; and weights in a folder are any other model's.
    more = ("--max-turns", 3, "--no-calculator", "--max-new-tokens", 80)
    given = card_of(tmp_path, "--model", path, *more)
    assert given["settings"]["max_turns"] == 3 and "calculator" not in given["settings"]
    assert given["result"]["accuracy"] == 0.0
    folder = path / "checkpoints" / "000001"
    capsys.readouterr()
    plain = card_of(tmp_path, "--model", folder, "--problems", f"{tmp_path}/problems.jsonl")
    assert "environment" not in plain["settings"]
    assert "prompted as in training" not in capsys.readouterr().out


def test_a_run_with_a_reward_and_solved_problems(tmp_path, capsys, monkeypatch):
    path = made_run(tmp_path, "--reward", "own.py:reward", "--few-shot", 2)
    seen = []
    plain = evaluate.evaluate_from_options

    def watched(options, model, tokenizer, problems, *rest):
        seen.extend(problems)
        return plain(options, model, tokenizer, problems, *rest)

    monkeypatch.setattr(evaluate, "evaluate_from_options", watched)
    assert card_of(tmp_path, "--model", path)["result"]["accuracy"] == 1.0
    assert f"--reward {tmp_path}/own.py:reward" in capsys.readouterr().out
    (shown,) = {problem.prefix for problem in seen}
    assert shown.count("Question:") == 2
    assert main(["evaluate", "--model", str(path), "--prompt", "question"]) == 2
    assert "drop --prompt" in capsys.readouterr().err


def test_models_that_were_trained_differently(tmp_path, capsys):
    path = made_run(tmp_path, "--stop", "e")
    other = run(tmp_path, "other", "--steps", 1, "--stop", "f")
    words = ["evaluate", "--model", str(path), str(other), "--max-new-tokens", "9"]
    assert main(words) == 2
    assert "different values of --stop" in capsys.readouterr().err
    assert main([*words, "--stop", "g"]) == 0


@pytest.mark.parametrize("words", [["--model", "tiny-player-grpo"], ["--environment", "guess"]])
def test_the_player_plays_its_game(words, capsys):
    assert main(["evaluate", *words, "--limit", "16", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    player, share = ("tiny-player-grpo", 81.2) if "--model" in words else ("tiny-player", 50.0)
    assert f"{player} on guess, 16 problems\n  accuracy        {share}%" in out


PROMPTED = """
from reasoning_from_scratch.problems import Problem

def problems():
    for number in range(3):
        yield Problem(f"p{number}", f"{number} + 1", str(number + 1), prompt=f"mine: {number} + 1")
"""


@pytest.mark.parametrize("prompt, first", [(None, "mine: 0 + 1"), ("{}/p.txt", "Solve 0 + 1")])
def test_a_prompt_that_is_given_wins_over_those_of_the_problems(
    prompt, first, command, tmp_path, monkeypatch
):
    (tmp_path / "own.py").write_text(PROMPTED)
    (tmp_path / "p.txt").write_text("Solve {problem}")
    asked = []
    plain = sampling_evaluation.sample_each

    def watched(model, tokenizer, problems, *rest, **options):
        asked.extend(problem.prompt for problem in problems)
        return plain(model, tokenizer, problems, *rest, **options)

    monkeypatch.setattr(sampling_evaluation, "sample_each", watched)
    given = ["--prompt", prompt.format(tmp_path)] if prompt else []
    words = ["--problems", f"{tmp_path}/own.py:problems", "--max-new-tokens", "4", *given]
    assert main([*command, *words]) == 0
    assert asked[0] == first and len(asked) == 3
