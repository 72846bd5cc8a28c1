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
COLUMN_ROLES = ("question", "answer", "solution", "also")
NAME_FORM = "hf:OWNER/NAME:CONFIG@SPLIT?question=COLUMN&answer=COLUMN&also=COLUMN,COLUMN"
_NAME = re.compile(
    r"hf:(?P<repository>[\w.-]+/[\w.-]+)(:(?P<config>[^/:@?]+))?(@(?P<split>[\w.-]+))?"
    r"(\?(?P<columns>.+))?"
)
# Names of columns in published sets, the clearest first.
QUESTION_COLUMNS = ("problem", "question", "prompt", "query", "instruction", "input")
ANSWER_COLUMNS = (
    "final_answer",
    "answer",
    "expected_answer",
    "ground_truth",
    "target",
    "reward_model.ground_truth",
)
SOLUTION_COLUMN = "solution"
LABEL_COLUMNS = ("level", "type", "subject")
EVAL_SPLITS = ("test", "validation")  # the clearest first


@dataclass(frozen=True)
class HubName:
    """The parts of a data set's name."""

    repository: str
    config: str | None
    split: str | None
    columns: dict[str, str] = field(default_factory=dict)

    @property
    def extra_columns(self) -> list[str]:
        """Further columns to read."""
        return self.columns["also"].split(",") if "also" in self.columns else []

    def __str__(self) -> str:
        config = f":{self.config}" if self.config else ""
        split = f"@{self.split}" if self.split else ""
        columns = "&".join(f"{part}={column}" for part, column in self.columns.items())
        return f"{PREFIX}{self.repository}{config}{split}" + (f"?{columns}" if columns else "")


def parse_hub_name(name: str) -> HubName:
    """Splits a name into its parts, without asking the hub."""
    match = _NAME.fullmatch(name)
    if not match:
        raise UserError(f"{name!r} names no data set of the hub; the form is {NAME_FORM}")
    columns = {}
    for assignment in (match["columns"] or "").split("&") if match["columns"] else ():
        role, _, column = assignment.partition("=")
        if role not in COLUMN_ROLES or not column:
            raise UserError(
                f"{name}: after ? write question=COLUMN, answer=COLUMN, solution=COLUMN or "
                f"also=COLUMN,COLUMN, not {assignment}"
            )
        columns[role] = column
    check_pyarrow(name)
    return HubName(match["repository"], match["config"], match["split"], columns)


class HubSet(Source):
    """A data set of the hub. Each method asks the hub only for what it needs."""

    NAME_PATTERN = re.compile(f"{PREFIX}.*", re.DOTALL)
    LISTED_NAMES = ("hf:OWNER/NAME",)

    def problems(self, limit: int | None = None) -> list[Problem]:
        """The rows that have a question and an answer; logs how many were skipped."""
        hub_name, data_set = _open_data_set(self.name)
        columns = data_set.columns(hub_name.config, hub_name.split)
        question, answer, solution = _choose_columns(hub_name, columns)
        answer_columns = " or ".join(repr(column) for column in (answer, solution) if column)
        guessed = {"question", "answer"} - hub_name.columns.keys()
        level = logging.WARNING if guessed else logging.INFO  # a guess must not go unnoticed
        log.log(
            level,
            "%s: questions from the column %r, answers from %s",
            hub_name,
            question,
            answer_columns,
        )
        needed = (question, answer, solution, *LABEL_COLUMNS, *hub_name.extra_columns)
        top_columns = {column.partition(".")[0] for column in needed if column} & set(columns)
        problems: list[Problem] = []
        count = 0
        for row in data_set.rows(hub_name.config, hub_name.split, sorted(top_columns)):
            count += 1
            question_text, answer_text = _cell_text(row, question), _cell_text(row, answer)
            solution_text = _cell_text(row, solution, "assistant") or solution_before_answer(
                answer_text
            )
            final = final_answer(answer_text) or marked_answer(solution_text)
            if question_text and final:
                problems.append(
                    Problem(
                        id=f"{HubSet(str(hub_name)).short_name}/{count - 1}",
                        problem=question_text,
                        answer=final,
                        level=_cell_text(row, "level"),
                        type=_cell_text(row, "type") or _cell_text(row, "subject"),
                        solution=solution_text,
                        source=f"{hub_name}, row {count - 1}",
                        row=row,
                    )
                )
            if len(problems) == limit:
                break
        if not problems:
            raise UserError(
                f"{hub_name}: none of {count} rows has a question in {question!r} and an "
                f"answer in {answer_columns}; name other columns as in "
                "?question=COLUMN&answer=COLUMN"
            )
        if len(problems) < count:
            skipped = f"{count - len(problems):,} of {count:,} rows"
            log.warning("%s: skipped %s, which have no question or no answer", hub_name, skipped)
        return problems

    def check(self) -> None:
        parse_hub_name(self.name)

    @property
    def short_name(self) -> str:
        """Safe as part of a file name."""
        name = self.name.removeprefix(PREFIX).partition("?")[0].rpartition("/")[2]
        return re.sub(r"[^\w.@-]", "-", name)

    def eval_split_name(self) -> str | None:
        """The set's name with the split to evaluate on; None if it has no other split."""
        hub_name, data_set = _open_data_set(self.name)
        splits = data_set.configs[hub_name.config]
        eval_split = next(
            (split for split in EVAL_SPLITS if split in splits and split != hub_name.split), None
        )
        return str(replace(hub_name, split=eval_split)) if eval_split else None

    def held_out_name(self) -> str:
        return self.eval_split_name() or super().held_out_name()

    def contains_held_out(self) -> bool:
        return not self.eval_split_name()

    def held_out_problems(self, limit: int | None = None) -> list[Problem]:
        eval_split = self.eval_split_name()
        return (
            HubSet(eval_split).problems(limit) if eval_split else super().held_out_problems(limit)
        )


