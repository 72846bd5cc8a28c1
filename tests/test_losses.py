"""The policy loss on numbers that can be checked by hand."""

import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoning_from_scratch.losses import (
    AGGREGATES,
    OBJECTIVES,
    Loss,
    aggregate,
    discounted_sums,
    kl_advantages,
    masked_importance_weights,
    off_policy_sequence_mask,
    policy_loss,
    sampler_ratio,
    step_denominator,
    summarize,
    token_kl_advantages,
    truncated_importance_weights,
)


def computed(config, new, old, advantages, mask=None, denominator=1.0, start=None, ref=None):
    """Loss, gradient and sums of numbers that are written out, one row for each rollout."""
    new, old, start, ref = (
        rows if rows is None else torch.tensor(rows, dtype=torch.float64)
        for rows in (new, old, start, ref)
    )
    mask = torch.ones(new.shape) if mask is None else torch.tensor(mask)
    advantages = torch.tensor(advantages, dtype=torch.float64)
    given = new.requires_grad_(), old, advantages, mask, config, denominator
    loss, sums = policy_loss(*given, ref_logprobs=ref, start_logprobs=start)
    loss.backward()
    return loss.item(), new.grad.tolist(), sums


def gradient_at_ratio(objective, ratio, advantage, old=-2.0, **changes):
    """d loss / d log p for one token at this ratio, and whether it counts as clipped."""
    config, new = Loss(objective=objective, **changes), old + math.log(ratio)
    _, [[gradient]], sums = computed(config, [[new]], [[old]], [advantage], start=[[old]])
    return gradient, bool(sums["clipped"])


# --- clip truth table: sign of A x where the ratio is ---

CLIPPED = {  # (A, ratio): is the gradient zero?
    (1.0, 0.5): False,  # too rare and good: comes back
    (1.0, 1.0): False,
    (1.0, 1.5): True,  # already more likely: enough
    (-1.0, 0.5): True,  # already less likely: enough (code that takes the max gets this wrong)
    (-1.0, 1.0): False,
    (-1.0, 1.5): False,  # bad and more likely: pushed down
    (0.0, 0.5): False,
    (0.0, 1.5): False,
}


@pytest.mark.parametrize("objective", ["ppo", "gspo"])
@pytest.mark.parametrize("advantage, ratio", CLIPPED)
def test_clip_truth_table(objective, advantage, ratio):
    gradient, clipped = gradient_at_ratio(objective, ratio, advantage)
    assert clipped == CLIPPED[advantage, ratio]
    expected = 0.0 if clipped else -advantage * ratio
    assert gradient == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("advantage, ratio", CLIPPED)
@pytest.mark.parametrize("probability, limit_reached", [(0.001, False), (0.6, True)])
def test_dppos_limit_is_on_the_probability_and_not_on_the_ratio(
    advantage, ratio, probability, limit_reached
):
    """The clip's truth table, but only for tokens that are common enough to move the distribution:
    at the same ratio a rare one moves it by 0.0005, and keeps its gradient."""
    gradient, clipped = gradient_at_ratio("dppo", ratio, advantage, old=math.log(probability))
    assert clipped == (CLIPPED[advantage, ratio] and limit_reached)
    assert gradient == pytest.approx(0.0 if clipped else -advantage * ratio, abs=1e-12)


def test_cispo_differs_from_ppo_exactly_where_the_ratio_is_outside():
    """Inside the bounds: the same gradient. Outside: the bound's weight, and never zero."""
    for ratio, advantage in itertools.product((0.5, 0.79, 0.81, 1.0, 1.19, 1.21, 1.5), (-1.0, 1.0)):
        from_ppo, _ = gradient_at_ratio("ppo", ratio, advantage)
        from_cispo, clipped = gradient_at_ratio("cispo", ratio, advantage)
        assert clipped == (not 0.8 <= ratio <= 1.2)
        assert (from_cispo == pytest.approx(from_ppo)) == (not clipped)
        assert from_cispo == pytest.approx(-min(max(ratio, 0.8), 1.2) * advantage)


def test_gspo_clips_whole_rollouts_by_their_mean_log_ratio():
    """One token far up, one far down: token clipping would act, the geometric mean is 1."""
    config, start = Loss(objective="gspo", clip_low=1 - 3e-4, clip_high=1 + 4e-4), [[-1.0, -1.0]]
    loss, gradient, sums = computed(config, [[-0.5, -1.5]], start, [1.0], start=start)
    assert loss == pytest.approx(-1.0) and gradient == [[-0.5, -0.5]] and sums["clipped"] == 0
    _, gradient, sums = computed(config, [[-0.99, -1.0]], start, [1.0], start=start)
    assert gradient == [[0.0, 0.0]]  # mean ratio 1.005: clipped
    assert summarize([sums])["clip_frac"] == 1, "one rollout of one, not its two tokens"
    assert sums["clipped"] == 1


