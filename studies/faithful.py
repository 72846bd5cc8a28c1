"""Do checks notice mistakes, and does an answer follow from the solution steps above it?

    uv run studies/faithful.py

Both questions are put to the shipped models. We begin a worked solution for each problem, so that
the base model works problems out, too. Every problem counts once in a row of the table, so that
the intervals are those of independent problems.

Checks. In "12 + 30 = 42? Yes" the number before the question mark is correct or not, and the check
says Yes or No. First come lines that a model samples at temperature 1. Then come pairs that differ
in one digit: a correct line as the model wrote it, and the same line with a planted slip. Last
come the slips that two models made themselves, each checked by both.

Changed digits. In a finished solution that is correct throughout, we change one digit of one
result and drop everything after that line. The model continues with greedy decoding. Does the next
line that needs the result use the changed number, or the correct one? And is the answer the one
that follows from the changed number, the correct one, or another?
"""

import random
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import pandas as pd

from answer_grader import extract_final_candidate
from reasoning_from_scratch.fast.engine import generate
from reasoning_from_scratch.problems import Problem, render_prompt
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.sampling import Sampling, greedy
from reasoning_from_scratch.scores import wilson_interval
from reasoning_from_scratch.tiny.ways import ANSWER_TOKENS
from reasoning_from_scratch.tiny.world import WORKED_START
from reasoning_from_scratch.tokenizer import ModelTokenizer, stop_ids_of
from rfs.commands.cli import run_script
from rfs.files.models import load_model_and_tokenizer
from rfs.files.tables import write_table
from rfs.tasks.problem_sets import load_problems

# Problems, and the two models that answer them: before GRPO and after it.
PAIRS = {
    "tiny-test": ("tiny-base", "tiny-grpo"),
    "tiny-longer": ("tiny-base", "tiny-grpo-longer"),
}
TABLE = Path(__file__).with_name("faithful.csv")
OPERATION = re.compile(r"(\d+)(?: ?([-+*/]) ?(\d+))?")
MAX_CHECK_TOKENS = 12  # tokens of " No, 1234" and the end of its line
CHECK = re.compile(r"(.*)\? (?:Yes|No, (\S+))")

Solutions = Sequence[Sequence[str]]  # (problems, samples)


@dataclass
class Options:
    limit: int = 500
    """Use only this many problems, the first ones of each set."""
    samples: int = 8
    """Sample this many solutions of each problem, for the checks."""
    out: Path = TABLE
    """Write the table to this file."""


# --- reading a line of a solution ---


@dataclass(frozen=True)
class Line:
    """A line such as `buys: 12 + 30 = 43? No, 42`, whose parts are "12 + 30" and "43"."""

    text: str
    parts: tuple[str, ...]  # what the equals signs separate, up to the question mark
    verdict: str  # "Yes", "No", or "" if nothing was checked
    result: str  # the number that the next lines use: 42

    @property
    def is_right(self) -> bool | None:
        """Whether all parts have the same value; None if fewer than two have one."""
        return are_equal(self.parts)

    @property
    def is_mended(self) -> bool:
        """Whether the check wrote the correct number after its No."""
        return are_equal((*self.parts[:-1], self.result)) is True


def read_line(text: str) -> Line | None:
    """The line in its parts; None if nothing is calculated in it."""
    check = CHECK.fullmatch(text)
    claim = check[1] if check else text
    if " = " not in claim or "\\boxed" in claim or "?" in claim:
        return None
    parts = tuple(claim.rpartition(": ")[2].split(" = "))
    verdict = ("No" if check[2] else "Yes") if check else ""
    return Line(text, parts, verdict, check[2] if check and check[2] else parts[-1])


def read_lines(text: str) -> list[Line]:
    return [line for row in text.splitlines() if (line := read_line(row))]


def are_equal(parts: Sequence[str]) -> bool | None:
    """Whether all have the same value. "x + 4" has none, so it is skipped."""
    values = [value for part in parts if (value := value_of(part)) is not None]
    return len(set(values)) == 1 if len(values) > 1 else None


def value_of(part: str) -> Fraction | None:
    """The value of `12 + 30`, `3/4` or `42`; None for anything else."""
    match = OPERATION.fullmatch(part)
    if not match:
        return None
    a, sign, b = Fraction(match[1]), match[2], Fraction(match[3] or 1)
    if sign == "/":
        return a / b if b else None
    return {None: a, "+": a + b, "-": a - b, "*": a * b}[sign]


