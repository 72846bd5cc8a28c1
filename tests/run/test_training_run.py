"""What a run does beside the updates: evaluations that stay in the metrics, and gaps measured."""

from dataclasses import replace

import pytest
from toy import toy_config, toy_problems, toy_world

from reasoning_from_scratch.files.saved_models import evaluations, evaluations_in
from reasoning_from_scratch.run.options import resumed_config
from reasoning_from_scratch.run.start import train
from reasoning_from_scratch.text import read_lines


def toy_run(folder, **changes):
    given = {name: changes.pop(name) for name in ("problems",) if name in changes}
    config = toy_config(folder / "run", **changes)
    return train(config, quiet=True, **(toy_world(folder) | given))


# ---- evaluations


@pytest.mark.parametrize("steps, every", [(1, 1), (3, 2)])
def test_an_evaluation_before_the_last_step_is_kept_beside_the_final_one(tmp_path, steps, every):
    rows = toy_run(tmp_path, steps=steps, eval_every=every, eval_samples=2).rows
    assert len(rows) == steps, "a line per step"
    kept = evaluations_in(rows[-1])
    assert [found["eval_step"] for found in kept] == [steps - 1, steps]
    for found in kept:
        assert {"eval_acc", "tiny-test/env/all/correct", "tiny-test/pass@2"} <= set(found)
    assert rows[-1]["eval_step"] == steps, "the line's own names are those of the final weights"
    assert {steps - 1, steps} <= set(evaluations(tmp_path / "run"))
    assert rows == read_lines(tmp_path / "run" / "metrics.jsonl")


def test_a_line_with_one_evaluation_or_none_has_no_other(tmp_path):
    rows = toy_run(tmp_path, steps=3, eval_every=3).rows
    assert [len(evaluations_in(row)) for row in rows] == [1, 0, 1]


def test_a_run_made_longer_keeps_both(tmp_path):
    toy_run(tmp_path, steps=1, eval_every=1)
    config = resumed_config(tmp_path / "run", steps=2)
    rows = train(config, quiet=True, **toy_world(tmp_path)).rows
    steps = [found["eval_step"] for row in rows for found in evaluations_in(row)]
    assert steps == [0, 1, 1, 2]


# ---- the gap between sampler and trainer


@pytest.mark.parametrize("more", [{}, {"num_minibatches": 2}, {"top_p": 0.5}], ids=str)
def test_without_a_signal_the_gap_is_measured_on_all_rollouts(tmp_path, more):
    never = [replace(problem, answer="9") for problem in toy_problems()]
    (row,) = toy_run(tmp_path, steps=1, problems=never, keep_sampling_mask=False, **more).rows
    assert row["optim/updates"] == 0
    names = ("optim/kl_sample_train_v1", "optim/kl_sample_train_v2")
    first, second = (row[name] for name in names)
    assert row["kl_sample_train_v1"] == first and row["kl_sample_train_v2"] == second
    if "top_p" in more:  # half of the probability is cut away, and the trainer knows nothing of it
        assert first > 0.1 and second > 0.01
    else:
        assert abs(first) < 1e-6 and 0 <= second < 1e-6
