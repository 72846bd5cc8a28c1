"""The tiny world: right answers, right workings, and splits that cannot overlap."""

import hashlib
import json
import random
import re
from fractions import Fraction

import pytest

from reasoning_from_scratch.grading import grade_answer
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
    beyond,
    content_key,
    is_held_out,
    tiny_problem,
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


def numbers(text):
    return [int(n) for n in re.findall(r"\d+", text)]


# --- what the answer must be, read from the text alone


def told_story(text):
    start, *events = re.split(r", | and ", re.search(r"has (\d+ .*?)\. How", text)[1])
    total = numbers(start)[0]
    for event in events:
        n = (numbers(event) or [0])[0]
        changes = {
            "buys": n,
            "finds": n,
            "gets": n,
            "gives": -n,
            "loses": -n,
            "sells": -n,
            "doubles": total,
            "halves": -Fraction(total, 2),
        }
        total += changes[event.split()[0]]
        assert total > 0
    return total


def told_shopping(text):
    total = sum(int(n) * int(price) for n, price in re.findall(r"(\d+) \w+ for (\d+) doll", text))
    paid = re.search(r"pays with (\d+)", text)
    return int(paid[1]) - total if paid else total


def told_comparison(text):
    counts, (first, *rest) = [], text.split(". ")[:-1]
    counts.append(numbers(first)[0])
    for sentence in rest:
        n = numbers(sentence)[0]
        counts.append(
            counts[-1] * n
            if "times" in sentence
            else counts[-1] + (n if "more" in sentence else -n)
        )
    return sum(counts) if "together" in text else counts[-1]


def told_product(text):
    result = 1
    for n in numbers(text):
        result *= n
    return result


def told_remainder(text):
    asked = re.search(r"when (.*) is divided by (\d+)", text)
    if asked:
        return value(asked[1]) % int(asked[2])
    *counts, size = numbers(text)
    if len(counts) == 3:
        counts = [counts[0] * counts[1], counts[2]]
    return sum(counts) % size


def told_equation(text):
    asked = re.search(r"(?:x: |if )(.*?)\.?$", text)
    if asked:
        left, right = re.sub(r"(\d)([x(])", r"\1*\2", asked[1]).split(" = ")
        (found,) = [
            x
            for x in range(100)
            if value(left.replace("x", str(x))) == value(right.replace("x", str(x)))
        ]
        return found
    done, result = text.split(". I get ")
    known = numbers(result)[0]
    for verb, n in reversed(re.findall(r"(add|subtract|multiply by) (\d+)", done)):
        n = int(n)
        known = {"add": known - n, "subtract": known + n, "multiply by": Fraction(known, n)}[verb]
    return known


def told_calculation(text):
    return value(re.search(r"(?:Compute|What is) (.*)[.?]$", text)[1])


def told_fraction(text):
    part = re.search(r"(\d+/\d+) of (\d+)", text)
    if not part:
        return told_calculation(text)
    whole = int(part[2])
    return whole - value(part[1]) * whole if " not " in text else value(part[1]) * whole


def told_percent(text):
    *counts, percent = [int(n) for n in re.findall(r"(\d+)(?!\d|%)", text)] + [
        int(re.search(r"(\d+)%", text)[1])
    ]
    whole = told_product(" ".join(map(str, counts)))
    part = Fraction(whole * percent, 100)
    return whole - part if " not " in text or "reduced" in text else part


def told_sequence(text):
    if text.startswith("A sequence"):
        start, factor, n, place = numbers(text)
        for _ in range(place - 1):
            start = factor * start + (n if "plus" in text else -n)
        return start
    place, *terms = numbers(text) if "th number" in text else [5, *numbers(text)]
    steps = {b - a for a, b in zip(terms[:-1], terms[1:], strict=True)}
    assert len(steps) == 1
    return terms[0] + (place - 1) * steps.pop()


def told_measure(text):
    n = numbers(text)
    if text.startswith("How many minutes"):
        return 60 * n[0] + n[1]
    if "is it around" in text:
        return 2 * (n[0] + n[1])
    if "fence" in text:
        return 2 * (n[0] + n[1]) * n[2]
    way = n[0] * n[1] + n[2] * n[3]
    return n[4] - way if "left" in text else way


def told_average(text):
    return Fraction(sum(numbers(text)), len(numbers(text)))


ORACLES = {
    "stories": told_story,
    "shopping": told_shopping,
    "comparisons": told_comparison,
    "products": told_product,
    "remainders": told_remainder,
    "equations": told_equation,
    "order of operations": told_calculation,
    "fractions": told_fraction,
    "percents": told_percent,
    "sequences": told_sequence,
    "measures": told_measure,
    "averages": told_average,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_answer_is_what_the_text_asks_for(family):
    rows = [row for row in EVERY if row["type"] == family]
    assert len(rows) > 200
    for row in rows:
        assert ORACLES[family](row["problem"]) == as_fraction(row["answer"]), row


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


def test_rows_are_in_the_schema_of_math():
    keys = {"problem", "solution", "answer", "level", "type", "unique_id"}
    for row in EVERY:
        assert set(row) == keys
        assert all(isinstance(text, str) and text for text in row.values())
        assert row["level"] == f"Level {len(working(row))}"
    assert {row["level"] for row in TEST} == {f"Level {n}" for n in range(1, 7)}
    assert len({row["unique_id"] for row in EVERY}) == len(EVERY)


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
        ("What is 7 * 8?", ""),
        ("What is the capital of France?", 'it has not learned "capital"'),
        ("Who wrote a poem?", 'it has not learned "wrote", "poem"'),
        ("How many pens does Zora have?", "there is no number in it"),
        ("2+3", "there are no words in it"),
    ],
)
def test_what_a_tiny_model_cannot_have_learned(question, why):
    assert beyond(question) == why


def test_the_known_words_are_those_of_all_problems():
    for split in SPLIT_SIZES:
        assert not [i for i in range(500) if beyond(tiny_problem(split, i)["problem"])]
