"""The thread that computes, and those who ask it."""

import sys
from concurrent.futures import ThreadPoolExecutor, wait
from types import SimpleNamespace

import pytest

from reasoning_from_scratch import Sampling, generate, load_model_and_tokenizer
from reasoning_from_scratch.fast.decoding import CompiledDecoder
from reasoning_from_scratch.sampling import stream_key
from rfs.engine import FAST
from rfs.serve import worker as serve_worker
from rfs.serve.models import frozen_policy
from rfs.serve.worker import Request, Stops, Worker

# A policy that is done at once: the thread takes the queue as often as it can.
NOTHING_TO_SCORE = SimpleNamespace(logprobs=lambda rollouts: [None for _ in rollouts])


def test_nothing_is_lost_that_is_asked_for_while_the_thread_takes_the_queue():
    worker = Worker(FAST, max_rows=8)
    worker.start()
    futures = []

    def ask(asker):
        futures.extend(worker.score(NOTHING_TO_SCORE, [object()]) for _ in range(3000))

    between = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns anywhere, in the middle of a line too
    try:
        with ThreadPoolExecutor(4) as askers:
            list(askers.map(ask, range(4)))
        lost = wait(futures, timeout=5).not_done
    finally:
        sys.setswitchinterval(between)
        worker.close()
    assert len(futures) == 12_000
    assert not lost


def test_many_temperatures_take_turns_and_share_the_weights(monkeypatch):
    """Each temperature has a batch of its own, with a cache; there may not be any number of them,
    nor may each have a copy of the weights."""
    policy = frozen_policy(*load_model_and_tokenizer("tiny"))
    worker, most, heads, prompt = Worker(FAST, max_rows=8), [], set(), [1, 2, 3]
    step = worker.step

    def looking(name):
        most.append(sum(bool(requests) for _, requests in worker.batches.values()))
        decoder = worker.batches[name][0].decoder
        heads.add(decoder.weights.head.weights if isinstance(decoder, CompiledDecoder) else 0)
        step(name)

    monkeypatch.setattr(worker, "step", looking)
    temperatures = [1 + number / 10 for number in range(40)]
    key = int(stream_key(0, 0, 0, 0))
    requests = [Request(policy, prompt, [key], 6, temperature=t) for t in temperatures]
    futures = [worker.sample(request) for request in requests]
    worker.start()
    try:
        found = [future.result(timeout=60)[0].response_ids for future in futures]
    finally:
        worker.close()
    assert max(most) == serve_worker.MAX_BATCHES and len(heads) == 1
    for temperature, ids in list(zip(temperatures, found, strict=True))[::13]:
        sampling = Sampling(6, temperature=temperature, rollouts=1)
        ((expected,),) = generate(policy.model, [prompt], sampling, stop_ids=set(), engine=FAST)
        assert ids == expected.response_ids


@pytest.fixture
def worker():
    running = Worker(FAST, max_rows=8)
    running.start()
    yield running
    running.close()


def test_a_batch_without_rollouts_keeps_no_cache(worker):
    policy = frozen_policy(*load_model_and_tokenizer("tiny"))
    worker.sample(Request(policy, [1, 2], [7, 8], 5)).result(timeout=60)
    looking = worker.submit(lambda: [batch.cache for batch, _ in worker.batches.values()])
    assert looking.result(timeout=60) == [None]
    (again,) = worker.sample(Request(policy, [1, 2], [7], 5)).result(timeout=60)
    assert len(again.response_ids) == 5


def test_the_thread_outlives_a_request_that_has_no_policy(worker):
    with pytest.raises(AttributeError):
        worker.sample(Request(None, [1, 2], [7], 5)).result(timeout=60)
    assert worker.submit(lambda: 5).result(timeout=60) == 5


def test_a_request_that_waits_for_a_batch_is_answered_when_the_server_stops(monkeypatch):
    monkeypatch.setattr(serve_worker, "MAX_BATCHES", 0)
    worker = Worker(FAST, max_rows=8)
    policy = frozen_policy(*load_model_and_tokenizer("tiny"))
    future = worker.sample(Request(policy, [1, 2], [7], 5, stops=Stops()))
    worker.start()
    while not worker.postponed:
        pass
    worker.close()
    assert "the server is stopping" in str(future.exception(timeout=5))
