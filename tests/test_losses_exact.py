"""Objectives and KL estimators against full enumeration: 3 tokens, answers of length 2.

A policy is two tables of logits, for the first token and for the second given the first. All
nine answers are listed, so every expectation is a finite sum and nothing here is sampled.
"""

import itertools
import math
from functools import partial

import pytest
import torch

from reasoning_from_scratch.advantages import KINDS
from reasoning_from_scratch.losses import (
    K1_IN_LOSS,
    OBJECTIVES,
    Loss,
    discounted_sums,
    kl_advantages,
    kl_estimate,
    kl_loss_values,
    policy_loss,
    token_kl_advantages,
)

ANSWERS = torch.tensor(list(itertools.product(range(3), repeat=2)))  # (9, 2)
# One clearly wrong, one clearly right, the rest between: both signs of the advantage occur.
REWARDS = torch.tensor([1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 0.3, 1.2, -0.7], dtype=torch.float64)


LIMIT = 0.1  # of dppo
LEVELS = ("token", "sequence")

summed = partial(Loss, aggregate="sum")


def policy(seed, requires_grad=True):
    """Logits: row 0 for the first token, row 1 + a for the second after the first was a."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    return logits.requires_grad_(requires_grad)


def answer_logprobs(logits):
    """(9, 2) log-probabilities of both tokens of every answer."""
    table = logits.log_softmax(-1)
    first, second = ANSWERS.T
    return torch.stack([table[0, first], table[1 + first, second]], dim=1)


def probabilities(logits):
    return answer_logprobs(logits).sum(-1).exp().detach()  # (9,)


def expected_gradient(logits, sampler, config, ref=None, start=None):
    """Sum over all answers of (probability under the sampler) x (gradient of its loss)."""
    weights = probabilities(sampler)
    old = answer_logprobs(sampler).detach()
    records = [x if x is None else answer_logprobs(x).detach() for x in (ref, start)]
    logprobs = answer_logprobs(logits)
    total = 0.0
    for i in range(9):
        row = slice(i, i + 1)
        given = logprobs[row], old[row], REWARDS[row], torch.ones(1, 2), config, 1.0
        loss, _ = policy_loss(*given, *(x if x is None else x[row] for x in records))
        total = total + weights[i] * loss
    return torch.autograd.grad(total, logits)[0]


def gradient_of_expected_reward(logits):
    probas = answer_logprobs(logits).sum(-1).exp()
    return torch.autograd.grad((probas * REWARDS).sum(), logits)[0]


def kl(p_logits, q_logits):
    """Exact KL(p || q) over whole answers."""
    p, q = answer_logprobs(p_logits).sum(-1), answer_logprobs(q_logits).sum(-1)
    return (p.exp() * (p - q)).sum()


# --- the objectives ---


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_on_policy_every_objective_has_the_gradient_of_the_expected_reward(objective):
    logits = policy(0)
    wide = summed(objective=objective)
    gradient = expected_gradient(logits, logits.detach(), wide)
    torch.testing.assert_close(-gradient, gradient_of_expected_reward(logits), rtol=0, atol=1e-14)


def coefficient(objective, ratios, t, reward, low, high, beta, moved=0.0):
    """What multiplies the gradient of log p of token t, written down by hand."""
    if objective == "gspo":
        ratio = math.sqrt(ratios[0] * ratios[1])  # geometric mean
    else:
        ratio = ratios[t]
    clipped = (reward > 0 and ratio > high) or (reward < 0 and ratio < low)
    return {
        "reinforce": reward,
        "importance_sampling": ratio * reward,
        "ppo": 0.0 if clipped else ratio * reward,
        "cispo": min(max(ratio, low), high) * reward,
        "dro": reward - beta * math.log(ratio),
        "dppo": 0.0 if moved * math.copysign(1, reward) > LIMIT else ratio * reward,
        "gspo": 0.0 if clipped else ratio * reward,  # two tokens share it: 2 x 1/2
        "cross_entropy": reward,
    }[objective]


def expected_gradient_by_hand(objective, logits, sampler, low, high, beta):
    """No autograd: d log softmax(z)[a] / d z = one-hot(a) - softmax(z)."""
    p, q = logits.detach().softmax(-1), sampler.softmax(-1)
    gradient = torch.zeros_like(p)
    for (a, b), reward in zip(ANSWERS.tolist(), REWARDS.tolist(), strict=True):
        places = [(0, a), (1 + a, b)]
        ratios = [float(p[place] / q[place]) for place in places]
        weight = float(q[places[0]] * q[places[1]])
        for t, (row, token) in enumerate(places):
            score = -p[row].clone()
            score[token] += 1
            moved = float(p[row, token] - q[row, token])
            c = coefficient(objective, ratios, t, reward, low, high, beta, moved)
            gradient[row] += weight * c * score
    return gradient


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_off_policy_gradient_equals_the_one_written_by_hand(objective):
    logits, sampler = policy(1), policy(2, requires_grad=False)
    config = summed(
        objective=objective, clip_low=0.7, clip_high=1.5, dro_beta=0.3, divergence_limit=LIMIT
    )
    # The policy that sampled is the one that the step began with, some updates ago.
    gradient = expected_gradient(logits, sampler, config, start=sampler)
    by_hand = expected_gradient_by_hand(objective, logits, sampler, 0.7, 1.5, 0.3)
    torch.testing.assert_close(-gradient, by_hand, rtol=0, atol=1e-13)


def test_the_policies_of_that_test_are_apart_enough_to_clip_on_both_sides():
    log_ratio = answer_logprobs(policy(1)) - answer_logprobs(policy(2))
    ratio = log_ratio.exp()
    assert ((ratio > 1.5) & (REWARDS[:, None] > 0)).any()
    assert ((ratio < 0.7) & (REWARDS[:, None] < 0)).any()
    assert ((ratio > 0.7) & (ratio < 1.5)).any()
    moved = answer_logprobs(policy(1)).exp() - answer_logprobs(policy(2)).exp()
    assert ((moved > LIMIT) & (REWARDS[:, None] > 0)).any()
    assert ((moved < -LIMIT) & (REWARDS[:, None] < 0)).any()


def test_truncated_importance_weights_in_expectation():
    """Coefficient min(p / q, cap) x A: the whole correction is in the weight."""
    logits, sampler = policy(1), policy(2, requires_grad=False)
    gradient = expected_gradient(logits, sampler, summed(truncate_importance=1.3))
    same = expected_gradient(
        logits, sampler, summed(objective="cispo", clip_low=0.0, clip_high=1.3), start=sampler
    )
    torch.testing.assert_close(gradient, same, rtol=0, atol=1e-14)
    uncapped = expected_gradient(logits, sampler, summed(truncate_importance=1e9))
    assert (uncapped - gradient).abs().max() > 1e-3


def test_a_weight_for_the_whole_answer_makes_old_samples_as_good_as_new_ones():
    """With sequence weights, and no cap that bites, the expected gradient is exactly that of the
    expected reward, whoever sampled; with token weights it is not."""
    logits, sampler = policy(1), policy(2, requires_grad=False)
    exact = gradient_of_expected_reward(logits)
    far = {level: summed(truncate_importance=1e9, importance_level=level) for level in LEVELS}
    found = {level: -expected_gradient(logits, sampler, far[level]) for level in LEVELS}
    torch.testing.assert_close(found["sequence"], exact, rtol=0, atol=1e-14)
    assert (found["token"] - exact).abs().max() > 1e-2


@pytest.mark.parametrize("limit", [1.1, 2.0])
def test_masked_sequence_weights_are_the_gradient_of_the_reward_of_those_answers(limit):
    """What is left of the expected reward are the answers whose weight is not over the limit."""
    logits, sampler = policy(1), policy(2, requires_grad=False)
    masked = summed(mask_importance=limit, importance_level="sequence")
    gradient = -expected_gradient(logits, sampler, masked)
    weight = probabilities(logits) / probabilities(sampler)
    kept = weight <= limit
    assert kept.any() and not kept.all()
    probas = answer_logprobs(logits).sum(-1).exp()
    exact = torch.autograd.grad((probas * REWARDS * kept).sum(), logits)[0]
    torch.testing.assert_close(gradient, exact, rtol=0, atol=1e-14)


# --- baselines ---


@pytest.mark.parametrize("kind, share", [("leave-one-out", 1.0), ("mean", 0.5)])
def test_a_groups_baseline_keeps_the_direction(kind, share):
    """Over all 81 pairs: leave-one-out gives the exact gradient, the mean (G-1)/G of it."""
    logits = policy(3)
    probas, logprobs = probabilities(logits), answer_logprobs(logits).sum(-1)
    total = 0.0
    for i, j in itertools.product(range(9), repeat=2):
        a, b = KINDS[kind](REWARDS[[i, j]])
        total = total + probas[i] * probas[j] * (a * logprobs[i] + b * logprobs[j]) / 2
    gradient = torch.autograd.grad(total, logits)[0]
    exact = gradient_of_expected_reward(logits)
    torch.testing.assert_close(gradient, share * exact, rtol=0, atol=1e-14)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_maxrl_with_n_rollouts_has_the_gradient_of_the_first_terms_of_log_p(size):
    """log p = - sum over k of (1 - p)^k / k. A group of n has the first n - 1 terms: two rollouts
    are plain RL, and more of them near the logarithm. Enumerated are all groups of right and wrong
    answers, with the mean gradient of log p of each kind."""
    logits = policy(4)
    logprobs = answer_logprobs(logits).sum(-1)
    right = REWARDS > 0.6
    p = logprobs[right].exp().sum()
    mean_score = {  # E[log p(answer) given it is right, or wrong], whose gradient is the score's
        1.0: (logprobs[right] * logprobs[right].exp().detach()).sum() / p.detach(),
        0.0: (logprobs[~right] * logprobs[~right].exp().detach()).sum() / (1 - p.detach()),
    }
    total = 0.0
    for rewards in itertools.product((0.0, 1.0), repeat=size):
        chance = math.prod(p.item() if reward else 1 - p.item() for reward in rewards)
        found = KINDS["maxrl"](torch.tensor(rewards, dtype=torch.float64))
        values = zip(found, rewards, strict=True)
        total = total + chance * sum(a * mean_score[reward] for a, reward in values) / size
    gradient = torch.autograd.grad(total, logits, retain_graph=True)[0]
    terms = -sum((1 - p) ** k / k for k in range(1, size))
    exact = torch.autograd.grad(terms, logits, retain_graph=True)[0]
    torch.testing.assert_close(gradient, exact, rtol=0, atol=1e-13)
    of_log = torch.autograd.grad(p.log(), logits)[0]
    share = 1 - (1 - p.item()) ** (size - 1)  # what n - 1 terms are of all
    torch.testing.assert_close(gradient, share * of_log, rtol=0, atol=1e-13)


# --- KL: one token, pi = (.7, .2, .1), ref = (.5, .3, .2) ---

PI = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
REF = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)


def mean_estimate(kind, pi=PI, ref=REF):
    return float((pi * kl_estimate(kind, pi.log(), ref.log())).sum())


def test_kl_estimates_from_samples_of_the_policy():
    exact = 0.7 * math.log(0.7 / 0.5) + 0.2 * math.log(0.2 / 0.3) + 0.1 * math.log(0.1 / 0.2)
    assert round(exact, 4) == 0.0851
    assert mean_estimate("k1") == pytest.approx(exact, abs=1e-14)
    assert mean_estimate("k3") == pytest.approx(exact, abs=1e-14)
    k2 = 0.35 * math.log(1.4) ** 2 + 0.1 * math.log(2 / 3) ** 2 + 0.05 * math.log(0.5) ** 2
    assert mean_estimate("k2") == pytest.approx(k2, abs=1e-14)  # biased: 0.0801


def test_k3_with_the_ratio_reversed_estimates_something_else():
    reversed_k3 = float((PI * kl_estimate("k3", REF.log(), PI.log())).sum())
    assert round(reversed_k3, 4) == 0.0782 and round(mean_estimate("k3"), 4) == 0.0851


def test_k3_is_never_negative_and_zero_only_at_equality():
    x = torch.linspace(-5, 5, 101, dtype=torch.float64)
    k3 = kl_estimate("k3", x, torch.zeros_like(x))
    assert (k3[x.abs() > 1e-9] > 0).all()
    assert float(kl_estimate("k3", PI.log(), PI.log()).abs().max()) == 0


def one_token_gradient(kind, sampler=PI, ref=REF, weighted=False):
    """Expected gradient of the KL term with respect to the logits; z = log pi has softmax pi."""
    logits = PI.log().clone().requires_grad_()
    logprobs = logits.log_softmax(-1)
    values = (
        kl_estimate("k1", logprobs, ref.log())
        if kind == "k1"
        else kl_loss_values(kind, logprobs, sampler.log(), ref.log(), weighted)
    )
    return torch.autograd.grad((sampler * values).sum(), logits)[0]


def exact_gradient(divergence):
    logits = PI.log().clone().requires_grad_()
    return torch.autograd.grad(divergence(logits.log_softmax(-1)), logits)[0]


def reverse_kl(logp):
    return (logp.exp() * (logp - REF.log())).sum()


def forward_kl(logp):
    return (REF * (REF.log() - logp)).sum()


def test_gradients_of_the_kl_terms():
    close = dict(rtol=0, atol=1e-14)
    torch.testing.assert_close(one_token_gradient("k2"), exact_gradient(reverse_kl), **close)
    torch.testing.assert_close(one_token_gradient("k3"), exact_gradient(forward_kl), **close)
    weighted = one_token_gradient("k3", weighted=True)
    torch.testing.assert_close(weighted, exact_gradient(reverse_kl), **close)
    # Importance weights keep that true for samples of another policy; plain k3 does not.
    other = torch.tensor([0.2, 0.2, 0.6], dtype=torch.float64)
    weighted = one_token_gradient("k3", sampler=other, weighted=True)
    torch.testing.assert_close(weighted, exact_gradient(reverse_kl), **close)
    assert (one_token_gradient("k3", sampler=other) - weighted).abs().max() > 0.01


def test_k1_in_the_loss_is_refused_because_it_does_nothing():
    other_ref = torch.tensor([0.01, 0.01, 0.98], dtype=torch.float64)
    torch.testing.assert_close(one_token_gradient("k1"), one_token_gradient("k1", ref=other_ref))
    assert float(one_token_gradient("k1").abs().max()) < 1e-15  # zero in expectation
    logits = policy(0)
    with pytest.raises(ValueError) as error:
        expected_gradient(logits, logits.detach(), summed(kl="k1", kl_coef=1.0), ref=policy(1))
    assert str(error.value) == K1_IN_LOSS


def test_weighted_k3_in_the_loss_is_the_gradient_of_the_token_kls():
    """Whole loss, off policy: sum over prefixes (weighted as sampled) of KL's own gradient."""
    logits, sampler, ref = policy(1), policy(2, False), policy(6, False)
    config = summed(kl="k3", kl_coef=1.0, kl_importance_weighted=True)
    with_kl = expected_gradient(logits, sampler, config, ref=ref)
    gradient = with_kl - expected_gradient(logits, sampler, summed())
    p, r = logits.log_softmax(-1), ref.log_softmax(-1)
    prefix = torch.cat([torch.ones(1, dtype=torch.float64), sampler[0].softmax(-1)])  # (4,)
    exact = (prefix[:, None] * p.exp() * (p - r)).sum()
    torch.testing.assert_close(gradient, torch.autograd.grad(exact, logits)[0], rtol=0, atol=1e-13)