# --- aggregates by hand ---

VALUES = torch.tensor([[1.0, 2.0, 99.0], [3.0, 5.0, 7.0]])
MASK = torch.tensor([[1, 1, 0], [1, 1, 1]])


def test_a_constant_below_one_token_is_not_rounded_up():
    """Only counts are at least 1; a short length constant still grows with the batch."""
    found = [step_denominator("constant", count, 500, 0.01) for count in (0, 16, 32)]
    assert found == pytest.approx([0.01, 0.16, 0.32])


@pytest.mark.parametrize(
    "kind, expected",
    [
        ("sum", 18.0),
        ("constant", 18 / (2 * 4)),  # 2 sequences x constant 4
        ("sequence", (1.5 + 5.0) / 2),
        ("token", 18 / 5),
    ],
)
def test_aggregates_by_hand(kind, expected):
    denominator = step_denominator(kind, num_sequences=2, num_tokens=5, length_constant=4)
    assert float(aggregate(VALUES, MASK, kind, denominator)) == pytest.approx(expected)


def test_an_empty_answer_counts_as_a_sequence_and_adds_nothing():
    mask = torch.tensor([[0, 0, 0], [1, 1, 1]])
    denominator = step_denominator("sequence", 2, 3)
    assert float(aggregate(VALUES, mask, "sequence", denominator)) == pytest.approx(2.5)


# --- batches ---


def random_batch(seed, rows=6, width=7):
    """Random float64 rollouts: prompts of different lengths, then answers, then padding."""
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(0, 3, (rows,), generator=generator)
    ends = torch.randint(3, width + 1, (rows,), generator=generator)
    place = torch.arange(width)
    draw = lambda: -3 * torch.rand(rows, width, generator=generator, dtype=torch.float64)  # noqa: E731
    return SimpleNamespace(
        logprobs=draw(),
        old=draw(),
        ref=draw(),
        start=draw(),
        mask=(place >= starts[:, None]) & (place < ends[:, None]),
        advantages=torch.randn(rows, generator=generator, dtype=torch.float64),
    )


def batch_denominator(batch, config):
    return step_denominator(config.aggregate, len(batch.mask), int(batch.mask.sum()), 10)


def loss_and_gradient(batch, config, parts=None, on_policy=False):
    """Loss, gradient with respect to logprobs and figures, the batch taken in parts of rows."""
    logprobs = batch.logprobs.clone().requires_grad_()
    old = batch.logprobs if on_policy else batch.old
    denominator = batch_denominator(batch, config)
    total, all_sums = 0.0, []
    for rows in parts or [list(range(len(logprobs)))]:
        width = max(1, int(batch.mask[rows].nonzero()[:, 1].max()) + 1)  # cut to its longest
        cut = (rows, slice(0, width))
        given = logprobs[cut], old[cut], batch.advantages[rows], batch.mask[cut], config
        start = (batch.logprobs if on_policy else batch.start)[cut]
        loss, sums = policy_loss(*given, denominator, batch.ref[cut], start)
        loss.backward()
        total += float(loss.detach())
        all_sums.append(sums)
    return total, logprobs.grad, summarize(all_sums)


