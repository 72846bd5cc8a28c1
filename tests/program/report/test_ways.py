"""The ways of answering, counted from an evaluation's rows and from the files of a run."""

import random
import re

import pytest
from four_ways import written

from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.rollouts import Group
from reasoning_from_scratch.tiny.ways import WAYS
from reasoning_from_scratch.tiny.world import tiny_problem
from rfs.report import write_iteration, write_run_report
from rfs.report.picture_files import save_picture
from rfs.report.run_files import read_run
from rfs.report.ways import (
    Answered,
    by_way,
    evaluated_answers,
    train_answers,
    ways_over_time,
)
from rfs.report.ways_picture import draw_all_ways
from tests.program.report.written import ByteTokenizer, make_rollout, metrics_line

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
            way = "full" if late else "answer only"
            text = "".join(t for t, _ in written(lines, row["answer"], way, random.Random(0)))
            groups.append(Group(problem, [make_rollout(problem, text, float(late))] * 2))
        write_iteration(folder, "train", step, groups, ByteTokenizer(), 0)
    return folder


def test_each_way_has_its_share_its_success_and_its_cost():
    answers = [
        Answered(3, "answer only", False, 7),
        Answered(3, "answer only", True, 9),
        Answered(3, "full", True, 40),
    ]
    figures = by_way(answers)
    assert list(figures) == list(WAYS)
    assert (figures["answer only"].share, figures["answer only"].right) == (2 / 3, 0.5)
    assert (figures["answer only"].tokens, figures["full"].tokens) == (8, 40)
    assert figures["checked"].count == figures["checked"].share == 0
    assert by_way([])["full"].share == 0


def test_an_evaluations_answers_are_those_to_problems_with_a_level():
    rows = [row(1, LONG, True), row(1, "\\boxed{4}", False, 3), row(2, LONG, True)]
    assert evaluated_answers(PROBLEMS, rows) == [
        Answered(3, "full", True, 5),
        Answered(3, "answer only", False, 3),
    ]


def test_a_runs_answers_come_from_its_files(tmp_path):
    answers = train_answers(read_run(write_tiny_run(tmp_path / "run")))
    assert [answer.iteration for answer in answers] == [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4
    assert {(answer.way, answer.right) for answer in answers[:8]} == {("answer only", False)}
    assert {(answer.way, answer.right) for answer in answers[8:]} == {("full", True)}
    assert {answer.steps for answer in answers} == {3, 6}


@pytest.mark.parametrize(
    "id_of",
    [
        "p{}",
        "other/{}",
        "tiny/train/1{}",  # another problem by that name, as in an earlier edition of the world
        "tiny/test/99999{}",
        "tiny/nowhere/{}",
    ],
)
def test_a_run_on_other_problems_shows_nothing(tmp_path, id_of):
    run = write_tiny_run(tmp_path / "run", id_of=id_of)
    assert train_answers(read_run(run)) == []
    assert "Styles of answer" not in write_run_report(run).read_text("utf-8")


def test_the_shares_over_time_are_those_of_like_problems(tmp_path):
    answers = train_answers(read_run(write_tiny_run(tmp_path / "run")))
    pictures = ways_over_time(answers)
    titles = ["all problems", "problems of 3 or 4 steps", "problems of 5 or 6 steps"]
    assert [picture.title for picture in pictures] == titles
    for picture in pictures:
        assert picture.at == [1, 2, 3, 4]
        assert picture.shares["answer only"] == [1, 1, 0, 0]
        assert picture.shares["full"] == [0, 0, 1, 1]
    only_easy = [answer for answer in answers if answer.steps == 3]
    assert [picture.title for picture in ways_over_time(only_easy)] == ["all problems"]


def test_a_run_has_the_picture_in_its_page_and_as_a_file(tmp_path):
    run = write_tiny_run(tmp_path / "run")
    page = write_run_report(run).read_text("utf-8")
    assert "Styles of answer" in page and "Problems of 5 or 6 steps" in page
    assert all(way in page for way in WAYS)
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    pictures = ways_over_time(train_answers(read_run(run)))
    path = save_picture(draw_all_ways(pictures), run / "ways.png")
    assert path.read_bytes().startswith(b"\x89PNG")
