"""The last lines of a run: what changed, one answer before and after, and what to do next."""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from reasoning_from_scratch.text import counted, percent, read_json_object, read_lines, visible
from rfs.files.saved_models import comparable_evaluations, evaluated_at, evaluations_in
from rfs.report.metrics import MIXED

PROBES = "probes.jsonl"  # answers of the weights to the same few problems, before and after


def say_end(result, done: str) -> int:
    """Rank 0 prints how the run ended. Returns the exit code of the command."""
    if result.writes and not result.stopped:  # if it stopped, the log has said why
        print(done)
    if result.stopped:
        return 130 if result.interrupted else 1
    return 0


def run_summary(folder: Path, rows: Sequence[dict]) -> str:
    """`rows`: the lines of the run's metrics."""
    rfs, _ = shell_commands()
    run = shlex.quote(str(folder))
    commands = [(f"{rfs} report {run}", "each answer, and why it was rewarded")]
    evaluations = [evaluation for row in rows for evaluation in evaluations_in(row)]
    config = read_json_object(folder / "config.json")
    if not evaluations or not covered_whole_set(evaluations[-1], config):
        on_all = "measure it on all held-out problems"
        why = on_all if evaluations else "the run itself did not: see --eval-every"
        commands.append((f"{rfs} evaluate --model {run}", why))
    parts = [
        before_and_after(rows),
        example_answers(read_lines(folder / PROBES)),
        f"done: {visible(str(folder))} holds the weights, metrics.csv and report.html",
        next_commands_text(commands),
    ]
    return "\n" + "\n\n".join(filter(None, parts))


def covered_whole_set(evaluation: Mapping, config: Mapping) -> bool:
    """Whether an evaluation had all problems of the run's only set."""
    return len(config["eval_problems"]) == 1 and evaluation["eval_problems"] < config["eval_limit"]


def before_and_after(rows: Sequence[dict]) -> str:
    """Accuracy at the first evaluation and at the last on the same problems, and the reward of the
    first step and the last, or the loss on worked solutions; only what was measured twice."""
    lines = []
    evaluations = [e for e in comparable_evaluations(rows) if e["eval_acc"] is not None]
    if len(evaluations) > 1:
        first, last = evaluations[0], evaluations[-1]
        lines.append(
            f"correct answers to {counted(last['eval_problems'], 'problem')}: "
            f"{percent(first['eval_acc'])} after {counted(evaluated_at(first), 'step')}, "
            f"{percent(last['eval_acc'])} after {evaluated_at(last)}"
        )
    sampled = any(row.get(MIXED) is not None for row in rows)
    key, name = ("reward/total", "mean reward") if sampled else ("optim/loss", "loss per token")
    values = [row[key] for row in rows if row.get(key) is not None]
    if len(values) > 1:
        first, last = values[0], values[-1]
        lines.append(f"{name}: {first:.3f} in the first step, {last:.3f} in the last")
    return "\n".join(lines)


def example_answers(lines: Sequence[dict]) -> str:
    """A problem whose answer became correct, else one whose answer changed; "" if none did."""
    if len(lines) < 2:
        return ""
    pairs = list(zip(lines[0]["probes"], lines[-1]["probes"], strict=False))
    changed = [(then, now) for then, now in pairs if then["text"] != now["text"]]
    learned = [(then, now) for then, now in changed if now["correct"] and not then["correct"]]
    if not changed:
        return ""
    then, now = (learned or changed)[0]
    return answers_text(then["problem"], then["text"], now["text"])


def answers_text(problem: str, then: str, now: str) -> str:
    return visible(f"Problem: {problem}\nbefore: {then.strip()}\nafter:  {now.strip()}")


def next_commands_text(rows: Sequence[tuple[str, str]]) -> str:
    """Commands for this shell, each with what it shows."""
    return "\n".join(["Next:", *(f"  {command}  # {why}" for command, why in rows)])


def shell_commands() -> tuple[str, str]:
    """How to call `rfs` and `jupyter lab` from the shell that started this."""
    if "UV" in os.environ:  # set by `uv run`
        rfs, jupyter = "uv run rfs", "uv run --extra notebook jupyter lab"
    else:
        on_path = shutil.which("rfs")
        is_ours = on_path and Path(on_path).parent == Path(sys.executable).parent
        python = shlex.quote(sys.executable)
        install = "" if find_spec("jupyterlab") else f'{python} -m pip install -e ".[notebook]" && '
        rfs = "rfs" if is_ours else f"{python} -m rfs"
        jupyter = install + ("jupyter lab" if is_ours else f"{python} -m jupyter lab")
    return rfs, jupyter