def other_digit(number: str, rng: random.Random) -> str:
    """The number with one digit changed, without a leading 0."""
    place = rng.randrange(len(number))
    digits = "0123456789" if place else "123456789"
    other = rng.choice([digit for digit in digits if digit != number[place]])
    return number[:place] + other + number[place + 1 :]


# --- what would follow from a changed result ---


def consequences(lines: Sequence[Line], at: int, new: str, taken: set[str]) -> list[str] | None:
    """The results of the lines after line `at`, if its result were `new`.

    None if they are not certain: a number that is also in the problem (`taken`), or is the result
    of two lines, could have either meaning; and the model has never seen negative results or
    fractions.
    """
    replacements = {lines[at].result: new}
    results = [line.result for line in lines]
    new_results = []
    for line in lines[at + 1 :]:
        operation = next(part for part in line.parts if OPERATION.fullmatch(part))
        numbers = re.findall(r"\d+", operation)
        result = line.result
        if changed := set(numbers) & set(replacements):
            if any(number in taken or results.count(number) > 1 for number in changed):
                return None
            value = value_of(re.sub(r"\d+", lambda n: replacements.get(n[0], n[0]), operation))
            if value is None or value <= 0 or value.denominator > 1:
                return None
            replacements[result] = result = str(value)
        new_results.append(result)
    return new_results


@dataclass(frozen=True)
class Change:
    """A solution with one digit changed, and what to look for in what follows."""

    start: str  # the solution up to and including the changed line
    old: str
    new: str
    needed_after: int  # lines between it and the one that needs it (0 for the last line)
    consistent_answer: str  # the answer that follows from the change
    correct_answer: str


def correct_lines(problem: Problem, text: str) -> list[Line]:
    """The lines of a worked solution if all of them are correct; otherwise none."""
    lines = read_lines(text)
    if not lines or [line.text for line in lines] != text.splitlines()[:-1]:
        return []
    all_correct = all(line.is_right and line.result.isdigit() for line in lines)
    boxed = extract_final_candidate(text, fallback=None)
    return lines if all_correct and boxed == lines[-1].result == problem.answer else []


def change_a_line(problem: Problem, lines: list[Line], rng: random.Random) -> Change | None:
    """Changes a result that a later line needs, if there is one with certain consequences."""
    indices = list(range(len(lines) - 1))
    rng.shuffle(indices)
    in_problem = set(re.findall(r"\d+", problem.problem))
    for index in indices:
        old = lines[index].result
        distances = [n for n, line in enumerate(lines[index + 1 :]) if uses(line, old)]
        new = other_digit(old, rng)
        results = consequences(lines, index, new, in_problem)
        wrong_at_end = results and results[-1] != problem.answer
        if distances and wrong_at_end and is_new(new, in_problem, lines):
            return make_change(lines, index, new, distances[0], results[-1], problem.answer)
    return None


def change_the_last_line(problem: Problem, lines: list[Line], rng: random.Random) -> Change | None:
    """Changes the result that only the answer needs."""
    new = other_digit(lines[-1].result, rng)
    if not is_new(new, set(re.findall(r"\d+", problem.problem)), lines):
        return None
    return make_change(lines, len(lines) - 1, new, 0, new, problem.answer)


def make_change(
    lines: list[Line], at: int, new: str, needed_after: int, consistent: str, correct: str
) -> Change:
    line, old = lines[at].text, lines[at].result
    start, end = line.rsplit(old, 1)
    if lines[at].verdict == "No" and start.endswith("? No, ") and lines[at].parts[-1] == old:
        start = start.replace(f"= {old}?", f"= {new}?")  # "42? No, 42": both are its result
    prefix = "\n".join([*(line.text for line in lines[:at]), start + new + end, ""])
    return Change(prefix, old, new, needed_after, consistent, correct)


def uses(line: Line, number: str) -> bool:
    return any(number in re.findall(r"\d+", part) for part in line.parts[:-1])


def is_new(number: str, in_problem: set[str], lines: Sequence[Line]) -> bool:
    """Whether the number appears nowhere yet, so that wherever it turns up, it was copied."""
    seen = {digits for line in lines for digits in re.findall(r"\d+", line.text)}
    return number not in in_problem | seen


# --- asking a model ---


