"""Grades a stored file of answers again: with today's grader, or with another fallback rule."""

from dataclasses import dataclass
from pathlib import Path

from answer_grader import (
    UnreadableTruth,
    answer_verdict,
    check_truth,
    judged_part,
)
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.problem_sets import file_rows
from reasoning_from_scratch.scores import mean, wilson_interval
from reasoning_from_scratch.text import counted, one_line, percent, percent_range

SHOWN = 20  # changed verdicts in the report


@dataclass
class Rescored:
    """The rows of a file with their new verdicts; `changed`: (old row, new row)."""

    rows: list[dict]
    changed: list[tuple[dict, dict]]

    def report(self) -> str:
        # Several answers to one problem are not independent, so n is the number of problems.
        problems = len({row.get("index", place) for place, row in enumerate(self.rows)})
        accuracy = mean(self.rows, "correct")
        low, high = wilson_interval(accuracy * problems, problems)
        lines = [
            f"  answers     {len(self.rows):,}, to {counted(problems, 'problem')}",
            f"  accuracy    {percent(accuracy)}  (95% interval {percent_range(low, high)})",
            f"  changed     {counted(len(self.changed), 'verdict')}",
        ]
        for old, new in self.changed[:SHOWN]:
            verdict = "incorrect -> correct" if new["correct"] else "correct -> incorrect"
            read = one_line(new["extracted"], 60)
            lines.append(f"    {old.get('index', '')}: {verdict}, {read!r} for {new['truth']!r}")
        return "\n".join(lines)


def rescore(path: str | Path, fallback: str | None) -> Rescored:
    """Reads a file of answers from `evaluate_math500_stream`, `rfs evaluate` or a script, and
    grades them as if they were new."""
    rows, changed = [], []
    for where, old in file_rows(Path(path)):
        try:
            new = graded_again(old, fallback)
        except (ValueError, UnreadableTruth) as error:
            raise UserError(f"{path}, {where}: {error}") from None
        rows.append(new)
        if old.get("correct", new["correct"]) != new["correct"]:
            changed.append((old, new))
    if not rows:
        raise UserError(f"{path} holds no answers")
    return Rescored(rows, changed)


def graded_again(row: object, fallback: str | None) -> dict:
    """The row with a new verdict."""
    if not isinstance(row, dict):
        raise ValueError("expected an object per line, with gtruth_answer and generated_text")
    for key in ("gtruth_answer", "generated_text"):
        if not isinstance(row.get(key), str):
            raise ValueError(f"no text {key!r}; expected a file that an evaluation has written")
    truth = row["gtruth_answer"]
    check_truth(truth)
    extracted = judged_part(row["generated_text"], fallback)
    correct = bool(extracted) and answer_verdict(extracted, truth) == "correct"
    return row | {"extracted": extracted, "correct": correct, "truth": truth}
