"""What a model can do on GSM8K: its answers to each set of problems, in files that survive a kill,
and the metrics computed from them.

    MeasuredModel(policy, prompt, folder, 200).answers("greedy", problems, greedy(200))

appends each answer to FOLDER/greedy.jsonl as soon as it is complete. The same call again samples
only the answers that are missing.
"""

import json
import random
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

from answer_grader import get_last_boxed
from reasoning_from_scratch.files.disk import write_atomically
from reasoning_from_scratch.problems import Problem, prompt_function
from reasoning_from_scratch.rewards import correctness
from reasoning_from_scratch.sampling import Sampling, greedy
from reasoning_from_scratch.scores import majority_share
from rfs import load_problems
from rfs.evaluation.evaluate import EvalResult, evaluate
from rfs.files.tables import replace_rows
from rfs.own_policy import Policy

sys.path.append(str(Path(__file__).resolve().parent))
from gsm8k_styles import in_latex  # noqa: E402
from real_model import perplexity  # noqa: E402

PROBLEMS_ANSWERED_8_TIMES = 50  # of the held-out ones
PROBLEMS_ANSWERED_16_TIMES = 200  # of the test set
PROBLEMS_TO_READ = 20  # test problems whose answers are stored for readers
# Sets that no arm trains on, and the most tokens of an answer. gsm_symbolic generates new problems
# from templates, so nobody can have seen these numbers.
TRANSFER = {"math500": ("math-500", 320), "gym": ("gym:gsm_symbolic@held-out", 200)}
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
DIGITS = "0123456789abcdefg"


def check_test_sets() -> None:
    """Fails before anything trains for hours if a set cannot be made or downloaded."""
    for name in ("gsm8k-test", *(problems for problems, _ in TRANSFER.values())):
        load_problems(name)


def last_number(text: str) -> str:
    """The last number in the text, without commas; "" if there is none."""
    numbers = NUMBER.findall(text)
    return numbers[-1].replace(",", "") if numbers else ""


def has_box(row: dict) -> bool:
    return get_last_boxed(row["generated_text"]) is not None


def last_number_is_correct(row: dict) -> float:
    """Whether the last number of the answer is correct, in a box or not."""
    return correctness(f"\\boxed{{{last_number(row['generated_text'])}}}", row["gtruth_answer"])


