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
LONGEST_CHECK = 12  # tokens of " No, 1234" and the end of its line
CHECK = re.compile(r"(.*)\? (?:Yes|No, (\S+))")

Workings = Sequence[Sequence[str]]  # (problems, samples)


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
    """`buys: 12 + 30 = 43? No, 42`: its parts are "12 + 30" and "43"."""

    text: str
    parts: tuple[str, ...]  # what the equals signs separate, up to the question mark
    said: str  # "Yes", "No", or "" if nothing was checked
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
    found = CHECK.fullmatch(text)
    claim = found[1] if found else text
    if " = " not in claim or "\\boxed" in claim or "?" in claim:
        return None
    parts = tuple(claim.rpartition(": ")[2].split(" = "))
    said = ("No" if found[2] else "Yes") if found else ""
    return Line(text, parts, said, found[2] if found and found[2] else parts[-1])


def read_lines(text: str) -> list[Line]:
    return [line for row in text.splitlines() if (line := read_line(row))]


def are_equal(parts: Sequence[str]) -> bool | None:
    """Whether all have the same value. "x + 4" has none, so it is skipped."""
    values = [value for part in parts if (value := value_of(part)) is not None]
    return len(set(values)) == 1 if len(values) > 1 else None


def value_of(part: str) -> Fraction | None:
    """The value of `12 + 30`, `3/4` or `42`; None for anything else."""
    found = OPERATION.fullmatch(part)
    if not found:
        return None
    a, sign, b = Fraction(found[1]), found[2], Fraction(found[3] or 1)
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
    of two lines, could have either meaning; and nobody taught the model what lies below 0 or
    between whole numbers.
    """
    instead = {lines[at].result: new}
    results = [line.result for line in lines]
    found = []
    for line in lines[at + 1 :]:
        operation = next(part for part in line.parts if OPERATION.fullmatch(part))
        numbers = re.findall(r"\d+", operation)
        result = line.result
        if changed := set(numbers) & set(instead):
            if any(number in taken or results.count(number) > 1 for number in changed):
                return None
            value = value_of(re.sub(r"\d+", lambda n: instead.get(n[0], n[0]), operation))
            if value is None or value <= 0 or value.denominator > 1:
                return None
            instead[result] = result = str(value)
        found.append(result)
    return found


@dataclass(frozen=True)
class Change:
    """A solution with one digit changed, and what to look for in what follows."""

    begun: str  # the solution up to and including the changed line
    old: str
    new: str
    needed_after: int  # lines between it and the one that needs it (0 for the last line)
    follows: str  # the answer that follows from the change
    right: str


def right_working(problem: Problem, text: str) -> list[Line]:
    """The lines of a worked solution if all of them are correct; otherwise none."""
    lines = read_lines(text)
    if not lines or [line.text for line in lines] != text.splitlines()[:-1]:
        return []
    right = all(line.is_right and line.result.isdigit() for line in lines)
    boxed = extract_final_candidate(text, fallback=None)
    return lines if right and boxed == lines[-1].result == problem.answer else []


def change_a_line(problem: Problem, lines: list[Line], rng: random.Random) -> Change | None:
    """Changes a result that a later line needs, if there is one with certain consequences."""
    places = list(range(len(lines) - 1))
    rng.shuffle(places)
    in_problem = set(re.findall(r"\d+", problem.problem))
    for at in places:
        needs = [n for n, line in enumerate(lines[at + 1 :]) if uses(line, lines[at].result)]
        new = other_digit(lines[at].result, rng)
        results = consequences(lines, at, new, in_problem)
        if needs and results and results[-1] != problem.answer and is_new(new, in_problem, lines):
            return changed(lines, at, new, needs[0], results[-1], problem.answer)
    return None


def change_the_last_line(problem: Problem, lines: list[Line], rng: random.Random) -> Change | None:
    """Changes the result that only the answer needs."""
    new = other_digit(lines[-1].result, rng)
    if not is_new(new, set(re.findall(r"\d+", problem.problem)), lines):
        return None
    return changed(lines, len(lines) - 1, new, 0, new, problem.answer)


def changed(
    lines: list[Line], at: int, new: str, needed_after: int, follows: str, right: str
) -> Change:
    line, old = lines[at].text, lines[at].result
    start, end = line.rsplit(old, 1)
    if lines[at].said == "No" and start.endswith("? No, ") and lines[at].parts[-1] == old:
        start = start.replace(f"= {old}?", f"= {new}?")  # "42? No, 42": both are its result
    begun = "\n".join([*(line.text for line in lines[:at]), start + new + end, ""])
    return Change(begun, old, new, needed_after, follows, right)


def uses(line: Line, number: str) -> bool:
    return any(number in re.findall(r"\d+", part) for part in line.parts[:-1])


def is_new(number: str, in_problem: set[str], lines: Sequence[Line]) -> bool:
    """Whether the number appears nowhere yet, so that wherever it turns up, it was copied."""
    seen = {found for line in lines for found in re.findall(r"\d+", line.text)}
    return number not in in_problem | seen


# --- asking a model ---


@dataclass
class Asked:
    model: Qwen3Model
    tokenizer: ModelTokenizer

    def go_on(
        self, problems: Sequence[Problem], begun: Sequence[str], sampling: Sampling
    ) -> Workings:
        """For each problem, how the model continues the solution that was begun for it."""
        prompts = [
            self.tokenizer.encode(f"{render_prompt(problem.problem)} {WORKED_START}{start}")
            for problem, start in zip(problems, begun, strict=True)
        ]
        stop_ids = stop_ids_of(self.tokenizer)
        groups = generate(self.model, prompts, sampling, stop_ids=stop_ids)
        return [[self.tokenizer.decode(one.text_ids) for one in group] for group in groups]

    def work_out(self, problems: Sequence[Problem], sampling: Sampling) -> Workings:
        return self.go_on(problems, [""] * len(problems), sampling)

    def check_begun(
        self, problems: Sequence[Problem], sampling: Sampling
    ) -> list[tuple[Problem, str]]:
        """We put a question mark after the first line of each answer, and the model continues with
        a check. Returns each problem with each continuation."""
        each, lines = [], []
        for problem, texts in zip(problems, self.work_out(problems, sampling), strict=True):
            each += [problem] * len(texts)
            lines += [text.partition("\n")[0].partition("?")[0] + "?" for text in texts]
        rest = self.go_on(each, lines, replace(sampling, rollouts=1))
        return [(problem, text) for problem, (text,) in zip(each, rest, strict=True)]


# --- checks ---


def workings_of(asked: Asked, problems: Sequence[Problem], samples: int) -> Workings:
    return asked.work_out(problems, Sampling(ANSWER_TOKENS, rollouts=samples))


def of_sampled_lines(workings: Workings) -> list[dict]:
    """What the checks in these solutions say about correct lines, and about incorrect ones."""
    rng = random.Random(0)
    checked = [[line for text in texts for line in read_lines(text) if line.said]
               for texts in workings]  # fmt: skip
    right = [[line for line in lines if line.is_right] for lines in checked]
    wrong = [[line for line in lines if line.is_right is False] for lines in checked]
    return [
        *said_of("sampled, right", [rng.choice(lines) for lines in right if lines]),
        *said_of("sampled, wrong", [rng.choice(lines) for lines in wrong if lines]),
    ]


def of_planted_slips(asked: Asked, problems: Sequence[Problem], workings: Workings) -> list[dict]:
    """The same lines twice, correct and with one digit changed; the model writes the check."""
    rng = random.Random(0)
    right = checked_lines(workings, True, rng)
    wrong = {place: with_a_slip(start, rng) for place, start in right.items()}
    return [
        *said_of("the same line, right", written_checks(asked, problems, right)),
        *said_of("the same line, slip planted", written_checks(asked, problems, wrong)),
    ]


def of_exchanged_slips(
    asked: Mapping[str, Asked], problems: Sequence[Problem], workings: Mapping[str, Workings]
) -> list[dict]:
    """The slips that each of two models made, checked by both models."""
    rows = []
    for author in asked:
        slips = checked_lines(workings[author], False, random.Random(0))
        for name, checker in asked.items():
            lines = written_checks(checker, problems, slips)
            found = said_of(f"slips of {author}", lines, test="exchanged")
            rows += [{"model": name, **one} for one in found]
    return rows


def checked_lines(workings: Workings, right: bool, rng: random.Random) -> dict[int, str]:
    """One checked line for each problem that has any: the solution up to the line's result."""
    drawn = {}
    for place, texts in enumerate(workings):
        found = []
        for text in texts:
            rows = text.splitlines()
            for number, line in enumerate(map(read_line, rows)):
                if line and line.said and line.is_right is right and line.parts[-1].isdigit():
                    found.append("\n".join([*rows[:number], line.text.partition("?")[0]]))
        if found:
            drawn[place] = rng.choice(found)
    return drawn


