"""Top-p and top-k of wide rows: the same as the plain way, which sorts them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoning_from_scratch import sampling
from reasoning_from_scratch.fast import cut as fast
from tests.test_sampling import adversarial_rows

CUTS = [(0.0, 0), (1e-6, 0), (0.3, 0), (0.9, 0), (0.9999999, 0), (1.0, 7), (0.8, 300), (0.5, 40)]


@pytest.mark.parametrize("cut", [fast.fast_cut, fast.cut_by_digits])
@pytest.mark.parametrize("size", [5, 300, 6000])
@pytest.mark.parametrize("top_p, top_k", CUTS)
def test_fast_is_plain(size, top_p, top_k, cut):
    probs = adversarial_rows(size)
    assert torch.equal(cut(probs, top_p, top_k), sampling.cut_by_sorting(probs, top_p, top_k))


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=40).filter(any),
    st.sampled_from([1, 0.25, 2**-10, 2**-40]),
    st.floats(0.01, 1.0),
    st.integers(0, 12),
)
def test_digits_are_plain_for_ties_zeros_and_tiny_probabilities(weights, least, top_p, top_k):
    """Weights of few sizes, some of them scaled down: ties everywhere, also where the cut is."""
    row = torch.tensor([weights], dtype=torch.float32)
    row[:, ::3] *= least
    probs = row / row.sum()
    if not probs.isfinite().all():
        return
    for cut_p in (top_p, float(np.float32(probs[0, 0]))):  # also a target that is met exactly
        if cut_p > 0:
            found = fast.cut_by_digits(probs, cut_p, top_k)
            assert torch.equal(found, sampling.cut_by_sorting(probs, cut_p, top_k))


def test_digits_of_what_is_no_number():
    """Damaged logits must not become an index that a GPU stumbles over."""
    probs = torch.full((2, 3000), 1 / 3000)
    probs[1] = torch.nan
    found = fast.cut_by_digits(probs, 0.9, 5)
    assert torch.equal(found[:1], sampling.cut_by_sorting(probs[:1], 0.9, 5))
    assert found[1].isnan().all()


@pytest.mark.parametrize("count", [2, 17, 256, 400])
@pytest.mark.parametrize("top_p, top_k", CUTS)
def test_candidates_are_plain_also_where_they_do_not_suffice(count, top_p, top_k):
    probs, count = adversarial_rows(6000), max(count, top_k + 1)
    found = fast.cut_by_candidates(probs, top_p, top_k, count)
    assert torch.equal(found, sampling.cut_by_sorting(probs, top_p, top_k))
