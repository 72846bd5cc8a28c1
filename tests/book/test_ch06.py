"""Chapter 6's plain functions: on stand-ins, by hand, and against the engine's mathematics."""

import csv
import dataclasses
import math

import pytest
import torch
from torch import nn
from toy import train

from reasoning_from_scratch import ch06, ch07
from reasoning_from_scratch.advantages import zscore
from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.files.weights import load_model_and_tokenizer
from reasoning_from_scratch.logprobs import token_logprobs
from reasoning_from_scratch.losses import policy_loss, step_denominator
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.recipes import RECIPES
from reasoning_from_scratch.rewards import correctness
from reasoning_from_scratch.run.options import configure
from reasoning_from_scratch.sampling import Rollout
from reasoning_from_scratch.tasks.problem_sets import load_problems

WORDS = ["\\boxed{1}", "\\boxed{2}", "hm ", "<|end|>"]
END = len(WORDS) - 1


class WordTokenizer:
    """A stand-in: every prompt is two tokens, an answer is made of whole words."""

    eos_token_id = END

    def encode(self, prompt):
        return [2, 2]

    def decode(self, ids):
        return "".join(WORDS[i] for i in ids)


class Scripted:
    """The smallest stand-in: always the same next-word logits, and it counts what it is fed."""

    cfg = {"n_layers": 1}

    def __init__(self, script):
        self.script, self.widths = script, []

    def reset_kv_cache(self):
        self.widths, self.position = [], -1

    def __call__(self, token_ids, cache=None):
        self.widths.append(token_ids.shape[1])
        self.position += 1
        logits = torch.full((*token_ids.shape, len(WORDS)), -30.0)
        logits[..., self.script[min(self.position, len(self.script) - 1)]] = 30.0
        return logits


class Bandit(nn.Module):
    """A trainable stand-in: next-word logits that depend on nothing."""

    cfg = {"n_layers": 1}

    def __init__(self, logits=(0.0, 0.0, -2.0, -1.0)):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))
        self.modes = []

    def reset_kv_cache(self):
        pass

    def forward(self, token_ids, cache=None):
        self.modes.append(self.training)
        return self.logits.expand(*token_ids.shape, -1)


def small_qwen(seed=0):
    torch.manual_seed(seed)
    cfg = dict(
        vocab_size=60,
        context_length=64,
        emb_dim=16,
        n_heads=2,
        n_layers=2,
        hidden_dim=32,
        head_dim=8,
        qk_norm=True,
        n_kv_groups=1,
        rope_base=10_000.0,
        dtype=torch.float32,
    )
    return Qwen3Model(cfg)


class LetterTokenizer:
    """For the small Qwen3: letters as numbers below 60; what it decodes is right now and then."""

    eos_token_id = 0

    def encode(self, prompt):
        return [1 + ord(letter) % 59 for letter in prompt[-12:]]

    def decode(self, ids):
        return f"\\boxed{{{sum(ids) % 2}}}"


EXAMPLE = {"problem": "Which is it?", "answer": "1"}

# --- 6.5 sample_response ---


def test_sample_response_keeps_the_end_token_and_feeds_one_token_at_a_time():
    model = Scripted([2, 0, END])
    token_ids, prompt_len, text = ch06.sample_response(model, WordTokenizer(), "?", "cpu")
    assert token_ids.tolist() == [2, 2, 2, 0, END] and prompt_len == 2
    assert text == "hm \\boxed{1}<|end|>"
    assert model.widths == [2, 1, 1]  # the cache holds the rest


def test_sample_response_draws_from_the_tempered_and_cut_distribution():
    """Probabilities .5 .3 .15 .05 at temperature 1; top-p 0.75 leaves the first two."""
    model = Bandit(torch.tensor([0.5, 0.3, 0.15, 0.05]).log().tolist())
    torch.manual_seed(0)
    ids, _, _ = ch06.sample_response(model, WordTokenizer(), "?", "cpu", 2000, 1.0, 0.75)
    counts = torch.bincount(ids[2:], minlength=4)
    assert counts[2] == counts[3] == 0
    assert float(counts[0] / 2000) == pytest.approx(0.625, abs=0.04)
    model = Bandit(torch.tensor([0.6, 0.4, 1e-9, 1e-9]).log().tolist())
    ids, _, _ = ch06.sample_response(model, WordTokenizer(), "?", "cpu", 2000, 0.5, 1.0)
    counts = torch.bincount(ids[2:], minlength=4)
    assert float(counts[0] / 2000) == pytest.approx(0.36 / 0.52, abs=0.04)  # squared, renormalized


