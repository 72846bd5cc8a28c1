r"""Data sets of Hugging Face's hub as problems.

    hf:openai/gsm8k                                  its only config, default or main; split train
    hf:openai/gsm8k:main@test                        a config and a split
    hf:me/mine?question=text&answer=result.number    columns with names that we cannot guess
    hf:me/mine?solution=worked                       a column of worked solutions, to learn from
    hf:me/mine?also=task_dir,seed                    further columns, for an environment's `reset`

The answer is whatever follows the last ####, as in GSM8K, or is in the last box, or else the whole
text. In a column of solutions only the first two count.
"""

import logging
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from answer_grader import get_last_boxed
from answer_grader.gsm8k import without_thousands_commas
from reasoning_from_scratch.errors import UserError, unknown_name
from reasoning_from_scratch.problem_sets import solution_before_answer
from reasoning_from_scratch.problems import Problem
from rfs.files.hub_data import HubDataSet, check_pyarrow, hub_data_set
from rfs.tasks.source import Source

log = logging.getLogger("reasoning_from_scratch")

PREFIX = "hf:"
PARTS = ("question", "answer", "solution", "also")
FORM = "hf:OWNER/NAME:CONFIG@SPLIT?question=COLUMN&answer=COLUMN&also=COLUMN,COLUMN"
_NAME = re.compile(
    r"hf:(?P<repository>[\w.-]+/[\w.-]+)(:(?P<config>[^/:@?]+))?(@(?P<split>[\w.-]+))?"
    r"(\?(?P<columns>.+))?"
)
# Names of columns in published sets, the clearest first.
QUESTIONS = ("problem", "question", "prompt", "query", "instruction", "input")
ANSWERS = (
    "final_answer",
    "answer",
    "expected_answer",
    "ground_truth",
    "target",
    "reward_model.ground_truth",
)
SOLUTION = "solution"
FACTS = ("level", "type", "subject")
ASIDE = ("test", "validation")  # splits to evaluate on


@dataclass(frozen=True)
class HubName:
    """The parts of a data set's name."""

    repository: str
    config: str | None
    split: str | None
    columns: dict[str, str] = field(default_factory=dict)

    @property
    def also(self) -> list[str]:
        """Further columns to read."""
        return self.columns["also"].split(",") if "also" in self.columns else []

    def __str__(self) -> str:
        config = f":{self.config}" if self.config else ""
        split = f"@{self.split}" if self.split else ""
        columns = "&".join(f"{part}={column}" for part, column in self.columns.items())
        return f"{PREFIX}{self.repository}{config}{split}" + (f"?{columns}" if columns else "")


def parts_of(name: str) -> HubName:
    """Splits a name into its parts, without asking the hub."""
    match = _NAME.fullmatch(name)
    if not match:
        raise UserError(f"{name!r} names no data set of the hub; the form is {FORM}")
    columns = {}
    for pair in (match["columns"] or "").split("&") if match["columns"] else ():
        part, _, column = pair.partition("=")
        if part not in PARTS or not column:
            raise UserError(
                f"{name}: after ? write question=COLUMN, answer=COLUMN, solution=COLUMN or "
                f"also=COLUMN,COLUMN, not {pair}"
            )
        columns[part] = column
    check_pyarrow(name)
    return HubName(match["repository"], match["config"], match["split"], columns)