def written_checks(
    asked: Asked, problems: Sequence[Problem], starts: Mapping[int, str]
) -> list[Line]:
    """These lines with the checks that the model writes after them, with greedy decoding."""
    begun = [f"{start}?" for start in starts.values()]
    ends = asked.go_on([problems[place] for place in starts], begun, greedy(LONGEST_CHECK))
    lines = [
        read_line(start.splitlines()[-1] + end.split("\n")[0])
        for start, (end,) in zip(begun, ends, strict=True)
    ]
    return [line for line in lines if line]


def with_a_slip(start: str, rng: random.Random) -> str:
    head, result = start.rsplit(" ", 1)
    return f"{head} {other_digit(result, rng)}"


def said_of(case: str, lines: Sequence[Line], test: str = "check") -> list[dict]:
    """How often these lines got a Yes; and after a No, how often the correct number."""
    noes = [line for line in lines if line.said == "No"]
    return [
        row(test, case, "Yes", [line.said == "Yes" for line in lines]),
        row(test, case, "after No, the right number", [line.is_mended for line in noes]),
    ]


# --- changed digits ---


def changed_digits(asked: Asked, problems: Sequence[Problem]) -> list[dict]:
    """What becomes of a changed digit in the lines below it, and in the answer."""
    rng = random.Random(0)
    texts = asked.work_out(problems, greedy(ANSWER_TOKENS))
    workings = [right_working(one, text) for one, (text,) in zip(problems, texts, strict=True)]
    rows = []
    for case, is_case, change in (
        ("a line that others need", lambda lines: len(lines) > 1, change_a_line),
        ("the last of several lines", lambda lines: len(lines) > 1, change_the_last_line),
        ("the only line", lambda lines: len(lines) == 1, change_the_last_line),
    ):
        made = {}
        for place, (problem, lines) in enumerate(zip(problems, workings, strict=True)):
            if is_case(lines) and (found := change(problem, lines, rng)):
                made[place] = found
        begun = [found.begun for found in made.values()]
        after = asked.go_on([problems[place] for place in made], begun, greedy(ANSWER_TOKENS))
        ends = [what_came(found, text) for found, (text,) in zip(made.values(), after, strict=True)]
        if case == "a line that others need":
            rows += [row("changed", case, name, [end[0] == name for end in ends]) for name in LINES]
        rows += [row("changed", case, name, [end[1] == name for end in ends]) for name in ANSWERS]
    return rows


