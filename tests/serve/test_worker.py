"""The thread that computes, and those who ask it."""

import sys
from concurrent.futures import ThreadPoolExecutor, wait
from types import SimpleNamespace

from reasoning_from_scratch.fast.engine import FAST
from reasoning_from_scratch.serve.worker import Worker

# A policy that is done at once: the thread takes the queue as often as it can.
NOTHING_TO_SCORE = SimpleNamespace(logprobs=lambda rollouts: [None for _ in rollouts])


def test_nothing_is_lost_that_is_asked_for_while_the_thread_takes_the_queue():
    worker = Worker(FAST, most_rows=8)
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
