"""The policy loss: objective x aggregate x KL x filters, each a small pure function.

All tensors are (B, T), one row per rollout; `mask` is 1 on sampled tokens. Three records of
log-probabilities must not be mixed up:

    old_logprobs    what the sampler recorded as it drew the token
    start_logprobs  what the trainer itself computed when the step began
    logprobs        what the trainer computes now, with gradient

The first two differ a little even with the same weights, because bfloat16 rounds differently, and
more if top-p cuts or the sampler lags. A clip should limit the *updates* of this step,
so its ratio is p / p_start, exactly 1 before the first update. A separate weight corrects for the
gap between p_start and the sampler: `truncated_importance_weights` or `masked_importance_weights`.
(dppo's limit and dro's penalty are relative to the sampler itself and need no weight.)

An objective gives one value per token, to be maximized.
`aggregate` turns the values into one number, with a denominator that belongs to the whole step,
so the losses of micro-batches add up to the loss of the big batch, however it was split.

`Loss` (config.py) holds the choices: the objective, how it is summed, the KL term, the filters.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from reasoning_from_scratch.config import AGGREGATES, CLIPPING, OBJECTIVES, Loss

LOSSES = ("loss", "pg_loss", "kl_loss")  # each a micro-batch's share of the step's loss


# --- objectives: (B, T) values, to be maximized ---


def reinforce(logprobs: Tensor, advantages: Tensor) -> Tensor:
    """A * log p. Correct only if the samples come from the current policy."""
    return advantages * logprobs


def cross_entropy(logprobs: Tensor, weights: Tensor) -> Tensor:
    """w * log p of tokens that somebody else wrote: supervised learning. It is `reinforce` with a
    weight, mostly 1, in place of the advantage, and needs no samples."""
    return reinforce(logprobs, weights)


def importance_sampling(ratio: Tensor, advantages: Tensor) -> Tensor:
    """r * A: the ratio r = p / p_old corrects, to first order, for an older policy's sampling."""
    return ratio * advantages


def ppo(
    ratio: Tensor,
    advantages: Tensor,
    clip_low: float,
    clip_high: float,
) -> Tensor:
    """min(r * A, clip(r) * A), for either sign of A: the lower estimate.

    Where A < 0, too, it takes the smaller value: a token already pushed
    below clip_low is left alone, and one that has become more likely
    (r > clip_high) is still pushed down.
    """
    clipped = ratio.clamp(clip_low, clip_high)
    return torch.minimum(ratio * advantages, clipped * advantages)


def cispo(
    logprobs: Tensor, ratio: Tensor, advantages: Tensor, clip_low: float, clip_high: float
) -> Tensor:
    """clip(r) * A * log p. The clipped ratio is only a weight: no token loses its gradient."""
    return ratio.detach().clamp(clip_low, clip_high) * advantages * logprobs


def dro(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, beta: float) -> Tensor:
    """A * log p - beta / 2 * (log p - log p_old)^2: a squared penalty on drift, and no ratio."""
    return advantages * logprobs - 0.5 * beta * (logprobs - old_logprobs) ** 2


def leaves_trust_region(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, limit: float
) -> Tensor:
    """Whether a token's probability has moved by more than the limit and is pushed further.

    |p - p_old| is the total variation between "this token or another one" now and at sampling.
    A ratio of 3 moves a token of probability 0.001 by only 0.002; a ratio of 0.7, just outside
    ppo's bounds, moves one of 0.9 by 0.27.
    """
    moved = logprobs.detach().exp() - old_logprobs.exp()
    return advantages.sign() * moved > limit


def dppo(ratio: Tensor, advantages: Tensor, leaving: Tensor) -> Tensor:
    """r * A, and 0 for tokens that leave the region: a limit on how far the distribution moves,
    instead of ppo's bounds on the ratio."""
    return torch.where(leaving, 0.0, ratio * advantages)


