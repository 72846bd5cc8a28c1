"""Published data sets: where they are, and what shows that a file is complete."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class DataSet:
    """Where a data set is published, and what shows that it is complete."""

    filename: str
    url: str
    rows: int
    fields: tuple[str, ...]
    backup_url: str | None = None
    reword: Callable[[dict], dict] | None = None  # turns the backup's row into the first source's


def _as_in_math(row: dict) -> dict:
    """PRM800K's files say `subject`, and 3 for "Level 3"."""
    level, subject = row.pop("level", ""), row.pop("subject", "")
    return row | {"level": f"Level {level}", "type": subject}


GITHUB_RAW = "https://raw.githubusercontent.com"
MATH_FIELDS = ("problem", "solution", "answer", "unique_id")
GSM8K = f"{GITHUB_RAW}/openai/grade-school-math/master/grade_school_math/data"
DATA_SETS = {
    "math-500": DataSet(
        "math500_test.json",
        f"{GITHUB_RAW}/rasbt/reasoning-from-scratch/refs/heads/main/"
        "ch03/01_main-chapter-code/math500_test.json",
        500,
        MATH_FIELDS,
        "https://huggingface.co/datasets/HuggingFaceH4/MATH-500/resolve/main/test.jsonl",
    ),
    "math-train": DataSet(
        "math_train.json",
        f"{GITHUB_RAW}/rasbt/math_full_minus_math500/refs/heads/main/math_full_minus_math500.json",
        12_000,
        MATH_FIELDS,
        # The 12,000 problems that OpenAI trained on when it held out MATH-500. The hub has the
        # book's file only as parquet.
        "https://github.com/openai/prm800k/raw/main/prm800k/math_splits/train.jsonl",
        reword=_as_in_math,
    ),
    "gsm8k": DataSet("gsm8k_train.jsonl", f"{GSM8K}/train.jsonl", 7473, ("question", "answer")),
    "gsm8k-test": DataSet("gsm8k_test.jsonl", f"{GSM8K}/test.jsonl", 1319, ("question", "answer")),
}