@pytest.mark.parametrize("kind", AGGREGATES)
@pytest.mark.parametrize("objective", OBJECTIVES)
@settings(max_examples=8, deadline=None)
@given(order=st.permutations(range(6)), cuts=st.sets(st.integers(1, 5)))
def test_micro_batches_add_up_to_the_big_batch(objective, kind, order, cuts):
    batch = random_batch(1)
    config = Loss(
        objective=objective,
        aggregate=kind,
        kl="k3",
        kl_coef=0.1,
        truncate_importance=2.0,
        sequence_mask_threshold=0.2,
    )
    edges = [0, *sorted(cuts), 6]
    parts = [order[a:b] for a, b in itertools.pairwise(edges)]
    loss, gradient, figures = loss_and_gradient(batch, config)
    loss_in_parts, gradient_in_parts, figures_in_parts = loss_and_gradient(batch, config, parts)
    assert loss_in_parts == pytest.approx(loss, rel=1e-12)
    torch.testing.assert_close(gradient_in_parts, gradient, rtol=1e-12, atol=1e-15)
    assert figures_in_parts == pytest.approx(figures, rel=1e-6)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_what_is_not_sampled_is_not_read(objective):
    """Prompt and padding may hold anything, NaN too: no gradient there, the same loss."""
    config = Loss(objective=objective, kl="k2", kl_coef=0.1, sequence_mask_threshold=0.1)
    batch, other = random_batch(2), random_batch(2)
    for tensor in (other.logprobs, other.old, other.ref, other.start):
        tensor[~other.mask] = float("nan")
    loss, gradient, figures = loss_and_gradient(batch, config)
    loss_with_junk, gradient_with_junk, figures_with_junk = loss_and_gradient(other, config)
    assert loss_with_junk == loss and figures_with_junk == figures
    assert float(gradient_with_junk[~batch.mask].abs().max()) == 0
    torch.testing.assert_close(gradient_with_junk, gradient, rtol=0, atol=0)


def test_dro_has_no_gradient_on_the_prompt_even_where_it_drifted():
    config, old = Loss(objective="dro", aggregate="sum", dro_beta=1.0), [[0.0, -1.5]]  # 0: padding
    _, gradient, _ = computed(config, [[-1.0, -1.0]], old, [0.0], [[0, 1]])
    assert gradient == [[0.0, 0.5]]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_zero_advantages_have_exactly_no_gradient_on_policy(objective):
    batch = random_batch(3)
    batch.advantages = torch.zeros_like(batch.advantages)
    loss, gradient, _ = loss_and_gradient(batch, Loss(objective=objective), on_policy=True)
    assert loss == 0 and float(gradient.abs().max()) == 0


def test_advantages_may_be_given_per_token():
    given = Loss(), [[-1.0, -2.0], [-1.0, -1.5]], [[-1.2, -2.0], [-0.5, -1.4]]
    each, of_tokens = computed(*given, [2.0, -1.0]), computed(*given, [[2.0, 2.0], [-1.0, -1.0]])
    assert each[:2] == of_tokens[:2]


# --- KL as choices ---


def test_kl_in_the_loss_without_reference_is_an_error():
    with pytest.raises(ValueError, match="needs ref_logprobs"):
        computed(Loss(kl="k3", kl_coef=0.1), [[-1.0]], [[-1.0]], [1.0])


def test_kl_in_the_reward_leaves_the_loss_alone_and_is_still_reported():
    batch = random_batch(0)
    plain = loss_and_gradient(batch, Loss())
    paid = loss_and_gradient(batch, Loss(kl="reward", kl_coef=0.5))
    assert paid[0] == plain[0] and paid[2]["kl_ref"] > 0


def test_kl_in_the_advantages_by_hand():
    """With "reward" the rollouts' sums of k1, 1 + 2 and 0, are compared, with "token" each k1 with
    the mean of the other rollout's, 0 and 1.5."""
    old, ref = torch.tensor([[-1.0, -1.0], [-2.0, 0.0]]), torch.tensor([[-2.0, -3.0], [-2.0, 9.0]])
    given = old, ref, torch.tensor([[1, 1], [1, 0]]), 0.1
    torch.testing.assert_close(kl_advantages(*given), torch.tensor([-0.3, 0.3]))
    paid = token_kl_advantages(*given)
    torch.testing.assert_close(paid, torch.tensor([[-0.1, -0.2], [0.15, 0.0]]))
    later_too = discounted_sums(paid, 0.5)
    torch.testing.assert_close(later_too, torch.tensor([[-0.2, -0.2], [0.15, 0.0]]))
    assert discounted_sums(paid, 0.0) is not paid


# --- filters ---


def test_with_truncation_the_ratio_starts_at_the_trainers_own_policy():
    """Sampler at -3, trainer began at -2 and is now at -1: weight min(e, cap), ratio e."""
    config = Loss(objective="importance_sampling", truncate_importance=2.0)
    loss, _, sums = computed(config, [[-1.0]], [[-3.0]], [1.0], start=[[-2.0]])
    assert loss == pytest.approx(-2.0 * math.e)
    assert float(sums["importance_weight"]) == 2.0
    loss, _, sums = computed(config, [[-1.0]], [[-3.0]], [1.0])
    assert loss == pytest.approx(-2.0) and float(sums["ratio_mean"]) == 1.0


