"""How fast this machine is just now, for tests that limit what something may cost."""

import time

A_LOOP = 0.007  # seconds of CPU that the loop below takes on the machine the limits were set on


def slowness() -> float:
    """How many times slower than that machine this one is: at least 1. A busy neighbour on the same
    core makes it slower too, so ask right after what took too long."""
    best = 1e9
    for _ in range(3):
        start = time.process_time()
        text = ""
        for number in range(40_000):
            text = (text + chr(97 + number % 26))[-20:]
            text.find("xyz")
        best = min(best, time.process_time() - start)
    return max(1.0, best / A_LOOP)
