"""Progress for people: a bar in a terminal or notebook, else one line per step."""

import logging
import os
import sys
import time

from tqdm.auto import tqdm

from reasoning_from_scratch.text import is_interactive, percent, visible

log = logging.getLogger("reasoning_from_scratch")

# Short, so that the numbers to watch fit into 80 columns.
BAR = "{n_fmt}/{total_fmt} {bar:6} {remaining} left{postfix}"


class ConsoleHandler(logging.Handler):
    """Shows log messages above a running progress bar instead of through it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            # A message may quote what a model or a data set says. Its newline is part of the text:
            # after Ctrl-C a newline written on its own would be missing.
            tqdm.write(visible(record.getMessage()) + "\n", file=sys.stderr, end="")
        except OSError:
            mute_console()


def mute_console() -> None:
    """For a closed terminal, or `| head` that has read enough: the run continues into logs.log."""
    null_device = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            os.dup2(null_device, stream.fileno())
        except (OSError, ValueError, AttributeError):
            pass  # not a file: a notebook's, or a test's
    os.close(null_device)


def write_to_terminal(message: str) -> None:
    """Writes straight to the terminal: a signal may come in the middle of a print."""
    try:
        os.write(2, f"\n{message}\n".encode())
    except OSError:
        mute_console()


def show_log() -> None:
    """Log messages also go to the console; a second call changes nothing."""
    if not any(isinstance(handler, ConsoleHandler) for handler in log.handlers):
        log.addHandler(ConsoleHandler())
    log.setLevel(logging.INFO)
    log.propagate = False


class Progress:
    """The state of a run at a glance: reward, accuracy, answer length, time left."""

    def __init__(self, total: int, first: int = 0, name: str = "train", quiet: bool = False):
        self.total, self.first = total, first
        self.quiet = quiet
        self.started = time.monotonic()
        self.bar = None
        if is_interactive() and not quiet:
            self.bar = tqdm(total=total, initial=first, desc=name, unit="step", bar_format=BAR)

    def show(self, row: dict) -> None:
        if self.quiet:
            return
        try:
            self.write(row)
        except OSError:
            mute_console()

    def write(self, row: dict) -> None:
        if self.bar is not None:
            self.bar.set_postfix_str(status_line(row), refresh=False)
            self.bar.update(1)
            return
        done = row["step"] + 1
        seconds_per_step = (time.monotonic() - self.started) / (done - self.first)
        left = clock_time(seconds_per_step * (self.total - done))
        print(f"step {done}/{self.total}  {status_line(row)}  left {left}", flush=True)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def status_line(row: dict) -> str:
    """The numbers to watch, in one line. The loss is among them when training on worked solutions;
    in RL it says little."""
    reward, correct = row["env/all/reward/total"], row.get("env/all/correct")
    mixed = row.get("env/all/by_group/frac_mixed")
    is_sampled = mixed is not None
    values = {
        "loss": None if is_sampled else row["optim/loss"],
        "held-out loss": row.get("eval_loss"),
        "reward": reward if is_sampled else None,
        # Shown if the reward has other parts as well.
        "correct": correct if is_sampled and correct != reward else None,
        "tokens": row["env/all/ac_tokens_per_turn"],
        "mixed": mixed,  # groups whose rewards differ
        "eval": row.get("eval_acc"),
    }
    shares = ("correct", "mixed", "eval")
    return "  ".join(
        f"{name} {percent(value) if name in shares else format_number(name, value)}"
        for name, value in values.items()
        if value is not None
    )


def format_number(name: str, value: float) -> str:
    return f"{value:.1f}" if name == "tokens" else f"{value:.3f}"


def clock_time(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
