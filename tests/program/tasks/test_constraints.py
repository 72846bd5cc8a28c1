"""Each constraint on true, false and hostile answers."""

import json

import pytest

from reasoning_from_scratch.problems import Problem
from rfs.tasks.instructions import score
from rfs.tasks.instructions.constraints import CONSTRAINTS
from rfs.tasks.instructions.prompts import (
    HELD_OUT_TOPICS,
    MAX_SIZE,
    SETS,
    TOPICS,
    is_answer,
)
from rfs.tasks.problem_sets import load_problems

# kind, value, answers that keep to it, answers that do not
CASES = [
    (
        "words_exactly",
        5,
        ["The sea is very blue.", "Don't go - it's well-known.  Go!"],
        ["The sea"],
    ),
    ("words_at_most", 8, ["The sea is blue."], ["a b c d e f g h i"]),
    ("words_at_least", 25, ["so " * 25], ["so " * 24, "so-so " * 24]),
    (
        "sentences",
        2,
        ["It rains. We wait!", '"It rains." We wait…'],
        ["It rains. We wait", "It rains."],
    ),
    ("lines", 2, ["It rains.\n\nWe wait."], ["It rains. We wait.", "It rains.\n- ", "a b"]),
    ("lowercase", None, ["the sea, 3 waves", "ñandú"], ["The sea", "thE sea", "the sea Ñ"]),
    ("capitals", None, ["THE SEA!", "ÉTÉ 3"], ["THE sEA", "The sea", "STRAßE"]),
    (
        "question",
        "?",
        ["Is it?", 'He said "is it?"', "Is it? \n"],
        ["It is.", "Is it? Yes", "Is it\uff1f"],
    ),
    ("no_comma", None, ["The sea is blue; it is cold."], ["Blue, cold", "Blue\uff0ccold"]),
    ("quoted", None, ['"The sea."', "“The sea.”"], ['The "sea"', '"The" "sea"', '"', "'The sea.'"]),
    ("starts_with", "Today", ["Today we go", '"today, we go"'], ["We go today", "Todays sea"]),
    ("contains", "old", ["An OLD cat", "old"], ["A bold cat", "olds"]),
    ("avoids", "the", ["A cat bathes"], ["In The end", "the"]),
    ("exclamation", "!", ["Go!", "**Go!**"], ["Go.", "!Go"]),
    ("last_word", "home", ["We go home.", "HOME"], ["Home we go", "We go homeward"]),
    ("capitalized", None, ["The Sea Is 3 Miles Wide", "Élan"], ["The sea", "élan"]),
    ("without_letter", "m", ["The sea is blue."], ["Mist", "time"]),
    ("twice", "old", ["Old and old", "an old, old cat"], ["old", "old old old", "old older"]),
    (
        "dashed_lines",
        2,
        ["- It rains.\n- We wait.", "— a b\n\n– c d"],
        ["- It rains.\nWe wait.", "-a b\n-c d"],
    ),
    (
        "in_parentheses",
        None,
        ["The sea (it is cold) is blue."],
        ["(The sea)", "The sea ()", "The (sea", "sea"],
    ),
]
HOSTILE = [
    "", " ", "\n\t \n", "\u200b\u200b\u200b", "\ufeff", ".", "?", '""', "()", "\x00", "😀😀😀",
    "\ud800",
]  # fmt: skip
HOSTILE += ["!" * 5000, "a" * 5000, "- " * 5000, "?\n" * 5000, "ﷺ" * 100, "İ" * 10]


def test_no_prompt_contradicts_itself():
    found = load_problems("instructions@new-constraints")
    assert len(found) == 200
    texts = [problem.problem for problem in found]
    assert not any("a bird" in text and 'letter "b"' in text for text in texts)
    assert not any('"small" exactly' in text and 'letter "m"' in text for text in texts)
    assert not any('"home"' in text and 'letter "m"' in text for text in texts)
    assert any('letter "b"' in text for text in texts)


