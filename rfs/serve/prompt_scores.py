"""Scores a prompt: how likely its tokens are, which others were likely, and samples of others."""

from dataclasses import dataclass

import numpy as np
import torch

from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.sampling import Rollout, sample_next_token, stream_key, uniform_at
from rfs.serve.messages import Likely

POSITIONS_AT_ONCE = 256  # positions whose logits are in memory at a time
MAX_NUMBERS = 2**22  # that a request may ask for


@dataclass
class PromptQuery:
    """What to compute at each token of a prompt but the first."""

    num_likely: int = 0  # how many of the most likely tokens
    targets: np.ndarray | None = None  # (T - 1, K) tokens, -1: none
    num_draws: int = 0  # how many sampled tokens
    temperature: float = 1.0  # of those
    key: int = 0  # and their random stream

    def __bool__(self) -> bool:
        return bool(self.num_likely or self.num_draws or self.targets is not None)


@dataclass
class PromptScores:
    likely: Likely
    targets: np.ndarray | None  # (T - 1, K) log-probabilities, 0 where there was no token
    drawn: tuple[np.ndarray, np.ndarray] | None  # tokens and log-probabilities, (T - 1, draws)


def as_rollout(prompt: list[int]) -> Rollout:
    """A prompt as a rollout, to score all of its tokens but the first."""
    return Rollout(prompt_ids=prompt[:1], response_ids=prompt[1:], logprobs=[0.0] * len(prompt[1:]))


@torch.no_grad()
def score_prompt(policy: LocalPolicy, prompt: list[int], query: PromptQuery) -> PromptScores:
    model = policy.model
    device = model.tok_emb.weight.device
    hidden = model.hidden_states(torch.tensor([prompt[:-1]], device=device))[0]  # (T - 1, D)
    likely: list[list[tuple[int, float]]] = [[]]  # nothing comes before the first token
    targets, drawn = [], []
    for first in range(0, len(hidden), POSITIONS_AT_ONCE):
        logits = model.out_head(hidden[first : first + POSITIONS_AT_ONCE]).float()  # (P, V)
        logprobs = logits.log_softmax(-1)
        if query.num_likely:
            best = logprobs.topk(min(query.num_likely, logprobs.shape[1]))
            rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            likely += [list(zip(*row, strict=True)) for row in rows]
        if query.targets is not None:
            ids = torch.from_numpy(query.targets[first : first + len(logits)]).to(device)
            token_logprobs = logprobs.gather(-1, ids.clamp(min=0))
            targets.append(torch.where(ids < 0, 0.0, token_logprobs))
        for number in range(query.num_draws):
            keys = stream_key(query.key, 0, first + torch.arange(len(logits)), number)
            u = uniform_at(keys, torch.zeros_like(keys)).to(device)
            tokens = sample_next_token(logits, u, query.temperature).tokens
            drawn.append((first, number, tokens, logprobs.gather(-1, tokens[:, None])[:, 0]))
    table = np.zeros((2, len(hidden), query.num_draws))
    for first, number, tokens, token_logprobs in drawn:
        table[0, first : first + len(tokens), number] = tokens.cpu()
        table[1, first : first + len(tokens), number] = token_logprobs.cpu()
    return PromptScores(
        likely,
        torch.cat(targets).cpu().numpy() if targets else None,
        (table[0].astype(np.int32), table[1].astype(np.float32)) if query.num_draws else None,
    )
