"""Tinker's data and losses: their formulas, in float64, and the gradients that follow."""

import numpy as np
import pytest
import torch
from small_model import small_model

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.fast.packed import packed_logprobs
from reasoning_from_scratch.logprobs import padded_logprobs
from reasoning_from_scratch.optim.adamw import AdamW
from reasoning_from_scratch.policy import LocalPolicy
from rfs.serve.data import logprobs_as_sent, loss_of, rollouts_of
from rfs.serve.messages import Datum

TOKENS = [[1, 2, 3, 4, 5], [1, 2, 6], [7, 8, 9, 10]]
TARGETS = [[0, 0, 4, 5, 6], [2, 11, 3], [0, 9, 10, 12]]  # some are not the next token
SAMPLED = [[0, 0, 1, 1, 1], [0, 1, 1], [0, 1, 1, 1]]


def data(seed=0):
    """As a loop of Tinker's sends it: nothing on the prompt, the sampler's numbers elsewhere."""
    numbers = np.random.default_rng(seed)
    found = []
    for tokens, targets, sampled in zip(TOKENS, TARGETS, SAMPLED, strict=True):
        mask = np.array(sampled, np.float32)
        found.append(
            Datum(
                tokens,
                {
                    "target_tokens": np.array(targets),
                    "logprobs": np.float32(numbers.uniform(-4, -0.1, len(tokens))) * mask,
                    "advantages": np.float32(numbers.normal(size=len(tokens))) * mask,
                },
            )
        )
    return found


def formula(name, logp, old, advantage, mask, low, high, beta):
    """What Tinker's documentation says, for one token."""
    ratio = (logp - old).exp()
    if name == "importance_sampling":
        return -ratio * advantage
    if name == "ppo":
        return -torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)
    if name == "cispo":
        return -ratio.detach().clamp(low, high) * logp * advantage
    return -(logp * advantage - beta / 2 * (logp - old) ** 2) * mask


CONFIGS = {
    "importance_sampling": {},
    "ppo": {"clip_low_threshold": 0.9, "clip_high_threshold": 1.4},
    "cispo": {"clip_low_threshold": 0.3, "clip_high_threshold": 2.0},
    "dro": {"beta": 0.3},
}


@pytest.mark.parametrize("training_pass", [padded_logprobs, packed_logprobs])
@pytest.mark.parametrize("name", CONFIGS)
def test_losses_and_gradients_are_those_of_the_formulas(name, training_pass):
    model, config = small_model().double(), CONFIGS[name]
    settings = {"clip_low_threshold": 0, "clip_high_threshold": 0, "beta": 0} | config
    expected = torch.zeros((), dtype=torch.float64)
    for datum, sampled in zip(data(), SAMPLED, strict=True):
        logits = model(torch.tensor([datum.tokens]))[0]  # (N, V)
        targets = torch.from_numpy(datum.inputs["target_tokens"])
        logp = logits.log_softmax(-1).gather(-1, targets[:, None])[:, 0]
        old, advantage = (
            torch.from_numpy(datum.inputs[key]).double() for key in ("logprobs", "advantages")
        )
        terms = formula(name, logp, old, advantage, torch.tensor(sampled), *settings.values())
        expected = expected + terms.sum()
    wanted = torch.autograd.grad(expected, list(model.parameters()))

    policy = LocalPolicy(model, AdamW(model), None, training_pass)
    rollouts = [one for many in rollouts_of(data(), name, 13, 256) for one in many]
    sums = policy.forward_backward(rollouts, loss_of(name, config), 1.0)
    assert sum(float(s["loss"]) for s in sums) == pytest.approx(expected.item(), rel=1e-7)
    found = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    wanted = torch.cat([gradient.flatten() for gradient in wanted])
    assert (found - wanted).norm() < 1e-6 * wanted.norm()


@pytest.mark.parametrize("training_pass", [padded_logprobs, packed_logprobs])
def test_cross_entropy_with_several_targets_at_each_place(training_pass):
    model = small_model()
    targets = np.array([[2, 4, 0], [3, 3, 0], [5, 0, 1]])  # (N, K)
    weights = np.array([[0.5, 0.25, 0], [1, -1, 0], [2, 0, 0.1]], np.float32)
    datum = Datum([1, 2, 3], {"target_tokens": targets, "weights": weights})
    logprobs = model(torch.tensor([[1, 2, 3]]))[0].log_softmax(-1)  # (N, V)
    own = logprobs.gather(-1, torch.from_numpy(targets))
    wanted = torch.autograd.grad(-(own * torch.from_numpy(weights)).sum(), model.out_head.weight)

    policy = LocalPolicy(model, AdamW(model), None, training_pass)
    (rollouts,) = rollouts_of([datum], "cross_entropy", 13, 256)
    found = [torch.empty(0)] * 3
    policy.forward_backward(rollouts, loss_of("cross_entropy", {}), 1.0, found)
    assert torch.allclose(model.out_head.weight.grad, wanted[0], atol=1e-5)
    assert np.allclose(logprobs_as_sent(found, datum), own.detach().numpy(), atol=1e-5)


