"""A study: one run for each arm, learning rate and seed, several in parallel.

    every = trials(arms, rates, range(3))             # arms x rates x seeds
    for trial, result in study(work, every, jobs):    # work(trial) -> result, in any order
        ...                                           # store it: a kill then loses no more

`rfs compare` is a study of recipes. In studies/regimes.py an arm is any change of a run.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from threading import Event, Thread
from typing import TypeVar

import torch

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.disk import write_atomically
from reasoning_from_scratch.problems import is_in_file, kind_and_file
from reasoning_from_scratch.text import read_values
from rfs.config import PLACES, RunConfig, to_json
from rfs.evaluation.evaluate import progress_bar, short_hash
from rfs.run.folder import RunFolder, disk_errors_name
from rfs.run.options import resolved, resumed_config
from rfs.run.origin import FILES, FORMULAS, SETS, with_whole_files, with_whole_paths
from rfs.run.start import TrainResult, train
from rfs.tasks.source import AT_HELD_OUT

Arm = TypeVar("Arm", bound=Hashable)  # what is compared; str() says its name
Result = TypeVar("Result")

HASHES_FILE = "named_files.json"  # in a run's folder: a hash of each file that the run names


@dataclass(frozen=True)
class Trial:
    """One run of a study."""

    arm: Hashable
    lr: float | None  # None: what suits the model
    seed: int

    def __str__(self) -> str:
        rate = "" if self.lr is None else f", lr {self.lr:g}"
        return f"{self.arm}{rate}, seed {self.seed}"


def trials(
    arms: Iterable[Arm], rates: Callable[[Arm], Sequence[float | None]], seeds: range
) -> list[Trial]:
    """All trials, seed by seed, so that a study that is stopped early has complete seeds.
    `rates(arm)`: the learning rates that an arm runs with."""
    arms = list(arms)
    return [Trial(arm, lr, seed) for seed in seeds for arm in arms for lr in rates(arm)]


def study(
    work: Callable[[Trial], Result], every: Sequence[Trial], jobs: int
) -> Iterator[tuple[Trial, Result]]:
    """Yields each trial with its result, as soon as it is done.

    One job works in this process, several in as many others, which share the cores. If the study
    ends early, by Ctrl-C or an error, runs that are still going save what they have.
    """
    if jobs < 1:
        raise UserError(f"--jobs is {jobs}, but must be at least 1")
    side_by_side = min(jobs, len(every))
    try:
        if side_by_side > 1:
            yield from in_processes(work, every, side_by_side)
        else:
            yield from ((trial, work(trial)) for trial in every)
    except KeyboardInterrupt:
        print("run the same command again to continue from here", file=sys.stderr)
        raise


@contextmanager
def steps_counted(folders: Sequence[str | Path], steps: int) -> Iterator[None]:
    """Shows how many steps all runs have made together; each writes a line per step."""
    files = [Path(folder) / "metrics.jsonl" for folder in folders]
    over = Event()
    bar = progress_bar(steps * len(files), words="training", unit="step")

    def look() -> None:
        while not over.wait(1.0):
            done = sum(file.read_bytes().count(b"\n") for file in files if file.is_file())
            bar.update(done - bar.n)

    watcher = Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        bar.close()


def in_processes(
    work: Callable[[Trial], Result], every: Sequence[Trial], jobs: int
) -> Iterator[tuple[Trial, Result]]:
    context = get_context("spawn")  # torch's threads do not survive a fork
    threads = max(1, cores() // jobs)
    with ProcessPoolExecutor(jobs, context, begin_process, (threads,)) as pool:
        # A terminal sends Ctrl-C to all processes, and this one ends the others. While they import
        # they ignore it, as they were started; once a run has begun, it saves and stops by itself.
        heard = signal.signal(signal.SIGINT, signal.SIG_IGN)
        asked = {pool.submit(in_process, work, trial): trial for trial in every}
        signal.signal(signal.SIGINT, heard)
        try:
            for future in as_completed(asked):
                yield asked[future], future.result()
        except BrokenProcessPool:
            raise UserError(
                "a process of this study died, maybe out of memory (then --jobs 1 helps); run "
                "the same command again to continue from here"
            ) from None
        except BaseException:
            for process in active_children():
                process.terminate()
            raise


def begin_process(threads: int) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)


def end_with_parent() -> None:
    """If the study itself is killed, nothing else ends its processes."""
    parent_process().join()
    os.kill(os.getpid(), signal.SIGTERM)


def in_process(work: Callable[[Trial], Result], trial: Trial) -> Result:
    """Does `work`; a process that gets SIGTERM takes no further trial."""
    try:
        return work(trial)
    except SystemExit:
        os._exit(128 + signal.SIGTERM)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def refuse_other_settings(asked: RunConfig, option: str = "--out") -> None:
    """Refuse a run that is already there unless all of its steps had these settings. `option`
    names another folder.

    Whoever resumed it may have changed any field for some steps and then changed it back.
    """
    folder = RunFolder(asked.log_path)
    if not folder.used():
        return
    wanted = with_whole_paths(with_whole_files(resolved(asked)))
    for made in reversed(folder.read_configs()):  # the latest difference says most
        for name in (name for name in to_json(made) if name not in PLACES):
            before, now = getattr(made, name), getattr(wanted, name)
            follows = name == "micro_batch_tokens" and now is None  # from what memory was free
            if before != now and not follows:
                was = f"{folder.path} was run with {name} {before}, not {now}"
                raise UserError(f"{was}; choose another {option}")
    hashes = read_values(folder.path / HASHES_FILE)  # none in a run of an earlier version
    for file, now in file_hashes(asked).items():
        if hashes.get(file, now) != now:
            raise UserError(
                f"{folder.path} was run before {file} was changed; choose another {option}"
            )


def file_hashes(config: RunConfig) -> dict[str, str]:
    """A hash of each file that the configuration names, by its whole path."""
    whole = with_whole_files(config)
    values = [getattr(whole, field) for field in (*SETS, *FILES, *FORMULAS)]
    names = [one for value in values for one in (value if isinstance(value, list) else [value])]
    files = [Path(file_in(name)) for name in names if name]
    there = [file for file in files if file.is_absolute() and file.is_file()]
    return {str(file): short_hash(file.read_bytes()) for file in there}


def file_in(name: str) -> str:
    """The file in FILE.py:NAME, FILE@held-out or chat:FILE."""
    name = kind_and_file(name.removesuffix(AT_HELD_OUT))[1]
    return name.rpartition(":")[0] if is_in_file(name) else name


def run_to_end(config: RunConfig, quiet: bool = True) -> TrainResult:
    """Runs a trial to its end; one that an earlier call began continues from its last save."""
    folder = RunFolder(config.log_path)
    if folder.used():
        config = resumed_config(config.log_path)
    else:
        note_files(config, folder)
    result = train(config, quiet=quiet)
    if result.interrupted:
        raise KeyboardInterrupt
    return result


def note_files(config: RunConfig, folder: RunFolder) -> None:
    """Records the files that a run begins with, for `refuse_other_settings`."""
    with disk_errors_name(folder.path):
        folder.path.mkdir(parents=True, exist_ok=True)
        write_atomically(
            folder.path / HASHES_FILE, json.dumps(file_hashes(config), indent=2) + "\n"
        )


def last_third(rows: Sequence[dict]) -> Sequence[dict]:
    """The last third of a run's steps, at least one: comparisons look at these rollouts."""
    return rows[-max(1, len(rows) // 3) :]
