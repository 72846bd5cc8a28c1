"""Several runs side by side, each in a process of its own, as the cores allow."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

import torch

from reasoning_from_scratch.errors import UserError

Task = TypeVar("Task")
Result = TypeVar("Result")


def jobs_for(jobs: int | None, tasks: int, tiny: bool) -> int:
    """How many processes: as asked, else one per core for a tiny model and one for a large one,
    which needs the machine for itself."""
    if jobs is not None and jobs < 1:
        raise UserError(f"--jobs is {jobs}, but must be at least 1")
    wanted = jobs or (cores() if tiny else 1)
    return max(1, min(wanted, tasks))


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(
    work: Callable[[Task], Result], tasks: Sequence[Task], jobs: int
) -> Iterator[tuple[Task, Result]]:
    """Each task and what `work` made of it, as soon as it is done. One job: in this process.

    Whoever stops listening (by Ctrl-C, or by an error) interrupts the runs that are still going,
    and they save what they have.
    """
    if jobs == 1:
        yield from ((task, work(task)) for task in tasks)
        return
    todo = list(tasks)
    busy: dict[Connection, tuple[BaseProcess, Task]] = {}  # each process, and its task
    # The processes that hear Ctrl-C; before that they have nothing to save.
    listening: set[BaseProcess] = set()
    try:
        for task in todo[:jobs]:
            connection, process = started(work, threads=max(1, cores() // jobs))
            busy[connection] = process, task
        for connection, (process, task) in busy.items():
            received(connection, task)
            listening.add(process)
            connection.send(task)
        todo = todo[jobs:]
        while busy:
            for connection in wait(busy):  # type: ignore[assignment]  # of those in busy
                process, task = busy[connection]
                yield task, received(connection, task)
                if todo:
                    busy[connection] = process, todo[0]
                    connection.send(todo.pop(0))
                else:
                    del busy[connection]
                    connection.close()  # the process ends when nobody can send to it any more
    finally:
        for process, _ in busy.values():
            if process not in listening:
                process.terminate()
            elif process.is_alive():
                os.kill(process.pid, signal.SIGINT)
        for connection, (process, _) in busy.items():
            connection.close()
            process.join()


def started(work: Callable, threads: int) -> tuple[Connection, BaseProcess]:
    """A process that works on what it is sent. It is spawned: torch's threads do not survive a
    fork."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, work, threads))
    with deaf():
        process.start()
    theirs.close()
    return ours, process


@contextmanager
def deaf() -> Iterator[None]:
    """Ctrl-C is heard afterwards. A process that is started meanwhile is born deaf, so that a
    Ctrl-C in the terminal does not tear up its imports; `serve` makes it listen."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # multiprocessing's own first process would end the silence
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def serve(connection: Connection, work: Callable, threads: int) -> None:
    """Works until the other side is gone, also where it was killed."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # Ctrl-C reaches the parent alone, which passes it on
    torch.set_num_threads(threads)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        # A command that a script left in the background ignores Ctrl-C, and so would this process.
        # Only from here on can it be interrupted, so only now may the parent send it work.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        connection.send(None)
        while True:
            task = connection.recv()
            try:
                connection.send(work(task))
            except UserError as error:
                connection.send(error)


def received(connection: Connection, task: object) -> Any:
    try:
        result = connection.recv()
    except EOFError:
        raise UserError(f"the process of {task} ended; what it said is above") from None
    if isinstance(result, UserError):
        raise result
    return result