def test_whole_numbers_are_tokens_in_any_format():
    datum = Datum([1, 2], {"target_tokens": np.array([2, 3], np.float32)})
    ((rollout,),) = rollouts_of([datum], "cross_entropy", 13, 256)
    assert rollout.response_ids == [2, 3] and rollout.targets.tolist() == [2, 3]
    assert rollout.targets.dtype == torch.int64


def test_weights_may_be_left_out():
    datum = Datum([1, 2], {"target_tokens": np.array([2, 3])})
    ((rollout,),) = rollouts_of([datum], "cross_entropy", 13, 256)
    assert rollout.token_advantages.tolist() == [1, 1]


@pytest.mark.parametrize("training_pass", [padded_logprobs, packed_logprobs])
def test_what_cannot_count_is_not_computed(training_pass):
    """A prompt's places are 0; a datum without any other has no gradient, and does not fail."""
    model = small_model()
    policy = LocalPolicy(model, AdamW(model), None, training_pass)
    idle = changed(logprobs=np.zeros(5, np.float32), advantages=np.zeros(5, np.float32))
    rollouts = [one for (one,) in rollouts_of([data()[0], idle], "ppo", 13, 256)]
    found = [torch.empty(0)] * 2
    policy.forward_backward(rollouts, loss_of("ppo", {}), 1.0, found)
    assert found[0][:2].tolist() == [0, 0] and (found[0][2:] != 0).all()
    assert found[1].tolist() == [0] * 5
    policy.optim_step(0.1)
    policy.forward_backward(rollouts[1:], loss_of("ppo", {}), 1.0, found[1:])
    assert policy.optim_step(0.1).grad_norm == 0


def changed(**inputs):
    datum = data()[0]
    return Datum(datum.tokens, datum.inputs | inputs)


@pytest.mark.parametrize(
    "datum, loss, message",
    [
        (Datum([], {}), "ppo", "datum 0 has no tokens"),
        (Datum([99], {}), "ppo", "outside of the model's vocabulary of 13"),
        (Datum([1] * 9, {}), "ppo", "datum 0 has 9 tokens; the model reads 8"),
        (Datum([1], {}), "ppo", "ppo needs target_tokens, logprobs, advantages, but got nothing"),
        (data()[0], "cross_entropy", "cross_entropy needs target_tokens, weights, but got"),
        (changed(target_tokens=np.array([1])), "ppo", "has 5 tokens, but its inputs have shapes"),
        (
            Datum([1, 2], {"target_tokens": np.zeros((2, 0), np.int64)}),
            "cross_entropy",
            r"datum 0 has no targets: target_tokens has the shape \(2, 0\)",
        ),
        (changed(target_tokens=np.array([1, 2, 3, 4, -1])), "ppo", "has a target outside"),
        (
            changed(target_tokens=np.array([1, 2, 3, 4.5, 0], np.float32)),
            "ppo",
            "datum 0 has a target that is not a whole number",
        ),
        (changed(logprobs=np.full(5, np.nan, np.float32)), "dro", "numbers that are not finite"),
    ],
)
def test_data_that_cannot_be_learned_from(datum, loss, message):
    with pytest.raises(UserError, match=message):
        rollouts_of([datum], loss, 13, 8)


@pytest.mark.parametrize(
    "name, config, message",
    [
        ("stable_reinforce", {}, "set loss_fn=importance_sampling in your program, or start"),
        ("gspo", {}, "there is no loss 'gspo' here .Tinker does not document"),
        ("hinge", {}, "there is no loss 'hinge' here; use one of cross_entropy"),
        ("ppo", {"beta": 1.0}, "beta=1.0: ppo takes these: clip_low_threshold"),
        ("cross_entropy", {"beta": "x"}, "cross_entropy takes these: none"),
        (
            "ppo",
            {"clip_low_threshold": 2.0, "clip_high_threshold": 0.5},
            "expected 0 <= clip_low_threshold <= clip_high_threshold",
        ),
        ("ppo", {"clip_low_threshold": 2.0}, "expected 0 <= clip_low_threshold"),
        ("cispo", {"clip_low_threshold": -0.5}, "expected 0 <= clip_low_threshold"),
        ("dro", {"beta": -1.0}, "beta from 0"),
    ],
)
def test_losses_that_are_not_here(name, config, message):
    with pytest.raises(UserError, match=message):
        loss_of(name, config)
