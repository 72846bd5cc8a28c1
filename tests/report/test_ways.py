"""The ways of answering, counted from an evaluation's rows and from the files of a run."""

import random

import pytest
from four_ways import written

from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.report import write_iteration, write_run_report
from reasoning_from_scratch.report.run_files import read_run
from reasoning_from_scratch.report.ways import (
    POINTS,
    Answered,
    by_way,
    evaluated_answers,
    first_and_last,
    train_answers,
    ways_before_and_after,
    ways_over_time,
)
from reasoning_from_scratch.rollouts import Group
from reasoning_from_scratch.tiny.ways import WAYS
from reasoning_from_scratch.tiny.world import tiny_problem
from tests.report.written import ByteTokenizer, make_rollout, metrics_line, write_run

PROBLEMS = [Problem("a", "?", "1", "Level 3"), Problem("b", "?", "1")]
LONG = "Let's see.\n1 + 1 = 2\n2 + 1 = 3\n3 + 1 = 4\n\\boxed{4}"


def row(index, text, correct, tokens=5):
    return {"index": index, "generated_text": text, "correct": correct, "tokens": tokens}


def write_tiny_run(folder, steps=4, id_of="tiny/train/{}"):
    """Each step asks one problem of three steps and one of six; the first half of the run answers
    at once and wrong, the other half with a full working and right."""
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "metrics.jsonl").write_text("".join(metrics_line(step) for step in range(steps)))
    rows = (tiny_problem("train", index) for index in range(200))
    asked = {int(row["level"][-1]): row for row in rows}
    for step in range(steps):
        groups, late = [], step >= steps // 2
        for row in (asked[3], asked[6]):
            problem = Problem(id_of.format(row["unique_id"].split("/")[2]), row["problem"], "1")
            lines = row["solution"].splitlines()[1:-1]
            way = "full" if late else "at once"
            text = "".join(t for t, _ in written(lines, row["answer"], way, random.Random(0)))
            groups.append(Group(problem, [make_rollout(problem, text, float(late))] * 2))
        write_iteration(folder, "train", step, groups, ByteTokenizer(), 0)
    return folder


def test_each_way_has_its_share_its_success_and_its_cost():
    answers = [
        Answered(3, "at once", False, 7),
        Answered(3, "at once", True, 9),
        Answered(3, "full", True, 40),
    ]
    figures = by_way(answers)
    assert list(figures) == list(WAYS)
    assert (figures["at once"].share, figures["at once"].right) == (2 / 3, 0.5)
    assert (figures["at once"].tokens, figures["full"].tokens) == (8, 40)
    assert figures["checked"].count == figures["checked"].share == 0
    assert by_way([])["full"].share == 0


def test_an_evaluations_answers_are_those_to_problems_with_a_level():
    rows = [row(1, LONG, True), row(1, "\\boxed{4}", False, 3), row(2, LONG, True)]
    assert evaluated_answers(PROBLEMS, rows) == [
        Answered(3, "full", True, 5),
        Answered(3, "at once", False, 3),
    ]


def test_the_small_table_shows_before_and_after():
    text = ways_before_and_after(
        PROBLEMS, [row(1, "\\boxed{4}", False)], [row(1, LONG, True)] * 2
    ).splitlines()
    assert text[2].split() == ["at", "once", "100.0%", "0%", "0.0%", "-"]
    assert text[4].split() == ["full", "0.0%", "-", "100.0%", "100%"]
    assert len({len(line) for line in text}) == 1
    assert ways_before_and_after(PROBLEMS, [row(2, LONG, True)], [row(2, LONG, True)]) == ""


def test_a_runs_answers_come_from_its_files(tmp_path):
    answers = train_answers(read_run(write_tiny_run(tmp_path / "run")))
    assert [answer.iteration for answer in answers] == [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4
    assert {(answer.way, answer.right) for answer in answers[:8]} == {("at once", False)}
    assert {(answer.way, answer.right) for answer in answers[8:]} == {("full", True)}
    assert {answer.steps for answer in answers} == {3, 6}


@pytest.mark.parametrize(
    "id_of",
    [
        "other/{}",
        "tiny/train/1{}",  # another problem by that name, as in an earlier edition of the world
        "tiny/test/99999{}",
        "tiny/nowhere/{}",
    ],
)
def test_a_run_on_other_problems_shows_nothing(tmp_path, id_of):
    run = write_tiny_run(tmp_path / "run", id_of=id_of)
    assert train_answers(read_run(run)) == []
    assert "Ways of answering" not in write_run_report(run).read_text("utf-8")


def test_a_run_on_made_up_problems_shows_nothing(tmp_path):
    page = write_run_report(write_run(tmp_path / "run")).read_text("utf-8")
    assert "Ways of answering" not in page


def test_the_shares_over_time_are_those_of_like_problems(tmp_path):
    answers = train_answers(read_run(write_tiny_run(tmp_path / "run")))
    pictures = ways_over_time(answers)
    titles = ["all problems", "problems of 3 or 4 steps", "problems of 5 or 6 steps"]
    assert [picture.title for picture in pictures] == titles
    for picture in pictures:
        assert picture.at == [1, 2, 3, 4]
        assert picture.shares["at once"] == [1, 1, 0, 0]
        assert picture.shares["full"] == [0, 0, 1, 1]
    only_easy = [answer for answer in answers if answer.steps == 3]
    assert [picture.title for picture in ways_over_time(only_easy)] == ["all problems"]


def test_a_long_run_is_drawn_from_its_first_step_to_its_last_and_gaps_have_no_point():
    answers = [Answered(2 + 2 * (step > 80), "full", True, 9, step) for step in range(100)]
    everything, easy, hard = ways_over_time(answers)
    assert len(everything.at) <= POINTS
    assert (everything.at[0], everything.at[-1]) == (0, 99)
    assert easy.at[0] == 0 and easy.at[-1] < 90 and hard.at[-1] == 99 and len(hard.at) < 5
    for picture in (everything, easy, hard):
        assert all(sum(shares) == 1 for shares in zip(*picture.shares.values(), strict=True))


def test_the_two_ends_of_a_run():
    answers = [Answered(1, WAYS[step // 15], True, 9, step) for step in range(60)]
    (first, at_first), (last, at_last) = first_and_last(answers)
    assert (first, last) == ("steps 0 to 5", "steps 54 to 59")
    assert at_first["at once"].share == at_last["checked"].share == 1
    assert [name for name, _ in first_and_last(answers[:1])] == ["step 0"]
