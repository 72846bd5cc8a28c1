"""The biggest change between two probes."""

import pytest

from rfs.report.probe_story import biggest_change


def test_the_biggest_change_is_a_mean_over_the_probes():
    def record(step, *firsts):
        return {
            "step": step,
            "probes": [
                {"top": [first], "tokens": [first[0][0]], "text": f" {first[0][0]}'s see.\nYes"}
                for first in firsts
            ],
        }

    change = biggest_change(
        [
            record(0, [["No", 0.9], ["Let", 0.1]], [["No", 0.7]]),
            record(5, [["No", 0.5]], [["No", 0.9]]),
            record(9, [["Let", 0.8], ["No", 0.2]], [["Let", 0.6], ["No", None]]),
        ]
    )
    assert (change.token, change.first_step, change.last_step) == ("Let", 0, 9)
    assert change.example == "Let's see."
    assert (change.first, change.last) == pytest.approx((0.05, 0.7))
    assert biggest_change([record(0, [["No", 1.0]])]) is None