@pytest.mark.parametrize("top_p", [0.5, None])
def test_temperature_0_takes_the_likeliest_token_and_none_leaves_them_as_they_are(top_p):
    model = Bandit(torch.tensor([0.2, 0.7, 0.08, 0.02]).log().tolist())
    ids, _, _ = ch06.sample_response(model, WordTokenizer(), "?", "cpu", 50, 0, top_p)
    assert ids[2:].tolist() == [1] * 50
    draws = []
    for temperature in (None, 1.0):
        torch.manual_seed(0)
        draws.append(ch06.sample_response(model, WordTokenizer(), "?", "cpu", 50, temperature)[0])
    assert torch.equal(*draws) and len(set(draws[0][2:].tolist())) > 1
    with pytest.raises(ValueError, match="temperature must be > 0"):
        ch06.sample_response(model, WordTokenizer(), "?", "cpu", 50, -1.0)


def test_sampling_with_the_cache_follows_the_model():
    """Nearly greedy: each token is the argmax of a plain forward pass over all before it."""
    model = small_qwen()
    token_ids, prompt_len, _ = ch06.sample_response(
        model, LetterTokenizer(), "a prompt", "cpu", 15, temperature=1e-4, top_p=1.0
    )
    with torch.no_grad():
        best = model(token_ids[None])[0].argmax(-1)
    assert best[prompt_len - 1 : -1].tolist() == token_ids[prompt_len:].tolist()


# --- 6.6 reward ---


@pytest.mark.parametrize(
    "text",
    [
        "",
        "60",
        "\\boxed{}",
        "\\boxed{60}",
        "\\boxed{61}",
        "\\boxed{60",
        "\\boxed{59}\\boxed{60}",
        "\\boxed{60}\\boxed{59}",
        "so 60, \\boxed{\\frac{120}{2}}<|endoftext|>",
        "\\boxed{ }",
    ],
)
def test_reward_rlvr_is_the_engines_correctness(text):
    assert ch06.reward_rlvr(text, "60") == correctness(text, "60")


# --- 6.8 log-probabilities ---


def test_sequence_logprob_by_hand():
    probas = [0.5, 0.3, 0.15, 0.05]
    model = Bandit(torch.tensor(probas).log().tolist())
    token_ids = torch.tensor([2, 2, 0, 1, 3])
    total = ch06.sequence_logprob(model, token_ids, 2)
    assert total.item() == pytest.approx(math.log(0.5 * 0.3 * 0.05), rel=1e-5)
    total.backward()  # three tokens: one-hot minus probabilities, added up
    expected = torch.tensor([1, 1, 0, 1]) - 3 * torch.tensor(probas)
    torch.testing.assert_close(model.logits.grad, expected)
    assert ch06.sequence_logprob(model, token_ids, 5).item() == 0.0  # an empty answer


