"""Qwen3: one model class for every dense size, its key-value cache, and attention.

Qwen2.5, Llama 2 and 3 and SmolLM2 are the same model with other settings in the configuration:

                        qk_norm   qkv_bias   norm_eps       rope_scaling
    Qwen3               yes       no         1e-6           no
    Qwen2.5             no        yes        1e-6           no
    Llama, SmolLM2      no        no         1e-5 (mostly)  Llama 3.1 and later

    token ids (B, T) -> embeddings (B, T, D)
      -> n blocks, each  x = x + attention(norm(x)),  then  x = x + feed_forward(norm(x))
      -> norm -> hidden states (B, T, D) -> head -> logits (B, T, V)

In the comments: B rows of a batch, T new tokens in each, D features of a token, V vocabulary,
and S tokens that attention can look at: those in the cache and the new ones.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import reasoning_from_scratch
from reasoning_from_scratch.errors import PromptTooLong


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


# The published .pth files contain a separate head, so 0.6B is untied here;
# in a Hugging Face folder of the same model, config.json says that it is tied.
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
        if x.is_cuda and self.qwen3_compatible and self.shift is None:
            # One operation, since on a GPU each has the same cost; it also computes in float32.
            return F.rms_norm(x, self.scale.shape, self.scale, self.eps).to(x.dtype)
        # Squares of bfloat16 lose too many digits: Qwen3 normalizes in float32.
        dtype = torch.float32 if self.qwen3_compatible else x.dtype
        out = F.rms_norm(x.to(dtype), self.scale.shape, None, self.eps) * self.scale.to(dtype)
        if self.shift is not None:
            out = out + self.shift.to(dtype)
        return out.to(x.dtype)


def _norm(cfg, width):
    return RMSNorm(width, eps=cfg.get("norm_eps", 1e-6), dtype=cfg["dtype"])


def rope_tables(positions, cfg, dtype):
    """cos and sin of the angles p / theta^(2i / head_dim): position p turns pair i by them."""
    size = cfg["head_dim"]
    exponents = torch.arange(0, size, 2, device=positions.device).float() / size
    slowness = cfg["rope_base"] ** exponents  # (head_dim / 2) positions per radian
    if scaling := cfg.get("rope_scaling"):
        slowness = stretch_context(slowness, **scaling)
    angles = positions[..., None].float() / slowness  # (..., T, head_dim / 2)
    angles = torch.cat([angles, angles], dim=-1)  # (..., T, head_dim)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def stretch_context(
    slowness, factor, low_freq_factor, high_freq_factor, original_max_position_embeddings
):
    """How Llama 3.1 stretches a context of 8,192 tokens to 131,072.

    Pairs that made many turns within the original context tell nearby tokens apart, and keep their
    speed. Pairs that made less than a full turn would reach angles that never occurred in training,
    so they turn `factor` times more slowly. Between the two limits the speeds are blended.
    """
    turns = original_max_position_embeddings / (2 * math.pi * slowness)
    unscaled = ((turns - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0, 1)
    return slowness / (unscaled + (1 - unscaled) / factor)


def compute_rope_params(head_dim, theta_base=10_000, context_length=4096, dtype=torch.float32):
    """Tables of cos and sin for positions 0 .. context_length - 1, each (T, head_dim)."""
    cfg = {"head_dim": head_dim, "rope_base": theta_base}
    return rope_tables(torch.arange(context_length), cfg, dtype)


def apply_rope(x, cos, sin, offset=0):
    """Rotate x (B, heads, T, head_dim) by tables (T', head_dim), read from `offset` on.
    A plan's tables (B, T, 1, head_dim) are used directly, on x (B, T, heads, head_dim)."""
    if cos.dim() == 2:
        cos, sin = (table[offset : offset + x.shape[-2]] for table in (cos, sin))
    first, second = x.chunk(2, dim=-1)
    rotated = torch.cat([-second, first], dim=-1)
    return x * cos.to(x.dtype) + rotated * sin.to(x.dtype)


# --- the cache


class KVCache:
    """Keys and values of the tokens read so far, so that each is computed only once.

    Each layer has two tensors (B, kv groups, capacity, head_dim), written in place. A token's
    slot is its position in its row. Here rows of 5 and 3 tokens share a cache:

        slot     0 1 2 3 4 5 6 7
        row 0    a a a a a . . .    lengths = [5, 3]
        row 1    b b b . . . . .    width = 5, capacity = 8

    It does not matter what the slots marked "." hold: no token looks at them, and the row's next
    tokens overwrite them. So padding may be written there, and whole rows may be copied, dropped
    and replaced: the sampler does so when an answer ends and another takes its row.
    """

    def __init__(self, n_layers, max_length=None):
        self.n_layers = n_layers
        self.max_length = max_length
        self.reset()

    def reset(self):
        self.keys = [None] * self.n_layers
        self.values = [None] * self.n_layers
        self.lengths = None  # (B,) tokens per row; None before the first pass
        self.width = 0  # max(lengths) as a number: reading it from a GPU would mean waiting
        self.uniform = True  # all rows are known to have `width` tokens
        self.shared_slots = 0  # how many of the first slots are known to be the same in all rows

    def get(self, layer):
        """The filled part of a layer as (keys, values), or None."""
        if self.keys[layer] is None:
            return None
        return self.keys[layer][:, :, : self.width], self.values[layer][:, :, : self.width]

    def update(self, layer, value):
        """Replace a layer by a (keys, values) pair whose rows all have the same length."""
        self.keys[layer], self.values[layer] = value
        batch, _, self.width, _ = value[0].shape
        self.lengths = torch.full((batch,), self.width, device=value[0].device)
        self.uniform = True

    def get_all(self):
        return [self.get(layer) for layer in range(self.n_layers)]

    def start_rows(self, batch, device):
        """Before the first pass: start with `batch` rows, all of them empty."""
        if self.lengths is None:
            self.lengths = torch.zeros(batch, dtype=torch.long, device=device)

    def append(self, layer, keys, values, width, slots=None):
        """Write a layer's new tokens after the old ones in each row, and return the layer's keys
        and values, old and new, `width` slots wide.

        New keys and values are (B, kv groups, T, head_dim). If all rows are equally long, they go
        to the last T slots of each row; otherwise `slots` says where: row numbers (B, 1) and
        slots (B, T). The lengths change in `advance`, after all layers have appended.
        """
        self._reserve(layer, keys, width)
        for store, new in ((self.keys[layer], keys), (self.values[layer], values)):
            if slots is None:
                store[:, :, width - new.shape[2] : width] = new
            else:
                rows, places = slots
                store[rows, :, places] = new.transpose(1, 2)
        return self.keys[layer][:, :, :width], self.values[layer][:, :, :width]

    def advance(self, count, attention_mask=None):
        """Count the tokens that all layers have appended: `count` per row, or with a mask (B, T)
        the real ones, which came before the padding."""
        if attention_mask is None:
            self.lengths, self.width = self.lengths + count, self.width + count
        else:
            self._set_lengths(self.lengths + attention_mask.long().sum(dim=1), uniform=False)

    def make_room(self):
        """Make sure that each row has a slot for one more token."""
        for layer, keys in enumerate(self.keys):
            self._reserve(layer, keys, self.width + 1)

    def _reserve(self, layer, like, width):
        """Make a layer at least `width` slots wide."""
        old = self.keys[layer]
        if old is not None and old.shape[2] >= width:
            return
        # Doubling: a limit of thousands of tokens costs nothing until answers get that long.
        capacity = max(width, min(2 * width, self.max_length or 2 * width))
        shape = (len(self.lengths), like.shape[1], capacity, like.shape[3])
        for store in (self.keys, self.values):
            # Attention multiplies the values of hidden slots by 0, and 0 * NaN is NaN, which
            # uninitialized memory may hold.
            fresh = like.new_zeros(shape)
            if old is not None:
                fresh[:, :, : store[layer].shape[2]] = store[layer]
            store[layer] = fresh

    def select_rows(self, rows):
        """A new cache of these rows; a row named twice is copied (one prefill, many samples)."""
        new = KVCache(self.n_layers, self.max_length)
        new.keys = [keys.index_select(0, rows) for keys in self.keys]
        new.values = [values.index_select(0, rows) for values in self.values]
        new._set_lengths(self.lengths.index_select(0, rows), self.uniform)
        new.shared_slots = self.shared_slots
        return new

    def write_rows(self, rows, other):
        """Overwrite these rows by the rows of `other`: a waiting prompt takes a free row."""
        for layer in range(self.n_layers):
            self._reserve(layer, self.keys[layer], other.width)
            keys, values = other.get(layer)
            self.keys[layer][rows, :, : other.width] = keys
            self.values[layer][rows, :, : other.width] = values
        uniform = self.uniform and other.uniform and self.width == other.width
        self._set_lengths(self.lengths.index_copy(0, rows, other.lengths), uniform)

    def append_rows(self, count):
        """Append `count` empty rows; `write_rows` fills them."""
        for store in (self.keys, self.values):
            for layer, old in enumerate(store):
                store[layer] = torch.cat([old, old.new_zeros(count, *old.shape[1:])])
        self._set_lengths(torch.cat([self.lengths, self.lengths.new_zeros(count)]), False)

    def clear_rows(self, rows, width):
        """Empty these rows; the longest of the others has `width` tokens."""
        self.lengths, self.width = self.lengths.index_fill(0, rows, 0), width
        self.uniform = False

    def keep_first_rows(self, count):
        """Keep only the first `count` rows; nothing is copied."""
        self.keys = [keys[:count] for keys in self.keys]
        self.values = [values[:count] for values in self.values]
        self._set_lengths(self.lengths[:count], self.uniform)

    def drop_last_token(self):
        """Drop the last token of each row, to have it read again."""
        self._set_lengths(self.lengths - 1, self.uniform)

    def _set_lengths(self, lengths, uniform):
        self.lengths = lengths
        self.width = int(lengths.max()) if len(lengths) else 0
        self.uniform = uniform


# --- attention


class AttentionPlan(NamedTuple):
    """What all layers of one forward pass share: its tokens' positions, and what each may see.

    This is the plan for tokens in rows, with or without a cache. Another object with `cos`, `sin`
    and `attend` may take its place: fast/packed.py has one for a batch without padding.
    """

    cos: Tensor  # (B or 1, T, 1, head_dim) the rotation that encodes a token's position
    sin: Tensor
    mask: Tensor | None = None  # (B or 1, 1, T, S), as `attention` takes it
    width: int = 0  # with a cache: S
    slots: tuple[Tensor, Tensor] | None = None  # as the cache's `append` takes them

    def attend(self, queries, keys, values):
        return attention(queries, keys, values, self.mask)


def attention(queries, keys, values, mask=None):
    """What T queries per row find among S keys: softmax(queries keys^T / sqrt(head_dim)) values.

    Queries (B, heads, T, head_dim), keys and values (B, kv groups, S, head_dim): neighboring
    heads share a group's keys. The result is (B, T, heads * head_dim).

    `mask` (B or 1, 1, T, S) hides keys: 0 or -inf is added to the scores (or it is boolean, True
    for keys to see). Without a mask, token t sees tokens 0 to t, and a single query sees all keys.
    """
    groups, length = keys.shape[1], queries.shape[2]
    if length == 1:
        # The heads of a group become the rows of one matrix product, up to six times as fast.
        grouped = queries.unflatten(1, (groups, -1)).squeeze(3)  # (B, groups, heads each, hd)
        attended = F.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask)
        return attended.flatten(1)[:, None]
    share_keys = queries.shape[1] != groups
    if share_keys and queries.is_cuda and (mask is not None or queries.dtype == torch.float32):
        # torch's kernels that store no scores can share keys only in bfloat16, without a mask.
        share_keys, heads_each = False, queries.shape[1] // groups
        keys = keys.repeat_interleave(heads_each, dim=1)
        values = values.repeat_interleave(heads_each, dim=1)
    attended = F.scaled_dot_product_attention(
        queries, keys, values, attn_mask=mask, is_causal=mask is None, enable_gqa=share_keys
    )
    return attended.transpose(1, 2).flatten(2)


