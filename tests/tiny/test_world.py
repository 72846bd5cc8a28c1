"""The tiny world: right answers, right workings, and splits that cannot overlap."""

import hashlib
import json
import random
import re
from fractions import Fraction

import pytest

from answer_grader import grade_answer
from reasoning_from_scratch.rewards import correctness
from reasoning_from_scratch.tiny.world import (
    FAMILIES,
    LONGER_FAMILIES,
    LONGER_STEPS,
    LONGEST_SHOWN,
    NAMES,
    SPLIT_SIZES,
    THINGS,
    WORKED_START,
    content_key,
    is_held_out,
    parts,
    tiny_problem,
    why_out_of_scope,
)

TRAIN = [tiny_problem("train", index) for index in range(4000)]
TEST = [tiny_problem("test", index) for index in range(500)]
LONGER = [tiny_problem("longer", index) for index in range(500)]
LONGEST = [tiny_problem("longest", index) for index in range(500)]
LONGER_TRAIN = [tiny_problem("longer-train", index) for index in range(1000)]
EVERY = TRAIN + TEST + LONGER + LONGEST + LONGER_TRAIN
HELD_OUT = TEST + LONGER + LONGEST


def working(row):
    """The lines between the first words and the box."""
    return row["solution"].split("\n")[1:-1]


def value(text):
    """The value of a sum of products in digits, brackets and + - * /, exactly."""
    assert re.fullmatch(r"[\d+\-*/() ]+", text), text
    return eval(re.sub(r"\d+", r"Fraction(\g<0>)", text), {"Fraction": Fraction})


def as_fraction(answer):
    match = re.fullmatch(r"\\frac\{(\d+)\}\{(\d+)\}", answer)
    return Fraction(int(match[1]), int(match[2])) if match else Fraction(answer)


# --- what the answer must be, read from the text alone


def test_every_line_of_every_working_is_right():
    for row in EVERY:
        for line in working(row):
            line = re.sub(r"^([a-z]+|[A-Z]\w+|\d+%): ", "", line)
            sides = line.split(" = ")
            calculated = [value(side) for side in sides if "x" not in side]
            assert len(set(calculated)) == 1, row
            assert len(sides) > 1, row


def test_the_working_ends_in_the_answer():
    for row in EVERY:
        assert row["solution"].startswith(WORKED_START)
        box = row["solution"].split("\n")[-1]
        assert box == f"\\boxed{{{row['answer']}}}"
        last = working(row)[-1].rsplit(" = ", 1)[1]
        if "/" not in row["problem"] or "frac" not in row["answer"]:
            assert Fraction(last) == as_fraction(row["answer"])


def test_the_grader_takes_every_solution_and_no_other_answer():
    for row in HELD_OUT:
        assert correctness(row["solution"], row["answer"]) == 1.0
        assert grade_answer(row["answer"], row["answer"])
        wrong = re.sub(r"\d", lambda digit: str((int(digit[0]) + 1) % 10), row["answer"], count=1)
        assert correctness(f"\\boxed{{{wrong}}}", row["answer"]) == 0.0


def test_a_problem_does_not_depend_on_what_was_asked_before():
    again = {index: tiny_problem("train", index) for index in (7, 3, 999)}
    assert all(again[index] == TRAIN[index] for index in again)
    tiny_problem("test", 0)["answer"] = "spoiled"
    assert tiny_problem("test", 0) == TEST[0]


def test_the_held_out_splits_never_change():
    # Scores are comparable only as long as these are. Python 3.10 to 3.14 give the same.
    digests = {
        name: hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]
        for name, rows in (
            ("test", TEST),
            ("longer", LONGER),
            ("longest", LONGEST),
            ("train", TRAIN[:500]),
            ("longer-train", LONGER_TRAIN[:500]),
        )
    }
    assert digests == {
        "test": "d3519f006259f5c3",
        "longer": "bd095782ba416454",
        "longest": "7705aa15bc087fb8",
        "train": "ee5e4ae00bd6db01",
        "longer-train": "b3261f36fbe2a575",
    }


