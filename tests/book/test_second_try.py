"""The script about a second try: how it counts."""

import pytest
from second_try import try_shares

RIGHT, WRONG = {"correct": 1.0, "first_try": 1.0}, {"correct": 0.0, "first_try": 0.0}
MENDED = {"correct": 1.0, "first_try": 0.0}


def test_tries_are_told_apart():
    talks = [
        (RIGHT, ["2 + 3 = 5\n\\boxed{5}"]),
        (WRONG, ["\\boxed{4}", "\\boxed{6}"]),
        (MENDED, ["\\boxed{4}", "2 + 3 = 5\n\\boxed{5}"]),
        (WRONG, ["2 + 3 = 6\n\\boxed{6}", "\\boxed{6}"]),
    ]
    assert try_shares(talks) == {
        "first try": 0.25,
        "last try": 0.5,
        "mended": pytest.approx(1 / 3),
        "first worked": 0.5,
        "second worked": pytest.approx(1 / 3),
    }


def test_where_all_are_right_at_once_nothing_is_mended():
    found = try_shares([(RIGHT, ["\\boxed{5}"])])
    assert (found["first try"], found["mended"], found["second worked"]) == (1, 0, 0)
