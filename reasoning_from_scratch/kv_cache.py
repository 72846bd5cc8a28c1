"""What attention remembers of the tokens it has read, so that each is read only once."""

from typing import NamedTuple

import torch


class Slots(NamedTuple):
    """Where a forward pass writes in the cache."""

    width: int  # filled slots afterwards
    # (rows, slots), each with a place per token of the pass; None: the last T slots of all rows
    index: tuple | None


class KVCache:
    """Keys and values of every layer, preallocated and written in place.

    Row b keeps its real tokens in slots 0 .. lengths[b] - 1, so a token's slot is its
    position; padding is never stored. That lets rows of different lengths share a batch,
    and lets the sampler drop, share and refill rows by copying them.
    """

    def __init__(self, n_layers, max_length=None):
        self.n_layers = n_layers
        self.max_length = max_length
        self.reset()

    def reset(self):
        self.keys = [None] * self.n_layers  # each (B, kv groups, capacity, head_dim)
        self.values = [None] * self.n_layers
        self.lengths = None  # (B,) long: real tokens per row
        self.width = 0  # max(lengths), known on the host without asking the GPU
        self.uniform = True  # all rows have `width` tokens

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

    def append(self, layer, keys, values, slots):
        """Write the new keys and values (B, kv groups, T, head_dim) into their slots. With an
        index they may also be those of all rows' real tokens, one after the other: B is 1."""
        self._reserve(layer, keys, slots.width)
        if slots.index is None:  # all rows write the same slots: one copy
            start = slots.width - keys.shape[2]
            self.keys[layer][:, :, start : slots.width] = keys
            self.values[layer][:, :, start : slots.width] = values
        else:
            rows, targets = slots.index
            for store, new in ((self.keys, keys), (self.values, values)):
                store[layer][rows, :, targets] = new.transpose(1, 2)
        return self.keys[layer][:, :, : slots.width], self.values[layer][:, :, : slots.width]

    def extend(self):
        """Make room for one more token in each row; the slots (B,), for decode.c to fill."""
        slots, self.lengths, self.width = self.lengths, self.lengths + 1, self.width + 1
        for layer, keys in enumerate(self.keys):
            self._reserve(layer, keys, self.width)
        return slots

    def _reserve(self, layer, like, width):
        old = self.keys[layer]
        if old is not None and old.shape[2] >= width:
            return
        # Doubling: a limit of thousands of tokens costs nothing until answers get that long.
        capacity = max(width, min(2 * width, self.max_length or 2 * width))
        shape = (len(self.lengths), like.shape[1], capacity, like.shape[3])
        for store in (self.keys, self.values):
            # Zeros, because a masked slot still takes part in 0 * value: NaN would spread.
            fresh = like.new_zeros(shape)
            if old is not None:
                fresh[:, :, : store[layer].shape[2]] = store[layer]
            store[layer] = fresh

    def take(self, rows):
        """A new cache of these rows; a row named twice is copied (one prefill, many samples)."""
        new = KVCache(self.n_layers, self.max_length)
        new.keys = [keys.index_select(0, rows) for keys in self.keys]
        new.values = [values.index_select(0, rows) for values in self.values]
        new._set_lengths(self.lengths.index_select(0, rows), self.uniform)
        return new

    def put(self, rows, other):
        """Overwrite these rows by the rows of `other`: a waiting prompt takes a free row."""
        for layer in range(self.n_layers):
            self._reserve(layer, self.keys[layer], other.width)
            keys, values = other.get(layer)
            self.keys[layer][rows, :, : other.width] = keys
            self.values[layer][rows, :, : other.width] = values
        uniform = self.uniform and other.uniform and self.width == other.width
        self._set_lengths(self.lengths.index_copy(0, rows, other.lengths), uniform)

    def shrink(self, count):
        """Keep the first `count` rows only; nothing is copied."""
        self.keys = [keys[:count] for keys in self.keys]
        self.values = [values[:count] for values in self.values]
        self._set_lengths(self.lengths[:count], self.uniform)

    def forget_last(self):
        """Drop the last token of each row, to have it read again."""
        self._set_lengths(self.lengths - 1, self.uniform)

    def _set_lengths(self, lengths, uniform):
        self.lengths = lengths
        self.width = int(lengths.max()) if len(lengths) else 0
        self.uniform = uniform
