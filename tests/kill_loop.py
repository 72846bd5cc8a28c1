"""Kill a run again and again until it has ended; run by test_resume.py in a process of its own.

Children are forked from one warm process, so that a kill costs no start of Python.
Usage: kill_loop.py FOLDER KILLS SEED
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from toy import toy_config, toy_world

from reasoning_from_scratch import disk, run_folder, transfers
from reasoning_from_scratch.run_start import resumed_config
from reasoning_from_scratch.trainer import train


def config(folder, **changes):
    return toy_config(folder, steps=10, problems_per_step=2, eval_every=3, save_every=2,
                      rolling_every=1, keep_last=2, lr=1e-2, kl="k3", kl_coef=0.01,
                      epochs=2, weight_decay=0.1, max_new_tokens=3, **changes)  # fmt: skip


def start_or_resume(folder: Path, scratch: Path) -> None:
    resume = (folder / "config.json").exists()
    asked = resumed_config(folder) if resume else config(folder)
    train(asked, quiet=True, **toy_world(scratch))


def die_while_writing(countdown: int) -> None:
    """SIGKILL at the countdown-th rename, fsync or append, after half of an append."""
    left = [countdown]

    def tick() -> bool:
        left[0] -= 1
        return left[0] == 0

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def killing(original, after):
        def run(*given):
            if tick():
                if after:
                    original(*given)
                die()
            return original(*given)

        return run

    def torn_append(path, text):
        if tick():
            append(path, text[: len(text) // 2])
            die()
        append(path, text)

    append = run_folder.append
    run_folder.append = torn_append
    for module in (disk, transfers):
        module.os = type("Os", (), {**vars(os), "replace": staticmethod(
            killing(os.replace, after=countdown % 2)), "fsync": staticmethod(
            killing(os.fsync, after=False))})  # fmt: skip


def child(folder: Path, scratch: Path, countdown: int | None) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if countdown:
                die_while_writing(countdown)
            start_or_resume(folder, scratch)
            code = 0
        finally:
            os._exit(code)
    return pid


def main(base: Path, kills: int, seed: int) -> None:
    torch.set_num_threads(1)
    chance = random.Random(seed)
    done, finished = 0, 0
    while done < kills:
        folder = base / f"run{finished}"
        inside = chance.random() < 0.5
        pid = child(folder, base, chance.randrange(1, 150) if inside else None)
        if not inside:
            time.sleep(chance.uniform(0.0, 0.6))
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            done += 1
        elif os.WEXITSTATUS(status) != 0:
            sys.exit(f"a run failed instead of being killed, after {done} kills")
        else:
            finished += 1
    for number in range(finished + 1):  # let the last one end
        start_or_resume(base / f"run{number}", base)
    print(done, finished + 1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
