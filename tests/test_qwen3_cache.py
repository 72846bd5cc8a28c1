"""The cache: whatever is done to a batch, each row gives what it gives alone and uncached."""

import random

import pytest
import torch
from small_model import small_model, uneven

from reasoning_from_scratch.qwen3 import KVCache, Qwen3Model

LAYERS, VOCAB = 2, 40


@pytest.fixture(scope="module")
def model():
    """Weights large enough that attention is far from uniform."""
    model, generator = uneven(small_model(VOCAB, head_dim=16)), torch.Generator().manual_seed(11)
    for matrix in (weight for weight in model.parameters() if weight.dim() > 1):
        matrix.data.normal_(0, 0.25, generator=generator)
    return model


def new_cache(max_length=None):
    return KVCache(LAYERS, max_length)


def ids_of(*rows):
    return torch.tensor(rows)


def alone(model, tokens):
    """Logits (T, V) of one row without cache or padding."""
    return model(torch.tensor([tokens]))[0]


def assert_same(found, expected):
    assert (found - expected).abs().max() < 1e-4


class Batch:
    """A cache, and beside it the tokens that each row should hold."""

    def __init__(self, model, rng, max_length):
        self.model, self.rng = model, rng
        self.cache = new_cache(max_length)
        self.rows = [[] for _ in range(rng.randint(1, 5))]
        self.pieces(lowest=1)

    def tokens(self, count):
        return [self.rng.randrange(VOCAB) for _ in range(count)]

    def feed(self, pieces, side):
        """Give each row its piece of new tokens, padded to the longest."""
        width = max(map(len, pieces))
        pads = [self.tokens(width - len(piece)) for piece in pieces]
        left = side == "left"
        ids = [
            pad + piece if left else piece + pad for pad, piece in zip(pads, pieces, strict=True)
        ]
        mask = [
            [0] * len(pad) + [1] * len(p) if left else [1] * len(p) + [0] * len(pad)
            for pad, p in zip(pads, pieces, strict=True)
        ]
        mask = torch.tensor(mask).bool()
        given = None if mask.all() and self.rng.random() < 0.7 else mask
        logits = self.model(torch.tensor(ids), cache=self.cache, attention_mask=given)
        assert torch.isfinite(logits).all()
        for row, piece in enumerate(pieces):
            self.rows[row] = self.rows[row] + piece
            if piece:
                expected = alone(self.model, self.rows[row])[-len(piece) :]
                assert_same(logits[row][mask[row]], expected)
        assert self.cache.lengths.tolist() == [len(row) for row in self.rows]

    def pieces(self, lowest=0):
        lengths = [self.rng.randint(lowest, 7) for _ in self.rows]
        lengths[self.rng.randrange(len(lengths))] = 7  # at least one real token
        self.feed([self.tokens(n) for n in lengths], self.rng.choice(["left", "right"]))

    def even_pieces(self):
        length = self.rng.randint(1, 4)
        self.feed([self.tokens(length) for _ in self.rows], "left")

    def decode(self):
        for _ in range(self.rng.randint(1, 4)):
            self.feed([self.tokens(1) for _ in self.rows], "left")

    def take(self):
        count = self.rng.randint(1, 6)
        chosen = [self.rng.randrange(len(self.rows)) for _ in range(count)]
        before = [keys.clone() for keys, _ in self.cache.get_all()]
        old, self.cache = self.cache, self.cache.select_rows(torch.tensor(chosen))
        self.rows = [list(self.rows[row]) for row in chosen]
        self.decode()
        assert all(torch.equal(k, kept) for (k, _), kept in zip(old.get_all(), before, strict=True))

    def put(self):
        count = self.rng.randint(1, len(self.rows))
        places = self.rng.sample(range(len(self.rows)), count)
        other = Batch.__new__(Batch)
        other.model, other.rng, other.cache = self.model, self.rng, new_cache()
        other.rows = [[] for _ in places]
        other.pieces(lowest=1)
        self.cache.write_rows(torch.tensor(places), other.cache)
        for place, row in zip(places, other.rows, strict=True):
            self.rows[place] = row

    def shrink(self):
        count = self.rng.randint(1, len(self.rows))
        self.cache.keep_first_rows(count)
        self.rows = self.rows[:count]
        self.decode()

    def drop_last_token(self):
        self.cache.drop_last_token()
        last = [row.pop() for row in self.rows]
        self.feed([[token] for token in last], "left")


@torch.no_grad()
@pytest.mark.parametrize("max_length", [None, 20, 200])
@pytest.mark.parametrize("seed", range(12))
def test_any_sequence_of_operations_equals_one_by_one(model, seed, max_length):
    rng = random.Random(seed)
    batch = Batch(model, rng, max_length)
    operations = [batch.decode, batch.pieces, batch.even_pieces, batch.take, batch.put]
    operations += [batch.shrink, batch.drop_last_token]
    for _ in range(12):
        if max(map(len, batch.rows)) < 100:
            rng.choice(operations)()


@torch.no_grad()
@pytest.mark.parametrize("max_length", [None, 42, 64])
def test_decoding_writes_in_place_and_grows_seldom(model, max_length):
    cache = new_cache(max_length)
    model(ids_of([1, 2, 3]), cache=cache)
    allocations = [cache.get(0)[0].data_ptr()]
    for token in range(39):
        model(ids_of([token]), cache=cache)
        if cache.get(0)[0].data_ptr() != allocations[-1]:
            allocations.append(cache.get(0)[0].data_ptr())
    assert cache.get(0)[0].shape == (1, 2, 42, 16)
    assert len(allocations) <= 5  # for 40 tokens; torch.cat would make 40


@torch.no_grad()
def test_reset_forgets_everything(model):
    cache = new_cache()
    first = model(ids_of([1, 2, 3]), cache=cache)
    cache.reset()
    assert cache.get(0) is None and cache.get_all() == [None, None] and cache.lengths is None
    assert torch.equal(model(ids_of([1, 2, 3]), cache=cache), first)
    model.reset_kv_cache()  # kept for readers' code; the cache holds all state


@torch.no_grad()
def test_get_and_update_exchange_layers(model):
    """Code written for the book's cache reads a layer's pair and writes it back, longer."""
    cache = new_cache()
    model(ids_of([1, 2, 3]), cache=cache)
    rebuilt = new_cache()
    for layer, pair in enumerate(cache.get_all()):
        rebuilt.update(layer, tuple(tensor.clone() for tensor in pair))
    expected = model(ids_of([4]), cache=cache)
    assert torch.equal(model(ids_of([4]), cache=rebuilt), expected)
    assert_same(expected[0], alone(model, [1, 2, 3, 4])[-1:])


@torch.no_grad()
def test_bfloat16_ragged_decoding_equals_one_by_one(model):
    """The same arithmetic in another batch: within a few units of bfloat16's last place."""
    low = Qwen3Model({**model.cfg, "dtype": torch.bfloat16})
    low.load_state_dict(model.state_dict())
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    cache = KVCache(LAYERS)
    low(ids_of([0, 0, 1, 2], [3, 4, 5, 6]), cache=cache, attention_mask=mask)
    logits = low(ids_of([7], [8]), cache=cache).float()
    for row, tokens in enumerate([[1, 2, 7], [3, 4, 5, 6, 8]]):
        expected = alone(low, tokens)[-1:].float()
        assert (logits[row] - expected).abs().max() <= expected.abs().max() * 2**-6
