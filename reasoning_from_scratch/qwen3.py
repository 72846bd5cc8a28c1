"""Qwen3, one model: batched, cached, padding-aware, for every dense size.

token ids (B, T) -> embeddings -> n blocks of (attention, feed-forward) -> norm -> logits (B, T, V)
"""

import math
from importlib import import_module

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from reasoning_from_scratch.attention import (
    AttentionPlan,
    attend,
    in_rows,
    plan_with_cache,
    plan_without_cache,
)
from reasoning_from_scratch.errors import PromptTooLong
from reasoning_from_scratch.kv_cache import KVCache  # noqa: F401  readers import it from here


def _dense_config(emb_dim, n_heads, n_layers, hidden_dim, tie_embeddings=False):
    """What the dense Qwen3 sizes share, and the five numbers in which they differ."""
    return {
        "vocab_size": 151_936,
        "context_length": 40_960,
        "emb_dim": emb_dim,
        "n_heads": n_heads,
        "n_layers": n_layers,
        "hidden_dim": hidden_dim,
        "head_dim": 128,
        "qk_norm": True,
        "n_kv_groups": 8,
        "rope_base": 1_000_000.0,
        "dtype": torch.bfloat16,
        "tie_embeddings": tie_embeddings,
    }


# The published .pth files hold a head of their own, so 0.6B is untied here;
# a Hugging Face folder of the same model says in its config.json that it is tied.
QWEN_CONFIG_06_B = _dense_config(1024, 16, 28, 3072)
QWEN_CONFIG_1_7_B = _dense_config(2048, 16, 28, 6144, tie_embeddings=True)
QWEN_CONFIG_4_B = _dense_config(2560, 32, 36, 9728, tie_embeddings=True)
QWEN_CONFIG_8_B = _dense_config(4096, 32, 36, 12288)
QWEN_CONFIG_14_B = _dense_config(5120, 40, 40, 17408)
QWEN_CONFIG_32_B = _dense_config(5120, 64, 64, 25600)


class RMSNorm(nn.Module):
    def __init__(self, emb_dim, eps=1e-6, bias=False, qwen3_compatible=True, dtype=None):
        super().__init__()
        self.eps = eps
        self.qwen3_compatible = qwen3_compatible
        self.scale = nn.Parameter(torch.ones(emb_dim, dtype=dtype))
        self.shift = nn.Parameter(torch.zeros(emb_dim, dtype=dtype)) if bias else None

    def forward(self, x):
        # Squares of bfloat16 lose too many digits: Qwen3 normalizes in float32.
        dtype = torch.float32 if self.qwen3_compatible else x.dtype
        out = F.rms_norm(x.to(dtype), self.scale.shape, None, self.eps) * self.scale.to(dtype)
        if self.shift is not None:
            out = out + self.shift.to(dtype)
        return out.to(x.dtype)


def _norm(cfg, width):
    return RMSNorm(width, dtype=cfg["dtype"])


def rope_tables(positions, head_dim, theta_base, dtype):
    """Position p turns the i-th pair of features by p / theta^(2i / head_dim): cos and sin."""
    exponents = torch.arange(0, head_dim, 2, device=positions.device).float() / head_dim
    angles = positions[..., None].float() / theta_base**exponents  # (..., T, head_dim / 2)
    angles = torch.cat([angles, angles], dim=-1)  # (..., T, head_dim)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def compute_rope_params(head_dim, theta_base=10_000, context_length=4096, dtype=torch.float32):
    """Tables of cos and sin for positions 0 .. context_length - 1, each (T, head_dim)."""
    return rope_tables(torch.arange(context_length), head_dim, theta_base, dtype)


def apply_rope(x, cos, sin, offset=0):
    """Rotate x (B, heads, T, head_dim). Tables (T', head_dim) are read from `offset` on;
    tables that already have a row per token, (B, 1, T, head_dim), are used as they are."""
    if cos.dim() == 2:
        cos, sin = (table[offset : offset + x.shape[-2]] for table in (cos, sin))
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat([-second, first], dim=-1)
    return x * cos.to(x.dtype) + turned * sin.to(x.dtype)


class GroupedQueryAttention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.head_dim = cfg["head_dim"]
        width, kv_width = cfg["n_heads"] * self.head_dim, cfg["n_kv_groups"] * self.head_dim
        linear = {"bias": False, "dtype": cfg["dtype"]}
        self.W_query = nn.Linear(cfg["emb_dim"], width, **linear)
        self.W_key = nn.Linear(cfg["emb_dim"], kv_width, **linear)
        self.W_value = nn.Linear(cfg["emb_dim"], kv_width, **linear)
        self.out_proj = nn.Linear(width, cfg["emb_dim"], **linear)
        norms = [_norm(cfg, self.head_dim) if cfg["qk_norm"] else nn.Identity() for _ in "qk"]
        self.q_norm, self.k_norm = norms

    def _heads(self, x):
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)  # (B, heads, T, head_dim)

    def project(self, x, plan):
        """Queries, keys and values (B, heads or groups, T, head_dim), turned to their positions."""
        queries = apply_rope(self.q_norm(self._heads(self.W_query(x))), plan.cos, plan.sin)
        keys = apply_rope(self.k_norm(self._heads(self.W_key(x))), plan.cos, plan.sin)
        return queries, keys, self._heads(self.W_value(x))

    def forward(self, x, plan, cache=None, layer=0):
        queries, keys, values = self.project(x, plan)
        if cache is not None:
            keys, values = cache.append(layer, keys, values, plan.slots)
        return self.out_proj(attend(plan, queries, keys, values))