def test_no_content_is_in_two_splits():
    held_out = {content_key(row["problem"]) for row in HELD_OUT}
    assert len(held_out) == 1500  # and none occurs twice
    assert all(is_held_out(row["problem"]) for row in HELD_OUT)
    for row in TRAIN + LONGER_TRAIN:
        assert not is_held_out(row["problem"])
        assert content_key(row["problem"]) not in held_out


def test_other_names_and_things_do_not_make_a_new_content():
    rng = random.Random(0)
    for row in TEST[:200]:
        swap = dict(zip(NAMES, rng.sample(NAMES, len(NAMES)), strict=True))
        swap |= dict(zip(THINGS, rng.sample(THINGS, len(THINGS)), strict=True))
        words = re.split(r"\b", row["problem"])
        other = "".join(swap.get(word, word) for word in words)
        assert content_key(other) == content_key(row["problem"])
        assert is_held_out(other)


def test_longer_problems_take_more_steps_than_any_in_pre_training():
    longest = max(max(steps) for _, steps in FAMILIES.values())
    assert max(len(working(row)) for row in TRAIN) == longest == LONGEST_SHOWN
    assert all(longest in FAMILIES[name][1] for name in LONGER_FAMILIES)
    for split, rows in (("longer", LONGER), ("longest", LONGEST), ("longer-train", LONGER_TRAIN)):
        assert {len(working(row)) for row in rows} == set(LONGER_STEPS[split])
        assert {row["type"] for row in rows} == set(LONGER_FAMILIES)
    assert min(LONGER_STEPS["longest"]) > max(LONGER_STEPS["longer-train"])


def test_a_problem_of_as_many_steps_as_one_asks_for():
    for steps in range(1, 9):
        split = "longer-train" if steps > LONGEST_SHOWN else "train"
        rows = [tiny_problem(split, index, steps) for index in range(20)]
        assert {len(working(row)) for row in rows} == {steps}


@pytest.mark.parametrize(
    "split, index, error",
    [
        ("dev", 0, ValueError),
        ("test", 500, IndexError),
        ("longer", 500, IndexError),
        ("train", -1, IndexError),
    ],
)
def test_what_is_not_there(split, index, error):
    with pytest.raises(error, match=split):
        tiny_problem(split, index)


@pytest.mark.parametrize(
    "question, why",
    [
        ("Zora has 5 pens, finds 20. How many pens does Zora have now?", ""),
        ("What is 7 * 83?", ""),
        ("Compute 7 * 8 + 30.", ""),
        ("What is 7 * 8?", 'it has read nothing like "is 7 * 8?"'),
        ("What is 20 / 4?", 'it has read nothing like "What is 20 / 4"'),
        ("Solve for x: x + 5 = 12", 'it has read nothing like "Solve for x: x"'),
        ("Multiply 7 by", 'it has read nothing like "Multiply 7 by"'),
        ("What is the capital of France?", 'it has not learned "capital"'),
        ("Who wrote a poem?", 'it has not learned "wrote", "poem"'),
        ("How many pens does Zora have?", "there is no number in it"),
        ("2+3", "there are no words in it"),
    ],
)
def test_what_a_tiny_model_cannot_have_learned(question, why):
    assert why_out_of_scope(question) == why


def test_hardly_a_problem_of_their_own_world_is_new_to_them():
    for split in SPLIT_SIZES:
        found = [why_out_of_scope(tiny_problem(split, index)["problem"]) for index in range(500)]
        new = [why for why in found if why]
        assert all(why.startswith("it has read nothing like") for why in new)  # they know the words
        assert len(new) <= 5


def test_parts_of_a_question_without_names_things_and_figures():
    assert parts("What is 6 * 17?")[:3] == [
        ("^ What is 0 *", "What is 6 *"),
        ("What is 0 * 00", "What is 6 * 17"),
        ("is 0 * 00 ?", "is 6 * 17?"),
    ]
    assert parts("Zora has 12345 pens") == [
        ("^ Name has 0000 things", "Zora has 12345 pens"),
        ("Name has 0000 things $", "Zora has 12345 pens"),
    ]
    assert parts("6 x") == [("^ 0 x $", "6 x")]
