"""As on a GPU: drawing several tokens before looking, and rows that stay empty, change nothing."""

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
from small_model import IN_BURSTS, small_model

from reasoning_from_scratch.fast.bursts import BurstBatch
from reasoning_from_scratch.sampling import PLAIN_ENGINE, Sampling, generate

MODEL = small_model()
PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9, 10], [11, 12], [0, 0, 3], [3, 1, 4, 1, 5, 9, 2, 6, 5]]
LONGEST = max(map(len, PROMPTS))


def rollouts(engine, max_new_tokens, **options):
    sampling = Sampling(max_new_tokens, **options)
    groups = generate(MODEL, PROMPTS, sampling, stop_ids={7, 12}, engine=engine)
    return [rollout for group in groups for rollout in group]


def same(found, wanted):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one.response_ids == other.response_ids and one.kept == other.kept
        assert one.stop_reason == other.stop_reason
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
        assert one.entropies == pytest.approx(other.entropies, abs=1e-4)


@pytest.fixture
def noted():
    """An engine that notes when it draws and when it looks, and after each draw how many rows its
    cache has and how long they are."""
    seen = SimpleNamespace(order=[], rows=[], widths=[])

    class Noted(BurstBatch):
        def decode_burst(self, unseen_steps=0):
            seen.order.append("draw")
            burst = super().decode_burst(unseen_steps)
            seen.rows.append(len(self.cache.lengths))
            seen.widths.append(self.cache.width)
            return burst

        def record_burst(self, burst):
            seen.order.append("look")
            return super().record_burst(burst)

    return replace(PLAIN_ENGINE, batch_class=lambda model: Noted), seen


@pytest.mark.parametrize("max_rows", [2, 7, 64])
def test_what_rows_draw_after_their_end_is_dropped(max_rows):
    options = dict(rollouts=3, sample_rows=max_rows, top_p=0.9, keep_sampling_mask=True)
    same(rollouts(IN_BURSTS, 21, **options), rollouts(PLAIN_ENGINE, 21, **options))


@pytest.mark.parametrize("limit", [7, 8, 17, 30, 40])
def test_the_next_tokens_are_drawn_before_the_last_are_looked_at(noted, limit):
    """Where no rollout waits for a row. Rows move together when half of their rollouts have ended.
    Until then empty rows are computed, but hold nothing: none outgrows the longest."""
    engine, seen = noted
    same(rollouts(engine, limit, rollouts=8), rollouts(PLAIN_ENGINE, limit, rollouts=8))
    assert seen.order.count("draw") == seen.order.count("look")
    assert (seen.order[:2] == ["draw", "draw"]) == (limit > 8)
    assert all(2 * after <= before for before, after in pairwise(seen.rows) if after != before)
    assert max(seen.widths) < LONGEST + limit
