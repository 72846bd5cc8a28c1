"""What is drawn from, and the drawing: cut exactly, named by a formula, without state."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from policy import policy_distribution

from reasoning_from_scratch.ch04 import top_p_filter
from reasoning_from_scratch.sampling import cut, sample_next_token, stream_key, uniform_at

SMALLEST_U, LARGEST_U = 2.0**-23, 1 - 2.0**-23


def uniform(seed, step, problem, rollout, position):
    return uniform_at(stream_key(seed, step, problem, rollout), torch.as_tensor(position))


def kept_by_definition(row, top_p, top_k=0):
    """Token ids of the smallest set with mass at least top_p, the slow way: sort everything."""
    order = sorted(range(len(row)), key=lambda i: (-row[i], i))
    total = 1.0
    if top_k:
        order = order[:top_k]
        total = float(np.float32(math.fsum(row[i] for i in order)))
    target = np.float32(np.float32(total) * np.float32(top_p)) if top_k else np.float32(top_p)
    kept, mass = [], []
    for token in order:
        if np.float32(math.fsum(mass)) >= target:
            break
        kept.append(token)
        mass.append(row[token])
    return set(kept)


def nonzero_sets(rows):
    return [set(row.nonzero()[:, 0].tolist()) for row in rows]


def adversarial_rows(size):
    generator = torch.Generator().manual_seed(size)
    noise = torch.randn(size, generator=generator)
    one_hot = torch.full((size,), -40.0)
    one_hot[size // 2] = 40.0
    two_levels = torch.where(torch.arange(size) % 3 == 0, 1.0, 0.0)
    steps = (noise * 2).round()  # many ties everywhere, as in bfloat16
    falling = -torch.arange(size) * 0.01
    cliff = torch.cat([torch.zeros(size // 4), torch.full((size - size // 4,), -30.0)])
    rows = [
        noise,
        noise * 8,
        noise * 0.01,
        torch.zeros(size),
        one_hot,
        two_levels,
        steps,
        falling,
        falling.flip(0),
        cliff,
    ]
    return torch.stack(rows).softmax(-1)


@pytest.mark.parametrize("top_p", [1e-6, 0.1, 0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize("size", [1, 2, 5, 300, 6000])
def test_top_p_keeps_the_smallest_set(size, top_p):
    probas = adversarial_rows(size)
    filtered = top_p_filter(probas, top_p)
    for row, new, kept in zip(probas, filtered, nonzero_sets(filtered), strict=True):
        mass = row[list(kept)].double().sum().item()
        assert mass >= min(top_p, row.double().sum().item()) - 1e-6
        assert len(kept) == 1 or mass - row[list(kept)].min().item() < top_p + 1e-6
        assert kept == kept_by_definition(row.tolist(), top_p)
        assert torch.allclose(new.sum(), torch.tensor(1.0))
        ids = sorted(kept)
        assert torch.allclose(new[ids], row[ids] / row[ids].sum(), rtol=1e-5)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=12).filter(any),
    st.floats(0.01, 0.99),
)
def test_top_p_of_small_fractions(weights, top_p):
    """Integer weights: many exact ties and zeros."""
    probas = torch.tensor([weights], dtype=torch.float64)
    probas = probas / probas.sum()
    (kept,) = nonzero_sets(top_p_filter(probas, top_p))
    row = probas[0].tolist()
    mass = math.fsum(row[i] for i in kept)
    assert mass >= top_p - 1e-12
    assert mass - min(row[i] for i in kept) < top_p + 1e-12
    assert min(row[i] for i in kept) >= max([0, *(p for i, p in enumerate(row) if i not in kept)])


@pytest.mark.parametrize(
    "row, top_p, kept",
    [
        ([0.5, 0.25, 0.125, 0.125], 0.75, {0, 1}),
        ([0.5, 0.25, 0.125, 0.125], 0.7500001, {0, 1, 2}),
        ([0.125, 0.25, 0.125, 0.5], 0.875, {0, 1, 3}),  # of two equals the lower id
        ([0.7, 0.2, 0.1], 0.9, {0, 1}),  # although float32(.7) + float32(.2) < .9
        ([0.1] * 10, 0.3, {0, 1, 2}),
        ([0.2, 0.8], 0.0, {1}),  # never nothing
    ],
)
def test_top_p_on_paper(row, top_p, kept):
    assert nonzero_sets(top_p_filter(torch.tensor([row]), top_p)) == [kept]


def test_top_p_leaves_alone_what_it_should():
    probas = torch.tensor([[0.2, 0.3, 0.5]])
    assert top_p_filter(probas, None) is probas
    assert top_p_filter(probas, 1.0) is probas
    filtered = top_p_filter(torch.full((2, 3, 4), 0.25, dtype=torch.bfloat16), 0.5)
    assert filtered.dtype == torch.bfloat16 and filtered.shape == (2, 3, 4)
    assert filtered.eq(torch.tensor([0.5, 0.5, 0, 0])).all()


@pytest.mark.parametrize("size", [5, 6000])
@pytest.mark.parametrize("top_p, top_k", [(1.0, 1), (1.0, 3), (0.6, 4), (0.95, 50), (0.2, 10**6)])
def test_top_k_then_top_p_of_its_mass(size, top_p, top_k):
    probs = adversarial_rows(size)
    kept = nonzero_sets(cut(probs, top_p, top_k))
    for row, tokens in zip(probs.tolist(), kept, strict=True):
        expected = kept_by_definition(row, top_p, min(top_k, size))
        assert tokens == {i for i in expected if row[i] > 0}


CUTS = [(1.0, 0), (0.9, 0), (1.0, 5), (0.7, 30)]


@pytest.mark.parametrize("top_p, top_k", CUTS)
@pytest.mark.parametrize("size", [3, 900, 9000])
def test_the_draw_agrees_with_the_formula(size, top_p, top_k):
    logits = adversarial_rows(size).log().repeat(40, 1)
    u = uniform(1, 2, 3, 4, torch.arange(len(logits)))
    u[:10], u[10:20] = SMALLEST_U, LARGEST_U
    draw = sample_next_token(logits, u, 0.8, top_p, top_k)
    formula = policy_distribution(logits, 0.8, top_p, top_k)
    assert torch.allclose(draw.logprobs, formula.gather(-1, draw.tokens[:, None])[:, 0], atol=1e-5)
    entropy = -(formula.exp() * formula.clamp(min=-1e9)).sum(-1)
    assert torch.allclose(draw.entropies, entropy, atol=1e-4)


@pytest.mark.parametrize("top_p, top_k", CUTS)
@pytest.mark.parametrize("size", [3, 40, 9000])
def test_evenly_spaced_numbers_give_each_token_its_share(size, top_p, top_k):
    """The inverse of the distribution function, with no luck involved."""
    rows, points = adversarial_rows(size)[[0, 1, 6]], 512
    u = (torch.arange(points) + 0.5) / points
    for row in rows:
        logits = row.log().expand(points, -1)
        draw = sample_next_token(logits, u, 1.0, top_p, top_k)
        assert (draw.tokens.diff() >= 0).all()
        expected = policy_distribution(logits[:1], 1.0, top_p, top_k)[0].exp() * points
        counts = torch.bincount(draw.tokens, minlength=size)
        assert (counts - expected).abs().max() <= 1 + 1e-2


def test_a_token_of_probability_zero_is_never_drawn():
    logits = torch.full((4, 5000), -torch.inf)
    logits[:, [7, 4000]] = torch.tensor([0.0, 1.0])
    u = torch.tensor([SMALLEST_U, LARGEST_U, 0.2, 0.9])
    for top_p, top_k in CUTS:
        draw = sample_next_token(logits, u, 1.0, top_p, top_k)
        assert set(draw.tokens.tolist()) <= {7, 4000}
        assert draw.logprobs.isfinite().all() and draw.entropies.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [5, 9000])
def test_greedy_takes_the_lowest_of_equals(dtype, size):
    logits = torch.zeros(2, size, dtype=dtype)
    logits[0, [3, 4]] = 2.0
    logits[1, size - 2 :] = 1.0
    draw = sample_next_token(logits, torch.zeros(2), temperature=0.0, top_p=0.5, top_k=3)
    assert draw.tokens.tolist() == [3, size - 2]
    own = logits.float().log_softmax(-1).gather(-1, draw.tokens[:, None])[:, 0]
    assert torch.allclose(draw.logprobs, own)  # of the model itself, at temperature 1


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("top_p, top_k", CUTS)
def test_logits_that_are_not_finite_show(bad, temperature, top_p, top_k):
    logits = torch.zeros(3, 5000)
    logits[1, 70] = bad
    logits[2] = -torch.inf
    draw = sample_next_token(logits, torch.full((3,), 0.5), temperature, top_p, top_k)
    assert draw.logprobs.isfinite().tolist() == [True, False, False]
    assert ((draw.tokens >= 0) & (draw.tokens < 5000)).all()  # an embedding can look them up


# --- uniform numbers ---


def splitmix_uniform(seed, step, problem, rollout, position):
    """The same function in Python's unbounded integers."""
    full, golden = 2**64 - 1, 0x9E3779B97F4A7C15

    def mix(x):
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & full
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & full
        return x ^ (x >> 31)

    key = 0
    for number in (seed, step, problem, rollout):
        key = mix(((key ^ (number & full)) + golden) & full)
    return (mix((key + (position + 1) * golden) & full) >> 42) / 2**22 + 2**-23