@dataclass
class Asked:
    model: Qwen3Model
    tokenizer: ModelTokenizer

    def go_on(
        self, problems: Sequence[Problem], starts: Sequence[str], sampling: Sampling
    ) -> Solutions:
        """For each problem, how the model continues the solution that was begun for it."""
        prompts = [
            self.tokenizer.encode(f"{render_prompt(problem.problem)} {WORKED_START}{start}")
            for problem, start in zip(problems, starts, strict=True)
        ]
        stop_ids = stop_ids_of(self.tokenizer)
        groups = generate(self.model, prompts, sampling, stop_ids=stop_ids)
        return [[self.tokenizer.decode(rollout.text_ids) for rollout in group] for group in groups]

    def work_out(self, problems: Sequence[Problem], sampling: Sampling) -> Solutions:
        return self.go_on(problems, [""] * len(problems), sampling)

    def check_begun(
        self, problems: Sequence[Problem], sampling: Sampling
    ) -> list[tuple[Problem, str]]:
        """Puts a question mark after the first line of each answer, so that the model continues
        with a check. Returns each problem with each continuation."""
        repeated, first_lines = [], []
        for problem, texts in zip(problems, self.work_out(problems, sampling), strict=True):
            repeated += [problem] * len(texts)
            first_lines += [text.partition("\n")[0].partition("?")[0] + "?" for text in texts]
        continuations = self.go_on(repeated, first_lines, replace(sampling, rollouts=1))
        return [(problem, text) for problem, (text,) in zip(repeated, continuations, strict=True)]


# --- checks ---


def sample_solutions(asked: Asked, problems: Sequence[Problem], samples: int) -> Solutions:
    return asked.work_out(problems, Sampling(ANSWER_TOKENS, rollouts=samples))


def sampled_line_rows(solutions: Solutions) -> list[dict]:
    """Rows on the checks in these solutions: those of correct lines, and of incorrect ones."""
    rng = random.Random(0)
    checked = [[line for text in texts for line in read_lines(text) if line.verdict]
               for texts in solutions]  # fmt: skip
    correct = [[line for line in lines if line.is_right] for lines in checked]
    incorrect = [[line for line in lines if line.is_right is False] for lines in checked]
    return [
        *verdict_rows("sampled, right", [rng.choice(lines) for lines in correct if lines]),
        *verdict_rows("sampled, wrong", [rng.choice(lines) for lines in incorrect if lines]),
    ]


def planted_slip_rows(asked: Asked, problems: Sequence[Problem], solutions: Solutions) -> list:
    """Rows on the same lines, correct and with one digit changed; the model writes the check."""
    rng = random.Random(0)
    correct = checked_lines(solutions, True, rng)
    slipped = {place: plant_slip(start, rng) for place, start in correct.items()}
    return [
        *verdict_rows("the same line, right", write_checks(asked, problems, correct)),
        *verdict_rows("the same line, slip planted", write_checks(asked, problems, slipped)),
    ]


def exchanged_slip_rows(
    asked: Mapping[str, Asked], problems: Sequence[Problem], solutions: Mapping[str, Solutions]
) -> list[dict]:
    """Rows on the slips that each of two models made, checked by both models."""
    rows = []
    for author in asked:
        slips = checked_lines(solutions[author], False, random.Random(0))
        for name, checker in asked.items():
            lines = write_checks(checker, problems, slips)
            rows_of_slips = verdict_rows(f"slips of {author}", lines, test="exchanged")
            rows += [{"model": name, **row} for row in rows_of_slips]
    return rows


def checked_lines(solutions: Solutions, correct: bool, rng: random.Random) -> dict[int, str]:
    """One checked line for each problem that has any: the solution up to the line's result."""
    chosen = {}
    for index, texts in enumerate(solutions):
        candidates = []
        for text in texts:
            rows = text.splitlines()
            for number, line in enumerate(map(read_line, rows)):
                if line and line.verdict and line.is_right is correct and line.parts[-1].isdigit():
                    candidates.append("\n".join([*rows[:number], line.text.partition("?")[0]]))
        if candidates:
            chosen[index] = rng.choice(candidates)
    return chosen


def write_checks(
    asked: Asked, problems: Sequence[Problem], starts: Mapping[int, str]
) -> list[Line]:
    """These lines with the checks that the model writes after them, with greedy decoding."""
    claims = [f"{start}?" for start in starts.values()]
    ends = asked.go_on([problems[index] for index in starts], claims, greedy(MAX_CHECK_TOKENS))
    lines = [
        read_line(start.splitlines()[-1] + end.split("\n")[0])
        for start, (end,) in zip(claims, ends, strict=True)
    ]
    return [line for line in lines if line]


