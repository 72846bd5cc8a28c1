"""What a model thinks of a prompt: how likely its tokens are, what else was likely, and samples."""

from dataclasses import dataclass

import numpy as np
import torch

from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.sampling import Rollout, sample_next_token, stream_key, uniform_at
from rfs.serve.messages import Likely

PLACES = 256  # positions whose logits are in memory at a time
MOST_NUMBERS = 2**22  # that a request may ask for


@dataclass
class Wanted:
    """What a client wants to know about each token of a prompt but the first."""

    likely: int = 0  # how many of the most likely tokens
    targets: np.ndarray | None = None  # (T - 1, K) tokens, -1: none
    draws: int = 0  # how many sampled tokens
    temperature: float = 1.0  # of those
    key: int = 0  # and their random stream

    def __bool__(self) -> bool:
        return bool(self.likely or self.draws or self.targets is not None)


@dataclass
class Known:
    likely: Likely
    targets: np.ndarray | None  # (T - 1, K) log-probabilities, 0 where there was no token
    drawn: tuple[np.ndarray, np.ndarray] | None  # tokens and log-probabilities, (T - 1, draws)


def as_rollout(prompt: list[int]) -> Rollout:
    """A prompt as a rollout, to score all of its tokens but the first."""
    return Rollout(prompt_ids=prompt[:1], response_ids=prompt[1:], logprobs=[0.0] * len(prompt[1:]))


@torch.no_grad()
def look_at(policy: LocalPolicy, prompt: list[int], wanted: Wanted) -> Known:
    model = policy.model
    device = model.tok_emb.weight.device
    hidden = model.hidden_states(torch.tensor([prompt[:-1]], device=device))[0]  # (T - 1, D)
    likely: list[list[tuple[int, float]]] = [[]]  # nothing comes before the first token
    targets, drawn = [], []
    for first in range(0, len(hidden), PLACES):
        logits = model.out_head(hidden[first : first + PLACES]).float()  # (P, V)
        logprobs = logits.log_softmax(-1)
        if wanted.likely:
            best = logprobs.topk(min(wanted.likely, logprobs.shape[1]))
            rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            likely += [list(zip(*row, strict=True)) for row in rows]
        if wanted.targets is not None:
            ids = torch.from_numpy(wanted.targets[first : first + len(logits)]).to(device)
            own = logprobs.gather(-1, ids.clamp(min=0))
            targets.append(torch.where(ids < 0, 0.0, own))
        for number in range(wanted.draws):
            keys = stream_key(wanted.key, 0, first + torch.arange(len(logits)), number)
            u = uniform_at(keys, torch.zeros_like(keys)).to(device)
            tokens = sample_next_token(logits, u, wanted.temperature).tokens
            drawn.append((first, number, tokens, logprobs.gather(-1, tokens[:, None])[:, 0]))
    table = np.zeros((2, len(hidden), wanted.draws))
    for first, number, tokens, own in drawn:
        table[0, first : first + len(tokens), number] = tokens.cpu()
        table[1, first : first + len(tokens), number] = own.cpu()
    return Known(
        likely,
        torch.cat(targets).cpu().numpy() if targets else None,
        (table[0].astype(np.int32), table[1].astype(np.float32)) if wanted.draws else None,
    )