def gradient_over_groups(logits, ref, paid):
    """Of the exact mean of A log p over all 81 groups of two, on policy. `paid` makes A, (2, 1) or
    (2, 2), of a group's log-probabilities, those of the reference, and the mask."""
    probas, logprobs = probabilities(logits), answer_logprobs(logits)
    old, ref_logprobs = logprobs.detach(), answer_logprobs(ref)
    total = 0.0
    for i, j in itertools.product(range(9), repeat=2):
        rows = [i, j]
        a = paid(old[rows], ref_logprobs[rows], torch.ones(2, 2))
        total = total + probas[i] * probas[j] * (a * logprobs[rows]).sum(-1).mean()
    return torch.autograd.grad(total, logits)[0]


def test_k1_in_the_reward_is_the_gradient_of_the_whole_answers_kl():
    """All 81 groups of two, on policy: E[A log p] has the gradient of -coef x KL(p || ref)."""
    logits, ref = policy(0), policy(1, requires_grad=False)
    gradient = gradient_over_groups(
        logits, ref, lambda *records: kl_advantages(*records, kl_coef=0.3)[:, None]
    )
    exact = torch.autograd.grad(-0.3 * kl(logits, ref), logits)[0]
    torch.testing.assert_close(gradient, exact, rtol=0, atol=1e-13)


@pytest.mark.parametrize("discount", [0.0, 1.0])
def test_k1_of_each_token_is_the_gradient_of_the_token_kls_or_of_the_whole_answers(discount):
    """All 81 groups of two, on policy. A token that pays for itself alone lowers the KL of the
    next token where it stands; one that pays for all after it lowers the KL of the answer. The
    first is on-policy distillation: `ref` is then the teacher, and with opsd a teacher that has
    read the solution."""
    logits, ref = policy(0), policy(1, requires_grad=False)
    gradient = gradient_over_groups(
        logits,
        ref,
        lambda *records: discounted_sums(token_kl_advantages(*records, kl_coef=0.3), discount),
    )
    p, r = logits.log_softmax(-1), ref.log_softmax(-1)
    first = answer_logprobs(logits).detach()[::3, 0]  # (3,)
    prefix = torch.cat([torch.ones(1, dtype=torch.float64), first.exp()])  # (4,)
    token_kls = (prefix[:, None] * p.exp() * (p - r)).sum()
    exact = torch.autograd.grad(-0.3 * (kl(logits, ref) if discount else token_kls), logits)[0]
    torch.testing.assert_close(gradient, exact, rtol=0, atol=1e-13)
