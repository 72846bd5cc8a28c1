"""`rfs preflight`: every way in which training cannot work is named, and nothing else is."""

import re
from types import SimpleNamespace

import pytest
import torch
from command_world import make_world
from small_model import small_model
from toy import written

from reasoning_from_scratch import rollouts as loop
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.sampling import Rollout
from rfs.commands import cli, preflight
from rfs.config import RunConfig
from rfs.evaluation.group_signal import preflight_summary, spread_out
from rfs.run import start
from tests.book.stand_ins import LetterTokenizer

PROBLEMS = [Problem(id=f"p{i}", problem=f"{i}", answer=str(i)) for i in range(40)]


RIGHT, WRONG = "\\boxed{%d}", "\\boxed{99}"
UNREADABLE, CUT, CONTEXT_FULL = "It is, I think, so.", "well, \x1b[31m so", "well, so"
TALKED = "to and fro"  # until the answers, with the replies to them, were too long


@pytest.fixture
def answers(monkeypatch):
    """Replaces the model: kinds of answers, by problem and rollout."""

    def install(choose):
        def generate_each(model, prompts, sampling, *, streams, **options):
            for position, prompt in enumerate(prompts):
                problem = int(re.search(r"Question:\n(\d+)\n", "".join(map(chr, prompt)))[1])
                kinds = [choose(streams[position][1], i) for i in range(sampling.rollouts)]
                yield position, [as_sample(kind, problem) for kind in kinds]

        monkeypatch.setattr(loop, "generate_each", generate_each)

    return install


def as_sample(kind, problem):
    text = kind % problem if kind is RIGHT else kind
    finished = kind not in (CUT, CONTEXT_FULL, TALKED)
    ids = [ord(letter) for letter in text] + [0] * finished
    ids += [ord("o")] * (512 - len(ids)) * (kind in (CUT, TALKED))
    zeros, said = [0.0] * len(ids), [*range(100, 300)] * (kind is TALKED)
    return Rollout(
        response_ids=ids, logprobs=zeros, entropies=zeros, forced=said, finished=finished
    )


def look(problems=PROBLEMS, rollouts=8, vocab_size=151_936, **options):
    model = SimpleNamespace(cfg={"vocab_size": vocab_size})
    config = RunConfig(max_new_tokens=512, rollouts=rollouts)
    return preflight_summary(model, LetterTokenizer(), problems, config, **options)


def half(problem, rollout):
    return RIGHT if rollout % 2 else WRONG


@pytest.mark.parametrize(
    "choose, can_work, words",
    [
        (half, True, "Training can work: 100.0% of groups"),
        (lambda p, r: half(p, r) if p % 5 == 0 else RIGHT, True, "slowly.*filter the problems"),
        (lambda p, r: CUT if r < 5 else RIGHT, True, "62.5% of answers are cut off"),
        (lambda p, r: RIGHT, False, "little left to learn.*harder problems"),
        (lambda p, r: CUT, False, "cut off at 512 tokens.*--max-new-tokens"),
        (lambda p, r: TALKED, False, "cut off at 512 tokens.*--max-new-tokens"),
        (lambda p, r: CONTEXT_FULL, False, "fill the model's context.*shorter problems"),
        (lambda p, r: UNREADABLE, False, "Only 0.0% of answers.*boxed.*supervised training"),
        (lambda p, r: WRONG, False, "too hard.*[Ee]asier problems"),
        (lambda p, r: RIGHT if p % 2 else WRONG, False, "always or never answered correctly"),
    ],
)
def test_the_verdict_names_the_cause(answers, choose, can_work, words):
    answers(choose)
    found = look()
    assert found.can_work is can_work
    assert re.search(words, found.verdict), found.verdict


@pytest.mark.parametrize("kind", [WRONG, UNREADABLE, CUT])
def test_the_tiny_model_knows_only_its_own_world(answers, kind):
    answers(lambda p, r: kind)
    found = look(vocab_size=1024)
    assert not found.can_work
    assert "its own small world" in found.verdict
    assert "--problems tiny" in found.verdict and "--model base" in found.verdict
    answers(half)
    assert look(vocab_size=1024).can_work


