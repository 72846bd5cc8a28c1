"""Tinker's data and losses in the loop's terms: a Datum becomes rollouts, a loss's name a `Loss`.

A datum's targets are under the tokens that predict them, and need not be the next tokens:

    tokens         [5 8 2 7]              rollout   prompt   [5]
    target_tokens  [0 0 7 3]                        response [8 2 7 3]    the last is never read
    logprobs       [0 0 a b]                        targets  [0 0 7 3]
    advantages     [0 0 A A]

With K targets at each position, (N, K), it becomes K rollouts that read the same tokens; the packed
pass computes those once.

Tinker's ratio is p / p_sampler, with the log-probabilities in the datum, and its losses are plain
sums: any weighting or averaging is in the advantages. Where the log-probability and the advantage
are both 0, as in the prompt, there is nothing to learn, and for dro nothing to drift from: such
positions are masked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from reasoning_from_scratch import losses
from reasoning_from_scratch.config import Loss
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.recipes import LOSS_FNS
from reasoning_from_scratch.sampling import Rollout
from rfs.serve.messages import Datum

# What a datum has for each loss, besides target_tokens; and the settings of loss_fn_config.
LOSS_INPUTS = {
    "cross_entropy": ("weights",),
    "importance_sampling": ("logprobs", "advantages"),
    "ppo": ("logprobs", "advantages"),
    "cispo": ("logprobs", "advantages"),
    "dro": ("logprobs", "advantages"),
}
SETTING_NAMES = {
    "clip_low": "clip_low_threshold",
    "clip_high": "clip_high_threshold",
    "dro_beta": "beta",
}
DEFAULT_SETTINGS: dict[str, dict[str, float]] = {
    loss: {SETTING_NAMES[field]: float(value) for field, value in changes.items()}
    for loss, changes in LOSS_FNS.items()
}
# `rfs serve --stability importance` computes this loss where a program asks for stable_reinforce.
STAND_IN_LOSS = "importance_sampling"
STAND_IN_NOTE = f"computed as {STAND_IN_LOSS} (--stability importance)"
NO_STABLE_REINFORCE = (
    "stable_reinforce needs records that only Tinker's own samplers make: set "
    f"loss_fn={STAND_IN_LOSS} in your program, or start rfs serve with --stability importance, "
    f"which computes {STAND_IN_LOSS} in its place"
)
UNSUPPORTED_LOSSES = {
    "gspo": "Tinker does not document how it is summed",
    "custom": "your loss runs in the client: call forward_backward_custom",
}


def loss_of(name: str, config: Mapping[str, float | str]) -> Loss:
    """The loss that Tinker calls by that name."""
    if name == "stable_reinforce":
        raise UserError(NO_STABLE_REINFORCE)
    if name not in LOSS_INPUTS:
        why = f" ({UNSUPPORTED_LOSSES[name]})" if name in UNSUPPORTED_LOSSES else ""
        raise UserError(f"there is no loss {name!r} here{why}; use one of {', '.join(LOSS_INPUTS)}")
    defaults = DEFAULT_SETTINGS.get(name, {})
    for key, value in config.items():
        if key not in defaults or not isinstance(value, (int, float)) or not np.isfinite(value):
            expected = ", ".join(defaults) or "none"
            raise UserError(f"loss_fn_config {key}={value!r}: {name} takes these: {expected}")
    settings = defaults | {key: float(value) for key, value in config.items()}
    low, high = (settings.get(SETTING_NAMES[clip], 1.0) for clip in ("clip_low", "clip_high"))
    if not 0 <= low <= high or settings.get("beta", 0.0) < 0:
        raise UserError(
            f"loss_fn_config {settings}: expected 0 <= clip_low_threshold <= clip_high_threshold, "
            "the limits of a ratio around 1, and beta from 0"
        )
    if name in ("cross_entropy", "importance_sampling"):
        return Loss(objective=name, aggregate="sum")
    return Loss(objective=SamplerRatioLoss(name, **settings), aggregate="sum")  # type: ignore[arg-type]


@dataclass(frozen=True)
class SamplerRatioLoss:
    """An objective of losses.py whose ratio is p / p_sampler."""

    name: str
    clip_low_threshold: float = 0.0
    clip_high_threshold: float = 0.0
    beta: float = 0.0

    def __call__(
        self,
        logprobs: Tensor,
        old_logprobs: Tensor,
        start_logprobs: Tensor,
        advantages: Tensor,
        mask: Tensor,
    ) -> Tensor:
        """Values (B, T), to be maximized."""
        if self.name == "dro":
            return losses.dro(logprobs, old_logprobs, advantages, self.beta)
        ratio, clip_low = (logprobs - old_logprobs).exp(), self.clip_low_threshold
        if self.name == "ppo":
            return losses.ppo(ratio, advantages, clip_low, self.clip_high_threshold)
        return losses.cispo(logprobs, ratio, advantages, clip_low, self.clip_high_threshold)


def rollouts_of(
    data: Sequence[Datum], loss: str, vocabulary: int, context: int
) -> list[list[Rollout]]:
    """For each datum, as many rollouts as it has targets at a position, mostly one."""
    return [
        rollouts_of_datum(datum, f"datum {number}", loss, vocabulary, context)
        for number, datum in enumerate(data)
    ]


def rollouts_of_datum(
    datum: Datum, name: str, loss: str, vocabulary: int, context: int
) -> list[Rollout]:
    tokens, required = datum.tokens, ("target_tokens", *LOSS_INPUTS[loss])
    check_tokens(tokens, name, vocabulary, context)
    inputs = {key: array for key, array in datum.inputs.items() if key != "mask"}
    if loss == "cross_entropy" and "target_tokens" in inputs:
        inputs.setdefault("weights", np.ones(inputs["target_tokens"].shape, np.float32))
    if set(inputs) != set(required):
        sent = ", ".join(sorted(inputs)) or "nothing"
        raise UserError(f"{name}: {loss} needs {', '.join(required)}, but got {sent}")
    shapes = {key: array.shape for key, array in inputs.items()}
    targets = inputs["target_tokens"]
    if len(set(shapes.values())) > 1 or targets.ndim not in (1, 2) or len(targets) != len(tokens):
        raise UserError(f"{name} has {len(tokens)} tokens, but its inputs have shapes {shapes}")
    if not targets.size:
        raise UserError(f"{name} has no targets: target_tokens has the shape {targets.shape}")
    if not 0 <= targets.min() <= targets.max() < vocabulary:
        raise UserError(f"{name} has a target outside of the model's vocabulary of {vocabulary}")
    if (targets != targets.astype(np.int64)).any():
        raise UserError(f"{name} has a target that is not a whole number, so it is no token")
    inputs["target_tokens"] = targets.astype(np.int64)
    columns = [
        {key: as_column(array, column) for key, array in inputs.items()}
        for column in range(targets.shape[1] if targets.ndim == 2 else 1)
    ]
    if not all(torch.isfinite(values).all() for column in columns for values in column.values()):
        raise UserError(f"{name} has numbers that are not finite")
    # Positions without effect on the loss, mostly the prompt, are not computed: they get 0.
    ignored_positions = [
        [] if loss == "cross_entropy" else zero_positions(column, LOSS_INPUTS[loss])
        for column in columns
    ]
    return [
        Rollout(
            prompt_ids=tokens[:1],
            response_ids=[*tokens[1:], int(column["target_tokens"][-1])],
            logprobs=column["logprobs"].tolist() if "logprobs" in column else [0.0] * len(tokens),
            token_advantages=column.get("advantages", column.get("weights")),
            targets=column["target_tokens"],
            forced=positions,
        )
        for column, positions in zip(columns, ignored_positions, strict=True)
    ]


def zero_positions(column: Mapping[str, Tensor], names: Sequence[str]) -> list[int]:
    """The positions where all of these are 0."""
    values = torch.stack([column[name] for name in names])
    return (values == 0).all(0).nonzero()[:, 0].tolist()


def as_column(array: np.ndarray, column: int) -> Tensor:
    """One column, (N,), of an array (N,) or (N, K)."""
    kind = np.int64 if array.dtype.kind == "i" else np.float32
    return torch.from_numpy((array if array.ndim == 1 else array[:, column]).astype(kind))


def check_tokens(tokens: Sequence[int], name: str, vocabulary: int, context: int) -> None:
    if not tokens:
        raise UserError(f"{name} has no tokens")
    if len(tokens) > context:
        raise UserError(f"{name} has {len(tokens)} tokens; the model reads {context}")
    if not 0 <= min(tokens) <= max(tokens) < vocabulary:
        raise UserError(f"{name} has a token outside of the model's vocabulary of {vocabulary}")


def encode_text(text: str, name: str, tokenizer, context: int, begins: bool = False) -> list[int]:
    """The tokens of a text, unless it is so long that the model could not read it: finding the
    tokens of a few million characters takes seconds."""
    if len(text) > context * tokenizer.longest_token:
        raise UserError(f"{name} has {len(text):,} characters; the model reads {context} tokens")
    return tokenizer.encode(text, chat_wrapped=False, begins=begins)


def logprobs_as_sent(target_logprobs: Sequence[Tensor], datum: Datum) -> np.ndarray:
    """The log-probabilities of a datum's targets, in their shape."""
    if datum.inputs["target_tokens"].ndim == 1:
        return target_logprobs[0].float().numpy()
    return torch.stack(list(target_logprobs), dim=1).float().numpy()
