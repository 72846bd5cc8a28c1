"""Sampling: what is drawn from, the drawing, and the batch that gives what plain sampling gives."""

import math
import random
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from policy import policy_distribution
from small_model import small_model

from reasoning_from_scratch.ch04 import top_p_filter
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.fast.cut import fast_cut
from reasoning_from_scratch.sampling import (
    Sampling,
    SamplingEngine,
    cut_by_sorting,
    generate,
    generate_each,
    sample_next_token,
    stream_key,
    uniform_at,
)

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


@pytest.mark.parametrize("size", [5, 6000])
@pytest.mark.parametrize("top_p, top_k", [(1.0, 1), (1.0, 3), (0.6, 4), (0.95, 50), (0.2, 10**6)])
def test_top_k_then_top_p_of_its_mass(size, top_p, top_k):
    probs = adversarial_rows(size)
    kept = nonzero_sets(cut_by_sorting(probs, top_p, top_k))
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
@pytest.mark.parametrize("cut", [cut_by_sorting, fast_cut])
def test_logits_that_are_not_finite_show(bad, temperature, top_p, top_k, cut):
    logits = torch.zeros(3, 5000)
    logits[1, 70] = bad
    logits[2] = -torch.inf
    draw = sample_next_token(logits, torch.full((3,), 0.5), temperature, top_p, top_k, cut)
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


# --- rollouts in a batch: what plain sampling gives, in any company ---
VOCAB = 13
MODEL = small_model(VOCAB)
PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9, 10], [11, 12], [0, 0, 3], [3, 1, 4, 1, 5, 9, 2, 6, 5]]
STOP = {7, 12}
# temperature, top_p, top_k
TEMPERED_CUTS = [(1.0, 1.0, 0), (0.8, 0.9, 0), (1.3, 1.0, 4), (0.9, 0.7, 6)]


def ids(groups):
    return [[sample.response_ids for sample in group] for group in groups]


HOW = ("stop_ids", "streams", "engine")


def draw(prompts, rollouts=1, max_new_tokens=12, model=MODEL, **options):
    how = {"stop_ids": STOP} | {name: options.pop(name) for name in HOW if name in options}
    sampling = Sampling(max_new_tokens, rollouts=rollouts, **options)
    return generate(model, prompts, sampling, **how)


@torch.no_grad()
def plain_greedy(prompt, max_new_tokens=12):
    """No batch, no cache: the whole text through the model for every token."""
    new = []
    while len(new) < max_new_tokens and not (new and new[-1] in STOP):
        new.append(MODEL(torch.tensor([prompt + new]))[0, -1].argmax().item())
    return new


def test_batched_is_plain():
    assert ids(draw(PROMPTS, temperature=0.0)) == [[plain_greedy(p)] for p in PROMPTS]


@torch.no_grad()
def test_a_sampled_rollout_is_plain_too():
    """One by one, without a cache: the uniform number picks from the policy's own sums."""
    for number, prompt in enumerate(PROMPTS):
        (sample,) = draw([prompt], temperature=0.8, top_p=0.9, seed=5, streams=[(2, number)])[0]
        text = list(prompt)
        for position, token in enumerate(sample.response_ids):
            logits = MODEL(torch.tensor([text]))[:, -1]
            cumulative = policy_distribution(logits, 0.8, 0.9)[0].exp().cumsum(-1)
            u = uniform_at(stream_key(5, 2, number, 0), torch.tensor(position))
            assert token == torch.searchsorted(cumulative, u, right=True)
            text.append(token)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 4), st.sampled_from(TEMPERED_CUTS))
