"""What a tiny model can do, what it does of its own accord, and in which style.

    uv run checkpoints/model_report.py --model tiny-base --limit 100

Prints the tables of the model's README; --write inserts them there, between two marks.
"""

import re
import sys
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from answer_grader.calculations import arithmetic
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.disk import write_atomically
from reasoning_from_scratch.problems import Problem, render_prompt
from reasoning_from_scratch.sampling import Sampling, greedy
from reasoning_from_scratch.text import percent
from reasoning_from_scratch.tiny.ways import ANSWER_TOKENS, WAYS
from reasoning_from_scratch.tiny.world import WORKED_START
from rfs.commands.cli import run_script
from rfs.evaluation.evaluate import EvalResult, evaluate, open_model
from rfs.report.ways import Answered, WayFigures, by_way, evaluated_answers
from rfs.tasks.problem_sets import load_problems

SETS = ("tiny-test", "tiny-longer")
START, END = (
    "<!-- checkpoints/model_report.py: from here -->",
    "<!-- checkpoints/model_report.py: to here -->",
)
# A line of a checked solution: the calculation, its result, Yes or No, a new result.
CHECKED = re.compile(r"^(.*)= *(\S+?)\? (Yes|No)(?:, (\S+))?", re.MULTILINE)
TERM = r"\d+(?: ?[*/] ?\d+)*"
CALCULATION = re.compile(rf"{TERM}(?: [+-] {TERM})*")


@dataclass
class Options:
    model: str = "tiny-base"
    """tiny-base, tiny-grpo, or a folder, file or run with the tiny model's tokenizer."""
    limit: int | None = None
    """How many problems to use, from the start of each set (default: all)."""
    samples: int = 4
    """Answers per problem at temperature 1."""
    seed: int = 0
    """Seed of those answers."""
    write: str | None = None
    """README in which the report replaces the lines between this script's two marks."""


@dataclass
class Measured:
    """The answers of a model to one set of problems."""

    problems: list[Problem]
    greedy: EvalResult
    sampled: EvalResult
    begun: EvalResult  # greedy, after the first words of a solution


@dataclass
class Checks:
    """Lines of checked answers: how many had an incorrect result first, and how many of these a
    correct one in the end; and how many were correct first and incorrect in the end."""

    wrong: int = 0
    mended: int = 0
    right: int = 0
    spoiled: int = 0


def begin_answers(tokenizer) -> tuple:
    """A tokenizer, and a prompt function whose prompts end in a worked solution's first words.

    A model with a chat template gets them as the first words of its thought.
    """
    if not tokenizer.apply_chat_template:
        return tokenizer, lambda problem: f"{render_prompt(problem)} {WORKED_START}"
    plain = copy(tokenizer)  # the turn is written here, so it must not be wrapped again
    plain.apply_chat_template = False
    return (
        plain,
        lambda problem: f"{tokenizer.wrap_chat(render_prompt(problem))}<think>\n{WORKED_START}",
    )


def measured(model, tokenizer, name: str, options: Options) -> Measured:
    problems, show = load_problems(name, limit=options.limit), {"progress": True, "name": name}
    several = Sampling(ANSWER_TOKENS, rollouts=options.samples, seed=options.seed)
    likeliest = greedy(ANSWER_TOKENS)
    plain, begin = begin_answers(tokenizer)
    return Measured(
        problems,
        evaluate(model, tokenizer, problems, likeliest, **show),
        evaluate(model, tokenizer, problems, several, **show),
        evaluate(model, plain, problems, likeliest, **show, prompt_fn=begin),
    )


# --- how well the checks work ---


def checks_in(texts: Sequence[str]) -> Checks:
    """Counts the lines of these answers that say "Yes" or "No" to a result.

    A line is correct if its result is that of its own calculation, even if it should have
    calculated something else. A calculation that cannot be read is not counted.
    """
    checks = Checks()
    for text in texts:
        for calculation, first, said, second in CHECKED.findall(text):
            last = second if said == "No" and second else first
            true = line_value(calculation)
            if true is None:
                continue
            if worth_of(first) == true:
                checks.right += 1
                checks.spoiled += worth_of(last) != true
            else:
                checks.wrong += 1
                checks.mended += worth_of(last) == true
    return checks


def line_value(calculation: str) -> Fraction | None:
    """What the left side of "pens: 3 * 14 = 30 + 12", or of "2x = 45 - 7", comes to."""
    sides = calculation.rpartition(":")[2].split("=")
    return next((value for side in sides if (value := worth_of(side)) is not None), None)


def worth_of(calculation: str) -> Fraction | None:
    """The value of a calculation in the tiny world: sums and differences of products and quotients,
    without brackets. None if it cannot be read or divides by 0."""
    found = arithmetic(calculation) if CALCULATION.fullmatch(calculation.strip()) else None
    return found[0] if found else None


# --- the tables ---


def report_text(name: str, sets: dict[str, Measured], options: Options) -> str:
    """Markdown: the sets, the styles, the styles by difficulty, the families, and the checks."""
    seen = {
        title: (
            evaluated_answers(found.problems, found.greedy.rows),
            evaluated_answers(found.problems, found.sampled.rows),
        )
        for title, found in sets.items()
    }
    tables = [sets_table(sets), *(ways_table(title, seen[title][1]) for title in sets)]
    tables += [difficulty_table(seen), right_table(seen), family_table(sets[SETS[0]])]
    tables.append(checks_text([r["generated_text"] for m in sets.values() for r in m.sampled.rows]))
    limit = f" --limit {options.limit}" if options.limit else ""
    tables.append(
        f"Printed by `checkpoints/model_report.py --model {name}{limit}`: greedy answers, and "
        f"{options.samples} a problem at temperature 1 and top-p 1, seed {options.seed}."
    )
    return "\n\n".join(tables)


