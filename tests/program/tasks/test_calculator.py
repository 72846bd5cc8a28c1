"""The calculator: what it computes and what not; in any batch the answers that plain sampling
gives; and nobody is trained on, or counts, what it wrote."""

import json
import warnings
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_model import IN_BURSTS, small_model
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from tokenizers.decoders import Fuse
from toy import toy_config, toy_policy, toy_problems, train

from reasoning_from_scratch.fast.decoding import CompiledDecoder, decoder_for
from reasoning_from_scratch.fast.packed import packed_logprobs
from reasoning_from_scratch.logprobs import padded_logprobs
from reasoning_from_scratch.rollouts import Group, make_batch
from reasoning_from_scratch.sampling import (
    PLAIN_ENGINE,
    Partner,
    Sampling,
    generate,
    sample_next_token,
    stream_key,
    uniform_at,
)
from reasoning_from_scratch.text import read_lines
from reasoning_from_scratch.tokenizer import Qwen3Tokenizer
from reasoning_from_scratch.trainer import loss_denominator, prepare_update
from rfs import evaluate
from rfs.config import RunConfig
from rfs.engine import FAST
from rfs.tasks.environments.calculator import MAX_CHARACTERS, Calculator, calculate

# ---- what it computes


@pytest.mark.parametrize(
    "text, result",
    [
        ("48/2", "24.0"),
        ("48 / 2 ", "24.0"),
        ("3*25", "75"),
        ("1,000*2", "2000"),
        ("0.1+0.2", "0.30000000000000004"),
        (".5*4", "2.0"),
        ("10/3", "3.3333333333333335"),
        ("-(2-5)*+4", "12"),
        ("7//2", "3"),
        ("9" * 50 + "*" + "9" * 49, str(int("9" * 50) * int("9" * 49))),
        ("-" * (MAX_CHARACTERS - 1) + "1", "-1"),
    ],
)
def test_it_prints_what_python_prints(text, result):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert calculate(text) == result


NO_CALCULATIONS = [
    "1e3", "2**3", "2** 3", "2 * *3", "1/0", "2+", "(2", "2)(3", "(2)(3)", "...", "()", "", "  ",
    ",", "007", "$5*2", "5%2", "x*2", "__import__('os')", "'a'*99", "٣+٤", "1+\n1",
    "(" * MAX_CHARACTERS, "1" * (MAX_CHARACTERS + 1),
]  # fmt: skip


@pytest.mark.parametrize("text", NO_CALCULATIONS)
def test_what_is_no_calculation(text):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert calculate(text) is None


@given(st.text("0123456789+-*/.() ", max_size=12))
def test_it_computes_what_python_computes_or_nothing(text):
    found = calculate(text)
    if found is not None:
        assert found == str(eval(text.strip()))  # only digits and signs


# ---- what calls it

CALLS = ["<<48/2=", "<<3*25=", "<<(1=", "<<1/0="]
SPECIAL = ["<|python_start|>", "<|python_end|>", "<|output_start|>", "<|output_end|>"]
LETTERS = "?0123456789.-+*/=<>()|_abcdefghijklmnopqrstuvwxyz "
END = len(LETTERS) + len(CALLS) + len(SPECIAL)  # <|endoftext|>
VOCABULARY = 64


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Qwen3Tokenizer:
    """Characters, some whole calls, and nanochat's words for them: a token each."""
    ids = {letter: number for number, letter in enumerate(LETTERS)}
    inner = Tokenizer(models.WordLevel(ids, unk_token="?"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    inner.decoder = Fuse()
    inner.add_tokens([AddedToken(call, normalized=False) for call in CALLS])
    inner.add_special_tokens([*SPECIAL, "<|endoftext|>", "<|im_end|>"])
    path = tmp_path_factory.mktemp("calculator") / "tokenizer-base.json"
    inner.save(str(path))
    return Qwen3Tokenizer(path)


@pytest.mark.parametrize(
    "text, follows",
    [
        ("he has <<48/2=", "24.0>>"),
        ("he has <<4*2=", "8>>"),
        ("<<1+1=2>> and <<2+2=", "4>>"),
        ("<<<<2+2=", "4>>"),
        ("<|python_start|>48/2<|python_end|>", "<|output_start|>24.0<|output_end|>"),
        ("<<" + "1+" * 49 + "1=", "50>>"),
    ],
)
def test_which_answers_call_it(tokenizer, text, follows):
    ids = tokenizer.encode(text)
    said = Calculator(tokenizer).hear(ids, stopped=False)
    assert tokenizer.decode(said) == follows


NO_CALLS = [
    "48/2=", "<<48/2", "<<48/2=2", "<<48/2==", "<<1+1=2>>=", "<48/2=", "<<x=", "<<=", "<<1/0=",
    "48/2<|python_end|>", "<|python_start|>abc<|python_end|>", "<<" + "1+" * 50 + "1=",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_CALLS)
def test_which_answers_do_not_call_it(tokenizer, text):
    assert Calculator(tokenizer).hear(tokenizer.encode(text), stopped=False) == []


# ---- in a batch: the calculator, and a partner that replies to each turn


PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9, 10], [11, 12]]
POLICIES = [(1.0, 1.0, 0), (0.9, 0.95, 0), (1.0, 1.0, 50)]  # temperature, top_p, top_k
FITS_C = {"emb_dim": 32, "head_dim": 16, "hidden_dim": 64}  # whole registers


