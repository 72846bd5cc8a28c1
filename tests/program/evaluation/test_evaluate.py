"""Evaluation: the statistics against their definitions; killed and resumed gives the same file."""

import json
import random
from dataclasses import fields, replace

import pytest
import torch
from small_model import small_model

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.rewards import correctness
from reasoning_from_scratch.sampling import Rollout, Sampling, greedy, stream_key, uniform_at
from rfs.evaluation.answer_file import card_path
from rfs.evaluation.evaluate import evaluate, wilson_interval
from rfs.tasks.judge import named_verifier
from rfs.tasks.problem_sets import load_problems
from tests.book.stand_ins import LetterTokenizer

PROBLEMS = [Problem(id=f"p{i}", problem=f"{i} + 1 = ?", answer=str(i + 1)) for i in range(12)]
PIECES = ["<end>", "\\boxed{", "}", " 1", " 2", " 3", " 4", " so", " then", "\n", "?", "="]


class PieceTokenizer:
    """Token i is PIECES[i]; a text is encoded by its letters, which is all a prompt needs."""

    eos_token_id = 0

    def encode(self, text):
        return [1 + ord(letter) % (len(PIECES) - 1) for letter in text]

    def decode(self, ids):
        return "".join(PIECES[i] for i in ids)


def random_model(seed=0):
    return small_model(len(PIECES), seed, context_length=512)


def scripted(model, prompts, sampling, *, streams, **options):
    """In place of `generate_each`: the same answer for the same stream, in a shuffled order."""
    order = list(range(len(prompts)))
    random.Random(len(prompts)).shuffle(order)
    for position in order:
        step, problem = streams[position]
        streams_of_group = [(sampling.seed, step, problem, n) for n in range(sampling.rollouts)]
        yield position, [scripted_answer(stream, problem) for stream in streams_of_group]


def scripted_answer(stream, problem):
    """Right, right in another spelling, wrong, without a box, cut off."""
    u = float(uniform_at(stream_key(*stream), torch.tensor(0)))
    kinds = [f"\\boxed{{{problem + 1}}}", f"so\n\\boxed{{{2 * problem + 2}/2}}", "\\boxed{99}"]
    text = [*kinds, "I do not know", "\\boxed{1"][int(u * 5)]
    return as_sample(text, finished=u < 0.8)


def as_sample(text, finished=True):
    ids = [ord(letter) for letter in text] + [0] * finished
    numbers = [-1.0] * len(ids)
    return Rollout(
        response_ids=ids, logprobs=numbers, entropies=numbers, text=text, finished=finished
    )


FIELDS = fields(Sampling)


@pytest.fixture
def script(monkeypatch):
    """Puts a function in place of `generate_each`: the one above, until another one is given."""

    def install(function):
        monkeypatch.setattr("reasoning_from_scratch.rollouts.generate_each", function)

    install(scripted)
    return install


def run(out_path=None, problems=PROBLEMS, **changes):
    asked = {field.name: changes.pop(field.name) for field in FIELDS if field.name in changes}
    sampling = replace(Sampling(20, rollouts=3, seed=4), **asked)
    return evaluate(None, LetterTokenizer(), problems, sampling, out_path=out_path, **changes)


def test_scores_from_rows(script):
    result = run()
    by_problem = [result.rows[i : i + 3] for i in range(0, 36, 3)]
    right = [[row["correct"] for row in group] for group in by_problem]
    assert result.accuracy == pytest.approx(sum(map(sum, right)) / 36)
    assert result.interval == pytest.approx(wilson_interval(12 * result.accuracy, 12))
    assert result.pass_at[1] == pytest.approx(result.accuracy)
    assert result.pass_at[3] == pytest.approx(sum(map(any, right)) / 12)
    assert result.pass_at[1] < result.pass_at[2] < result.pass_at[3]
    assert result.cutoff_share == pytest.approx(sum(not row["stopped"] for row in result.rows) / 36)
    assert result.mean_length == pytest.approx(sum(row["tokens"] for row in result.rows) / 36)
    assert 0 < result.parse_rate < 1
    for label in ("accuracy", "pass@2", "pass@3", "majority vote", "cut off", "tokens/s"):
        assert label in result.report()


