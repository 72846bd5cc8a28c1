"""Rollouts that join a batch while others are drawn: the same tokens, and nothing read twice."""

from unittest.mock import Mock

import pytest
import torch

from reasoning_from_scratch import sampling
from reasoning_from_scratch.sampling import Sampling, generate, stream_key
from rfs.engine import FAST
from rfs.serve.open_batch import OpenBatch
from tests.test_sampling import PROMPTS, small_model


class Stops:
    """Ends its rollout at token 0, and hears when that was."""

    def __init__(self, leaves_after=None):
        self.left, self.leaves_after = False, leaves_after

    def hear(self, response_ids, stopped):
        return None if response_ids[-1] == 0 or len(response_ids) == self.leaves_after else []

    def leave(self, rollout):
        self.left, rollout.finished = True, rollout.response_ids[-1] == 0


def joined(model, prompts, sampling, steps_between, engine):
    """12 rollouts as 12 requests, with some steps between two of them."""
    batch, found = OpenBatch(model, sampling, engine), []
    for i, prompt in enumerate(prompts):
        for j in range(4):
            key = int(stream_key(sampling.seed, 0, i, j))
            found += batch.join(list(prompt), sampling.max_new_tokens, [key], [Stops()])
            for _ in range(steps_between):
                batch.step()
    while batch.rollouts:
        batch.step()
    return batch, found


@pytest.mark.parametrize("engine", [sampling.PLAIN_ENGINE, FAST], ids=["plain", "fast"])
@pytest.mark.parametrize("steps_between", [0, 1, 5, 50])
@pytest.mark.parametrize("most_rows", [3, 64])
def test_whoever_joins_later_draws_what_generate_draws(engine, steps_between, most_rows):
    model, asked = small_model(), Sampling(40, rollouts=4, sample_rows=most_rows)
    groups = generate(model, PROMPTS, asked, stop_ids={0}, engine=engine)
    _, found = joined(model, PROMPTS, asked, steps_between, engine)
    expected = [rollout for group in groups for rollout in group]
    assert [r.response_ids for r in found] == [r.response_ids for r in expected]
    assert [r.finished for r in found] == [r.finished for r in expected]
    logprobs = [[x for r in rollouts for x in r.logprobs] for rollouts in (found, expected)]
    assert logprobs[0] == pytest.approx(logprobs[1], abs=1e-4)


def test_equal_prompts_that_wait_together_are_read_once(monkeypatch):
    spy = Mock(wraps=sampling._prefill)
    monkeypatch.setattr(sampling, "_prefill", spy)
    joined(small_model(), PROMPTS, Sampling(40, rollouts=4), 0, sampling.PLAIN_ENGINE)
    read = [prompt for call in spy.call_args_list for prompt in call.args[2]]
    assert read == PROMPTS


def test_an_open_batch_keeps_nothing_of_what_is_over():
    batch, _ = joined(small_model(), PROMPTS * 20, Sampling(5), 3, sampling.PLAIN_ENGINE)
    assert len(batch.prompts) <= 4 and batch.rows == [] and batch.cache is None


def test_whoever_leaves_frees_the_row():
    batch = OpenBatch(small_model(), Sampling(100), sampling.PLAIN_ENGINE)
    keys = [int(stream_key(0, 0, 0, i)) for i in range(2)]
    partners = [Stops(leaves_after=2), Stops()]
    short, long = batch.join([1, 2], 100, keys, partners)
    batch.step(), batch.step(), batch.step()
    assert partners[0].left and len(batch.rows) == 1
    assert len(short.response_ids) <= 2 < len(long.response_ids)


def test_what_else_was_likely():
    model = small_model()
    batch = OpenBatch(model, Sampling(6, temperature=0.7), sampling.PLAIN_ENGINE)
    noted, other = (
        batch.join([1, 2, 3], 6, [key], [Stops()], likely)[0] for key, likely in ((5, 3), (6, 0))
    )
    while batch.step():
        pass
    ids = torch.tensor([noted.prompt_ids + noted.response_ids])
    logprobs = (model(ids)[0] / 0.7).log_softmax(-1)  # (T, V)
    assert not other.likely and len(noted.likely) == len(noted.response_ids)
    for place, found in enumerate(noted.likely, 2):
        best = logprobs[place].topk(3)
        assert [token for token, _ in found] == best.indices.tolist()
        assert [value for _, value in found] == pytest.approx(best.values.tolist(), abs=1e-4)