def test_any_company_in_any_order(shuffle, max_rows, num_samples, policy):
    """Random batches of random prompts in random order: always the rollouts drawn alone."""
    rng = random.Random(shuffle)
    chosen = rng.sample(range(len(PROMPTS)), rng.randint(1, len(PROMPTS)))
    limit = rng.randint(1, 14)
    temperature, top_p, top_k = policy
    policy = dict(temperature=temperature, top_p=top_p, top_k=top_k, max_new_tokens=limit)
    together = draw(
        [PROMPTS[i] for i in chosen],
        num_samples,
        sample_rows=max_rows,
        streams=[(3, i) for i in chosen],
        **policy,
    )
    for i, group in zip(chosen, together, strict=True):
        (singly,) = draw([PROMPTS[i]], num_samples, streams=[(3, i)], sample_rows=1, **policy)
        for sample, alone in zip(group, singly, strict=True):
            assert sample.response_ids == alone.response_ids
            assert sample.stop_reason == alone.stop_reason
            torch.testing.assert_close(sample.logprobs, alone.logprobs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("temperature, top_p, top_k", TEMPERED_CUTS)
@torch.no_grad()
def test_what_is_recorded_is_what_a_fresh_forward_pass_gives(temperature, top_p, top_k):
    """Log-probabilities, entropies, and if asked for the sets that were sampled from."""
    cut = dict(temperature=temperature, top_p=top_p, top_k=top_k)
    groups = draw(PROMPTS, 4, sample_rows=5, keep_sampling_mask=True, **cut)
    for prompt, group in zip(PROMPTS, groups, strict=True):
        for sample in group:
            logits = MODEL(torch.tensor([prompt + sample.response_ids]))[0, len(prompt) - 1 : -1]
            policy = policy_distribution(logits, **cut)
            own = policy.gather(-1, torch.tensor(sample.response_ids)[:, None])[:, 0]
            torch.testing.assert_close(torch.tensor(sample.logprobs), own, atol=1e-5, rtol=0)
            entropies = torch.special.entr(policy.exp()).sum(-1)
            recorded = torch.tensor(sample.entropies)
            torch.testing.assert_close(recorded, entropies, atol=1e-4, rtol=0)
            kept = [row.isfinite().nonzero()[:, 0].tolist() for row in policy]
            assert sample.kept == [[] if len(tokens) == VOCAB else tokens for tokens in kept]
    assert draw(PROMPTS, **cut)[0][0].kept is None


def test_why_a_rollout_stopped():
    samples = [s for group in draw(PROMPTS, 40) for s in group]
    assert {s.stop_reason for s in samples} == {"stop", "length"}
    for s in samples:
        assert s.finished == (s.stop_reason == "stop") == (s.response_ids[-1] in STOP)
        assert not STOP & set(s.response_ids[:-1])
        assert len(s.response_ids) == 12 or s.finished
        assert len(s.response_ids) == len(s.logprobs) == len(s.entropies)


def test_a_stop_token_at_the_very_limit_is_a_stop():
    group = draw(PROMPTS[:1], 30, max_new_tokens=40)[0]
    lengths = {len(sample.response_ids) for sample in group if sample.finished}
    assert len(lengths) > 5
    for limit in lengths:
        cut = draw(PROMPTS[:1], 30, max_new_tokens=limit)[0]
        for sample, whole in zip(cut, group, strict=True):
            assert sample.response_ids == whole.response_ids[:limit]
            stopped = whole.finished and len(whole.response_ids) <= limit
            assert sample.stop_reason == ("stop" if stopped else "length")


def test_end_of_text_equal_to_padding():
    """Prompts are padded with token 0; as a stop id or inside a prompt it is a token like any."""
    groups = draw([[0, 0, 0], [0], [3, 0, 2, 0, 1]], 6, stop_ids={0}, sample_rows=4)
    for prompt, group in zip([[0, 0, 0], [0], [3, 0, 2, 0, 1]], groups, strict=True):
        streams = [(0, groups.index(group))]
        (singly,) = draw([prompt], 6, stop_ids={0}, streams=streams, sample_rows=1)
        for sample, alone in zip(group, singly, strict=True):
            assert alone.response_ids == sample.response_ids
    assert any(s.response_ids[-1] == 0 for group in groups for s in group)
    assert all(0 not in s.response_ids[:-1] for group in groups for s in group)


def test_a_larger_group_begins_with_the_smaller_one():
    five, two = ids(draw(PROMPTS, 5)), ids(draw(PROMPTS, 2))
    assert [group[:2] for group in five] == two


def test_streams_are_by_seed_step_and_problem():
    prompts = [PROMPTS[0]] * 4
    same = ids(draw(prompts, streams=[(1, 1)] * 4))
    assert same == [same[0]] * 4
    others = ids(draw(prompts, streams=[(1, 1), (1, 2), (2, 1), (0, 0)], max_new_tokens=40))
    assert len({tuple(group[0]) for group in others}) == 4
    assert ids(draw(prompts, 3, seed=1)) != ids(draw(prompts, 3, seed=2))
    assert ids(draw(prompts, 3)) == ids(draw(prompts, 3, streams=[(0, i) for i in range(4)]))


@pytest.mark.parametrize("max_rows", [1, 4, 64])
def test_each_group_is_announced_once_when_it_is_complete(max_rows):
    sampling = Sampling(12, rollouts=3, sample_rows=max_rows)
    calls = []
    for prompt, samples in generate_each(MODEL, PROMPTS, sampling, stop_ids=STOP):
        assert all(s.stop_reason for s in samples)
        calls.append((prompt, [s.response_ids for s in samples]))
    groups = draw(PROMPTS, 3, sample_rows=max_rows)
    assert sorted(calls) == list(enumerate(ids(groups)))
    assert max_rows > 1 or [prompt for prompt, _ in calls] == list(range(len(PROMPTS)))


class Spy:
    """Stands before a model and counts what passes through it."""

    def __init__(self, model):
        self.model, self.cfg, self.tok_emb = model, model.cfg, model.tok_emb
        self.prefilled, self.steps = [], []

    def fill_cache(self, in_idx, cache, attention_mask=None):
        real = torch.ones_like(in_idx) if attention_mask is None else attention_mask
        self.prefilled += real.sum(-1).tolist()
        self.model.fill_cache(in_idx, cache, attention_mask)

    def __call__(self, in_idx, cache=None):
        self.steps.append(len(in_idx))
        return self.model(in_idx, cache=cache)


@pytest.mark.parametrize("max_rows", [3, 8, 64])
def test_each_prompt_is_prefilled_once_and_no_row_is_idle(max_rows):
    spy = Spy(MODEL)
    groups = draw(PROMPTS, 4, model=spy, sample_rows=max_rows)
    assert spy.prefilled == [len(p) for p in PROMPTS]
    assert max(spy.steps) == min(max_rows, 24)
    assert sum(spy.steps) == sum(len(s.response_ids) for group in groups for s in group)


def test_what_all_prompts_begin_with_is_read_once():
    start = [i % VOCAB for i in range(3, 70)]
    prompts = [start, start + [5, 6, 7], start + [5], start, start[:-1]]
    spy = Spy(MODEL)
    found = draw(prompts, 2, 9, model=spy, sample_rows=4)
    assert spy.prefilled == [65, 2, 5, 3, 2, 1]
    alone = [draw([p], 2, max_new_tokens=9, streams=[(0, i)])[0] for i, p in enumerate(prompts)]
    assert ids(found) == ids(alone)


def test_what_is_raised_around_a_step_ends_the_sampling():
    steps = []

    @contextmanager
    def third_time_unlucky(model):
        steps.append(len(steps))
        if len(steps) == 3:
            raise InterruptedError
        yield

    engine = SamplingEngine(step_context=third_time_unlucky)
    with pytest.raises(InterruptedError):
        draw(PROMPTS, 4, stop_ids=set(), engine=engine)
    assert steps == [0, 1, 2]


def test_damaged_weights_are_named():
    model = small_model(VOCAB)
    with torch.no_grad():
        model.out_head.weight[4, 0] = math.nan
    for policy in (dict(temperature=0.0), dict(), dict(top_p=0.9), dict(top_k=2)):
        with pytest.raises(UserError, match="not finite.*prompt 0, after 0 sampled"):
            draw(PROMPTS, max_new_tokens=3, model=model, **policy)


@pytest.mark.parametrize(
    "prompts, options, message",
    [
        ([[1], []], {}, "prompt 1 has no tokens"),
        ([[1, VOCAB]], {}, "tokenizer belongs to another model"),
        ([[-1]], {}, "outside of the model's vocabulary"),
        ([[1]], {"temperature": -0.1}, "temperature is -0.1"),
        ([[1]], {"temperature": 1e-38}, "temperature is 1e-38"),
        ([[1]], {"temperature": math.nan}, "temperature is nan"),
        ([[1]], {"top_p": 0.0}, "top_p is 0.0"),
        ([[1]], {"top_p": 1.1}, "top_p is 1.1, but must be above 0 and at most 1"),
        ([[1]], {"top_k": -1}, "top_k is -1"),
        ([[1]], {"rollouts": 0}, "rollouts is 0"),
        ([[1]], {"max_new_tokens": 0}, "max_new_tokens is 0"),
        ([[1]], {"streams": []}, "0 random streams for 1 prompts"),
    ],
)
def test_requests_that_make_no_sense(prompts, options, message):
    with pytest.raises(UserError, match=message):
        draw(prompts, **options)


def test_sampling_leaves_no_gradients_and_no_mode_behind():
    MODEL.train()
    draw(PROMPTS)
    assert MODEL.training and all(p.grad is None for p in MODEL.parameters())
    MODEL.eval()


# --- the distribution over whole answers ---


@torch.no_grad()
def exact_pairs(model, prompt, temperature, top_p, top_k):
    """The probability of each pair of first tokens, by enumeration."""
    first = policy_distribution(model(torch.tensor([prompt]))[0, -1], temperature, top_p, top_k)
    texts = torch.tensor([[*prompt, token] for token in range(len(first))])
    second = policy_distribution(model(texts)[:, -1], temperature, top_p, top_k)
    return (first[:, None] + second).exp().flatten()  # (V * V,)


def chi_squared_deviations(counts, probabilities):
    """How many standard deviations chi-squared lies from its mean, over cells not too rare."""
    expected = probabilities * counts.sum()
    assert (counts[probabilities == 0] == 0).all()
    common = expected >= 5
    cells = torch.cat([counts[common], counts[~common].sum()[None]]).double()
    expected = torch.cat([expected[common], expected[~common].sum()[None]]).double()
    chi_squared = ((cells - expected) ** 2 / expected.clamp(min=1e-9)).sum().item()
    freedom = len(cells) - 1
    return (chi_squared - freedom) / math.sqrt(2 * freedom)


@pytest.mark.parametrize("temperature, top_p, top_k", TEMPERED_CUTS)
def test_batched_samples_have_the_exact_distribution(temperature, top_p, top_k):
    model, prompt = small_model(5, sharpness=3.0, n_layers=1), [1, 2]
    exact = exact_pairs(model, prompt, temperature, top_p, top_k)
    assert abs(exact.sum() - 1) < 1e-5
    policy = dict(temperature=temperature, top_p=top_p, top_k=top_k)
    (group,) = draw([prompt], 6000, 2, model, stop_ids=set(), sample_rows=2000, **policy)
    pairs = torch.tensor([s.response_ids for s in group])
    counts = torch.bincount(pairs[:, 0] * 5 + pairs[:, 1], minlength=25)
    assert abs(chi_squared_deviations(counts, exact)) < 3.5
    wrong = exact_pairs(model, prompt, temperature * 1.3, top_p, top_k)
    assert top_k == 6 or chi_squared_deviations(counts, wrong) > 5  # the test can fail
