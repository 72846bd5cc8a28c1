"""A random Qwen3 of a few thousand weights whose next tokens are far from evenly likely."""

from dataclasses import replace

import torch

from reasoning_from_scratch.fast.bursts import BurstBatch
from reasoning_from_scratch.fast.engine import FAST
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.sampling import PLAIN_ENGINE, Sampling, generate

PROMPTS = [[1, 2, 3], [4, 5], [6, 7, 8, 9]]


def small_model(vocab_size=13, seed=0, sharpness=6.0, n_layers=2, **other_sizes):
    config = {
        "vocab_size": vocab_size,
        "context_length": 256,
        "emb_dim": 24,
        "n_heads": 4,
        "n_layers": n_layers,
        "hidden_dim": 32,
        "head_dim": 8,
        "qk_norm": True,
        "n_kv_groups": 2,
        "rope_base": 10_000.0,
        "dtype": torch.float32,
        **other_sizes,
    }
    # A generator of its own, so that no test depends on which ran before it.
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Qwen3Model(config)
    with torch.no_grad():
        model.out_head.weight *= sharpness
    return model.eval()


def drawn(model, max_new_tokens=40, engine=FAST, **options):
    """Ids and log-probabilities of 12 rollouts, 5 at a time."""
    sampling = Sampling(max_new_tokens, rollouts=4, sample_rows=5, **options)
    groups = generate(model, PROMPTS, sampling, stop_ids={0}, engine=engine)
    rollouts = [rollout for group in groups for rollout in group]
    return [r.response_ids for r in rollouts], [x for r in rollouts for x in r.logprobs]


# As on a GPU.
IN_BURSTS = replace(PLAIN_ENGINE, batch=lambda model: BurstBatch)