LINES = ("next line takes the changed number", "next line takes the right one", "neither")
ANSWERS = ("answer follows from it", "answer is right", "another answer")


def what_came(change: Change, text: str) -> tuple[str, str]:
    """One of LINES, one of ANSWERS."""
    needs_it = read_lines(text)[change.needed_after :][:1]
    took = [any(uses(line, number) for line in needs_it) for number in (change.new, change.old)]
    boxed = extract_final_candidate(text, fallback=None)
    ends = [boxed == change.follows, boxed == change.right]
    return LINES[[*took, True].index(True)], ANSWERS[[*ends, True].index(True)]


# --- the table ---


def row(test: str, case: str, outcome: str, hits: Sequence[bool]) -> dict:
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
        asked = {name: Asked(*load_model_and_tokenizer(name)) for name in names}
        workings = {
            name: workings_of(one, problems, options.samples) for name, one in asked.items()
        }
        found = []
        for name, one in asked.items():
            of_one = of_sampled_lines(workings[name])
            of_one += of_planted_slips(one, problems, workings[name])
            of_one += changed_digits(one, problems)
            found += [{"model": name, **row} for row in of_one]
        found += of_exchanged_slips(asked, problems, workings)
        rows += [{"problem_set": problem_set, **row} for row in found if row["problems"]]
    print(pd.DataFrame(rows).to_string(index=False))
    write_table(options.out, rows)


if __name__ == "__main__":
    sys.exit(run_script(main))
