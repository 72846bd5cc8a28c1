"""The thread that computes, and those who ask it."""

import sys
import threading
from concurrent.futures import wait

from reasoning_from_scratch.fast.engine import FAST
from reasoning_from_scratch.serve.worker import Worker


class NothingToScore:
    """A policy that is done at once: the thread takes the queue as often as it can."""

    def logprobs(self, rollouts):
        return [None for _ in rollouts]


def test_nothing_is_lost_that_is_asked_for_while_the_thread_takes_the_queue():
    worker = Worker(FAST, most_rows=8)
    worker.start()
    futures = []

    def ask():
        futures.extend(worker.score(NothingToScore(), [object()]) for _ in range(3000))

    askers = [threading.Thread(target=ask) for _ in range(4)]
    between = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns anywhere, in the middle of a line too
    try:
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
        lost = wait(futures, timeout=5).not_done
    finally:
        sys.setswitchinterval(between)
        worker.close()
    assert len(futures) == 12_000
    assert not lost