@pytest.mark.parametrize("kind, value, kept, broken", CASES, ids=[case[0] for case in CASES])
def test_a_constraint(kind, value, kept, broken):
    holds = CONSTRAINTS[kind].holds
    assert [text for text in kept if not holds(text, value)] == []
    assert [text for text in broken if holds(text, value)] == []


@pytest.mark.parametrize("kind, value", [case[:2] for case in CASES])
@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_nothing_is_paid_for_no_answer(kind, value, text):
    CONSTRAINTS[kind].holds(text, value)  # whatever it says, it does not raise
    facts = json.dumps({"topic": "rain", "constraints": [[kind, value]]})
    assert score(text, Problem("p", "Write about rain.", "", facts=facts)) == 0.0


PROMPT = 'Write about rain. Use the word "old". Use at least 25 words.'
LONG = (
    "The rain fell on the old roof all night, and nobody in the house could sleep. In the morning "
    "the street was a river, and the children sailed paper boats to school."
)


@pytest.mark.parametrize(
    "text",
    [
        "Old rain falls.",
        "Rain, rain, go away; come again another day.",
        "El día trae lluvia o rain.",
        LONG,
    ],
)
def test_answers(text):
    assert is_answer(text, PROMPT, "rain")


@pytest.mark.parametrize(
    "text, why",
    [
        ("rain", "one word"),
        ("rain rain rain rain rain", "one word, again and again"),
        ("rain old rain old rain old", "two words, again and again"),
        ("rain b c d e f g", "letters are no words"),
        ("rain xx zz qq ww", "nor are they without a vowel"),
        ("It is a fine day for everyone.", "another topic"),
        ("Rain is a fine thing. Rain is a fine thing.", "a sentence twice"),
        ("Rain comes down here\nRain comes down here", "a line twice"),
        (PROMPT, "the prompt"),
        ("Write about rain. Use the word old.", "a part of the prompt"),
        ("I will use the word old at least 25 words rain", "a part of the prompt"),
    ],
)
def test_what_is_no_answer(text, why):
    assert not is_answer(text, PROMPT, "rain")


def test_a_set_is_a_function_of_its_name_and_limit():
    for name in SETS:
        first = load_problems(name, limit=40)
        assert load_problems(name, limit=50)[:40] == first
        assert len({p.problem for p in first}) == 40
    assert [len(load_problems(name)) for name in SETS] == [2000, 200, 200]


def test_what_is_held_out():
    asked = {name: load_problems(name) for name in SETS}
    facts = {name: [json.loads(p.facts) for p in some] for name, some in asked.items()}
    train, held_out, new = (facts[name] for name in SETS)
    kinds = {name: {k for f in some for k, _ in f["constraints"]} for name, some in facts.items()}
    trained = {kind for kind, constraint in CONSTRAINTS.items() if constraint.trained}
    assert kinds["instructions"] == kinds["instructions@held-out"] == trained
    assert kinds["instructions@new-constraints"] == set(CONSTRAINTS) - trained
    assert {f["topic"] for f in train} == {f["topic"] for f in new} == set(TOPICS)
    assert {f["topic"] for f in held_out} == set(HELD_OUT_TOPICS)
    assert not set(TOPICS) & set(HELD_OUT_TOPICS)
    texts = [{p.problem for p in some} for some in asked.values()]
    assert not texts[0] & texts[1] and not texts[0] & texts[2]


def test_both_constraints_count():
    asked = [["lowercase", None], ["question", "?"]]
    problem = Problem("p", "...", "", facts=json.dumps({"topic": "rain", "constraints": asked}))
    texts = ["will the rain come again?", "Will the rain come again?", "the rain will come again."]
    assert [score(text, problem) for text in texts] == [1.0, 0.0, 0.0]


def test_a_limit_beyond_all_different_problems_ends():
    assert len(load_problems("instructions@new-constraints", limit=10**9)) == MAX_SIZE