class HubSet(Source):
    """A data set of the hub. Each method asks the hub only for what it needs."""

    FORM = re.compile(f"{PREFIX}.*", re.DOTALL)
    KNOWN = ("hf:OWNER/NAME",)

    def problems(self, limit: int | None = None) -> list[Problem]:
        """The rows that have a question and an answer; logs how many were skipped."""
        named, data_set = _whole_name(self.name)
        columns = data_set.columns(named.config, named.split)
        question, answer, solution = _chosen_columns(named, columns)
        read = " or ".join(repr(column) for column in (answer, solution) if column)
        guessed = {"question", "answer"} - named.columns.keys()
        level = logging.WARNING if guessed else logging.INFO  # a guess must not go unnoticed
        log.log(level, "%s: questions from the column %r, answers from %s", named, question, read)
        read_columns = (question, answer, solution, *FACTS, *named.also)
        wanted = {column.partition(".")[0] for column in read_columns if column} & set(columns)
        problems: list[Problem] = []
        count = 0
        for row in data_set.rows(named.config, named.split, sorted(wanted)):
            count += 1
            text, said = _text(row, question), _text(row, answer)
            steps = _text(row, solution, "assistant") or solution_before_answer(said)
            final = final_answer(said) or marked_answer(steps)
            if text and final:
                problems.append(
                    Problem(
                        id=f"{HubSet(str(named)).short_name}/{count - 1}",
                        problem=text,
                        answer=final,
                        level=_text(row, "level"),
                        type=_text(row, "type") or _text(row, "subject"),
                        solution=steps,
                        source=f"{named}, row {count - 1}",
                        row=row,
                    )
                )
            if len(problems) == limit:
                break
        if not problems:
            raise UserError(
                f"{named}: none of {count} rows has a question in {question!r} and an "
                f"answer in {read}; name other columns as in ?question=COLUMN&answer=COLUMN"
            )
        if len(problems) < count:
            left = f"{count - len(problems):,} of {count:,} rows"
            log.warning("%s: skipped %s, which have no question or no answer", named, left)
        return problems

    def check(self) -> None:
        parts_of(self.name)

    @property
    def short_name(self) -> str:
        """Safe as part of a file name."""
        whole = self.name.removeprefix(PREFIX).partition("?")[0].rpartition("/")[2]
        return re.sub(r"[^\w.@-]", "-", whole)

    def other_split(self) -> str | None:
        """The set's own split to evaluate on; None if it has no other one."""
        named, data_set = _whole_name(self.name)
        splits = data_set.configs[named.config]
        own = next((split for split in ASIDE if split in splits and split != named.split), None)
        return str(replace(named, split=own)) if own else None

    def held_out(self) -> str:
        return self.other_split() or super().held_out()

    def holds_held_out(self) -> bool:
        return not self.other_split()

    def aside(self, limit: int | None = None) -> list[Problem]:
        own = self.other_split()
        return HubSet(own).problems(limit) if own else super().aside(limit)


# --- which config, split and columns ---


def _whole_name(name: str) -> tuple[HubName, HubDataSet]:
    """The name, completed with a config and a split that exist, and the data set."""
    named = parts_of(name)
    data_set = hub_data_set(named.repository)
    config = named.config or _usual(data_set.configs, "default", "main")
    if config not in data_set.configs:
        raise UserError(
            f"{name}: name one of its configs, as in hf:{named.repository}:CONFIG: "
            + ", ".join(data_set.configs)
        )
    splits = data_set.configs[config]
    split = named.split or _usual(splits, "train")
    if split not in splits:
        raise UserError(
            f"{name}: name one of its splits, as in hf:{named.repository}:{config}@SPLIT: "
            + ", ".join(splits)
        )
    return replace(named, config=config, split=split), data_set


def _usual(known: Iterable[str], *usual: str) -> str | None:
    """The only one, or one of the usual names; None if somebody has to choose."""
    names = list(known)
    return names[0] if len(names) == 1 else next((u for u in usual if u in names), None)


def _chosen_columns(named: HubName, columns: Sequence[str]) -> tuple[str, str | None, str | None]:
    """The columns of question, answer and solution; one of the last two may be missing."""
    chosen = [column for part, column in named.columns.items() if part != "also"]
    for column in (*chosen, *named.also):
        if column not in columns:
            raise unknown_name(f"column of {named.repository}", column, columns)
    question = named.columns.get("question") or _first(QUESTIONS, columns)
    answer = named.columns.get("answer") or _first(ANSWERS, columns)
    solution = named.columns.get("solution")
    if not solution and "answer" not in named.columns:
        solution = _first((SOLUTION,), columns)
    if not question or not (answer or solution):
        raise UserError(
            f"{named}: which column is the {'answer' if question else 'question'}? Name it as in "
            f"?question=COLUMN&answer=COLUMN; the columns are {', '.join(columns)}"
        )
    return question, answer, solution


def _first(names: Iterable[str], columns: Sequence[str]) -> str | None:
    return next((name for name in names if name in columns), None)


# --- from a row to texts ---


def final_answer(text: str) -> str:
    """The answer in a text that is one or ends in one."""
    return marked_answer(text) or text


def marked_answer(text: str) -> str:
    """The answer after #### or in a box; "" if there is neither."""
    _, mark, behind = text.rpartition("####")
    if mark:
        return without_thousands_commas(behind.strip()).removeprefix("$")
    return (get_last_boxed(text) or "").strip()


def _text(row: dict[str, Any], column: str | None, who: str = "user") -> str:
    """A value as text; "" if there is none. For a conversation, what `who` said last; for a list
    with one entry, that entry."""
    value: Any = row
    for name in [column] if column in row else (column or "").split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, list) and value and all(isinstance(turn, dict) for turn in value):
        said = [turn.get("content") for turn in value if turn.get("role") == who]
        value = said[-1] if said else None
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        value = str(value)
    return value.strip() if isinstance(value, str) else ""