def test_the_figures(answers):
    answers(lambda p, r: [WRONG, half(p, r), UNREADABLE, RIGHT][p % 4])
    found = look(num_problems=8, rollouts=6)
    assert (len(found.problems), found.rollouts) == (8, 6)
    assert found.pass_at_1 == pytest.approx(1 / 8 + 1 / 4)
    assert found.pass_at_g == pytest.approx(1 / 2)
    assert found.live_share == pytest.approx(1 / 4)
    assert found.parse_rate == pytest.approx(3 / 4)
    assert found.cutoff_share == 0.0
    assert found.example == UNREADABLE
    table = preflight.figures_table(found)
    for words in ("8 problems x 6 rollouts", "pass@1", "pass@6", "37.5%", "groups with signal"):
        assert words in table


def test_a_group_of_one_has_no_signal():
    with pytest.raises(UserError, match="at least 2 rollouts"):
        look(rollouts=1)


def test_cost_is_measured_without_touching_the_model():
    model = small_model(128, context_length=512)
    before = [weight.clone() for weight in model.parameters()]
    assert 0 < preflight.train_seconds(model, length=50) < 20
    for weight, old in zip(model.parameters(), before, strict=True):
        assert torch.equal(weight, old) and weight.grad is None
    assert preflight.peak_memory(torch.device("cpu")) > 2**26


def test_weights_that_are_not_finite_are_named():
    model = small_model(128, context_length=512)
    with torch.no_grad():
        model.final_norm.scale[0] = torch.nan
    with pytest.raises(UserError, match="not finite"):
        preflight.train_seconds(model, length=5)


@pytest.fixture
def world(answers, monkeypatch, tmp_path):
    """A folder with a toy model, and a tokenizer for letters in place of its own."""
    make_world(tmp_path)
    monkeypatch.chdir(tmp_path)
    opened = small_model(128, context_length=512), LetterTokenizer()
    monkeypatch.setattr(start, "load_models", lambda *_: (opened[0], None, opened[1]))
    monkeypatch.setattr("rfs.run.chosen_problems.store_prompt_format", lambda *_: None)
    return tmp_path


@pytest.mark.parametrize("choose, code", [(half, 0), (lambda p, r: CUT, 1)])
def test_the_command(answers, world, capsys, choose, code):
    answers(choose)
    unusable = [Problem("long", "a" * 600, "1"), Problem("none", "1", "\\frac{")]
    problems = written([*unusable, *PROBLEMS], world, "problems.jsonl")
    words = f"preflight --problems {problems} --model tiny-toy --num-problems 4 --rollouts 4"
    assert cli.main([*words.split(), "--max-new-tokens", "512", "--steps", "60"]) == code
    said = capsys.readouterr()
    assert "skipped 1 of 41 problems" in said.err or "skipped 1 of 42 problems" in said.err
    out = said.out
    assert "4 problems x 4 rollouts" in out and "one step of 8 x 4 rollouts" in out
    assert "sampling + up to" in out and "GiB measured" in out
    assert "60 steps of 8 x 4 answers take at most" in out
    assert ("Training can work" in out) == (code == 0)
    assert ("an example answer:\nwell, \\x1b[31m so" in out) == (code == 1)  # escaped, not sent
    assert "\x1b" not in out


@pytest.mark.parametrize("size", [3, 16, 31, 47, 1000])
def test_problems_are_from_all_over_the_set(size):
    places = spread_out(range(size), 16)
    assert len(places) == min(size, 16) == len(set(places))
    assert places[0] == 0 and places[-1] >= size - size / 16 - 1


@pytest.mark.parametrize("name", ["num_problems", "problems_per_step", "max_new_tokens"])
def test_numbers_below_one_are_refused(name, capsys):
    flag = "--" + name.replace("_", "-")
    for value in (0, -3):
        assert cli.main(["preflight", flag, str(value)]) != 0
        assert f"{flag} is {value}" in capsys.readouterr().err