def test_sequence_logprob_equals_the_engine_values_and_gradients():
    model = small_qwen()
    token_ids, prompt_len = torch.randint(0, 60, (20,)), 6
    plain = ch06.sequence_logprob(model, token_ids, prompt_len)
    mask = (torch.arange(20) >= prompt_len)[None]
    logprobs = token_logprobs(
        model.hidden_states(token_ids[None, :-1]),
        model.out_head.weight,
        token_ids[None, 1:],
        mask[:, 1:],
    )
    torch.testing.assert_close(logprobs.sum(), plain)
    parameters = list(model.parameters())
    ours = torch.autograd.grad(plain, parameters)
    engine = torch.autograd.grad(logprobs.sum(), parameters)
    for a, b in zip(ours, engine, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    with_entropy, mean_entropy = ch07.sequence_logprob_and_entropy(model, token_ids, prompt_len)
    assert with_entropy.item() == plain.item() and with_entropy.requires_grad
    with torch.no_grad():
        distributions = model(token_ids[None])[0, prompt_len - 1 : -1].log_softmax(-1)  # (T, V)
    entropy = -(distributions.exp() * distributions).sum(-1).mean()
    torch.testing.assert_close(mean_entropy, entropy, rtol=1e-5, atol=1e-6)
    assert not mean_entropy.requires_grad


# --- 6.9 the loss ---


def test_loss_is_advantage_times_logprob():
    torch.manual_seed(1)
    model = Bandit()
    stats = ch06.compute_grpo_loss(
        model, WordTokenizer(), EXAMPLE, "cpu", num_rollouts=6, max_new_tokens=4
    )
    assert set(stats) == {"loss", "pg_loss", "rewards", "advantages", "samples", "loss_tensor"}
    assert 0 < sum(stats["rewards"]) < 6, "this seed gives a mixed group"
    assert stats["loss"] == stats["pg_loss"] == stats["loss_tensor"].item()
    torch.testing.assert_close(
        torch.tensor(stats["advantages"]), zscore(torch.tensor(stats["rewards"]))
    )
    logprobs = model.logits.log_softmax(-1).tolist()
    total = 0.0
    for sample, reward, advantage in zip(
        stats["samples"], stats["rewards"], stats["advantages"], strict=True
    ):
        assert set(sample) == {"text", "reward", "gen_len"} and sample["reward"] == reward
        words = []
        rest = sample["text"]
        while rest:
            words.append(next(i for i, word in enumerate(WORDS) if rest.startswith(word)))
            rest = rest[len(WORDS[words[-1]]) :]
        assert len(words) == sample["gen_len"]
        total -= advantage * sum(logprobs[i] for i in words) / 6
    assert stats["loss"] == pytest.approx(total, rel=1e-4)


def test_the_ch06_recipe_gives_the_same_loss_and_gradient(monkeypatch):
    """The engine's batch on the very rollouts that the plain function drew."""
    torch.manual_seed(3)
    model, tokenizer, drawn = small_qwen(), LetterTokenizer(), []

    def recording(**arguments):
        drawn.append(sample(**arguments))
        return drawn[-1]

    sample = ch06.sample_response
    monkeypatch.setattr(ch06, "sample_response", recording)
    stats = ch06.compute_grpo_loss(model, tokenizer, EXAMPLE, "cpu", 6, max_new_tokens=10)
    assert 0 < sum(stats["rewards"]) < 6, "this seed gives a mixed group"
    plain = torch.autograd.grad(stats["loss_tensor"], list(model.parameters()))

    config = dataclasses.replace(TrainConfig(), **RECIPES["ch06"].changes)
    width = max(len(ids) for ids, _, _ in drawn)
    token_ids, mask = torch.zeros(6, width, dtype=torch.long), torch.zeros(6, width)
    for row, (ids, prompt_len, _) in enumerate(drawn):
        token_ids[row, : len(ids)] = ids
        mask[row, prompt_len : len(ids)] = 1
    logprobs = token_logprobs(
        model.hidden_states(token_ids[:, :-1]),
        model.out_head.weight,
        token_ids[:, 1:],
        mask[:, 1:],
        config.logprob_temperature,
    )
    denominator = step_denominator(
        config.aggregate, 6, int(mask.sum()), int(config.length_constant)
    )
    loss, _ = policy_loss(
        logprobs,
        logprobs.detach(),
        zscore(torch.tensor(stats["rewards"])),
        mask[:, 1:],
        config,
        denominator,
    )
    assert loss.item() == pytest.approx(stats["loss"], rel=1e-5)
    for a, b in zip(plain, torch.autograd.grad(loss, list(model.parameters())), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_training_mode_is_as_before(training):
    model = Bandit().train(training)
    ch06.compute_grpo_loss(model, WordTokenizer(), EXAMPLE, "cpu", max_new_tokens=3)
    assert model.training == training and not any(model.modes)

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    model.reset_kv_cache = interrupt
    with pytest.raises(KeyboardInterrupt):
        ch06.compute_grpo_loss(model, WordTokenizer(), EXAMPLE, "cpu")
    assert model.training == training


def test_a_group_of_one_is_an_error():
    with pytest.raises(ValueError, match="at least 2"):
        ch06.compute_grpo_loss(Bandit(), WordTokenizer(), EXAMPLE, "cpu", num_rollouts=1)


# --- 6.10 training ---


def probability_of_right(model):
    return model.logits.softmax(-1)[0].item()


def test_training_learns_prints_logs_and_saves(tmp_path, capsys):
    torch.manual_seed(0)
    model = Bandit()
    before = probability_of_right(model)
    result = ch06.train_rlvr_grpo(
        model,
        WordTokenizer(),
        [EXAMPLE],
        "cpu",
        steps=40,
        num_rollouts=4,
        max_new_tokens=2,
        lr=0.1,
        checkpoint_every=20,
        checkpoint_dir=tmp_path / "new",
        csv_log_path=tmp_path / "logs" / "metrics.csv",
    )
    assert result is model and before < 0.5 and probability_of_right(model) > 0.75
    lines = capsys.readouterr().out.splitlines()
    steps = [line for line in lines if line.startswith("[Step ")]
    assert len(steps) == 40 and steps[0].startswith("[Step 1/40] loss=")
    assert " reward_avg=" in steps[0] and " avg_resp_len=" in steps[0]
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == [f"qwen3-0.6B-rlvr-grpo-step000{n}.pth" for n in (20, 40)]
    saved = [line for line in lines if line.startswith("Saved checkpoint to ")]
    assert [line.removeprefix("Saved checkpoint to ") for line in saved] == [
        str(tmp_path / "new" / name) for name in names
    ]
    shown = [line for line in lines if line.startswith("  reward=")]
    assert len(shown) == 3 * 4  # three of four answers, after steps 10, 20, 30 and 40
    assert lines.index(shown[0]) == lines.index(steps[9]) + 1
    rows = list(csv.DictReader((tmp_path / "logs" / "metrics.csv").open()))
    assert [int(row["step"]) for row in rows] == list(range(1, 41))
    assert rows[0]["total_steps"] == "40" and float(rows[-1]["reward_avg"]) >= 0.5


def test_a_uniform_group_moves_no_weight_not_even_through_momentum():
    model = Bandit()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    loss = -model.logits.log_softmax(-1)[0]
    ch06.update_weights(model, optimizer, {"advantages": [1.0, -1.0], "loss_tensor": loss})
    after_one = model.logits.detach().clone()
    uniform = {"advantages": [0.0, 0.0], "loss_tensor": 0.0 * model.logits.sum()}
    ch06.update_weights(model, optimizer, uniform)
    assert torch.equal(model.logits, after_one)


class InterruptedAt(list):
    def __getitem__(self, index):
        if index == 2:
            raise KeyboardInterrupt
        return super().__getitem__(index)


def test_ctrl_c_saves_and_returns(tmp_path, capsys):
    model = Bandit()
    result = ch06.train_rlvr_grpo(
        model,
        WordTokenizer(),
        InterruptedAt([EXAMPLE] * 5),
        "cpu",
        max_new_tokens=2,
        checkpoint_dir=tmp_path / "saves",
        csv_log_path=tmp_path / "metrics.csv",
    )
    assert result is model
    (path,) = (tmp_path / "saves").iterdir()
    assert path.name == "qwen3-0.6B-rlvr-grpo-step00003-interrupt.pth"
    assert torch.equal(torch.load(path)["logits"], model.logits)
    assert f"Interrupted. Saved checkpoint to {path}" in capsys.readouterr().out


# --- 6.10 the loop for several problems at a time ---


def test_a_padded_batch_has_the_logprobs_of_one_rollout_at_a_time():
    model = small_qwen()
    rollouts = [
        Rollout(prompt_ids=[5, 6, 7], response_ids=[8, 9]),
        Rollout(prompt_ids=[4], response_ids=[3, 2, 1, 0, 11, 12]),
    ]
    together = ch06.rollout_logprobs(model, rollouts, "cpu")
    for logprob, rollout in zip(together, rollouts, strict=True):
        token_ids = torch.tensor(rollout.prompt_ids + rollout.response_ids)
        single = ch06.sequence_logprob(model, token_ids, len(rollout.prompt_ids))
        torch.testing.assert_close(logprob, single, rtol=1e-5, atol=1e-5)


def test_the_loop_gives_the_weights_of_the_trainer(tmp_path):
    """The recipe ch06, sampled at temperature 1 without a cut, from the same seed."""
    model, tokenizer = load_model_and_tokenizer("tiny-base", "cpu")
    start = [parameter.detach().clone() for parameter in model.parameters()]
    seen = []
    problems = load_problems("tiny")
    ch06.train_grpo(
        model, tokenizer, problems, "cpu", 2, max_new_tokens=48, seed=3,
        on_step=lambda step, *rest: seen.append(step),
    )  # fmt: skip
    config = configure(
        "ch06", model="tiny-base", device="cpu", steps=2, lr=1e-4, seed=3, temperature=1.0,
        top_p=1.0, max_new_tokens=48, preflight=False, log_path=str(tmp_path / "run"),
    )  # fmt: skip
    theirs = list(train(config).model.parameters())
    gap = sum((a - b).square().sum() for a, b in zip(model.parameters(), theirs, strict=True))
    moved = sum((a - b).square().sum() for a, b in zip(start, theirs, strict=True))
    assert seen == [0, 1] and moved > 0
    assert (gap / moved).sqrt() < 0.01


def test_a_step_of_uniform_groups_moves_nothing():
    model, tokenizer = load_model_and_tokenizer("tiny-base", "cpu")
    start = [parameter.detach().clone() for parameter in model.parameters()]
    nobody_knows = [Problem(id="x", problem="What is 1 + 1?", answer="no number")]
    ch06.train_grpo(model, tokenizer, nobody_knows, "cpu", 1, max_new_tokens=8)
    assert all(torch.equal(a, b) for a, b in zip(start, model.parameters(), strict=True))
