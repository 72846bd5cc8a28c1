"""The shape of the tiny model. Kept apart from the problems, which need no torch."""

import torch

TINY_CONFIG = {
    "vocab_size": 1024,
    # Few of its training texts have more than 200 tokens: it reads longer prompts, but to no avail.
    "context_length": 2048,
    "emb_dim": 256,
    "n_heads": 4,
    "n_layers": 4,
    "hidden_dim": 384,
    "head_dim": 64,
    "qk_norm": True,
    "n_kv_groups": 2,
    "rope_base": 10_000.0,
    "dtype": torch.float32,
    "tie_embeddings": True,
}
