"""The draw in C: the tokens that torch draws, nearer to float64, for any number of rows."""

import pytest
import torch
from small_model import small_model

from reasoning_from_scratch.fast.cut import fast_cut
from reasoning_from_scratch.fast.decode_library import FLAGS_BY_DTYPE
from reasoning_from_scratch.fast.decoding import (
    WIDE_VOCABULARY,
    draw_for,
    draw_in_c,
    load_library,
    torch_threads,
)
from reasoning_from_scratch.sampling import sample_next_token, stream_key, uniform_at

pytestmark = pytest.mark.skipif(
    load_library(torch.float32) is None, reason="this machine has no C compiler"
)
DTYPES = list(FLAGS_BY_DTYPE)
VOCABULARY = 8200  # not a whole number of the blocks in which it is summed
SETTINGS = {
    "all": (1.0, 1.0, 0),
    "cooler": (0.7, 1.0, 0),
    "top-p": (1.0, 0.9, 0),
    "top-k": (1.0, 1.0, 20),
    "both": (0.8, 0.95, 50),
    "greedy": (0.0, 1.0, 0),
}


def some_logits(rows, dtype, seed=0, vocabulary=VOCABULARY):
    """As a model's: most tokens are unlikely, some are not."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2.5 * torch.randn(rows, vocabulary, generator=generator)
    logits[:, :40] += 5
    return logits.to(dtype)


def uniform(rows, seed=0):
    keys = stream_key(seed, 0, 0, torch.arange(rows))
    return uniform_at(keys, torch.zeros(rows, dtype=torch.long))


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tokens_log_probabilities_and_entropies_are_torchs(dtype, settings):
    logits, u = some_logits(64, dtype), uniform(64)
    ours = draw_in_c(logits, u, *settings, fast_cut, keeps=True)
    theirs = sample_next_token(logits, u, *settings, fast_cut)
    assert torch.equal(ours.tokens, theirs.tokens)
    torch.testing.assert_close(ours.logprobs, theirs.logprobs, rtol=0, atol=2e-5)
    torch.testing.assert_close(ours.entropies, theirs.entropies, rtol=0, atol=2e-4)


def test_the_default_dtype_does_not_matter():
    """C writes float32."""
    logits, u = some_logits(3, torch.float32), uniform(3)
    expected = draw_in_c(logits, u, 1.0, 1.0, 0, fast_cut)
    torch.set_default_dtype(torch.float64)
    try:
        found = draw_in_c(logits, u, 1.0, 1.0, 0, fast_cut)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(found.logprobs, expected.logprobs)
    assert torch.equal(found.entropies, expected.entropies)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_hundred_thousand_draws(dtype):
    """Where u falls within a rounding error of the border between two tokens, torch, which sums in
    float32, may take the neighbor: about one draw in 5,000 here."""
    others = 0
    for seed in range(20):
        logits = some_logits(50, dtype, seed).repeat(100, 1)  # (5000, V)
        u = uniform(5000, seed)
        ours = draw_in_c(logits, u, 1.0, 1.0, 0, fast_cut)
        theirs = sample_next_token(logits, u)
        others += int((ours.tokens != theirs.tokens).sum())
        exact = logits[:50].double().log_softmax(-1).repeat(100, 1)
        drawn = exact.gather(1, ours.tokens[:, None])[:, 0]
        assert (ours.logprobs - drawn).abs().max() < 2e-6
    assert others < 60


def test_tokens_come_as_often_as_they_are_probable():
    logits = some_logits(1, torch.float32)
    probabilities = logits[0].double().softmax(-1)
    drawn = draw_in_c(logits.expand(20_000, -1), uniform(20_000), 1.0, 1.0, 0, fast_cut).tokens
    counts = drawn.bincount(minlength=VOCABULARY).double()
    often = probabilities > 1e-3
    error = (counts[often] / 20_000 - probabilities[often]).abs()
    assert (error < 5 * (probabilities[often] / 20_000).sqrt()).all()


@pytest.mark.parametrize("top_p, top_k", [(0.9, 0), (0.5, 0), (0.999, 0), (1.0, 7), (0.9, 300)])
def test_what_is_kept_is_the_smallest_set_that_reaches_top_p(top_p, top_k):
    """In float32 torch's sets may differ by a token at the border; in float64 they are these."""
    logits = some_logits(20, torch.float32)
    kept = draw_in_c(logits, uniform(20), 1.0, top_p, top_k, fast_cut, keeps=True).kept_ids()
    exact = logits.double().softmax(-1)
    for row, ids in zip(exact, kept, strict=True):
        ordered, order = row.sort(descending=True)
        among = ordered[: top_k or None]
        count = int((among.cumsum(0) < top_p * among.sum() - 1e-6).sum()) + 1
        assert abs(len(ids) - count) <= 1
        assert set(ids) == set(order[: len(ids)].tolist())
        assert ids == sorted(ids)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_among_equals_the_lower_token_stays(dtype):
    logits = torch.zeros(1, VOCABULARY, dtype=dtype)
    logits[0, 500:510] = 3.0
    draw = draw_in_c(logits, torch.tensor([0.5]), 1.0, 1.0, 4, fast_cut, keeps=True)
    assert draw.kept_ids() == [[500, 501, 502, 503]]
    assert draw_in_c(logits, torch.tensor([0.5]), 0.0, 1.0, 0, fast_cut).tokens.tolist() == [500]


def test_a_row_is_drawn_alike_alone_in_a_batch_and_by_any_threads():
    logits, u = some_logits(33, torch.bfloat16), uniform(33)
    together = draw_in_c(logits, u, 1.0, 0.95, 0, fast_cut)
    for count in (1, 3):
        with torch_threads(count):
            alone = [
                draw_in_c(logits[i : i + 1], u[i : i + 1], 1.0, 0.95, 0, fast_cut)
                for i in range(33)
            ]
        for i, draw in enumerate(alone):
            assert all(torch.equal(x[0], y[i]) for x, y in zip(draw[:3], together[:3], strict=True))


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_damaged_logits_show_in_the_log_probability_of_their_row_alone(value):
    logits = some_logits(3, torch.float32)
    logits[1, VOCABULARY - 1] = value
    draw = draw_in_c(logits, uniform(3), 1.0, 1.0, 0, fast_cut)
    assert draw.logprobs.isfinite().tolist() == [True, False, True]


def test_forbidden_tokens_are_never_drawn():
    logits = some_logits(200, torch.float32)
    logits[:, 100:] = -torch.inf
    draw = draw_in_c(logits, uniform(200), 1.0, 1.0, 0, fast_cut)
    assert draw.tokens.max() < 100 and draw.entropies.isfinite().all()


def test_only_a_wide_vocabulary_is_drawn_from_in_c():
    for vocabulary, in_c in ((WIDE_VOCABULARY - 1, False), (WIDE_VOCABULARY, True)):
        draw = draw_for(small_model(vocabulary), 8, 100)
        assert (getattr(draw, "func", None) is draw_in_c) == in_c