class Counting(Partner):
    """After each turn it says as many tokens as the turn had, and one more; after the third it is
    silent."""

    def __init__(self):
        self.turns = self.start = 0

    def hear(self, response_ids, stopped):
        if not stopped:
            return []
        self.turns += 1
        said = [(token + 1) % 12 + 1 for token in response_ids[self.start :]] + [self.turns]
        self.start = len(response_ids) + len(said)
        return said if self.turns < 3 else []

    def leave(self, rollout):
        rollout.turns = self.turns


def calling_model(**sizes):
    """All tokens are about equally likely: one in thirty is a call that is answered."""
    return small_model(VOCABULARY, sharpness=1.0, **sizes)


def drawn(partner, policy, stops=(END,), limit=40, rows=64, engine=FAST, model=None):
    temperature, top_p, top_k = policy
    asked = Sampling(
        limit, temperature, top_p, top_k, rollouts=5, seed=3, sample_rows=rows,
        keep_sampling_mask=top_p < 1 or top_k > 0,
    )  # fmt: skip
    engine = replace(engine, make_partner=lambda number: partner())
    return generate(model or calling_model(), PROMPTS, asked, stop_ids=set(stops), engine=engine)


@torch.no_grad()
def plainly(model, prompt, number, rollout, partner, policy, stops, limit):
    """No batch, no cache: (ids, places of forced ones, whether it ended, log-probabilities)."""
    new, forced, logprobs, ended = [], [], [], False
    key = stream_key(3, 0, number, rollout)
    while len(new) < limit and not ended:
        u = uniform_at(key, torch.tensor([len(new)]))
        draw = sample_next_token(model(torch.tensor([prompt + new]))[:, -1], u, *policy)
        new.append(draw.tokens.item())
        logprobs.append(draw.logprobs.item())
        said = partner.hear(new, stopped=new[-1] in stops)
        ended = new[-1] in stops and not said
        if said and len(new) + len(said) >= limit:  # nothing could be drawn after it
            break
        forced += range(len(new), len(new) + len(said))
        logprobs += [0.0] * len(said)
        new += said
    return new, forced, ended, logprobs


@pytest.mark.parametrize(
    "kind, policy, replies, limit",
    [
        ("plain", POLICIES[0], False, 40),
        ("plain", POLICIES[1], False, 40),
        ("fast", POLICIES[2], False, 40),
        ("in C", POLICIES[0], False, 40),
        ("in C", POLICIES[1], False, 40),
        ("bursts", POLICIES[1], False, 40),
        ("plain", POLICIES[0], True, 60),
        ("fast", POLICIES[0], True, 12),  # many replies do not fit
        ("fast", POLICIES[1], True, 60),
        ("in C", POLICIES[0], True, 60),
        ("in C", POLICIES[1], True, 60),
        ("bursts", POLICIES[1], True, 60),
    ],
)
def test_a_batch_gives_what_plain_sampling_gives(tokenizer, kind, policy, replies, limit):
    """Whoever computes, however many rows, whoever else is in them; cut off in a result too."""
    model = calling_model(**(FITS_C if kind == "in C" else {}))
    if kind == "in C":
        assert isinstance(decoder_for(model, 4, 40), CompiledDecoder)
    partner = Counting if replies else partial(Calculator, tokenizer)
    stops = set(range(8)) if replies else {END}
    wanted = [
        plainly(model, prompt, number, rollout, partner(), policy, stops, limit)
        for number, prompt in enumerate(PROMPTS)
        for rollout in range(5)
    ]
    assert sum(bool(forced) for _, forced, *_ in wanted) > 5
    kept = []
    for rows in (1, 3, 7, 64):
        engine = {"plain": PLAIN_ENGINE, "bursts": IN_BURSTS}.get(kind, FAST)
        groups = drawn(partner, policy, stops, limit, rows, engine, model)
        found = [rollout for group in groups for rollout in group]
        told = [(one.response_ids, one.forced, one.finished) for one in found]
        assert told == [one[:3] for one in wanted]
        for one, (*_, logprobs) in zip(found, wanted, strict=True):
            assert one.logprobs == pytest.approx(logprobs, abs=2e-5)
            assert not one.kept or all(one.kept[place] == [] for place in one.forced)
        kept.append([one.kept for one in found])
    assert all(one == kept[0] for one in kept)


# ---- nobody is trained on what it wrote