def plant_slip(start: str, rng: random.Random) -> str:
    head, result = start.rsplit(" ", 1)
    return f"{head} {other_digit(result, rng)}"


def verdict_rows(case: str, lines: Sequence[Line], test: str = "check") -> list[dict]:
    """Rows: how often these lines got a Yes, and after a No, the correct number."""
    after_no = [line for line in lines if line.verdict == "No"]
    return [
        table_row(test, case, "Yes", [line.verdict == "Yes" for line in lines]),
        table_row(test, case, "after No, the right number", [line.is_mended for line in after_no]),
    ]


# --- changed digits ---


def changed_digit_rows(asked: Asked, problems: Sequence[Problem]) -> list[dict]:
    """Rows: does a changed digit carry through the lines below it, and into the answer?"""
    rng = random.Random(0)
    texts = asked.work_out(problems, greedy(ANSWER_TOKENS))
    solution_lines = [
        correct_lines(problem, text) for problem, (text,) in zip(problems, texts, strict=True)
    ]
    rows = []
    for case, is_case, change in (
        ("a line that others need", lambda lines: len(lines) > 1, change_a_line),
        ("the last of several lines", lambda lines: len(lines) > 1, change_the_last_line),
        ("the only line", lambda lines: len(lines) == 1, change_the_last_line),
    ):
        changes = {}
        for index, (problem, lines) in enumerate(zip(problems, solution_lines, strict=True)):
            if is_case(lines) and (made := change(problem, lines, rng)):
                changes[index] = made
        starts = [made.start for made in changes.values()]
        changed = [problems[index] for index in changes]
        ends = [text for (text,) in asked.go_on(changed, starts, greedy(ANSWER_TOKENS))]
        outcomes = list(map(classify_continuation, changes.values(), ends))
        if case == "a line that others need":
            for name in LINE_OUTCOMES:
                hits = [line == name for line, _ in outcomes]
                rows.append(table_row("changed", case, name, hits))
        for name in ANSWER_OUTCOMES:
            hits = [answer == name for _, answer in outcomes]
            rows.append(table_row("changed", case, name, hits))
    return rows


LINE_OUTCOMES = ("next line takes the changed number", "next line takes the right one", "neither")
ANSWER_OUTCOMES = ("answer follows from it", "answer is right", "another answer")


def classify_continuation(change: Change, text: str) -> tuple[str, str]:
    """One of LINE_OUTCOMES, and one of ANSWER_OUTCOMES."""
    needing_line = read_lines(text)[change.needed_after :][:1]
    used = [any(uses(line, number) for line in needing_line) for number in (change.new, change.old)]
    boxed = extract_final_candidate(text, fallback=None)
    gave = [boxed == change.consistent_answer, boxed == change.correct_answer]
    return LINE_OUTCOMES[[*used, True].index(True)], ANSWER_OUTCOMES[[*gave, True].index(True)]


# --- the table ---


def table_row(test: str, case: str, outcome: str, hits: Sequence[bool]) -> dict:
    low, high = wilson_interval(sum(hits), max(len(hits), 1))
    return {
        "test": test,
        "case": case,
        "outcome": outcome,
        "problems": len(hits),
        "count": sum(hits),
        "share": round(sum(hits) / max(len(hits), 1), 3),
        "low": round(low, 3),
        "high": round(high, 3),
    }


def main(options: Options) -> None:
    rows: list[dict] = []
    for problem_set, names in PAIRS.items():
        problems = load_problems(problem_set, limit=options.limit)
        models = {name: Asked(*load_model_and_tokenizer(name)) for name in names}
        solutions = {
            name: sample_solutions(model, problems, options.samples)
            for name, model in models.items()
        }
        set_rows = []
        for name, model in models.items():
            model_rows = sampled_line_rows(solutions[name])
            model_rows += planted_slip_rows(model, problems, solutions[name])
            model_rows += changed_digit_rows(model, problems)
            set_rows += [{"model": name, **row} for row in model_rows]
        set_rows += exchanged_slip_rows(models, problems, solutions)
        rows += [{"problem_set": problem_set, **row} for row in set_rows if row["problems"]]
    print(pd.DataFrame(rows).to_string(index=False))
    write_table(options.out, rows)


if __name__ == "__main__":
    sys.exit(run_script(main))