def load_or_compute(path: Path, compute: Callable[[], dict]) -> dict:
    """The file's contents; if there is no file yet, they are computed and written."""
    if not path.exists():
        start = time.process_time()
        row = compute() | {"took": time.process_time() - start}
        write_atomically(path, json.dumps(row, indent=2) + "\n")
    return json.loads(path.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class MeasuredModel:
    """A model, its prompt, and the folder of its answers."""

    policy: Policy
    prompt: str  # as --prompt takes it
    folder: Path
    max_new_tokens: int

    def answers(self, name: str, problems: Sequence[Problem], sampling: Sampling) -> EvalResult:
        tokenizer, sampling = self.policy.tokenizer, replace(sampling, sample_rows=128)
        return evaluate(
            self.policy.model,
            tokenizer,
            problems,
            sampling,
            name=name,
            progress=True,
            prompt_fn=prompt_function(self.prompt, tokenizer),
            out_path=self.folder / f"{name}.jsonl",
        )

    def measure_held_out(self, problems: Sequence[Problem]) -> dict[str, float]:
        """The metrics by which settings are chosen. Answers that were cut off get a second chance
        with twice as many tokens: does the limit hide what the model can do?"""
        limit = self.max_new_tokens
        rows = self.answers(HELD_OUT, problems, greedy(limit)).rows
        metrics = greedy_metrics(rows)
        cut_off = [p for p, row in zip(problems, rows, strict=True) if not row["stopped"]]
        longer = self.answers(HELD_OUT_LONGER, cut_off, greedy(2 * limit)).rows if cut_off else []
        metrics["greedy_longer"] = mean(row["correct"] for row in replace_cut_off(rows, longer))
        few, eight_each = problems[:PROBLEMS_ANSWERED_8_TIMES], Sampling(limit, rollouts=8, seed=1)
        return metrics | sampled_metrics(self.answers("held_back_sampled", few, eight_each))

    def measure_test_set(self) -> dict[str, float]:
        """One answer with greedy decoding to each problem: the headline."""
        problems = load_problems("gsm8k-test")
        rows = self.answers("greedy", problems, greedy(self.max_new_tokens)).rows
        return with_prefix("test", greedy_metrics(rows))

    def measure_beyond_greedy(self) -> dict[str, float]:
        """The rest of what is measured of a final model: was it sharpened or taught, and what
        else has changed?"""
        tests = load_problems("gsm8k-test")
        one_each, sixteen_each = (
            Sampling(self.max_new_tokens, rollouts=count, seed=1) for count in (1, 16)
        )
        sampled = self.answers("sampled", tests, one_each)
        few = random.Random("sixteen").sample(tests, min(PROBLEMS_ANSWERED_16_TIMES, len(tests)))
        sixteen = self.answers("sixteen", few, sixteen_each)
        metrics = {"sampled": sampled.accuracy, "majority": majority_of_eight(sixteen.rows)}
        metrics |= {f"pass@{k}": sixteen.pass_at[k] for k in (1, 2, 4, 8, 16)}
        metrics = with_prefix("test", metrics)
        for name, (problems, limit) in TRANSFER.items():
            metrics[name] = self.answers(name, load_problems(problems), greedy(limit)).accuracy
        return metrics | {"perplexity": perplexity(self.policy.model, self.policy.tokenizer)}


def replace_cut_off(rows: Sequence[dict], longer_rows: Sequence[dict]) -> list[dict]:
    """The rows, with each cut-off answer replaced by the longer one; both are in order."""
    longer_answers = iter(longer_rows)
    return [row if row["stopped"] else next(longer_answers) for row in rows]


def with_prefix(prefix: str, metrics: dict[str, float]) -> dict[str, float]:
    return {f"{prefix}_{key}": value for key, value in metrics.items()}


def greedy_metrics(rows: Sequence[dict]) -> dict[str, float]:
    """The metrics of one answer to each problem."""
    correct = [row["correct"] for row in rows]
    boxed = [has_box(row) for row in rows]
    return {
        "greedy": mean(correct),
        "box": mean(boxed),
        "correct_in_box": sum(correct) / max(1, sum(boxed)),
        "last_number": mean(map(last_number_is_correct, rows)),
        "tokens": mean(row["tokens"] for row in rows),
        "cut_off": mean(not row["stopped"] for row in rows),
        "latex": mean(in_latex(row["generated_text"]) for row in rows),
    }


def sampled_metrics(evaluation: EvalResult) -> dict[str, float]:
    """The metrics of eight answers to each problem, at temperature 1."""
    counts = correct_counts(evaluation.rows)
    return {
        "sampled": evaluation.accuracy,
        "pass@8": evaluation.pass_at[8],
        "mixed": mean(0 < count < 8 for count in counts),
        "majority": evaluation.majority,
    }


def group_by_problem(rows: Sequence[dict]) -> list[list[dict]]:
    """The rows of each problem, which follow each other."""
    groups: dict[int, list[dict]] = {}
    for row in rows:
        groups.setdefault(row["index"], []).append(row)
    return list(groups.values())


def correct_counts(rows: Sequence[dict]) -> list[int]:
    """For each problem, how many of its answers are correct."""
    return [sum(row["correct"] for row in group) for group in group_by_problem(rows)]


def majority_of_eight(rows: Sequence[dict]) -> float:
    """The accuracy of majority votes among the first eight answers to each problem."""
    return mean(majority_share(group[:8]) for group in group_by_problem(rows))


# -------------------------------------------------------------- the files beside the table

HELD_OUT = "held_back"  # one greedy answer to each problem by which settings are chosen
HELD_OUT_LONGER = "held_back_longer"  # another to each whose first was cut off
HELD_OUT_CONTINUED = "held_back, cut-off answers continued"
SETS_OF_PART = {  # the answer files of each part; once PART.json exists, they are complete
    "held_back": (HELD_OUT, "held_back_sampled"),
    "test": ("greedy",),
    "beyond": ("sampled", "sixteen", *TRANSFER),
}
LAST_NUMBER = "greedy, last number"
IN_LATEX = "greedy, in LaTeX"  # 1 for an answer in LaTeX, correct or not
WITH_BOX = "{}, with a box"  # 1 for an answer with a box, for each of TRANSFER


def store_correct_counts(path: Path, row_key: dict[str, str], folder: Path) -> None:
    """Writes a row for each set, with a character for each problem: how many of its answers are
    correct, 0 to 9, then a to g for 10 to 16. Later comparisons are paired by problem."""
    parts = [names for part, names in SETS_OF_PART.items() if (folder / f"{part}.json").exists()]
    rows = {name: read_answers(folder / f"{name}.jsonl") for names in parts for name in names}
    counts = {name: correct_counts(set_rows) for name, set_rows in rows.items()}
    if HELD_OUT in rows and (longer := folder / f"{HELD_OUT_LONGER}.jsonl").exists():
        joined = replace_cut_off(rows[HELD_OUT], read_answers(longer))
        counts[HELD_OUT_CONTINUED] = [int(row["correct"]) for row in joined]
    if "greedy" in rows:
        counts[LAST_NUMBER] = [int(last_number_is_correct(row)) for row in rows["greedy"]]
        counts[IN_LATEX] = [int(in_latex(row["generated_text"])) for row in rows["greedy"]]
    for name in TRANSFER:
        if name in rows:
            counts[WITH_BOX.format(name)] = [int(has_box(row)) for row in rows[name]]
    digits = {name: "".join(DIGITS[n] for n in of_set) for name, of_set in counts.items()}
    replace_rows(path, row_key, [{"set": name, "correct": line} for name, line in digits.items()])


def store_answers_to_read(path: Path, name: str, folder: Path) -> None:
    """Adds the model's greedy answers to twenty test problems, the same for all models and chosen
    at random, for readers who compare before and after."""
    problems = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    rows = read_answers(folder / "greedy.jsonl")
    indices = random.Random("to read").sample(range(len(rows)), min(PROBLEMS_TO_READ, len(rows)))
    for number, row in enumerate(rows[index] for index in indices):
        if number == len(problems):
            problems.append({"problem": row["problem"], "answer": row["gtruth_answer"], "said": {}})
        problems[number]["said"][name] = {
            "text": row["generated_text"].strip(),
            "correct": row["correct"],
        }
    write_atomically(path, json.dumps(problems, indent=1, ensure_ascii=False) + "\n")


def read_answers(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
