"""End a run by force, again and again, until it is done; what the tests of this folder call.

Runs are forked from one warm process, so that a kill costs no start of Python.
Usage: kill_loop.py FOLDER SEED HOW:TIMES ...; the last line is JSON. HOW: see ENDINGS.
"""

import json
import os
import pty
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from toy import named, toy_config, toy_world, train

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files import disk
from reasoning_from_scratch.recipes import get_recipe
from rfs.report import metrics
from rfs.run.options import resumed_config

STEPS = 10
KINDS = {
    "plain": {"epochs": 2, "kl": "k3", "kl_coef": 0.01, "weight_decay": 0.1},
    "streaming": {
        "num_minibatches": 2,
        "recipe": "dr_grpo",
        **get_recipe("dr_grpo").changes,
        "keep_last": 1,
    },
}


def config(folder: Path, **changes):
    """Saves, evaluations, reports; a folder whose name begins with a kind has its settings."""
    kind = KINDS.get(Path(folder).name.rstrip("0123456789"), {})
    values = {
        "steps": STEPS,
        "problems_per_step": 2,
        "eval_every": 3,
        "save_every": 2,
        "rolling_every": 1,
        "keep_last": 2,
        "lr": 1e-2,
        "max_new_tokens": 3,
        "report_every": 2,
    }
    return toy_config(folder, **values | kind | changes)


@cache
def world(scratch: Path) -> dict:
    """What a run needs, which a disk that is full must not be asked for again."""
    return toy_world(scratch)


def start_or_resume(folder: Path, scratch: Path, quiet: bool = True):
    resume = (folder / "config.json").exists()
    asked = resumed_config(folder) if resume else config(folder)
    return train(asked, quiet=quiet, **world(scratch))


# ---- dying inside a write


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

    append = metrics.append
    metrics.append = torn_append
    disk.os = SimpleNamespace(**vars(os))
    disk.os.replace = killing(os.replace, after=countdown % 2)
    disk.os.fsync = killing(os.fsync, after=False)


# ---- the ways to end a run. Each forks one and returns its exit code, negative for a signal's.


def killed(folder: Path, scratch: Path, chance: random.Random) -> int:
    if chance.random() < 0.5:
        inside = chance.randrange(1, 150)
        return ended(child(folder, scratch, lambda: die_while_writing(inside)))
    return struck_by(signal.SIGKILL)(folder, scratch, chance)


def struck_by(*signals: int) -> Callable[[Path, Path, random.Random], int]:
    def struck(folder: Path, scratch: Path, chance: random.Random) -> int:
        pid = child(folder, scratch)
        for first, number in zip((True, False), signals, strict=False):
            time.sleep(chance.uniform(0, span[0] if first else 0.01))
            os.kill(pid, number)
        return ended(pid)

    return struck


def closed_terminal(folder: Path, scratch: Path, chance: random.Random) -> int:
    """The run has a terminal of its own, which is closed while it runs."""
    named(config(folder), **world(scratch))
    pid, terminal = pty.fork()
    if pid == 0:
        run_and_exit(folder, scratch, quiet=False)
    until = time.monotonic() + chance.uniform(0, span[0])
    os.set_blocking(terminal, False)
    while time.monotonic() < until:
        time.sleep(0.01)
        try:
            os.read(terminal, 65536)
        except OSError:
            pass  # nothing to read yet, or the run has ended
    os.close(terminal)
    return ended(pid)


def out_of_room(folder: Path, scratch: Path, chance: random.Random) -> int:
    """No file may grow beyond some size, so that writing ends in the middle."""
    size = int(10 ** chance.uniform(0, 5))
    limits = (size, resource.RLIM_INFINITY)
    return ended(child(folder, scratch, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits)))


def child(folder: Path, scratch: Path, prepare: Callable[[], None] = lambda: None) -> int:
    named(config(folder), **world(scratch))  # what the run begins with is there before it begins
    pid = os.fork()
    if pid == 0:
        prepare()
        run_and_exit(folder, scratch)
    return pid


def run_and_exit(folder: Path, scratch: Path, quiet: bool = True) -> None:
    code = 1
    try:
        code = 130 if start_or_resume(folder, scratch, quiet).stopped else 0
    except SystemExit as end:
        code = end.code
    except UserError as error:
        code = 2 if "\n" not in str(error) else traceback.print_exc() or 1
    except Exception:
        traceback.print_exc()
    except KeyboardInterrupt:
        code = 130  # before the first step, or after the last
    finally:
        os._exit(code)


def ended(pid: int) -> int:
    started = time.monotonic()
    _, status = os.waitpid(pid, 0)
    slowest[0] = max(slowest[0], time.monotonic() - started)
    return os.waitstatus_to_exitcode(status)


span = [1.0]  # seconds that a run takes here and now
slowest = [0.0]  # seconds from the last signal to the end of a process
# how -> (what ends the run, the exit codes that this may have; a negative one: died of a signal,
# which is right before the run has begun to listen)
ENDINGS = {
    "kill": (killed, {-signal.SIGKILL}),
    "term": (struck_by(signal.SIGTERM), {128 + signal.SIGTERM, -signal.SIGTERM}),
    "interrupt": (struck_by(signal.SIGINT), {130}),
    "interrupt_twice": (struck_by(signal.SIGINT, signal.SIGINT), {130}),
    "out_of_room": (out_of_room, {2}),
    "hangup": (closed_terminal, {128 + signal.SIGHUP, -signal.SIGHUP}),
}


def main(base: Path, seed: int, asked: dict[str, int]) -> None:
    torch.set_num_threads(1)
    # Also where we run in the background, or under nohup.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    started = time.monotonic()
    for kind in KINDS:  # undisturbed, to compare with
        start_or_resume(base / kind, base)
    span[0] = (time.monotonic() - started) / len(KINDS)
    results = {how: looped(base / how, how, count, seed) for how, count in asked.items()}
    print(json.dumps(results))


def looped(base: Path, how: str, times: int, seed: int) -> dict:
    base.mkdir()
    chance = random.Random(seed)
    end, codes = ENDINGS[how]
    seen: dict[int, int] = {}
    runs = dict.fromkeys(KINDS, 0)
    slowest[0] = 0.0
    while sum(seen.values()) < times:
        kind = list(KINDS)[sum(seen.values()) % 2]
        code = end(base / f"{kind}{runs[kind]}", base, chance)
        if code in codes:
            seen[code] = seen.get(code, 0) + 1
        elif code == 0:
            runs[kind] += 1
        else:
            sys.exit(f"{how}: a run ended with {code} after {seen}")
    for kind, number in runs.items():  # let the last ones end
        start_or_resume(base / f"{kind}{number}", base)
    return {"codes": seen, "runs": runs, "slowest": slowest[0]}


if __name__ == "__main__":
    pairs = (word.split(":") for word in sys.argv[3:])
    main(Path(sys.argv[1]), int(sys.argv[2]), {how: int(count) for how, count in pairs})
