"""Two threads beside a program that keeps one of their two cores busy. Prints a JSON object: per
piece of work, the seconds of processor time that it takes one thread, and two, the least of three
tries. Prints nothing where there are no two cores.

A process of its own: torch counts the cores when it is loaded."""

import json
import os
import subprocess
import sys
import threading
import time
from functools import partial

import torch
from small_model import read_prompts, several_steps, small_model

from reasoning_from_scratch.fast.decoding import decoder_for

# It ends by itself, should this process be killed.
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"


def products(x):
    for _ in range(500):
        x *= 1.001


@torch.no_grad()
def decoding(model):
    decoder = decoder_for(model, 8, 40)
    cache, tokens = read_prompts(model, 8)
    several_steps(decoder, cache, tokens, steps=40)


def measured(work, threads):
    torch.set_num_threads(threads)
    work()
    seconds = []
    for _ in range(3):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return min(seconds)


def main():
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return
    model = small_model(512, emb_dim=512, n_heads=8, head_dim=64, hidden_dim=1536)
    works = {
        "products": partial(products, torch.ones(1024, 1024)),
        "decoding": partial(decoding, model),
    }
    busy = subprocess.Popen([sys.executable, "-c", BUSY])
    os.sched_setaffinity(busy.pid, cores[1:])
    try:
        decoding(model)  # from here on, the package watches the cores
        while not any(thread.name == "team" for thread in threading.enumerate()):
            time.sleep(0.1)
        found = {name: [measured(work, n) for n in (1, 2)] for name, work in works.items()}
        print(json.dumps(found))
    finally:
        busy.kill()
        busy.wait()


main()
