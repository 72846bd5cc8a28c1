"""Chapter 2, generating text with a pre-trained model: always the most probable next token.

2.5 the device · 2.6 generating · 2.7 with a cache · 2.8 as a stream · 2.9 how fast
"""

import torch

from reasoning_from_scratch.fast.device import get_device  # noqa: F401  2.5
from reasoning_from_scratch.qwen3 import KVCache, room_for_answer

# 2.6 Generating


def switch_to_evaluation(model):
    """Turn dropout off. A small stand-in for a model may have no such switch."""
    if hasattr(model, "eval"):
        model.eval()


@torch.no_grad()
def generate_text_basic_stream(
    model, token_ids, max_new_tokens, eos_token_id=None
):
    """Yields the most probable next token (1, 1) until end of text, which is dropped."""
    switch_to_evaluation(model)
    for _ in range(room_for_answer(model, token_ids.shape[1], max_new_tokens)):
        logits = model(token_ids)[:, -1]  # (1, V)
        next_token = torch.argmax(logits, dim=-1, keepdim=True)  # (1, 1)
        if eos_token_id is not None and torch.all(next_token == eos_token_id):
            return
        yield next_token
        token_ids = torch.cat([token_ids, next_token], dim=1)


def generate_text_basic(model, token_ids, max_new_tokens, eos_token_id=None):
    """The new tokens (1, T'), without the prompt."""
    stream = generate_text_basic_stream(
        model, token_ids, max_new_tokens, eos_token_id
    )
    return torch.cat([token_ids[:, :0], *stream], dim=1)


# 2.7 With a cache


@torch.no_grad()
def generate_text_basic_stream_cache(
    model, token_ids, max_new_tokens, eos_token_id=None
):
    """The same tokens; the model reads each token once and remembers keys and values."""
    switch_to_evaluation(model)
    cache = KVCache(n_layers=model.cfg["n_layers"])
    model.reset_kv_cache()
    for _ in range(room_for_answer(model, token_ids.shape[1], max_new_tokens)):
        logits = model(token_ids, cache=cache)[:, -1]  # (1, V)
        next_token = torch.argmax(logits, dim=-1, keepdim=True)  # (1, 1)
        if eos_token_id is not None and torch.all(next_token == eos_token_id):
            return
        yield next_token
        token_ids = next_token


def generate_text_basic_cache(
    model, token_ids, max_new_tokens, eos_token_id=None
):
    """The new tokens (1, T'), without the prompt."""
    stream = generate_text_basic_stream_cache(
        model, token_ids, max_new_tokens, eos_token_id
    )
    return torch.cat([token_ids[:, :0], *stream], dim=1)


# 2.9 How fast


def generate_stats(output_token_ids, tokenizer, start_time, end_time):
    """Prints time, tokens per second, memory on an accelerator, and the text."""
    seconds = end_time - start_time
    print(f"Time: {seconds:.2f} sec")
    print(f"{output_token_ids.numel() / max(seconds, 1e-9):.0f} tokens/sec")
    for name, backend in (("CUDA", torch.cuda), ("XPU", torch.xpu)):
        if backend.is_available():
            gigabytes = backend.max_memory_allocated() / 1024**3
            print(f"Max {name} memory allocated: {gigabytes:.2f} GB")
    print(f"\n{tokenizer.decode(output_token_ids.flatten().tolist())}")