# --- which config, split and columns ---


def _open_data_set(name: str) -> tuple[HubName, HubDataSet]:
    """The name, completed with a config and a split that exist, and the data set."""
    hub_name = parse_hub_name(name)
    data_set = hub_data_set(hub_name.repository)
    config = hub_name.config or _only_or_usual(data_set.configs, "default", "main")
    if config not in data_set.configs:
        raise UserError(
            f"{name}: name one of its configs, as in hf:{hub_name.repository}:CONFIG: "
            + ", ".join(data_set.configs)
        )
    splits = data_set.configs[config]
    split = hub_name.split or _only_or_usual(splits, "train")
    if split not in splits:
        raise UserError(
            f"{name}: name one of its splits, as in hf:{hub_name.repository}:{config}@SPLIT: "
            + ", ".join(splits)
        )
    return replace(hub_name, config=config, split=split), data_set


def _only_or_usual(names: Iterable[str], *usual: str) -> str | None:
    """The only one, or one of the usual names; None if somebody has to choose."""
    choices = list(names)
    return choices[0] if len(choices) == 1 else next((u for u in usual if u in choices), None)


def _choose_columns(
    hub_name: HubName, columns: Sequence[str]
) -> tuple[str, str | None, str | None]:
    """The columns of question, answer and solution; one of the last two may be missing."""
    chosen = [column for part, column in hub_name.columns.items() if part != "also"]
    for column in (*chosen, *hub_name.extra_columns):
        if column not in columns:
            raise unknown_name(f"column of {hub_name.repository}", column, columns)
    question = hub_name.columns.get("question") or _first_present(QUESTION_COLUMNS, columns)
    answer = hub_name.columns.get("answer") or _first_present(ANSWER_COLUMNS, columns)
    solution = hub_name.columns.get("solution")
    if not solution and "answer" not in hub_name.columns:
        solution = _first_present((SOLUTION_COLUMN,), columns)
    if not question or not (answer or solution):
        raise UserError(
            f"{hub_name}: which column is the {'answer' if question else 'question'}? Name it as "
            f"in ?question=COLUMN&answer=COLUMN; the columns are {', '.join(columns)}"
        )
    return question, answer, solution


def _first_present(names: Iterable[str], columns: Sequence[str]) -> str | None:
    return next((name for name in names if name in columns), None)


# --- from a row to texts ---


def final_answer(text: str) -> str:
    """The answer after a mark, or else the whole text."""
    return marked_answer(text) or text


def marked_answer(text: str) -> str:
    """The answer after #### or in a box; "" if there is neither."""
    _, mark, after_mark = text.rpartition("####")
    if mark:
        return without_thousands_commas(after_mark.strip()).removeprefix("$")
    return (get_last_boxed(text) or "").strip()


def _cell_text(row: dict[str, Any], column: str | None, role: str = "user") -> str:
    """A cell as text; "" if there is none. For a conversation, the last message of `role`; for a
    list with one entry, that entry."""
    value: Any = row
    for name in [column] if column in row else (column or "").split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, list) and value and all(isinstance(turn, dict) for turn in value):
        contents = [turn.get("content") for turn in value if turn.get("role") == role]
        value = contents[-1] if contents else None
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        value = str(value)
    return value.strip() if isinstance(value, str) else ""
