"""A random Qwen3 of a few thousand weights whose next tokens are far from evenly likely."""

from dataclasses import replace

import torch
from toy import TOY_CONFIG

from reasoning_from_scratch.fast.bursts import BurstBatch
from reasoning_from_scratch.optim.lora import add_lora, lora_layers
from reasoning_from_scratch.qwen3 import KVCache, Qwen3Model
from reasoning_from_scratch.sampling import PLAIN_ENGINE, Sampling, generate
from rfs.engine import FAST

PROMPTS = [[1, 2, 3], [4, 5], [6, 7, 8, 9]]
LLAMA_3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8,
}
# What other families have otherwise; an eps far from 1e-6, so that it shows.
FAMILIES = {
    "qwen2": {"qk_norm": False, "qkv_bias": True},
    "llama": {"qk_norm": False, "norm_eps": 1e-2, "rope_scaling": LLAMA_3},
}

# Small, but of sizes that decode.c computes; and what makes a family of them.
SIZES_IN_C = {"emb_dim": 64, "n_heads": 6, "hidden_dim": 160, "head_dim": 32}
FAMILIES_IN_C = {
    "Qwen3": {},
    "Qwen2.5": {"qk_norm": False, "qkv_bias": True, "tie_embeddings": True},
    "Llama 3": {"qk_norm": False, "norm_eps": 1e-2, "rope_scaling": LLAMA_3, "head_dim": 64},
    "SmolLM2": {"qk_norm": False, "n_heads": 3, "n_kv_groups": 3, "emb_dim": 96},
}


def small_model(vocab_size=13, seed=0, sharpness=6.0, n_layers=2, **other_sizes):
    sizes = {"vocab_size": vocab_size, "n_layers": n_layers, "emb_dim": 24, "hidden_dim": 32}
    config = TOY_CONFIG | {"context_length": 256} | sizes | other_sizes
    # A generator of its own, so that no test depends on which ran before it.
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Qwen3Model(config)
    with torch.no_grad():
        model.out_head.weight *= sharpness
    return model.eval()


def uneven(model):
    """The model with norms and biases that differ from each other, and from 1 and 0."""
    generator = torch.Generator().manual_seed(0)
    for name, weight in model.named_parameters():
        if name.endswith("scale"):
            weight.data.uniform_(0.5, 1.5, generator=generator)
        elif name.endswith("bias"):
            weight.data.uniform_(-1, 1, generator=generator)
    return model


def with_lora(model, rank=3, alpha=6.0, size=0.1):
    """The model with LoRA as after some steps: at first B is 0."""
    add_lora(model, rank, alpha)
    generator = torch.Generator().manual_seed(0)
    for layer in lora_layers(model).values():
        layer.lora_B.data.normal_(0, size, generator=generator)
    return model


def drawn(model, max_new_tokens=40, engine=FAST, **options):
    """Ids and log-probabilities of 12 rollouts, 5 at a time."""
    sampling = Sampling(max_new_tokens, rollouts=4, sample_rows=5, **options)
    groups = generate(model, PROMPTS, sampling, stop_ids={0}, engine=engine)
    rollouts = [rollout for group in groups for rollout in group]
    return [r.response_ids for r in rollouts], [x for r in rollouts for x in r.logprobs]


# As on a GPU.
IN_BURSTS = replace(PLAIN_ENGINE, batch_class=lambda model: BurstBatch)


def read_prompts(model, rows, seed=0, width=20):
    """A cache of so many prompts of 1 to 20 tokens, and a next token for each."""
    generator, words = torch.Generator().manual_seed(seed), model.cfg["vocab_size"]
    ids = torch.randint(0, words, (rows, width), generator=generator)
    lengths = torch.randint(1, width + 1, (rows, 1), generator=generator)
    cache = KVCache(model.cfg["n_layers"], 64)
    model.fill_cache(ids, cache, torch.arange(width) < lengths)
    return cache, torch.randint(0, words, (rows, 1), generator=generator)


def several_steps(decode, cache, tokens, steps=5):
    """Logits (steps, B, V) of greedy steps from here."""
    cache = cache.select_rows(torch.arange(len(tokens)))
    found = []
    for _ in range(steps):
        found.append(decode(tokens, cache=cache)[:, -1].clone())
        tokens = found[-1].argmax(dim=-1, keepdim=True)
    assert cache.lengths.max() == cache.width
    return torch.stack(found)