def sequence_ratio(log_ratio: Tensor, mask: Tensor) -> Tensor:
    """GSPO's ratio, one per rollout: exp of the mean token log ratio, repeated for every token."""
    mean = (log_ratio * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
    return mean.exp().expand_as(log_ratio)


def policy_ratio(objective: str, log_ratio: Tensor, mask: Tensor) -> Tensor:
    """An objective's ratio (B, T): one for each token or, with gspo, one for each rollout."""
    return sequence_ratio(log_ratio, mask) if objective == "gspo" else log_ratio.exp()


def objective_values(
    config: Loss, logprobs: Tensor, base_logprobs: Tensor, advantages: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Values, ratios p / p_base and "this token is clipped", each (B, T)."""
    kind, low, high = config.objective, config.clip_low, config.clip_high
    ratio = policy_ratio(kind, logprobs - base_logprobs, mask)
    clipped = torch.zeros_like(mask)
    if kind == "reinforce":
        values = reinforce(logprobs, advantages)
    elif kind == "cross_entropy":
        values = cross_entropy(logprobs, advantages)
    elif kind == "importance_sampling":
        values = importance_sampling(ratio, advantages)
    elif kind in ("ppo", "gspo"):
        values = ppo(ratio, advantages, low, high)
        clipped = ((ratio > high) & (advantages > 0)) | ((ratio < low) & (advantages < 0))
    elif kind == "cispo":
        values = cispo(logprobs, ratio, advantages, low, high)
        clipped = (ratio < low) | (ratio > high)
    elif kind == "dppo":
        clipped = leaves_trust_region(logprobs, base_logprobs, advantages, config.divergence_limit)
        values = dppo(ratio, advantages, clipped)
    elif kind == "dro":
        values = dro(logprobs, base_logprobs, advantages, config.dro_beta)
    else:
        raise ValueError(f"unknown objective {kind!r}; choose one of {', '.join(OBJECTIVES)}")
    return values, ratio.detach(), clipped & mask


def needs_start_logprobs(config: Loss) -> bool:
    """Whether the loss needs what the trainer computed when the step began."""
    clips = config.objective in CLIPPING or callable(config.objective)
    return clips or bool(config.truncate_importance or config.mask_importance)


# --- one reducer, with an explicit denominator ---


def step_denominator(
    kind: str, num_sequences: int, num_tokens: int, length_constant: float | None = 1
) -> float:
    """The divisor for `aggregate`, from counts over the WHOLE step (all micro-batches, all ranks).

    sum: 1. constant: sequences x length_constant, the same for short and long rollouts.
    sequence: the number of sequences. token: the number of sampled tokens.
    """
    if kind == "constant" and length_constant is None:
        raise ValueError("aggregate='constant' divides by a length_constant: give one")
    sequences = max(num_sequences, 1)
    denominators = {
        "sum": 1,
        "constant": sequences * (length_constant or 1),
        "sequence": sequences,
        "token": max(num_tokens, 1),
    }
    if kind not in denominators:
        raise ValueError(f"unknown aggregate {kind!r}; choose one of {', '.join(AGGREGATES)}")
    return float(denominators[kind])


def aggregate(values: Tensor, mask: Tensor, kind: str, denominator: float) -> Tensor:
    """Values (B, T) on the mask -> one number. "sequence" takes each rollout's own mean first."""
    if kind not in AGGREGATES:
        raise ValueError(f"unknown aggregate {kind!r}; choose one of {', '.join(AGGREGATES)}")
    sums = torch.where(mask.bool(), values, 0.0).sum(-1)  # (B,)
    if kind == "sequence":
        sums = sums / mask.sum(-1).clamp(min=1)
    return sums.sum() / denominator


# --- KL to a reference policy ---

KL_IN_ADVANTAGES = ("reward", "token")  # part of the advantages, so the loss has no KL term

K1_IN_LOSS = (
    "k1 = log p - log p_ref cannot be a loss: its gradient does not contain the reference at "
    "all, and is zero on average; use kl='k2' or 'k3', or kl='reward' or 'token' (k1 in the reward)"
)


def kl_estimate(kind: str, logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """Per-token estimate (B, T) of KL(p || ref) from samples of p: k1, k2 or k3.

    k1 = log p - log ref;  k2 = k1^2 / 2;  k3 = ref/p - 1 - log(ref/p).
    """
    log_ratio = ref_logprobs - logprobs  # (B, T)
    if kind == "k1":
        return -log_ratio
    if kind == "k2":
        return 0.5 * log_ratio**2
    if kind == "k3":
        return torch.expm1(log_ratio) - log_ratio
    raise ValueError(f"unknown KL estimator {kind!r}; choose k1, k2 or k3")


def kl_loss_values(
    kind: str, logprobs: Tensor, old_logprobs: Tensor, ref_logprobs: Tensor, weighted: bool
) -> Tensor:
    """The KL term of the loss, (B, T). `weighted` multiplies by p / p_old, gradient included.

    With the weight, k3's gradient is that of KL(p || ref), even on samples from an older p.
    Without it, k3's gradient on policy is that of KL(ref || p).
    """
    if kind == "k1":
        raise ValueError(K1_IN_LOSS)
    values = kl_estimate(kind, logprobs, ref_logprobs)
    return values * (logprobs - old_logprobs).exp() if weighted else values


def kl_advantages(
    start_logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor, kl_coef: float
) -> Tensor:
    """kl='reward': what to ADD to the advantages (G,) of one group; its inputs are (G, T).

    Each rollout is penalized by kl_coef * sum of k1, compared with the other rollouts of its group.
    It is added after rewards are normalized: normalizing would scale the penalty up to size 1
    wherever all answers are correct.
    """
    k1 = torch.where(mask.bool(), kl_estimate("k1", start_logprobs, ref_logprobs), 0.0)
    penalty = kl_coef * k1.sum(-1)  # (G,)
    num_rollouts = penalty.numel()
    return (penalty.mean() - penalty) * (num_rollouts / (num_rollouts - 1))


def token_kl_advantages(
    start_logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor, kl_coef: float
) -> Tensor:
    """kl='token': what to ADD to the advantages of one group's tokens; all are (G, T).

    Each token is penalized by kl_coef * k1, compared with the mean over the other rollouts' tokens.
    """
    mask = mask.bool()
    k1 = torch.where(mask, kl_estimate("k1", start_logprobs, ref_logprobs), 0.0)
    sums, counts = k1.sum(-1, keepdim=True), mask.sum(-1, keepdim=True)  # (G, 1)
    others = (sums.sum() - sums) / (counts.sum() - counts).clamp(min=1)  # (G, 1)
    return kl_coef * torch.where(mask, others - k1, 0.0)


def discounted_sums(values: Tensor, factor: float) -> Tensor:
    """Each value (B, T) plus factor times the next one, factor^2 times the one after, ..."""
    sums = values.clone()
    for t in reversed(range(values.shape[1] - 1 if factor else 0)):
        sums[:, t] += factor * sums[:, t + 1]
    return sums


# --- filters for samples from another policy ---


def truncated_importance_weights(gap: Tensor, cap: float) -> Tensor:
    """min(p_start / p_sampler, cap), where gap is that ratio: less bias, and no huge weight."""
    return gap.clamp(max=cap).detach()


def masked_importance_weights(ratio: Tensor, limit: float) -> Tensor:
    """p_start / p_sampler, but 0 above the limit: a token that the sampler should hardly ever have
    drawn points to an error in one of the two, so the loss ignores it."""
    return torch.where(ratio > limit, 0.0, ratio).detach()


def sampler_ratio(config: Loss, log_ratio: Tensor, mask: Tensor) -> Tensor:
    """p_start / p_sampler (B, T): for each token or, with importance_level="sequence", for the
    whole answer, repeated for every token. Only the latter corrects without bias, at a cost: the
    product of many ratios has a large variance. With gspo, each token gets their geometric mean."""
    if config.importance_level == "sequence":
        return (log_ratio * mask).sum(-1, keepdim=True).exp().expand_as(log_ratio)
    return policy_ratio(config.objective, log_ratio, mask)


def off_policy_sequence_mask(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, threshold: float
) -> Tensor:
    """False on the tokens with A < 0 of a rollout whose mean log(p_old / p) is over threshold.

    Pushing the policy even further from a rollout that it has already left teaches little.
    """
    drift = (old_logprobs - logprobs.detach()) * mask  # (B, T)
    drift = drift.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)  # (B, 1)
    return ~((advantages < 0) & (drift > threshold))


# --- all of it together ---


def policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    config: Loss,
    denominator: float,
    ref_logprobs: Tensor | None = None,
    start_logprobs: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss of one micro-batch, to be minimized, and sums for `summarize`. Call it like this:

        denominator = step_denominator(config.aggregate, sequences_in_step, tokens_in_step,
                                       config.length_constant)
        for batch in batches:
            logprobs = token_logprobs(...)                # (B, T), with gradient
            loss, sums = policy_loss(logprobs, batch.old_logprobs, batch.advantages, batch.mask,
                                     config, denominator, ref_logprobs=batch.ref_logprobs)
            loss.backward()
            all_sums.append(sums)
        metrics = summarize(all_sums)

    advantages is (B,), or (B, T). ref_logprobs is needed for kl k2 and k3 (a KL term in the
    advantages has already been added). start_logprobs: the trainer's own log-probabilities when the
    step began; None means those of this call, which is correct as long as each rollout is used for
    only one update.
    """
    mask = mask.bool()
    # Only sampled tokens may be read: where() also stops NaN and gradients elsewhere.
    logprobs, old_logprobs = torch.where(mask, logprobs, 0.0), torch.where(mask, old_logprobs, 0.0)
    if advantages.dim() == 1:
        advantages = advantages[:, None]
    advantages = advantages.expand_as(logprobs)  # (B, T)
    if start_logprobs is None:
        start_logprobs = logprobs.detach()  # the ratio is 1, and its gradient that of log p
    else:
        start_logprobs = torch.where(mask, start_logprobs, 0.0)
    if config.objective == "cross_entropy":
        old_logprobs = start_logprobs  # nobody sampled these tokens: no record, and no ratio
    base_logprobs = start_logprobs if needs_start_logprobs(config) else old_logprobs
    weight = _filter_weights(config, logprobs, start_logprobs, old_logprobs, advantages, mask)
    if callable(config.objective):  # your own function: its ratio is reported, its clip is unknown
        values = config.objective(
            logprobs=logprobs,
            old_logprobs=old_logprobs,
            start_logprobs=start_logprobs,
            advantages=advantages,
            mask=mask,
        )
        ratio, clipped = (logprobs - start_logprobs).exp().detach(), torch.zeros_like(mask)
    else:
        values, ratio, clipped = objective_values(config, logprobs, base_logprobs, advantages, mask)
    pg_loss = -aggregate(values * weight, mask, config.aggregate, denominator)
    kl_loss, kl_ref = _kl_term(config, logprobs, old_logprobs, ref_logprobs, mask, denominator)
    sums = _token_sums(logprobs.detach() - old_logprobs, ratio, weight, kl_ref, mask)
    sums |= _clip_counts(config.objective, clipped, mask)
    losses = {"loss": pg_loss + kl_loss, "pg_loss": pg_loss, "kl_loss": kl_loss}
    return losses["loss"], sums | {name: value.detach() for name, value in losses.items()}


def _filter_weights(
    config: Loss, logprobs, start_logprobs, old_logprobs, advantages, mask
) -> Tensor:
    """Each token's weight from the filters, (B, T); 1 where there are none."""
    weight = torch.ones_like(old_logprobs)
    ratio = sampler_ratio(config, start_logprobs - old_logprobs, mask)  # (B, T)
    if config.truncate_importance:
        weight = truncated_importance_weights(ratio, config.truncate_importance)
    elif config.mask_importance:
        weight = masked_importance_weights(ratio, config.mask_importance)
    if config.sequence_mask_threshold:
        weight = weight * off_policy_sequence_mask(
            logprobs, old_logprobs, advantages, mask, config.sequence_mask_threshold
        )
    return weight


def _kl_term(config: Loss, logprobs, old_logprobs, ref_logprobs, mask, denominator):
    """The KL term of the loss (0 if there is none), and k3 per token (B, T) for the metrics."""
    in_loss = config.kl not in ("none", *KL_IN_ADVANTAGES)
    if ref_logprobs is None:
        if in_loss:
            raise ValueError(f"kl={config.kl!r} in the loss needs ref_logprobs")
        return logprobs.new_zeros(()), None
    ref_logprobs = torch.where(mask, ref_logprobs, 0.0)
    kl_ref = kl_estimate("k3", logprobs.detach(), ref_logprobs)
    if not in_loss:
        return logprobs.new_zeros(()), kl_ref
    values = kl_loss_values(
        config.kl, logprobs, old_logprobs, ref_logprobs, config.kl_importance_weighted
    )
    return config.kl_coef * aggregate(values, mask, config.aggregate, denominator), kl_ref


def _token_sums(log_ratio, ratio, weight, kl_ref, mask) -> dict[str, Tensor]:
    """Sums over this micro-batch's sampled tokens; `summarize` adds and divides them."""
    per_token = {
        "ratio_mean": ratio,
        "importance_weight": weight,
        "kl_sample_train_v1": -log_ratio,
        "kl_sample_train_v2": 0.5 * log_ratio**2,
    }
    if kl_ref is not None:
        per_token["kl_ref"] = kl_ref
    sums = {name: torch.where(mask, values, 0.0).sum() for name, values in per_token.items()}
    return sums | {"tokens": mask.sum(), "ratio_max": torch.where(mask, ratio, 0.0).max()}


def _clip_counts(objective: str, clipped: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """How many tokens were clipped, and out of how many; with gspo, how many rollouts."""
    if objective == "gspo":
        clipped, mask = clipped.any(-1), mask.any(-1)  # (B,)
    return {"clipped": clipped.sum(), "could_be_clipped": mask.sum()}


def summarize(all_sums: Sequence[Mapping[str, Tensor | float]]) -> dict[str, float]:
    """From micro-batches' sums to the step's metrics: losses add up, the rest are token means."""
    totals = {name: sum(float(sums[name]) for sums in all_sums) for name in all_sums[0]}
    clip_frac = totals.pop("clipped") / max(totals.pop("could_be_clipped"), 1.0)
    tokens = max(totals.pop("tokens"), 1.0)
    metrics = {name: total if name in LOSSES else total / tokens for name, total in totals.items()}
    largest = max(float(sums["ratio_max"]) for sums in all_sums)
    return metrics | {"ratio_max": largest, "clip_frac": clip_frac}
