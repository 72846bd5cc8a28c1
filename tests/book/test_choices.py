"""Scores of tries, and which one is taken: against chapters 4 and 5, and blind to the truth."""

import math

import choices
import pytest
from choices import best, first, mean_logprobs, vote

from reasoning_from_scratch import Problem, Rollout, ch04, ch05, load_model_and_tokenizer
from reasoning_from_scratch.rollouts import Group
from rfs.evaluation.evaluate import answer_rows


def tries(*answers, scores=None):
    rows = [{"extracted": answer} for answer in answers]
    for row, score in zip(rows, scores or (), strict=False):
        row["score"] = score
    return rows


def voted(*answers, scores=None):
    return vote(tries(*answers, scores=scores))["extracted"]


def test_the_most_frequent_answer_wins():
    assert voted("8", "7", "7") == "7"
    assert voted("8", "9", "14/2", "7") == "14/2"  # equal answers vote together
    assert voted("", "", "7") == "7"  # who says nothing has no vote
    assert voted("", "") == ""


@pytest.mark.parametrize("choose", [first, best, vote])
def test_no_choice_depends_on_the_truth(choose):
    """The grader reads "{" only where the truth is just that."""
    ids = [list(b"{"), list(b"{"), list(b"\\boxed{3}")]
    rollouts = [Rollout(response_ids=answer, text=bytes(answer).decode()) for answer in ids]
    found = set()
    for truth in ("3", "{"):
        group = Group(Problem("p", "1 + 2", truth), rollouts)
        rows = answer_rows(0, group, "number_then_full", None)
        for score, row in enumerate(rows):
            row["score"] = score
        found.add(choose(rows)["generated_text"])
    assert len(found) == 1


@pytest.mark.parametrize("answers", [("3", "5", "5", "4"), ("1", "2", "1"), ("6",)])
def test_a_vote_without_a_tie_is_that_of_chapter_4(answers):
    assert voted(*answers) == ch04._count_votes(answers)["final_answer"]


def test_in_a_tie_the_score_decides_or_who_was_first():
    answers = ("8", "7", "14/2", "8", "9")
    assert ch04._count_votes(("8", "7", "7", "8", "9"))["final_answer"] is None
    assert voted(*answers) == "8"
    assert voted(*answers, scores=(-3, -2, -1, -2, 0)) == "14/2"  # 9 is not among the tied
    assert voted("8", "7", "7", scores=(0, -1, -1)) == "7"  # no tie, so no score


@pytest.mark.parametrize("budget", [16_384, 40])  # all in one pass, and each in its own
def test_confidence_is_that_of_chapter_5(monkeypatch, budget):
    monkeypatch.setattr(choices, "SCORED_TOKENS", budget)
    model, tokenizer = load_model_and_tokenizer("tiny")
    prompt = "Question:\nWhat is 3 * 4?\n\nAnswer:"
    answers = ["\n\\boxed{12}", "", " Let's see.\n3 * 4 = 12\n\\boxed{12}", "\n\\boxed{7}"]
    found = mean_logprobs(model, tokenizer.encode(prompt), list(map(tokenizer.encode, answers)))
    expected = [ch05.avg_logprob_answer(model, tokenizer, prompt, answer) for answer in answers]
    assert found == pytest.approx(expected, rel=1e-4)
    assert found[1] == -math.inf
