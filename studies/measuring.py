"""What a model can do: answers to sets of problems, each in a file that outlives a kill, and the
figures that are read from them.

    Measured(policy, prompt, folder).answers("greedy", problems, greedy(200))

puts a line for each answer into FOLDER/greedy.jsonl as soon as it is there. The same call again
answers what is missing and samples nothing anew.
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
from reasoning_from_scratch.problems import Problem, prompt_of
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

SAMPLED_HELD_BACK = 50  # held-out problems that are answered eight times
SIXTEEN = 200  # test problems that are answered sixteen times
TO_READ = 20  # test problems whose answers are kept to read
# What no arm trains on: the set, and the longest answer in tokens. gsm_symbolic makes its problems
# anew from templates, so nobody can have seen these numbers.
TRANSFER = {"math500": ("math-500", 320), "gym": ("gym:gsm_symbolic@held-out", 200)}
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
DIGITS = "0123456789abcdefg"


def check_sets() -> None:
    """Before anything trains for hours: a set that cannot be made or downloaded is an error now."""
    for name in ("gsm8k-test", *(problems for problems, _ in TRANSFER.values())):
        load_problems(name)


def last_number(text: str) -> str:
    """What to read where there is no box, or instead of it."""
    found = NUMBER.findall(text)
    return found[-1].replace(",", "") if found else ""


def has_box(row: dict) -> bool:
    return get_last_boxed(row["generated_text"]) is not None


def last_is_correct(row: dict) -> float:
    """Whether an answer is correct if its last number is read."""
    return correctness(f"\\boxed{{{last_number(row['generated_text'])}}}", row["gtruth_answer"])


def kept(path: Path, compute: Callable[[], dict]) -> dict:
    """The file's contents; if there is no file yet, they are computed and written."""
    if not path.exists():
        started = time.process_time()
        row = compute() | {"took": time.process_time() - started}
        write_atomically(path, json.dumps(row, indent=2) + "\n")
    return json.loads(path.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Measured:
    """A model, how it is asked, and where its answers are kept."""

    policy: Policy
    prompt: str  # as --prompt takes it
    folder: Path
    longest: int  # tokens of an answer

    def answers(self, name: str, problems: Sequence[Problem], sampling: Sampling) -> EvalResult:
        tokenizer, sampling = self.policy.tokenizer, replace(sampling, sample_rows=128)
        return evaluate(
            self.policy.model, tokenizer, problems, sampling, name=name, progress=True,
            prompt_fn=prompt_of(self.prompt, tokenizer), out_path=self.folder / f"{name}.jsonl",
        )  # fmt: skip

    def held_back(self, some: Sequence[Problem]) -> dict[str, float]:
        """What settings are chosen by. Answers that were cut off get a second chance, with twice as
        many tokens: does the limit hide what the model can do?"""
        first = self.answers(HELD_OUT, some, greedy(self.longest)).rows
        row = greedy_figures(first)
        rest = [one for one, answer in zip(some, first, strict=True) if not answer["stopped"]]
        more = self.answers(LONGER, rest, greedy(2 * self.longest)).rows if rest else []
        row["greedy_longer"] = mean(answer["correct"] for answer in continued(first, more))
        eight = Sampling(self.longest, rollouts=8, seed=1)
        few = some[:SAMPLED_HELD_BACK]
        return row | sampled_figures(self.answers("held_back_sampled", few, eight))

    def on_test_set(self) -> dict[str, float]:
        """One answer with greedy decoding to each problem: the headline."""
        found = self.answers("greedy", load_problems("gsm8k-test"), greedy(self.longest))
        return prefixed("test", greedy_figures(found.rows))

    def beyond(self) -> dict[str, float]:
        """Sharpened or taught? What else has changed? All that is asked of a final model besides
        greedy decoding."""
        every = load_problems("gsm8k-test")
        once = self.answers("sampled", every, Sampling(self.longest, rollouts=1, seed=1))
        few = random.Random("sixteen").sample(every, min(SIXTEEN, len(every)))
        many = self.answers("sixteen", few, Sampling(self.longest, rollouts=16, seed=1))
        row = {"sampled": once.accuracy, "majority": majority_of_eight(many.rows)}
        row |= {f"pass@{k}": many.pass_at[k] for k in (1, 2, 4, 8, 16)}
        row = prefixed("test", row)
        for name, (problems, longest) in TRANSFER.items():
            row[name] = self.answers(name, load_problems(problems), greedy(longest)).accuracy
        return row | {"perplexity": perplexity(self.policy.model, self.policy.tokenizer)}


def continued(first: Sequence[dict], more: Sequence[dict]) -> list[dict]:
    """Answers in which those that were cut off are replaced by longer ones, in their order."""
    longer = iter(more)
    return [answer if answer["stopped"] else next(longer) for answer in first]


def prefixed(name: str, row: dict[str, float]) -> dict[str, float]:
    return {f"{name}_{key}": value for key, value in row.items()}


def greedy_figures(rows: Sequence[dict]) -> dict[str, float]:
    """Of one answer to each problem."""
    correct = [row["correct"] for row in rows]
    boxed = [has_box(row) for row in rows]
    return {
        "greedy": mean(correct),
        "box": mean(boxed),
        "correct_in_box": sum(correct) / max(1, sum(boxed)),
        "last_number": mean(map(last_is_correct, rows)),
        "tokens": mean(row["tokens"] for row in rows),
        "cut_off": mean(not row["stopped"] for row in rows),
        "latex": mean(in_latex(row["generated_text"]) for row in rows),
    }


def sampled_figures(found: EvalResult) -> dict[str, float]:
    """Of eight answers at temperature 1 to each problem."""
    counts = correct_counts(found.rows)
    return {
        "sampled": found.accuracy,
        "pass@8": found.pass_at[8],
        "mixed": mean(0 < count < 8 for count in counts),
        "majority": found.majority,
    }


def by_problem(rows: Sequence[dict]) -> list[list[dict]]:
    """The rows of each problem, which follow each other."""
    groups: dict[int, list[dict]] = {}
    for row in rows:
        groups.setdefault(row["index"], []).append(row)
    return list(groups.values())


def correct_counts(rows: Sequence[dict]) -> list[int]:
    """For each problem, how many of its answers are correct."""
    return [sum(row["correct"] for row in group) for group in by_problem(rows)]


def majority_of_eight(rows: Sequence[dict]) -> float:
    """Of the first eight answers to each problem, the most frequent is correct."""
    return mean(majority_share(group[:8]) for group in by_problem(rows))


# -------------------------------------------------------------- what is kept beside the table

HELD_OUT = "held_back"  # one greedy answer to each problem that settings are chosen by
LONGER = "held_back_longer"  # another to those whose first was cut off
CONTINUED = "held_back, cut-off answers continued"
SETS = {  # that each part of what is measured asks; its file says that their answers are complete
    "held_back": (HELD_OUT, "held_back_sampled"),
    "test": ("greedy",),
    "beyond": ("sampled", "sixteen", *TRANSFER),
}
LAST_NUMBER = "greedy, last number"
IN_LATEX = "greedy, in LaTeX"  # 1 for an answer that is written so, correct or not
WITH_A_BOX = "{}, with a box"  # likewise, of what no arm trains on


def keep_problems(path: Path, this: dict[str, str], folder: Path) -> None:
    """A row for each set of problems: a character for each problem says how many of its answers
    are correct, 0 to 9, then a to g. Later comparisons are paired by it."""
    parts = [names for part, names in SETS.items() if (folder / f"{part}.json").exists()]
    rows = {name: read_answers(folder / f"{name}.jsonl") for names in parts for name in names}
    counts = {name: correct_counts(some) for name, some in rows.items()}
    if HELD_OUT in rows and (longer := folder / f"{LONGER}.jsonl").exists():
        both = continued(rows[HELD_OUT], read_answers(longer))
        counts[CONTINUED] = [int(row["correct"]) for row in both]
    if "greedy" in rows:
        counts[LAST_NUMBER] = [int(last_is_correct(row)) for row in rows["greedy"]]
        counts[IN_LATEX] = [int(in_latex(row["generated_text"])) for row in rows["greedy"]]
    for name in TRANSFER:
        if name in rows:
            counts[WITH_A_BOX.format(name)] = [int(has_box(row)) for row in rows[name]]
    digits = {name: "".join(DIGITS[count] for count in some) for name, some in counts.items()}
    replace_rows(path, this, [{"set": name, "correct": line} for name, line in digits.items()])


def keep_answers(path: Path, name: str, folder: Path) -> None:
    """Greedy answers of that model to twenty test problems, chosen at random once for all models:
    to read, before and after."""
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    rows = read_answers(folder / "greedy.jsonl")
    places = random.Random("to read").sample(range(len(rows)), min(TO_READ, len(rows)))
    for number, row in enumerate(rows[place] for place in places):
        if number == len(found):
            found.append({"problem": row["problem"], "answer": row["gtruth_answer"], "said": {}})
        found[number]["said"][name] = {
            "text": row["generated_text"].strip(),
            "correct": row["correct"],
        }
    write_atomically(path, json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def read_answers(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
