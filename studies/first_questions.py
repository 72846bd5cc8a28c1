"""The first question that people type: what did training on long problems do to short ones?

    uv run studies/first_questions.py
    uv run studies/first_questions.py --seeds 0 1 2

The first command asks the three shipped models twenty questions that anybody would type, and prints
their answers. With seeds it also trains: the quickstart's run as it is, and once more with a sum,
difference, product or quotient in every eighth place of its problems. Then it measures all of them
on others of these and on the quickstart's own test sets, and writes first_questions.csv.
"""

import random
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from reasoning_from_scratch.files.disk import write_atomically
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.sampling import greedy
from reasoning_from_scratch.tiny.ways import ANSWER_TOKENS
from reasoning_from_scratch.tiny.world import tiny_problem
from rfs.commands.cli import run_script
from rfs.commands.quickstart import quickstart_config
from rfs.evaluation.evaluate import EvalResult, evaluate
from rfs.files.models import load_model_and_tokenizer
from rfs.run.start import train
from rfs.tasks.problem_sets import load_problems

SHIPPED = ("tiny-base", "tiny-grpo", "tiny-grpo-longer")
# The questions, with their answers.
QUESTIONS = {
    "What is 2 + 2?": "4",
    "What is 17 + 25?": "42",
    "What is 12 + 30?": "42",
    "What is 123 + 456?": "579",
    "What is 100 - 37?": "63",
    "What is 6 * 7?": "42",
    "What is 7 * 8?": "56",
    "What is 9 * 9?": "81",
    "What is 12 * 12?": "144",
    "What is 23 * 17?": "391",
    "What is 20 / 4?": "5",
    "What is 3 + 4 * 5?": "23",
    "What is (3 + 4) * 5?": "35",
    "What is 1/2 + 1/3?": "\\frac{5}{6}",
    "What is 50% of 80?": "40",
    "What is 10% of 200?": "20",
    "Solve for x: 2x + 3 = 11": "4",
    "I have 3 apples and buy 2 more. How many apples do I have?": "5",
    "Tom has 3 apples and eats 1. How many apples are left?": "2",
    "A train goes 60 km each hour for 3 hours. How many km does it go?": "180",
}
# The times table and its quotients; sums and differences of numbers up to 60.
TABLES = {
    "a * b": [(f"{a} * {b}", a * b) for a in range(2, 13) for b in range(2, 13)],
    "a / b": [(f"{a * b} / {a}", b) for a in range(2, 13) for b in range(2, 13)],
    "a + b": [(f"{a} + {b}", a + b) for a in range(2, 61) for b in range(2, 61)],
    "a - b": [(f"{a} - {b}", a - b) for a in range(3, 61) for b in range(2, a)],
}
MEASURED_PER_TABLE = 50
SHORT_EVERY = 8  # one training problem in this many is a short question


@dataclass
class Options:
    seeds: tuple[int, ...] = ()
    """Train runs with these seeds; without any, only the shipped models are asked."""
    out: Path = Path("studies/first_questions.csv")
    """Write this file, where seeds are given."""


def is_measured(calculation: str) -> bool:
    """Half of each table is measured, and never trained on."""
    return zlib.crc32(calculation.encode()) % 2 == 0


def as_problem(calculation: str, result: int) -> Problem:
    return Problem(f"short/{calculation}", f"What is {calculation}?", str(result), "Level 1")


def measured(table: str) -> list[Problem]:
    rows = [row for row in TABLES[table] if is_measured(row[0])]
    return [as_problem(*row) for row in random.Random(table).sample(rows, MEASURED_PER_TABLE)]


def problems() -> Iterator[Problem]:
    """The quickstart's problems, with a short question in every eighth place."""
    rng = random.Random(0)
    to_train = [[row for row in rows if not is_measured(row[0])] for rows in TABLES.values()]
    for index in range(12_000):
        if index % SHORT_EVERY == 0:
            yield replace(as_problem(*rng.choice(rng.choice(to_train))), id=f"short/{index}")
        else:
            row = tiny_problem("train", index)
            names = ("problem", "answer", "level", "type")
            yield Problem(row["unique_id"], **{name: row[name] for name in names})


# --- asking ---


def answer_problems(model, tokenizer, problems: list[Problem], name: str) -> EvalResult:
    return evaluate(
        model, tokenizer, problems, greedy(ANSWER_TOKENS), name=name, progress=sys.stderr.isatty()
    )


def twenty(model_name: str) -> list[dict]:
    """A model's answers to the questions, and whether each is correct."""
    problems = [Problem(question, question, answer) for question, answer in QUESTIONS.items()]
    return answer_problems(*load_model_and_tokenizer(model_name), problems, model_name).rows


def on_one_line(answer: str) -> str:
    """An answer without its first words and its box: "6 * 7 = 42? Yes / 42"."""
    lines = answer.replace("Let's see.", "").split("\n")
    without_box = [line.strip().removeprefix("\\boxed{").removesuffix("}") for line in lines]
    return " / ".join(line for line in without_box if line)


def measure(model, tokenizer, name: str, seed: int | str) -> Iterator[str]:
    """Lines of the file: how many of each set are correct."""
    sets = {table: measured(table) for table in TABLES}
    sets |= {name: load_problems(name) for name in ("tiny-test", "tiny-longer")}
    for title, problems in sets.items():
        rows = answer_problems(model, tokenizer, problems, title).rows
        correct = sum(row["correct"] for row in rows)
        yield f"{name},{seed},{title},{len(problems)},{correct}"


def train_and_measure(seed: int, mix_in_short: bool) -> Iterator[str]:
    """Trains one model in a folder that is gone afterwards, and measures it."""
    with TemporaryDirectory() as folder:
        config = quickstart_config(seed, f"{folder}/run")
        if mix_in_short:
            mixed_problems = f"{__file__}:problems"
            config = replace(config, problems=mixed_problems, eval_problems=["tiny-test"])
        result = train(config).require_finished()
    name = "short questions mixed in" if mix_in_short else "the quickstart"
    yield from measure(result.model, result.tokenizer, name, seed)


def main(options: Options) -> None:
    """Asks the shipped models twenty short questions; with --seeds, trains and measures."""
    answers = {name: twenty(name) for name in SHIPPED}
    for index, question in enumerate(QUESTIONS):
        print(question)
        for name, rows in answers.items():
            mark = "correct  " if rows[index]["correct"] else "incorrect"
            print(f"    {name:17}{mark}  {on_one_line(rows[index]['generated_text'])}")
    print()
    for name, rows in answers.items():
        print(f"{name:17}{sum(row['correct'] for row in rows)} of {len(rows)} correct")
    if options.seeds:
        lines = ["model,seed,problems,asked,correct"]
        for name in SHIPPED:
            lines += measure(*load_model_and_tokenizer(name), name, "shipped")
        for seed in options.seeds:
            for mix_in_short in (False, True):
                lines += train_and_measure(seed, mix_in_short)
        write_atomically(options.out, "\n".join(lines) + "\n")
        print(f"\n{options.out}")


if __name__ == "__main__":
    sys.exit(run_script(main))