class FeedForward(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        linear = {"bias": False, "dtype": cfg["dtype"]}
        self.fc1 = nn.Linear(cfg["emb_dim"], cfg["hidden_dim"], **linear)  # gate
        self.fc2 = nn.Linear(cfg["emb_dim"], cfg["hidden_dim"], **linear)  # up
        self.fc3 = nn.Linear(cfg["hidden_dim"], cfg["emb_dim"], **linear)  # down

    def forward(self, x):
        return self.fc3(F.silu(self.fc1(x)) * self.fc2(x))


class TransformerBlock(nn.Module):
    recompute = False  # compute the inside again in the backward pass instead of remembering it

    def __init__(self, cfg):
        super().__init__()
        self.att = GroupedQueryAttention(cfg)
        self.ff = FeedForward(cfg)
        self.norm1 = _norm(cfg, cfg["emb_dim"])
        self.norm2 = _norm(cfg, cfg["emb_dim"])

    def forward(self, x, plan, cache=None, layer=0):
        if self.recompute and torch.is_grad_enabled():
            return checkpoint(self._inside, x, plan, cache, layer, use_reentrant=False)
        return self._inside(x, plan, cache, layer)

    def _inside(self, x, plan, cache, layer):
        x = x + self.att(self.norm1(x), plan, cache, layer)
        return x + self.ff(self.norm2(x))


class Qwen3Model(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tok_emb = nn.Embedding(cfg["vocab_size"], cfg["emb_dim"], dtype=cfg["dtype"])
        self.trf_blocks = nn.ModuleList(TransformerBlock(cfg) for _ in range(cfg["n_layers"]))
        self.final_norm = _norm(cfg, cfg["emb_dim"])
        head = {"bias": False, "dtype": cfg["dtype"]}
        self.out_head = nn.Linear(cfg["emb_dim"], cfg["vocab_size"], **head)
        if cfg.get("tie_embeddings", False):
            self.out_head.weight = self.tok_emb.weight
        self.cfg = cfg

    def hidden_states(self, in_idx, cache=None, attention_mask=None, layout=None):
        """Final hidden states (B, T, D). The head is left to the caller, who may need it at
        few positions only: over a vocabulary of 151,936 it costs more than several blocks.

        `attention_mask` (B, T) marks real tokens; None means that all are. Without a cache a
        right-padded batch needs no mask: no real token ever looks at the padding after it.
        With a layout, `in_idx` and the result are (1, N) and (1, N, D).
        """
        x, plan = self._start(in_idx, cache, attention_mask, layout)
        for layer, block in enumerate(self.trf_blocks):
            x = block(x, plan, cache, layer)
        x = self.final_norm(x)
        return x if plan.real is None else in_rows(x[0], plan.real, *in_idx.shape)

    def fill_cache(self, in_idx, cache, attention_mask=None):
        """Read tokens whose hidden states nobody asks for: of the last block, only keys and
        values are needed."""
        x, plan = self._start(in_idx, cache, attention_mask, None)
        *blocks, last = self.trf_blocks
        for layer, block in enumerate(blocks):
            x = block(x, plan, cache, layer)
        _, keys, values = last.att.project(last.norm1(x), plan)
        cache.append(len(blocks), keys, values, plan.slots)

    def _start(self, in_idx, cache, attention_mask, layout):
        """Embeddings (B, T, D), and what all blocks share."""
        slots = real = None
        if layout is not None:
            positions, mask, causal = layout.positions, None, True
        elif cache is None:
            positions, mask, causal = plan_without_cache(in_idx, attention_mask)
        else:
            positions, mask, causal, slots, real = plan_with_cache(in_idx, cache, attention_mask)
        x = self.tok_emb(in_idx if real is None else in_idx[real][None])
        size, base = self.cfg["head_dim"], self.cfg["rope_base"]
        cos, sin = rope_tables(positions[:, None], size, base, x.dtype)
        if mask is not None:  # attention would turn True and False into numbers in every layer
            mask = torch.zeros_like(mask, dtype=x.dtype).masked_fill_(~mask, -torch.inf)
        return x, AttentionPlan(cos, sin, mask, causal, slots, layout, real)

    def forward(self, in_idx, cache=None, attention_mask=None):
        return self.out_head(self.hidden_states(in_idx, cache, attention_mask))  # (B, T, V)

    def reset_kv_cache(self):
        """Nothing to do: positions live in the cache. Kept for code that calls it."""


def room_for_answer(model, prompt_length, max_new_tokens, name="the prompt"):
    """How many tokens an answer may have: prompt and answer share the model's context."""
    context = getattr(model, "cfg", {}).get("context_length", math.inf)
    if prompt_length >= context:
        raise PromptTooLong(
            f"{name} has {prompt_length} tokens; the model reads {context}, its answer included"
        )
    return min(max_new_tokens, context - prompt_length)


# Names that readers import from here. They live further down, so they are looked up late:
# imports go one way.
_ELSEWHERE = {
    "Qwen3Tokenizer": "tokenizer",
    "download_qwen3_small": "files.downloads",
    "download_qwen3_grpo_checkpoints": "files.downloads",
    "load_hf_weights_into_qwen": "files.weights",
}


def __getattr__(name):
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"reasoning_from_scratch.{_ELSEWHERE[name]}"), name)
