"""Does a check see mistakes, and does an answer follow the working above it?

    uv run ch06/faithful.py

Both questions are asked of the shipped models. A working is begun for each of them, so that the
base model works problems out too. Every problem counts once in a row of the table, so that the
intervals are those of independent problems.

Checks. "12 + 30 = 42? Yes": the number before the question mark is right or wrong, and the check
says Yes or No. First for the lines that a model samples at temperature 1; then for pairs that
differ in one digit: a right line as the model wrote it, and the same line with a slip planted.
Last, the slips that two models made themselves, as each of them checks them.

Changed digits. In a finished working, all of it right, one digit of one result is changed, and
what stood after that line is thrown away. The model goes on greedily. Either the next line that
needs the result takes the changed number, or it goes back to the right one. Then the answer: the
one that follows from the changed number, the right one, or another?
"""

import random
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import pandas as pd

from reasoning_from_scratch.commands.cli import run_script
from reasoning_from_scratch.evaluation.scores import wilson_interval
from reasoning_from_scratch.fast.engine import generate
from reasoning_from_scratch.files.tables import write_table
from reasoning_from_scratch.files.weights import load_model_and_tokenizer
from reasoning_from_scratch.grading import extract_final_candidate
from reasoning_from_scratch.problems import Problem, render_prompt
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.sampling import Sampling, greedy
from reasoning_from_scratch.tasks.problem_sets import load_problems
from reasoning_from_scratch.tiny.ways import ANSWER_TOKENS
from reasoning_from_scratch.tiny.world import WORKED_START
from reasoning_from_scratch.tokenizer import ModelTokenizer, stop_ids_of

# Problems, and two models that are asked: before GRPO and after it.
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
    problems: int = 500
    """Ask about the first so many problems of each set."""
    samples: int = 8
    """Sampled workings of each problem, for the checks."""
    out: Path = TABLE
    """Where the table goes."""


# --- reading a line of working ---


@dataclass(frozen=True)
class Line:
    """`buys: 12 + 30 = 43? No, 42`: its parts are "12 + 30" and "43"."""

    text: str
    parts: tuple[str, ...]  # what stands between the equals signs, up to the question mark
    said: str  # "Yes", "No", or "" where nothing was checked
    result: str  # what the next lines go on with: 42

    @property
    def is_right(self) -> bool | None:
        """Whether the parts are all the same number; None if there are not two to compare."""
        return are_equal(self.parts)

    @property
    def is_mended(self) -> bool:
        """Whether what the check wrote after a No is the right number."""
        return are_equal((*self.parts[:-1], self.result)) is True


def read_line(text: str) -> Line | None:
    """None if nothing is calculated here."""
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
    """Whether they are one number. "x + 4" is none, so it is passed over."""
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
    """The number with one digit changed, and no 0 in front."""
    place = rng.randrange(len(number))
    digits = "0123456789" if place else "123456789"
    other = rng.choice([digit for digit in digits if digit != number[place]])
    return number[:place] + other + number[place + 1 :]


# --- what would follow from a changed result ---


def consequences(lines: Sequence[Line], at: int, new: str, taken: set[str]) -> list[str] | None:
    """The results of the lines after number `at`, had it come to `new`.

    None where that cannot be told for sure: a number that stands in the problem (`taken`) or is
    the result of two lines might be meant in either way; and nobody taught the model what lies
    below 0, or between whole numbers.
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
    """A working with one digit changed, and what to look for in what comes after it."""

    begun: str  # the working up to the changed line, that line included
    old: str
    new: str
    needed_after: int  # lines in between before the result is needed (in the last line: none)
    follows: str  # the answer that follows from it
    right: str


def right_working(problem: Problem, text: str) -> list[Line]:
    """The lines of an answer that works out, every one of them right; else none."""
    lines = read_lines(text)
    if not lines or [line.text for line in lines] != text.splitlines()[:-1]:
        return []
    right = all(line.is_right and line.result.isdigit() for line in lines)
    boxed = extract_final_candidate(text, fallback=None)
    return lines if right and boxed == lines[-1].result == problem.answer else []


def change_a_line(problem: Problem, lines: list[Line], rng: random.Random) -> Change | None:
    """Changes a result that a later line needs, if there is one of which all is clear."""
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
    """Whether the number stands nowhere yet, so that where it turns up it was taken over."""
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
        """For each problem, what comes after the working that has been begun for it."""
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
        """Each problem with each rest of an answer after the question mark that we put behind its
        first line. From there the model goes on with a check."""
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
    """What the checks in these workings say of right lines, and of wrong ones."""
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
    """The same lines twice, right and with one digit changed; the model writes the check."""
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
    """The slips that each of two models made, as either of them checks them."""
    rows = []
    for author in asked:
        slips = checked_lines(workings[author], False, random.Random(0))
        for name, checker in asked.items():
            lines = written_checks(checker, problems, slips)
            found = said_of(f"slips of {author}", lines, test="exchanged")
            rows += [{"model": name, **one} for one in found]
    return rows


def checked_lines(workings: Workings, right: bool, rng: random.Random) -> dict[int, str]:
    """Of each problem that has some, one line that was checked: the working up to its result."""
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
    """These lines with the checks that the model writes behind them, greedily."""
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
    """How often these lines got a Yes; and after a No, how often the right number."""
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
        problems = load_problems(problem_set, limit=options.problems)
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