numbers = st.integers(-(2**70), 2**70)


@settings(deadline=None)
@given(numbers, numbers, numbers, numbers, st.integers(0, 10**6))
def test_uniform_is_splitmix(seed, step, problem, rollout, position):
    u = uniform(seed, step, problem, rollout, position)
    assert u.item() == splitmix_uniform(seed, step, problem, rollout, position)
    assert SMALLEST_U <= u <= LARGEST_U


def test_uniform_never_changes():
    """Published figures depend on these numbers."""
    u = uniform(0, 0, 0, 0, torch.arange(3))
    assert [round(x, 6) for x in u.tolist()] == [0.47141, 0.724752, 0.303031]


def test_streams_are_told_apart():
    numbers = [(s, t, p, r) for s in range(6) for t in range(6) for p in range(6) for r in range(6)]
    keys = [stream_key(*four).item() for four in numbers]
    assert len(set(keys)) == 6**4
    assert stream_key(*torch.tensor(numbers).T).tolist() == keys  # many at once: the same


@pytest.mark.parametrize("axis", range(5))
def test_neighbouring_numbers_are_even_and_independent(axis):
    """Chi-squared over pairs of successive numbers along each of the five coordinates."""
    n, cells = 4000, 8

    def at(i):
        return [i if place == axis else 3 for place in range(5)]

    if axis == 4:
        u = uniform(3, 3, 3, 3, torch.arange(n + 1))
    else:
        u = torch.stack([uniform(*at(i)) for i in range(n + 1)])
    pairs = (u[:-1] * cells).long() * cells + (u[1:] * cells).long()
    counts = torch.bincount(pairs, minlength=cells**2)
    chi_squared = ((counts - n / cells**2) ** 2 / (n / cells**2)).sum().item()
    assert 30 < chi_squared < 110  # 63 degrees of freedom: mean 63, deviation 11
