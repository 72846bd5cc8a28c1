"""What is read from answers."""

import pytest

from tests.studies.made_data import STUDIES  # noqa: F401  puts the studies on the path

import gsm8k_measurements  # isort: skip


@pytest.mark.parametrize(
    "text, number",
    [("5 and then 1,234.5 pens", "1234.5"), ("none", ""), ("it is -3.", "-3"), ("7", "7")],
)
def test_the_last_number(text, number):
    assert gsm8k_measurements.last_number(text) == number


def answer(index, text, correct, stopped=True, extracted=None):
    return {
        "index": index, "generated_text": text, "gtruth_answer": "7", "correct": correct,
        "stopped": stopped, "tokens": 2, "extracted": extracted, "parsed": extracted is not None,
    }  # fmt: skip


def test_metrics_of_greedy_answers():
    row = gsm8k_measurements.greedy_metrics(
        [
            answer(1, "so \\boxed{7}", True),
            answer(2, "it is 7", False),
            answer(3, "so \\boxed{8}", False),
            answer(4, "who knows", False, stopped=False),
        ]
    )
    assert row["greedy"] == 0.25 and row["box"] == 0.5 and row["correct_in_box"] == 0.5
    assert row["last_number"] == 0.5 and row["tokens"] == 2 and row["cut_off"] == 0.25


def test_a_vote_is_among_the_first_eight_answers():
    first = [answer(1, "", True, extracted="7")] * 5 + [answer(1, "", False, extracted="8")] * 3
    later = [answer(1, "", False, extracted="8")] * 8
    split = [answer(2, "", i % 2 == 0, extracted="78"[i % 2]) for i in range(8)]
    assert gsm8k_measurements.majority_of_eight([*first, *later, *split]) == pytest.approx(0.75)
    assert gsm8k_measurements.correct_counts([*first, *later, *split]) == [5, 4]
