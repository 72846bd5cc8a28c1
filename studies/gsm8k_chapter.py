"""What chapters 6 and 8 show of gsm8k.py: tables, errors and answers, from the stored files."""

import json
from pathlib import Path
from textwrap import fill

import numpy as np
import pandas as pd
from gsm8k_measurements import HELD_OUT
from gsm8k_questions import QWEN_PROMPT, TRAINED_WITH
from gsm8k_table import CHOOSING_SEED, Arm, Rows, accuracy_by_problem, arm_of
from gsm8k_table import UNTRAINED as BASE

from rfs.evaluation.paired import paired
from rfs.files.tables import read_table

HERE = Path(__file__).resolve().parent
STUDENT = "qwen2.5-coder-0.5b-instruct-q4_k_m"
UNTRAINED = f"{BASE}{TRAINED_WITH}"
GRPO = {"model": STUDENT, "arm": "grpo", "lr": "0.0001"}
LINE_WIDTH = 76  # characters of a line
ROW_TITLES = {  # columns, and what the chapter's table calls them
    "test_greedy": "test: correct, greedy decoding",
    "test_box": "test: with a box",
    "test_correct_in_box": "test: correct, of those with a box",
    "test_cut_off": "test: cut off at 200 tokens",
    "test_tokens": "test: tokens per answer",
    "sampled": "held out: correct, temperature 1",
    "pass@8": "held out: one of eight correct",
}


def results() -> pd.DataFrame:
    """The untrained model, and GRPO with each seed: the rows of ROW_TITLES."""
    rows = read_table(HERE / "gsm8k.csv")
    (untrained,) = select_rows(rows, {"model": STUDENT, "arm": UNTRAINED})
    columns = {"untrained": untrained} | {
        f"seed {row['seed']}": row for row in sort_by_seed(select_rows(rows, GRPO))
    }
    values = {
        name: [float(row[key] or np.nan) for key in ROW_TITLES] for name, row in columns.items()
    }
    return pd.DataFrame(values, index=list(ROW_TITLES.values())).round(3)


def gains() -> None:
    """Prints what GRPO adds on the test problems, with the standard error over them."""
    rows = read_table(HERE / "gsm8k_problems.csv")
    before = accuracy_by_problem(rows, STUDENT, Arm(UNTRAINED), "greedy")
    for row in sort_by_seed(select_rows(rows, GRPO | {"set": "greedy"})):
        after = accuracy_by_problem([row], STUDENT, arm_of(row), "greedy")
        effect = paired(after, before)
        gained = sum(after[index] > before[index] for index in before)
        lost = sum(after[index] < before[index] for index in before)
        print(
            f"seed {row['seed']}: {100 * effect.mean:+.1f} points (standard error "
            f"{100 * effect.error:.1f}); {gained} problems gained, {lost} lost"
        )


# The rows of chapter 8's table: an arm, a seed, and what it learns from.
LEARNED_FROM = {
    (UNTRAINED, ""): "nothing",
    (f"{BASE}{QWEN_PROMPT}", ""): "nothing, Qwen's prompt",
    ("grpo", CHOOSING_SEED): "rewards (GRPO)",
    ("grpo", "0"): "rewards, seed 0",
    ("solutions", CHOOSING_SEED): "worked solutions",
    ("own-answers", CHOOSING_SEED): "its own correct answers",
    ("distilled", CHOOSING_SEED): "the larger model's answers",
}


def rivals() -> pd.DataFrame:
    """Each method on the held-out problems. The difference from GRPO with the seed that chose the
    settings is paired over them; an error is a standard error."""
    rows, problems = (read_table(HERE / name) for name in ("gsm8k.csv", "gsm8k_problems.csv"))

    def accuracies_of(row: dict[str, str]) -> dict[int, float]:
        same_seed = select_rows(problems, {"seed": row["seed"]})
        return accuracy_by_problem(same_seed, STUDENT, arm_of(row), HELD_OUT)

    (grpo,) = select_rows(rows, GRPO | {"seed": CHOOSING_SEED})
    lines = []
    for (arm, seed), name in LEARNED_FROM.items():
        (row,) = select_rows(rows, {"model": STUDENT, "arm": arm, "seed": seed})
        effect = paired(accuracies_of(row), accuracies_of(grpo))
        percent = {name: 100 * float(row[name]) for name in ("greedy", "sampled", "pass@8")}
        lines.append(
            {
                "learned from": name,
                "greedy": percent["greedy"],
                "minus GRPO": 100 * effect.mean if row != grpo else np.nan,
                "error": 100 * effect.error if row != grpo else np.nan,
                "temperature 1": percent["sampled"],
                "one of eight": percent["pass@8"],
                "tokens": float(row["tokens"]),
                "hours": float(row["seconds"] or np.nan) / 3600,
            }
        )
    return pd.DataFrame(lines).set_index("learned from").round(1)


def select_rows(rows: Rows, wanted: dict[str, str]) -> list[dict[str, str]]:
    return [row for row in rows if wanted.items() <= row.items()]


def sort_by_seed(rows: Rows) -> list[dict[str, str]]:
    return sorted(rows, key=lambda row: row["seed"])


def beginning(text: str, longest: int) -> str:
    """At most so many characters, with dots where more follow."""
    return f"{text[:longest]}{' ...' * (len(text) > longest)}"


def show_differences(seed: int, max_characters: int = 420) -> None:
    """Of twenty test problems, chosen at random, those that the model solves only before or only
    after its training with this seed: both answers."""
    names = {
        "untrained": f"{STUDENT}, {UNTRAINED}",
        "trained": f"{STUDENT}, grpo, {seed}, {GRPO['lr']}",
    }
    for problem in json.loads((HERE / "gsm8k_answers.json").read_text("utf-8")):
        answers = {name: problem["said"][stored_name] for name, stored_name in names.items()}
        if answers["trained"]["correct"] == answers["untrained"]["correct"]:
            continue
        print(fill(f"{problem['problem']} ({problem['answer']})", LINE_WIDTH))
        for name, answer in answers.items():
            mark = "correct" if answer["correct"] else "incorrect"
            shown = f"- {name}, {mark}: {beginning(answer['text'], max_characters)}"
            print(fill(shown, LINE_WIDTH, subsequent_indent="  "))
        print()
