"""The files of an evaluation: a JSON line per answer and a card; both survive being killed."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.disk import disk_errors_as, write_atomically
from reasoning_from_scratch.scores import Answers
from reasoning_from_scratch.text import as_lines, read_values

SCORED = {"correct", "parsed", "extracted", "tokens", "stopped"}  # columns that scores read


class AnswerFile(Answers):
    """The same in a file that can be resumed.

    Problems finish in any order, so lines are appended in that order; `finish` sorts them. A
    problem counts as done only with all its samples, and a half-written line is forgotten.
    `first(n)` are the settings that say which problems, if only the first n are asked: a file of
    those can be extended.
    """

    def __init__(
        self,
        path: str | Path,
        settings: dict[str, Any],
        num_samples: int,
        first: Callable[[int], dict[str, Any]],
    ):
        super().__init__()
        self.path = Path(path)
        self.settings, self.first = settings, first
        self.card_path = card_path(self.path)
        with disk_errors_as(f"cannot write {self.path}", "choose another --out"):
            self.open_or_resume(num_samples)

    def open_or_resume(self, num_samples: int) -> None:
        """Takes over what is there, then leaves whole lines and a card on the disk."""
        fresh = not (self.path.exists() and self.path.stat().st_size > 0)
        if not fresh:
            self.check_settings()
            self.groups = whole_groups(read_rows(self.path), num_samples)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if fresh or self.read_card()["settings"] != self.settings:  # new, or to be extended
            # The card goes first: lines without one are not ours, and are never overwritten.
            self.write_card({"settings": self.settings, "result": None})
        write_atomically(self.path, as_lines(self.rows()))

    def check_settings(self) -> None:
        """Refuses to mix answers that were made in different ways."""
        before = self.read_card().get("settings")
        if before is None:
            raise UserError(
                f"{self.path} exists and is not ours (it has no {self.card_path.name});"
                " choose another --out"
            )
        count = before.get("problems")
        if isinstance(count, int) and 0 < count < self.settings["problems"]:
            which = self.first(count)
            if which.items() <= before.items():  # the same first problems, and further ones
                before = before | {key: self.settings[key] for key in which}
        keys = sorted(before.keys() | self.settings.keys())
        changed = [key for key in keys if before.get(key) != self.settings.get(key)]
        if changed:
            details = ", ".join(
                f"{k}: {before.get(k)!r} -> {self.settings.get(k)!r}"
                for k in changed
                if k != "prompt"
            )
            raise UserError(
                f"{self.path} was written with other settings ({details}); choose"
                " another --out, or delete the file"
            )

    def add(self, index: int, rows: list[dict]) -> None:
        """Keeps the rows of a problem that has just finished."""
        super().add(index, rows)
        with self.disk_errors(), open(self.path, "ab") as file:
            file.write(as_lines(rows).encode())  # one write: a kill leaves at most one half line

    def finish(self, card: dict[str, Any]) -> None:
        """Puts the lines into their final order and completes the card."""
        with self.disk_errors():
            write_atomically(self.path, as_lines(self.rows()))
            self.write_card({"settings": self.settings} | card)

    def disk_errors(self) -> AbstractContextManager[None]:
        """What was answered before stays in the file."""
        advice = "make room and run the same command again to continue from here"
        return disk_errors_as(f"cannot write {self.path}", advice)

    def read_card(self) -> dict[str, Any]:
        """The card on disk, {} if there is none."""
        return read_values(self.card_path)

    def write_card(self, card: dict[str, Any]) -> None:
        """Replaces the card."""
        write_atomically(self.card_path, json.dumps(card, indent=2) + "\n")


def card_path(path: Path) -> Path:
    """Where the card of a file of answers is: beside it. (tuned.1 and tuned.2 have one each.)"""
    return path.with_name(f"{path.stem if path.suffix == '.jsonl' else path.name}.card.json")


def read_rows(path: Path) -> list[dict]:
    """The rows of a file; what follows its last line break was cut by a kill and is dropped."""
    rows = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            rows.append(json.loads(line))
        except ValueError:
            raise UserError(
                f"line {number} of {path} is not JSON; delete the file or that line and start again"
            ) from None
        if not is_answer(rows[-1]):
            raise UserError(
                f"line {number} of {path} is not an answer of rfs evaluate; delete the file or "
                "that line and start again"
            )
    return rows


def is_answer(row: object) -> bool:
    """Whether a row says which answer it is, and what scores are made of."""
    if not isinstance(row, dict) or not SCORED <= row.keys():
        return False
    return all(type(row.get(name)) is int for name in ("index", "sample"))


def whole_groups(rows: list[dict], num_samples: int) -> dict[int, list[dict]]:
    """Problem (from 0) -> its rows by sample, for problems of which no sample is missing."""
    groups: dict[int, dict[int, dict]] = {}
    for row in rows:
        groups.setdefault(row["index"] - 1, {})[row["sample"]] = row
    return {
        index: [group[number] for number in range(num_samples)]
        for index, group in groups.items()
        if group.keys() == {*range(num_samples)}
    }
