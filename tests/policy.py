"""The policy as a formula: what the sampler must draw from."""

import torch
from torch import Tensor

from reasoning_from_scratch.sampling import cut_by_sorting


def policy_distribution(
    logits: Tensor, temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0
) -> Tensor:
    """Log-probabilities (..., V), -inf where the sampler cuts: divide by the temperature, keep the
    top_k largest, of these the smallest set with top_p of their mass, and renormalize."""
    scaled = logits.float() / temperature
    if top_p < 1.0 or top_k:
        probs = scaled.softmax(-1)
        weights = cut_by_sorting(probs.view(-1, probs.shape[-1]), top_p, top_k).view(probs.shape)
        scaled = scaled.masked_fill(weights == 0, -torch.inf)
    return scaled.log_softmax(-1)
