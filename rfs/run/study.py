"""A study: one run for each arm, learning rate and seed, several in parallel.

    all_trials = make_trials(arms, rates, range(3))             # arms x rates x seeds
    for trial, result in study(run_trial, all_trials, jobs):    # run_trial(trial) -> result
        ...                              # in any order; store it: a kill then loses no more

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
from reasoning_from_scratch.problems import is_file_function, split_prompt_name
from reasoning_from_scratch.text import read_json_object
from rfs.config import PLACES, RunConfig, to_json
from rfs.evaluation.evaluate import progress_bar, short_hash
from rfs.run.folder import RunFolder, disk_errors_explained
from rfs.run.options import resolved, resumed_config
from rfs.run.origin import (
    FILE_FIELDS,
    FORMULA_FIELDS,
    SET_FIELDS,
    with_absolute_files,
    with_whole_paths,
)
from rfs.run.start import TrainResult, train
from rfs.tasks.source import HELD_OUT_SUFFIX

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


def make_trials(
    arms: Iterable[Arm], rates: Callable[[Arm], Sequence[float | None]], seeds: range
) -> list[Trial]:
    """All trials, seed by seed, so that a study that is stopped early has complete seeds.
    `rates(arm)`: the learning rates that an arm runs with."""
    arms = list(arms)
    return [Trial(arm, lr, seed) for seed in seeds for arm in arms for lr in rates(arm)]


def study(
    run_trial: Callable[[Trial], Result], all_trials: Sequence[Trial], jobs: int
) -> Iterator[tuple[Trial, Result]]:
    """Yields each trial with its result, as soon as it is done.

    One job runs in this process, several in as many others, which share the cores. If the study
    ends early, by Ctrl-C or an error, runs that are still going save what they have.
    """
    if jobs < 1:
        raise UserError(f"--jobs is {jobs}, but must be at least 1")
    processes = min(jobs, len(all_trials))
    try:
        if processes > 1:
            yield from run_in_processes(run_trial, all_trials, processes)
        else:
            yield from ((trial, run_trial(trial)) for trial in all_trials)
    except KeyboardInterrupt:
        print("run the same command again to continue from here", file=sys.stderr)
        raise


@contextmanager
def step_progress(folders: Sequence[str | Path], steps: int) -> Iterator[None]:
    """A bar of the steps that all runs have made together; each writes a line per step."""
    files = [Path(folder) / "metrics.jsonl" for folder in folders]
    finished = Event()
    bar = progress_bar(steps * len(files), label="training", unit="step")

    def count_steps() -> None:
        while not finished.wait(1.0):
            done = sum(file.read_bytes().count(b"\n") for file in files if file.is_file())
            bar.update(done - bar.n)

    watcher = Thread(target=count_steps, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        watcher.join()
        bar.close()


def run_in_processes(
    run_trial: Callable[[Trial], Result], all_trials: Sequence[Trial], jobs: int
) -> Iterator[tuple[Trial, Result]]:
    context = get_context("spawn")  # torch's threads do not survive a fork
    threads = max(1, cores() // jobs)
    with ProcessPoolExecutor(jobs, context, init_process, (threads,)) as pool:
        # A terminal sends Ctrl-C to all processes, and this one ends the others. While they import
        # they ignore it, as inherited; once a run has begun, it saves and stops by itself.
        previous_handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        futures = {pool.submit(run_trial_in_process, run_trial, t): t for t in all_trials}
        signal.signal(signal.SIGINT, previous_handler)
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool:
            raise UserError(
                "a process of this study died, maybe out of memory (then --jobs 1 helps); run "
                "the same command again to continue from here"
            ) from None
        except BaseException:
            for process in active_children():
                process.terminate()
            raise


def init_process(threads: int) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    Thread(target=exit_with_parent, daemon=True).start()
    torch.set_num_threads(threads)


def exit_with_parent() -> None:
    """If the study itself is killed, nothing else ends its processes."""
    parent_process().join()
    os.kill(os.getpid(), signal.SIGTERM)


def run_trial_in_process(run_trial: Callable[[Trial], Result], trial: Trial) -> Result:
    """Runs a trial; a process that gets SIGTERM takes no further one."""
    try:
        return run_trial(trial)
    except SystemExit:
        os._exit(128 + signal.SIGTERM)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def refuse_other_settings(config: RunConfig, option: str = "--out") -> None:
    """Refuse a run that is already in the folder unless all of its steps had these settings.
    `option`: the flag that names another folder.

    Whoever resumed the run may have changed any field for some steps and then changed it back.
    """
    folder = RunFolder(config.log_path)
    if not folder.used():
        return
    wanted = with_whole_paths(with_absolute_files(resolved(config)))
    for earlier in reversed(folder.read_configs()):  # the latest difference is the most telling
        for name in (name for name in to_json(earlier) if name not in PLACES):
            before, now = getattr(earlier, name), getattr(wanted, name)
            is_derived = name == "micro_batch_tokens" and now is None  # from the free memory
            if before != now and not is_derived:
                difference = f"{folder.path} was run with {name} {before}, not {now}"
                raise UserError(f"{difference}; choose another {option}")
    hashes = read_json_object(folder.path / HASHES_FILE)  # none in a run of an earlier version
    for file, now in file_hashes(config).items():
        if hashes.get(file, now) != now:
            raise UserError(
                f"{folder.path} was run before {file} was changed; choose another {option}"
            )


def file_hashes(config: RunConfig) -> dict[str, str]:
    """A hash of each file that the configuration names, by its absolute path."""
    absolute = with_absolute_files(config)
    values = [getattr(absolute, field) for field in (*SET_FIELDS, *FILE_FIELDS, *FORMULA_FIELDS)]
    names = [name for value in values for name in (value if isinstance(value, list) else [value])]
    paths = [Path(file_part(name)) for name in names if name]
    files = [path for path in paths if path.is_absolute() and path.is_file()]
    return {str(file): short_hash(file.read_bytes()) for file in files}


def file_part(name: str) -> str:
    """The file in FILE.py:NAME, FILE@held-out or chat:FILE."""
    name = split_prompt_name(name.removesuffix(HELD_OUT_SUFFIX))[1]
    return name.rpartition(":")[0] if is_file_function(name) else name


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
    """Writes the hashes of the files that a run begins with, for `refuse_other_settings`."""
    with disk_errors_explained(folder.path):
        folder.path.mkdir(parents=True, exist_ok=True)
        write_atomically(
            folder.path / HASHES_FILE, json.dumps(file_hashes(config), indent=2) + "\n"
        )


def last_third(rows: Sequence[dict]) -> Sequence[dict]:
    """The last third of a run's steps, at least one: comparisons look at these rollouts."""
    return rows[-max(1, len(rows) // 3) :]