def answered_groups(tokenizer, policy=(1.0, 0.9, 0)) -> list[Group]:
    answered = drawn(partial(Calculator, tokenizer), policy)
    groups = [Group(toy_problems(1)[0], group) for group in answered]
    for number, rollout in enumerate(rollout for group in groups for rollout in group.rollouts):
        rollout.reward, rollout.rewards = float(number % 3 == 0), {"correct": 0.0}
        rollout.advantage = rollout.reward - 0.3
    return groups


@pytest.mark.parametrize("training_pass", [padded_logprobs, packed_logprobs])
def test_the_mask_is_0_where_it_wrote(tokenizer, training_pass):
    """And both passes find the log-probabilities that the sampler wrote down for the others."""
    rollouts = [rollout for group in answered_groups(tokenizer) for rollout in group.rollouts]
    batch = make_batch(rollouts)
    for row, rollout in enumerate(rollouts):
        start = len(rollout.prompt_ids)
        places = [place - start for place in batch.mask[row].nonzero()[:, 0].tolist()]
        length = len(rollout.response_ids)
        assert places == [place for place in range(length) if place not in rollout.forced]
        assert places == rollout.select_sampled(range(length))
        assert len(batch.kept[row]) == rollout.num_sampled
    assert (batch.old_logprobs[batch.mask == 0] == 0).all()
    with torch.no_grad():
        logprobs = training_pass(calling_model(), batch, 1.0)
    torch.testing.assert_close(logprobs, batch.old_logprobs, rtol=0, atol=1e-4)


def test_the_gradient_is_that_of_the_sampled_tokens_alone(tokenizer):
    """REINFORCE over the step's sampled tokens, written out, against the trainer's."""
    groups = answered_groups(tokenizer, (1.0, 1.0, 0))
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    model, total = calling_model(), 0.0
    for rollout in rollouts:
        ids = torch.tensor([rollout.prompt_ids + rollout.response_ids])
        logprobs = model(ids[:, :-1]).log_softmax(-1)  # (1, T - 1, V)
        for place, token in enumerate(rollout.response_ids):
            if place not in rollout.forced:
                at = len(rollout.prompt_ids) + place - 1
                total = total - rollout.advantage * logprobs[0, at, token]
    tokens = sum(rollout.num_sampled for rollout in rollouts)
    (total / tokens).backward()
    wanted = [parameter.grad.clone() for parameter in model.parameters()]
    config = RunConfig(objective="reinforce", aggregate="token")
    assert loss_denominator(groups, config) == tokens
    for training_pass in (padded_logprobs, packed_logprobs):
        model.zero_grad()
        policy = toy_policy(model, config, training_pass)
        rollouts, denominator = prepare_update(policy, None, groups, config)
        policy.forward_backward(rollouts, config, denominator)
        for parameter, gradient in zip(model.parameters(), wanted, strict=True):
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-6)


def test_an_evaluation_counts_no_forced_token(tokenizer, tmp_path):
    asked = Sampling(40, rollouts=4, calculator=True)
    result = evaluate(
        calling_model(), tokenizer, toy_problems(4), asked, out_path=tmp_path / "answers.jsonl"
    )
    tokens = sum(row["tokens"] for row in result.rows)
    assert tokens < sum(len(tokenizer.encode(row["generated_text"])) for row in result.rows)
    card = json.loads((tmp_path / "answers.card.json").read_text())
    assert card["settings"]["calculator"] is True


@pytest.mark.parametrize(
    "changes", [{"top_p": 0.9}, {"max_steps_off_policy": 1, "objective": "ppo"}], ids=str
)
def test_a_run_with_a_calculator(tokenizer, tmp_path, changes):
    """On policy every ratio is 1; summaries and page say which tokens were not the model's."""
    config = toy_config(
        tmp_path / "run", steps=3, max_new_tokens=40, rollouts=4, calculator=True, save_every=1,
        eval_every=1, eval_samples=2, num_groups_to_log=4, **changes,
    )  # fmt: skip
    given = {"tokenizer": tokenizer, "problems": toy_problems(), "eval_problems": toy_problems(4)}
    result = train(config, model=calling_model(context_length=512), quiet=True, **given)
    for row in result.rows:
        assert row["env/all/forced_tokens_per_turn"] > 0
        if "max_steps_off_policy" not in changes and row["optim/updates"]:
            assert row["optim/ratio_max"] == pytest.approx(1, abs=1e-3)
            assert abs(row["optim/kl_sample_train_v1"]) < 1e-4
    lines = read_lines(tmp_path / "run/train_iteration_000000_rollout_summaries.jsonl")
    forced = [line["forced"] for line in lines if "forced" in line]
    lengths = [line["steps"][0]["ac_len"] for line in lines]
    means = [line["trajectory_metrics"]["logprob_mean"] for line in lines]
    assert forced and result.rows[0]["env/all/total_ac_tokens"] == sum(lengths)
    total = sum(mean * length for mean, length in zip(means, lengths, strict=True))
    assert result.rows[0]["optim/entropy"] == pytest.approx(-total / sum(lengths))
    page = (tmp_path / "run/train_iteration_000000.html").read_text()
    assert page.count("<i class=tool>") == sum(map(len, forced)) and "read, not sampled" in page
