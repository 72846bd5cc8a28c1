"""The files of an evaluation: a JSON line per answer and a card; both survive being killed."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.disk import disk_errors_as, write_atomically
from reasoning_from_scratch.scores import Answers
from reasoning_from_scratch.text import json_lines, read_json_object

SCORED_COLUMNS = {"correct", "parsed", "extracted", "tokens", "stopped"}


class AnswerFile(Answers):
    """Answers in a file, which can be resumed.

    Problems finish in any order, so lines are appended in that order; `finish` sorts them. A
    problem counts as done only with all its samples, and a half-written line is dropped.
    `settings_of_first(n)` has the settings that identify the first n problems: a file with only
    their answers can be extended.
    """

    def __init__(
        self,
        path: str | Path,
        settings: dict[str, Any],
        num_samples: int,
        settings_of_first: Callable[[int], dict[str, Any]],
    ):
        super().__init__()
        self.path = Path(path)
        self.settings, self.settings_of_first = settings, settings_of_first
        self.card_path = card_path(self.path)
        with disk_errors_as(f"cannot write {self.path}", "choose another --out"):
            self.open_or_resume(num_samples)

    def open_or_resume(self, num_samples: int) -> None:
        """Keeps the answers in the file, if there are any; writes whole lines and a card."""
        is_new = not (self.path.exists() and self.path.stat().st_size > 0)
        if not is_new:
            self.check_settings()
            self.groups = complete_groups(read_rows(self.path), num_samples)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if is_new or self.read_card()["settings"] != self.settings:  # new, or to be extended
            # The card goes first: lines without one are not ours, and are never overwritten.
            self.write_card({"settings": self.settings, "result": None})
        write_atomically(self.path, json_lines(self.rows()))

    def check_settings(self) -> None:
        """Refuses to mix answers that were made in different ways."""
        written = self.read_card().get("settings")
        if written is None:
            raise UserError(
                f"{self.path} exists and is not ours (it has no {self.card_path.name});"
                " choose another --out"
            )
        count = written.get("problems")
        if isinstance(count, int) and 0 < count < self.settings["problems"]:
            identity = self.settings_of_first(count)
            if identity.items() <= written.items():  # the same first problems, and further ones
                written = written | {key: self.settings[key] for key in identity}
        keys = sorted(written.keys() | self.settings.keys())
        changed = [key for key in keys if written.get(key) != self.settings.get(key)]
        if changed:
            details = ", ".join(
                f"{k}: {written.get(k)!r} -> {self.settings.get(k)!r}"
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
            file.write(json_lines(rows).encode())  # one write: a kill leaves at most one half line

    def finish(self, card: dict[str, Any]) -> None:
        """Puts the lines into their final order and completes the card."""
        with self.disk_errors():
            write_atomically(self.path, json_lines(self.rows()))
            self.write_card({"settings": self.settings} | card)

    def disk_errors(self) -> AbstractContextManager[None]:
        """Reports a full disk; the answers so far stay in the file."""
        advice = "make room and run the same command again to continue from here"
        return disk_errors_as(f"cannot write {self.path}", advice)

    def read_card(self) -> dict[str, Any]:
        """The card on disk, {} if there is none."""
        return read_json_object(self.card_path)

    def write_card(self, card: dict[str, Any]) -> None:
        """Replaces the card."""
        write_atomically(self.card_path, json.dumps(card, indent=2) + "\n")


def card_path(path: Path) -> Path:
    """The card beside a file of answers. (tuned.1 and tuned.2 have one each.)"""
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
    """Whether a row has what identifies an answer, and the columns that scores read."""
    if not isinstance(row, dict) or not SCORED_COLUMNS <= row.keys():
        return False
    return all(type(row.get(name)) is int for name in ("index", "sample"))


def complete_groups(rows: list[dict], num_samples: int) -> dict[int, list[dict]]:
    """Problem (from 0) -> its rows in order of samples; only problems with all samples."""
    groups: dict[int, dict[int, dict]] = {}
    for row in rows:
        groups.setdefault(row["index"] - 1, {})[row["sample"]] = row
    return {
        index: [group[number] for number in range(num_samples)]
        for index, group in groups.items()
        if group.keys() == {*range(num_samples)}
    }