def in_markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown: the first column of words, the others of numbers."""
    rule = "|---|" + "---:|" * (len(head) - 1)
    return "\n".join([_row(head), rule, *map(_row, rows)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def sets_table(sets: dict[str, Measured]) -> str:
    def line(title, figure):
        return [title, *(figure(found) for found in sets.values())]

    rows = [
        line("problems", lambda m: str(len(m.problems))),
        line("steps of a problem", lambda m: steps_range(m.problems)),
        line("greedy accuracy", lambda m: percent(m.greedy.accuracy)),
        line("mean greedy answer, tokens", lambda m: f"{m.greedy.mean_length:.1f}"),
        line("accuracy sampled", lambda m: percent(m.sampled.accuracy)),
        line("mean sampled answer, tokens", lambda m: f"{m.sampled.mean_length:.1f}"),
        line("greedy accuracy, solution begun for the model", lambda m: percent(m.begun.accuracy)),
    ]
    return in_markdown(["", *sets], rows)


def steps_range(problems: Sequence[Problem]) -> str:
    steps = [int(problem.level.removeprefix("Level ")) for problem in problems]
    return f"{min(steps)} to {max(steps)}"


def ways_table(title: str, sampled: Sequence[Answered]) -> str:
    rows = [[way, percent(so.share), *right_and_tokens(so)] for way, so in by_way(sampled).items()]
    return in_markdown(
        [f"style, {title}, sampled", "share", "correct in this style", "mean tokens"], rows
    )


def right_and_tokens(so: WayFigures) -> tuple[str, str]:
    return (percent(so.right), f"{so.tokens:.1f}") if so.count else ("none", "none")


def by_steps(answers: Sequence[Answered]) -> dict[int, list[Answered]]:
    found: dict[int, list[Answered]] = {}
    for answer in sorted(answers, key=lambda answer: answer.steps):
        found.setdefault(answer.steps, []).append(answer)
    return found


def difficulty_table(seen: dict[str, tuple[list[Answered], list[Answered]]]) -> str:
    """Which style the model uses, by the steps that a problem takes."""
    rows = []
    for likeliest, sampled in seen.values():
        several = by_steps(sampled)
        for steps, answers in by_steps(likeliest).items():
            one, many = by_way(answers), by_way(several[steps])
            shares = [percent(ways[way].share) for ways in (one, many) for way in WAYS]
            rows.append([str(steps), str(len(answers)), *shares])
    head = [f"{how}: {way}" for how in ("greedy", "sampled") for way in WAYS]
    return "Share of each style, by the steps that a problem takes:\n\n" + in_markdown(
        ["steps", "problems", *head], rows
    )


def right_table(seen: dict[str, tuple[list[Answered], list[Answered]]]) -> str:
    """How often each style is correct, by the steps that a problem takes."""
    rows = [
        [
            str(steps),
            *(
                f"{percent(so.right)} of {so.count:,}" if so.count else "none"
                for so in by_way(answers).values()
            ),
        ]
        for _, sampled in seen.values()
        for steps, answers in by_steps(sampled).items()
    ]
    return (
        "Share of correct answers in each style, sampled, and of how many answers:\n\n"
        + in_markdown(["steps", *WAYS], rows)
    )


def family_table(found: Measured) -> str:
    greedy, sampled, begun = (
        by_family(found.problems, result) for result in (found.greedy, found.sampled, found.begun)
    )
    rows = [[name, *(percent(each[name]) for each in (greedy, sampled, begun))] for name in greedy]
    return in_markdown([f"correct by family, {SETS[0]}", "greedy", "sampled", "begun"], rows)


def by_family(problems: Sequence[Problem], result: EvalResult) -> dict[str, float]:
    """Accuracy for each type of problem."""
    families: dict[str, list[bool]] = {}
    for row in result.rows:
        families.setdefault(problems[row["index"] - 1].type, []).append(row["correct"])
    return {name: sum(right) / len(right) for name, right in sorted(families.items())}


def checks_text(texts: Sequence[str]) -> str:
    found = checks_in(texts)
    if not found.wrong + found.right:
        return "No sampled answer checks a line."
    return (
        f"Its checks: of {found.wrong + found.right:,} checked lines in the sampled answers "
        f"{found.wrong:,} had an incorrect result at first, and the check corrected "
        f"{found.mended:,} of them. Of the {found.right:,} correct ones it spoiled "
        f"{found.spoiled:,}."
    )


# --- the README ---


def around_report(path: Path) -> tuple[str, str]:
    """The parts of a file before and after the report, each including its mark."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; give a README") from None
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not end:
        raise UserError(f"{path} lacks the lines {START} and {END}; the report goes between them")
    return before + start, end + after


def main(options: Options) -> None:
    """Accuracy of a tiny model, greedy and sampled, and its styles of answer by difficulty."""
    readme = Path(options.write) if options.write else None
    around = around_report(readme) if readme else None  # fails now, not after minutes of work
    model, tokenizer = open_model(options.model, "cpu", "float32")
    sets = {name: measured(model, tokenizer, name, options) for name in SETS}
    report = report_text(options.model, sets, options)
    print(report)
    if readme:
        write_atomically(readme, f"{around[0]}\n\n{report}\n\n{around[1]}")


if __name__ == "__main__":
    sys.exit(run_script(main))