class GroupedQueryAttention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.head_dim = cfg["head_dim"]
        width, kv_width = cfg["n_heads"] * self.head_dim, cfg["n_kv_groups"] * self.head_dim
        linear = {"bias": cfg.get("qkv_bias", False), "dtype": cfg["dtype"]}
        self.W_query = nn.Linear(cfg["emb_dim"], width, **linear)
        self.W_key = nn.Linear(cfg["emb_dim"], kv_width, **linear)
        self.W_value = nn.Linear(cfg["emb_dim"], kv_width, **linear)
        self.out_proj = nn.Linear(width, cfg["emb_dim"], bias=False, dtype=cfg["dtype"])
        self.q_norm = _norm(cfg, self.head_dim) if cfg["qk_norm"] else nn.Identity()
        self.k_norm = _norm(cfg, self.head_dim) if cfg["qk_norm"] else nn.Identity()

    def _heads(self, x):
        return x.unflatten(-1, (-1, self.head_dim))  # (B, T, heads, head_dim)

    def project(self, x, plan):
        """Queries (B, heads, T, head_dim), keys and values (B, kv groups, T, head_dim); queries
        and keys are rotated, so that their product depends on how far apart the tokens are."""
        queries = apply_rope(self.q_norm(self._heads(self.W_query(x))), plan.cos, plan.sin)
        keys = apply_rope(self.k_norm(self._heads(self.W_key(x))), plan.cos, plan.sin)
        values = self._heads(self.W_value(x))
        return queries.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)

    def forward(self, x, plan, cache=None, layer=0):
        queries, keys, values = self.project(x, plan)
        if cache is not None:
            keys, values = cache.append(layer, keys, values, plan.width, plan.slots)
        return self.out_proj(plan.attend(queries, keys, values))


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
            return checkpoint(self._forward, x, plan, cache, layer, use_reentrant=False)
        return self._forward(x, plan, cache, layer)

    def _forward(self, x, plan, cache, layer):
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

    def hidden_states(self, in_idx, cache=None, attention_mask=None, plan=None):
        """Final hidden states (B, T, D). The head is left to the caller, who may need it at only
        a few positions: over a vocabulary of 151,936 it costs more than several blocks.

        `attention_mask` (B, T) marks real tokens; None means that all are. Without a cache,
        padding on the right needs no mask: no token looks at what comes after it. The result at
        padding is meaningless. `plan` is for callers that bring their own AttentionPlan.
        """
        order = None if attention_mask is None else real_tokens_first(attention_mask)  # (B, T)
        if order is not None:
            in_idx = in_idx.gather(1, order)
        x, plan = self._embed(in_idx, cache, plan)
        for layer, block in enumerate(self.trf_blocks):
            x = block(x, plan, cache, layer)
        if cache is not None:
            cache.advance(in_idx.shape[1], attention_mask)
        x = self.final_norm(x)
        if order is not None:
            x = x.gather(1, order.argsort()[..., None].expand_as(x))  # back in the given order
        return x

    def fill_cache(self, in_idx, cache, attention_mask=None, plan=None):
        """Read tokens whose hidden states are not needed: the last block computes only keys and
        values. If the caller gives a plan, `in_idx` holds the tokens that the plan is for."""
        if attention_mask is not None and plan is None:
            in_idx = in_idx.gather(1, real_tokens_first(attention_mask))
        x, plan = self._embed(in_idx, cache, plan)
        *blocks, last = self.trf_blocks
        for layer, block in enumerate(blocks):
            x = block(x, plan, cache, layer)
        _, keys, values = last.att.project(last.norm1(x), plan)
        cache.append(len(blocks), keys, values, plan.width, plan.slots)
        cache.advance(in_idx.shape[1], attention_mask)

    def _embed(self, in_idx, cache, plan=None):
        """Embeddings (B, T, D), and the plan for all blocks."""
        x = self.tok_emb(in_idx)
        return x, plan or self._plan(in_idx, cache, x.dtype)

    def _plan(self, in_idx, cache, dtype):
        """Token t of a row sees the row's tokens in the cache, and the new ones up to itself."""
        batch, length = in_idx.shape
        mask, slots, cached, device = None, None, 0, in_idx.device
        positions = torch.arange(length, device=device)[None]  # (1, T)
        if cache is not None:
            cache.start_rows(batch, device)
            cached = cache.width
            if cache.uniform:
                positions = cached + positions
            else:
                positions = cache.lengths[:, None] + positions  # (B, T)
                slots = (torch.arange(batch, device=device)[:, None], positions)
        width = cached + length
        # Without a mask, attention does the right thing for an empty cache or a single token.
        if slots is not None or (cached and length > 1):
            hidden = torch.arange(width, device=device) > positions[:, None, :, None]
            mask = torch.zeros_like(hidden, dtype=dtype).masked_fill_(hidden, -torch.inf)
        cos, sin = rope_tables(positions[:, :, None], self.cfg, dtype)
        return AttentionPlan(cos, sin, mask, width, slots)

    def forward(self, in_idx, cache=None, attention_mask=None):
        return self.out_head(self.hidden_states(in_idx, cache, attention_mask))  # (B, T, V)

    def reset_kv_cache(self):
        """Nothing to do: positions live in the cache. Kept for code that calls it."""


def real_tokens_first(attention_mask):
    """The order (B, T) in which each row has its real tokens first and its padding after them,
    where no token looks: [pad pad a b c] is read as [a b c pad pad]."""
    return (~attention_mask.bool()).long().argsort(dim=1, stable=True)


def room_for_answer(model, prompt_length, max_new_tokens, name="the prompt"):
    """How many tokens an answer may have: prompt and answer share the model's context."""
    context = getattr(model, "cfg", {}).get("context_length", math.inf)
    if prompt_length >= context:
        raise PromptTooLong(
            f"{name} has {prompt_length} tokens; the model reads {context}, the answer included"
        )
    return min(max_new_tokens, context - prompt_length)


def __getattr__(name):
    """The tokenizer and the downloads, which the book's readers import from here."""
    return reasoning_from_scratch.forward_book_name(name)
