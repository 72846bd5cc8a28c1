"""Chapter 6's plain functions: on stand-ins, by hand, and against the engine's mathematics."""

import csv
import math
from types import SimpleNamespace

import pytest
import torch
from small_model import small_model
from torch import nn

from reasoning_from_scratch import Problem, ch06, ch07, load_model_and_tokenizer
from reasoning_from_scratch.logprobs import token_logprobs
from reasoning_from_scratch.rewards import correctness
from tests.book.stand_ins import Counter, Letters

WORDS = ["\\boxed{1}", "\\boxed{2}", "hm ", "<|end|>"]
END = len(WORDS) - 1

# A stand-in: every prompt is two tokens, an answer is made of whole words.
TOKENIZER = SimpleNamespace(
    eos_token_id=END,
    encode=lambda prompt: [2, 2],
    decode=lambda ids: "".join(WORDS[i] for i in ids),
)


class Bandit(nn.Module):
    """A trainable stand-in: next-word logits that depend on nothing."""

    cfg = {"n_layers": 1}

    def __init__(self, logits=(0.0, 0.0, -2.0, -1.0)):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))

    def reset_kv_cache(self):
        pass

    def forward(self, token_ids, cache=None):
        return self.logits.expand(*token_ids.shape, -1)


EXAMPLE = {"problem": "Which is it?", "answer": "1"}


def test_sample_response_keeps_the_end_token_and_feeds_one_token_at_a_time():
    model = Counter()
    token_ids, prompt_len, text = ch06.sample_response(model, Letters(), "fg", "cpu")
    assert token_ids.tolist() == [5, 6, 7, 8, Letters.eos_token_id] and prompt_len == 2
    assert text == "hij"
    assert model.seen == [2, 1, 1]  # the cache holds the rest


def test_sample_response_draws_from_the_tempered_and_cut_distribution():
    """Probabilities .5 .3 .15 .05 at temperature 1; top-p 0.75 leaves the first two."""
    model = Bandit(torch.tensor([0.5, 0.3, 0.15, 0.05]).log().tolist())
    torch.manual_seed(0)
    ids, _, _ = ch06.sample_response(model, TOKENIZER, "?", "cpu", 2000, 1.0, 0.75)
    counts = torch.bincount(ids[2:], minlength=4)
    assert counts[2] == counts[3] == 0
    assert float(counts[0] / 2000) == pytest.approx(0.625, abs=0.04)
    model = Bandit(torch.tensor([0.6, 0.4, 1e-9, 1e-9]).log().tolist())
    ids, _, _ = ch06.sample_response(model, TOKENIZER, "?", "cpu", 2000, 0.5, 1.0)
    counts = torch.bincount(ids[2:], minlength=4)
    assert float(counts[0] / 2000) == pytest.approx(0.36 / 0.52, abs=0.04)  # squared, renormalized


@pytest.mark.parametrize("top_p", [0.5, None])
def test_temperature_0_takes_the_likeliest_token_and_none_leaves_them_as_they_are(top_p):
    model = Bandit(torch.tensor([0.2, 0.7, 0.08, 0.02]).log().tolist())
    ids, _, _ = ch06.sample_response(model, TOKENIZER, "?", "cpu", 50, 0, top_p)
    assert ids[2:].tolist() == [1] * 50
    draws = []
    for temperature in (None, 1.0):
        torch.manual_seed(0)
        draws.append(ch06.sample_response(model, TOKENIZER, "?", "cpu", 50, temperature)[0])
    assert torch.equal(*draws) and len(set(draws[0][2:].tolist())) > 1
    with pytest.raises(ValueError, match="temperature must be > 0"):
        ch06.sample_response(model, TOKENIZER, "?", "cpu", 50, -1.0)


@pytest.mark.parametrize(
    "text",
    [
        "", "60", "\\boxed{}", "\\boxed{60}", "\\boxed{61}", "\\boxed{60", "\\boxed{ }",
        "\\boxed{59}\\boxed{60}", "\\boxed{60}\\boxed{59}",
        "so 60, \\boxed{\\frac{120}{2}}<|endoftext|>",
    ],
)  # fmt: skip
def test_reward_rlvr_is_the_engines_correctness(text):
    assert ch06.reward_rlvr(text, "60") == correctness(text, "60")


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
    model = small_model(60)
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


def probability_of_right(model):
    return model.logits.softmax(-1)[0].item()


def test_training_learns_prints_logs_and_saves(tmp_path, capsys):
    torch.manual_seed(0)
    model = Bandit()
    before = probability_of_right(model)
    sizes = {"steps": 40, "num_rollouts": 4, "max_new_tokens": 2, "lr": 0.1, "checkpoint_every": 20}
    files = {"checkpoint_dir": tmp_path / "new", "csv_log_path": tmp_path / "logs" / "metrics.csv"}
    result = ch06.train_rlvr_grpo(model, TOKENIZER, [EXAMPLE], "cpu", **sizes, **files)
    assert result is model and before < 0.5 and probability_of_right(model) > 0.75
    said = capsys.readouterr().out
    assert said.count("[Step ") == 40 and said.startswith("[Step 1/40] loss=")
    assert said.count("  reward=") == 3 * 4  # three of four answers, after each tenth step
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == [f"qwen3-0.6B-rlvr-grpo-step000{n}.pth" for n in (20, 40)]
    assert all(f"Saved checkpoint to {tmp_path / 'new' / name}" in said for name in names)
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
    files = {"checkpoint_dir": tmp_path / "saves", "csv_log_path": tmp_path / "metrics.csv"}
    given = model, TOKENIZER, InterruptedAt([EXAMPLE] * 5), "cpu"
    result = ch06.train_rlvr_grpo(*given, max_new_tokens=2, **files)
    assert result is model
    (path,) = (tmp_path / "saves").iterdir()
    assert path.name == "qwen3-0.6B-rlvr-grpo-step00003-interrupt.pth"
    assert torch.equal(torch.load(path)["logits"], model.logits)
    assert f"Interrupted. Saved checkpoint to {path}" in capsys.readouterr().out


def test_a_step_of_uniform_groups_moves_nothing():
    model, tokenizer = load_model_and_tokenizer("tiny-base", "cpu")
    start = [parameter.detach().clone() for parameter in model.parameters()]
    nobody_knows = [Problem(id="x", problem="What is 1 + 1?", answer="no number")]
    ch06.train_grpo(model, tokenizer, nobody_knows, "cpu", 1, max_new_tokens=8)
    assert all(torch.equal(a, b) for a, b in zip(start, model.parameters(), strict=True))