@pytest.mark.parametrize("cap, weight", [(0.0, 1.0), (2.0, math.exp(-1.0))])
@pytest.mark.parametrize("objective", ["ppo", "cispo", "gspo"])
def test_the_clip_takes_its_ratio_from_the_trainers_start_and_the_gap_is_a_weight_of_its_own(
    objective, cap, weight
):
    """Sampler at -1, trainer began at -2 and is still there: no clip, however far apart."""
    config = Loss(objective=objective, truncate_importance=cap)
    _, gradient, sums = computed(config, [[-2.0]], [[-1.0]], [-1.0])
    assert gradient == [[pytest.approx(weight)]]
    assert sums["clipped"] == 0 and float(sums["ratio_max"]) == 1.0
    assert float(sums["importance_weight"]) == pytest.approx(weight)


def test_gspos_weight_for_the_gap_belongs_to_the_whole_rollout():
    """Token gaps e and 1/e: their geometric mean is 1, so no token is weighted."""
    config = Loss(objective="gspo", truncate_importance=2.0)
    _, _, sums = computed(config, [[-1.0, -2.0]], [[-2.0, -1.0]], [1.0])
    assert float(sums["importance_weight"]) == 2  # two tokens of weight 1


def test_a_sequences_weight_is_the_product_of_its_tokens_weights():
    """With the last token of the second answer not sampled, the first one's weight is left."""
    gap, mask = torch.tensor([[0.5, 0.2], [-0.3, 0.1]]), torch.tensor([[1, 1], [1, 0]])
    found = sampler_ratio(Loss(importance_level="sequence"), gap, mask)
    torch.testing.assert_close(found, torch.tensor([[0.7, 0.7], [-0.3, -0.3]]).exp())


def test_truncated_weights_are_capped_and_masked_ones_dropped():
    gap = torch.tensor([0.1, 1.0, 2.0, 2.1, math.inf], requires_grad=True)
    truncated, masked = truncated_importance_weights(gap, 2.0), masked_importance_weights(gap, 2.0)
    assert truncated.tolist() == pytest.approx([0.1, 1, 2, 2, 2])
    assert masked.tolist() == pytest.approx([0.1, 1, 2, 0, 0])
    assert not truncated.requires_grad and not masked.requires_grad


def test_sequence_mask_drops_only_bad_rollouts_that_were_left_behind():
    old, mask = torch.zeros(5, 2), torch.ones(5, 2)
    new = torch.tensor([[-1.0, -2.0], [-1.0, -2.0], [-0.1, -0.2], [5.0, 5.0], [-9.0, -0.5]])
    mask[4, 0] = 0  # the mean is that of sampled tokens only
    advantages = torch.tensor([[-1.0], [1.0], [-1.0], [-1.0], [-1.0]]).expand(5, 2)
    keep = off_policy_sequence_mask(new, old, advantages, mask, threshold=1.0)
    assert keep.tolist() == [[False] * 2, [True] * 2, [True] * 2, [True] * 2, [True] * 2]


def test_a_masked_rollout_keeps_its_kl_and_its_place_in_the_denominator():
    config = Loss(sequence_mask_threshold=0.5, kl="k2", kl_coef=1.0)
    new, old = [[-2.0], [-1.0]], [[-1.0], [-1.0]]
    loss, _, _ = computed(config, new, old, [-1.0, -1.0], denominator=2.0, ref=old)
    assert loss == pytest.approx((0.5 + 1.0) / 2)  # k2 of row 0, policy part of row 1


# --- figures ---


def test_figures_by_hand():
    """Log ratios of 0.5, 0 and -0.2; the last token is not sampled."""
    old, new = [[-1.0, -1.0], [-1.0, 7.0]], [[-0.5, -1.0], [-1.2, 10.0]]
    _, _, sums = computed(Loss(), new, old, [1.0, 1.0], [[1, 1], [1, 0]], 2.0, start=old)
    figures = summarize([sums])
    assert figures["clip_frac"] == pytest.approx(1 / 3)  # the token at +0.5
    assert figures["ratio_max"] == pytest.approx(math.exp(0.5))
    assert figures["ratio_mean"] == pytest.approx((math.exp(0.5) + 1 + math.exp(-0.2)) / 3)
    # log of sampler over trainer, so minus what was added
    assert figures["kl_sample_train_v1"] == pytest.approx(-(0.5 + 0.0 - 0.2) / 3)
    assert figures["kl_sample_train_v2"] == pytest.approx(0.5 * (0.25 + 0.04) / 3)
    assert figures["loss"] == figures["pg_loss"] and figures["kl_loss"] == 0
