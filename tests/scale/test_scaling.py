"""docs/scaling.md: its table is what the simulation gives, and the simulation adds up."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import scaling  # noqa: E402
import scaling_check  # noqa: E402
from scaling import Machine, Work, model_of  # noqa: E402

from reasoning_from_scratch import qwen3  # noqa: E402
from reasoning_from_scratch.qwen3 import Qwen3Model  # noqa: E402

SMALL, LARGE = (model_of(cfg) for cfg in (qwen3.QWEN_CONFIG_06_B, qwen3.QWEN_CONFIG_32_B))


def test_the_page_shows_what_the_simulation_gives():
    page = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    assert scaling.table(Machine(), Work()) in page


def test_weights_are_counted():
    import torch

    cfg = {**qwen3.QWEN_CONFIG_06_B, "n_layers": 2, "vocab_size": 1000}
    with torch.device("meta"):
        model = Qwen3Model(cfg)
    matrices = sum(p.numel() for p in model.parameters() if p.dim() == 2)
    assert model_of(cfg).parameters == matrices
    assert LARGE.parameters == pytest.approx(32.8e9, rel=0.01)  # as published


def test_one_row_is_bound_by_reading_and_many_by_computing():
    machine = replace(Machine(), layer_seconds=0)
    one, many = (scaling.token_seconds(SMALL, machine, rows, 0) for rows in (1, 10_000))
    assert one == SMALL.weight_bytes / (machine.bandwidth * machine.bandwidth_share)
    assert many == 2 * SMALL.parameters * 10_000 / (machine.flops * machine.flops_share)


def test_a_batch_is_kept_full():
    """With a cost per decoding step only, the time is the number of steps."""
    machine = Machine(bandwidth=math.inf, flops=math.inf, layer_seconds=1 / SMALL.layers)
    steps = [
        scaling.device_seconds(SMALL, machine, Work(), [3, 5, 2, 4], rows) for rows in (1, 2, 4)
    ]
    assert steps == pytest.approx([14, 7, 5])  # two rows: 4, then 3, beside 2, then 5


def test_a_step_is_a_sum_and_a_lag_makes_it_a_maximum():
    step = scaling.Step("", sampling=10, mean_sampling=6, training=4, traffic=1)
    assert [step.seconds(lag) for lag in (0, 1, 3)] == [15, 10, 6]


def test_what_was_measured_is_fitted():
    """Times made from a known machine are found again, and predict other batch sizes."""
    machine = Machine(bandwidth=1e30, flops=2 / 0.4 / 1e-4, layer_seconds=2e-3)
    model = scaling.Model(parameters=1, layers=1, kv_bytes=0)
    works = [Work(rollouts=n, prompt=10, mean=20, longest=100) for n in (32, 96, 48)]
    seconds = [scaling_check.sampled(machine, model, work) for work in works]
    runs = [scaling_check.Measured(s, 0, work) for s, work in zip(seconds, works, strict=True)]
    found = scaling_check.fitted(*runs[:2])
    assert scaling_check.sampled(found[1], found[0], works[2]) == pytest.approx(seconds[2])
