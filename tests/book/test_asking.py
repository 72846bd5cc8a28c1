"""The script that asks whether GRPO finds out when to ask: how it counts."""

import pytest
from asking import Answer, answer_metrics, product_is_correct

WORKING = """ Let's see.
<<18 * 7 =126>>
126 + 4 = 130
130 / 5 = 27
x = 12 * 13 = 120 + 36 = 156
3/4 = 9/12
\\boxed{156}"""


def test_lines_that_ask_are_counted_apart_for_products_and_sums():
    found = answer_metrics([Answer(WORKING, 1.0, 60, 5), Answer("\\boxed{2}", 0.0, 4, 0)])
    assert found["hard asked"] == pytest.approx(1 / 3)
    assert found["easy asked"] == 0
    assert found["hard right alone"] == 0.5  # 27 is wrong, 156 is right
    assert (found["right"], found["drawn"], found["written"]) == (0.5, 32, 2.5)


@pytest.mark.parametrize(
    "line, true",
    [
        ("18 * 7 = 126", True),
        ("18 * 7 = 70 + 56 = 126", True),
        ("18 * 7 = 70 + 56 = 127", False),
        ("x = 10 / 2 = 5", True),
        ("10 / 3 = 3", False),
        ("18 * 7 = ", False),
        ("18 * 7 = 70 + 56 = 126? Yes", True),
        ("18 * 7 = 127? No, 126", True),
        ("18 * 7 = 125? Yes", False),
        ("18 * 7 = 126? No, 127", False),
    ],
)
def test_a_line_is_true_where_its_end_is_what_its_product_comes_to(line, true):
    assert product_is_correct(line) is true