# --- rows ---


def test_a_row_says_what_happened(script):
    rows = run().rows
    assert [(row["index"], row["sample"]) for row in rows] == [
        (index, sample) for index in range(1, 13) for sample in range(3)
    ]
    for row in rows:
        assert row["gtruth_answer"] == str(row["index"])
        assert row["problem"] == PROBLEMS[row["index"] - 1].problem
        text = row["generated_text"]
        assert "\0" not in text  # the stop token is no part of the text
        assert row["tokens"] == len(text) + row["stopped"]
        assert row["correct"] == bool(correctness(text, row["gtruth_answer"]))
        assert row["parsed"] == ("boxed" in text and text.endswith("}"))
    assert {row["extracted"] for row in rows} >= {"", "99"}


def test_only_the_box_counts_unless_a_fallback_is_named(script):
    def unboxed(model, prompts, sampling, **options):
        yield 0, [as_sample("It is 5.")]

    script(unboxed)
    options = {"problems": [Problem("x", "2 + 3", "5")], "rollouts": 1}
    assert run(**options).accuracy == 0.0
    assert run(**options, fallback="number_then_full").accuracy == 1.0


@pytest.mark.parametrize("temperature, samples", [(0.0, 1), (1.0, 4)])
def test_batched_is_one_by_one(temperature, samples):
    """A real model: any number of rows and any order of problems give the same answers."""
    model, tokenizer = random_model(), PieceTokenizer()
    sampling = Sampling(24, temperature=temperature, rollouts=samples)
    batched = evaluate(model, tokenizer, PROBLEMS, sampling)
    single = evaluate(model, tokenizer, PROBLEMS, replace(sampling, sample_rows=1))
    assert batched.rows == single.rows
    assert 0 < batched.mean_length <= 24
    if samples > 1:
        assert len({row["generated_text"] for row in batched.rows}) > 12
        other = evaluate(model, tokenizer, PROBLEMS, replace(sampling, seed=1))
        assert other.rows != batched.rows


# --- files ---


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_file_holds_the_rows_and_the_card_their_conditions(script, tmp_path):
    path = tmp_path / "deep" / "answers.jsonl"
    result = run(path, name="scripted")
    assert lines(path) == result.rows
    card = json.loads(card_path(path).read_text())
    assert card["name"] == "scripted"
    assert card["result"]["accuracy"] == result.accuracy
    assert card["result"]["pass_at"]["3"] == result.pass_at[3]
    settings = card["settings"]
    assert (settings["problems"], settings["num_samples"], settings["seed"]) == (12, 3, 4)
    assert settings["prompt"].endswith("Question:\n{problem}\n\nAnswer:")
    for key in ("prompt_hash", "problems_hash", "grader_version", "max_new_tokens"):
        assert settings[key]
    for key in ("time", "torch", "package", "python"):
        assert card["measured_on"][key]


class Killed(BaseException):
    pass


def dying(after):
    """A `generate_each` that is killed when `after` problems are answered."""

    def generate_each(*args, **options):
        for count, group in enumerate(scripted(*args, **options), 1):
            yield group
            if count == after:
                raise Killed

    return generate_each


