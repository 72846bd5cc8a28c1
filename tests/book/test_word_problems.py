"""Chapter 8's word problems: their solutions are correct, and what is held out stays aside."""

import random
import re

import pytest
import word_problems

from answer_grader import grade_answer

SEEN = word_problems.worked(300) + word_problems.problems()[:700]
ASIDE = word_problems.held_out(300) + word_problems.held_out(100, (5,))
FAMILIES = [*word_problems.HELD_OUT, *word_problems.FRESH]
LAST = word_problems.fresh(FAMILIES, 300, (2, 3, 4, 5))
ALL = SEEN + ASIDE + LAST


def test_every_line_of_a_solution_is_true_and_goes_on_from_the_last():
    for problem in ALL:
        *lines, box = problem.solution.split("\n")
        assert box == f"\\boxed{{{problem.answer}}}"
        if not word_problems.equations(lines[0]):  # it says how many there are
            lines = lines[1:]
        assert len(lines) == int(problem.level)
        before = None
        for line in lines:
            (equation,) = word_problems.equations(line)
            assert word_problems.is_true(equation), line
            left, _, _, _, result = equation.split()
            assert before in (None, left), problem.solution
            assert line.endswith(f": {equation} {line.split()[-1]}")
            before = result
        assert before == problem.answer
        assert grade_answer(problem.solution, problem.answer)


def test_numbers_stay_small():
    for problem in ALL:
        assert 1 <= int(problem.answer) <= word_problems.LARGEST
        for equation in word_problems.equations(problem.solution):
            assert all(int(number) <= word_problems.LARGEST for number in equation.split()[::2])


def test_what_the_solution_repeats_stands_in_the_problem():
    for problem in ALL:
        for line in problem.solution.split("\n")[:-1]:
            said = line.removesuffix(".").partition(": ")[0]
            assert said.lower() in problem.problem.lower()


def test_held_out_families_and_rows_of_equations_are_never_trained_on():
    def rows(problems):
        return {tuple(word_problems.equations(problem.solution)) for problem in problems}

    assert {problem.type for problem in SEEN} == set(word_problems.TRAINED)
    assert {problem.type for problem in ASIDE} == set(word_problems.HELD_OUT)
    assert not set(word_problems.TRAINED) & set(word_problems.HELD_OUT)
    assert {problem.type for problem in LAST} == set(FAMILIES)
    assert not rows(SEEN) & rows(ASIDE + LAST)
    assert not {one.problem for one in ASIDE} & {one.problem for one in LAST}


def test_no_sentence_of_a_held_out_family_is_one_of_a_trained_family():
    kinds = ("start", "groups", "add", "sub", "times", "share", "ask")

    def sentences(families):
        of_kinds = (getattr(family, kind) for family in families.values() for kind in kinds)
        return {text for texts in of_kinds for text in texts}

    aside = sentences(word_problems.HELD_OUT), sentences(word_problems.FRESH)
    assert not sentences(word_problems.TRAINED) & (aside[0] | aside[1])
    assert not aside[0] & aside[1]


def test_texts_are_varied():
    problems = word_problems.problems()
    assert len({problem.problem for problem in problems}) == len(problems)
    assert len({problem.id for problem in problems}) == len(problems)
    without_numbers = {re.sub(r"\d+|[A-Z]\w+", "#", problem.problem) for problem in problems}
    assert len(without_numbers) > 2000


def test_sentences_read_well():
    for problem in ALL:
        assert not re.search(r"[\[\]{}]|  ", problem.problem)
        assert not re.search(
            r"\b(to|gives|costs|brings|saves|leaves|lets|hands) his (\d|only|just|pay)",
            problem.problem,
        ), problem.problem
        for sentence in re.findall(r"[^.?]+[.?]", problem.problem):
            assert sentence.strip()[0].isupper() or sentence.strip()[0].isdigit()


def test_the_same_call_gives_the_same_problems():
    again = word_problems.word_problem(random.Random(3), "bus", 4)
    assert again == word_problems.word_problem(random.Random(3), "bus", 4)


@pytest.mark.parametrize(
    "text, right",
    [
        ("7 + 4 = 11", [True]),
        ("She has 7+4=12 now, and 12 / 4 = 3.", [False, True]),
        ("3 x 4 = 12, 9 ÷ 2 = 4, 5 / 0 = 5", [True, False, False]),
        ("There are 7 apples.", []),
    ],
)
def test_the_checker_reads_a_models_own_lines(text, right):
    assert word_problems.checked_steps(text) == right