@pytest.mark.parametrize("seed", range(3))
def test_killed_anywhere_and_resumed_gives_the_same_file(script, tmp_path, seed):
    draw = random.Random(seed)
    whole = tmp_path / "whole.jsonl"
    expected = run(whole)

    path, asked = tmp_path / "killed.jsonl", []
    for _ in range(draw.randint(1, 3)):
        script(dying(after=draw.randint(1, 3)))
        with pytest.raises(Killed):
            run(path)
        content = path.read_bytes()  # a kill may also cut the last lines, anywhere
        path.write_bytes(content[: len(content) - draw.choice([0, 1, 17, 400])])

    def counted(model, prompts, *args, **options):
        asked.append(len(prompts))
        return scripted(model, prompts, *args, **options)

    script(counted)
    resumed = run(path)
    assert path.read_bytes() == whole.read_bytes()
    assert resumed.rows == expected.rows
    assert asked[0] < 12  # it did go on where it was
    names = "killed.card.json killed.jsonl whole.card.json whole.jsonl".split()
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_a_finished_evaluation_is_not_done_again(script, tmp_path):
    path = tmp_path / "a.jsonl"
    first = run(path)

    def nothing_to_do(model, prompts, *args, **options):
        assert prompts == []
        return []

    script(nothing_to_do)
    again = run(path)
    assert again == first  # the speed too: it is the one that was measured


# --- mistakes ---


def test_nor_are_those_that_another_verifier_has_judged(script, tmp_path):
    path, own = tmp_path / "a.jsonl", tmp_path / "own.py"
    own.write_text("def pays(text, problem):\n    return 1\n")
    run(path, verifier=named_verifier(f"{own}:pays"))
    run(path, verifier=named_verifier(f"{own}:pays"))
    own.write_text("def pays(text, problem):\n    return 0\n")
    with pytest.raises(UserError, match="answer_read_from"):
        run(path, verifier=named_verifier(f"{own}:pays"))


def test_other_settings_are_not_mixed_into_a_file(script, tmp_path):
    path = tmp_path / "a.jsonl"
    run(path)
    before = path.read_bytes()
    for change in (
        {"seed": 5},
        {"temperature": 0.7},
        {"max_new_tokens": 21},
        {"rollouts": 4},
        {"problems": PROBLEMS[:-1]},
        {"prompt_fn": str.upper},
        {"fallback": "number_only"},
    ):
        with pytest.raises(UserError, match="other settings.*--out"):
            run(path, **change)
    assert path.read_bytes() == before


def test_a_prompt_that_is_too_long_is_named_with_its_place(tmp_path):
    path, out = tmp_path / "mine.jsonl", tmp_path / "a.jsonl"
    rows = [{"problem": "a" * length, "answer": 1} for length in (5, 600)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    problems = load_problems(str(path))
    with pytest.raises(UserError, match="mine.jsonl, line 2"):
        evaluate(random_model(), PieceTokenizer(), problems, greedy(2), out_path=out)
    assert not out.exists()


def test_other_weights_are_other_settings(tmp_path):
    path = tmp_path / "a.jsonl"
    evaluate(random_model(0), PieceTokenizer(), PROBLEMS[:2], greedy(2), out_path=path)
    with pytest.raises(UserError, match="weights"):
        evaluate(random_model(1), PieceTokenizer(), PROBLEMS[:2], greedy(2), out_path=path)


@pytest.mark.parametrize(
    "problems, words", [([], "no problems"), (None, "problem odd.*cannot be read")]
)
def test_what_cannot_be_measured_is_refused(script, problems, words):
    if problems is None:
        problems = [Problem("odd", "What?", "\\frac{{{")]
    with pytest.raises(UserError, match=words):
        run(problems=problems)


def test_a_changed_column_is_another_evaluation_where_a_verifier_reads_it(script, tmp_path):
    def by_column(text, problem):
        return float(problem.row["wanted"] in text), ""

    by_column.name, by_column.source = "by_column", "by_column"
    some, others = (
        [replace(problem, row={"wanted": wanted}) for problem in PROBLEMS]
        for wanted in ("zzz", "boxed")
    )
    run(tmp_path / "a.jsonl", some, verifier=by_column)
    with pytest.raises(UserError, match="columns_hash"):
        run(tmp_path / "a.jsonl", others, verifier=by_column)
    # The grader reads no other column.
    run(tmp_path / "b.jsonl", some)
    run(tmp_path / "b.jsonl", others)
