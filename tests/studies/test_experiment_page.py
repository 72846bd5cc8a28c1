"""What the page about SmolLM2 takes from the stored files of its experiment."""

import json

import experiment_page
import pytest

from rfs.files.tables import read_table
from tests.conftest import ROOT

PAGE = (ROOT / "ch08/smollm2.md").read_text("utf-8")
EXAMPLES = json.loads((ROOT / "studies/experiment_examples_0.json").read_text("utf-8"))


def test_the_page_has_the_table():
    lines = list(experiment_page.markdown_table())
    assert len(lines) == 2 + len(experiment_page.ARMS)
    assert "\n".join(lines) in PAGE


@pytest.mark.parametrize("kind", ["only grpo", "only warm-start"])
def test_the_page_has_the_first_answers_of_a_kind_as_they_were_given(kind):
    first = EXAMPLES[kind]["first"][0]
    assert first["problem"] in PAGE
    for stage in ("warm-start", "grpo"):
        indented = "\n".join(f"    {line}" for line in first[stage].strip().splitlines())
        assert indented in PAGE


def test_the_page_has_how_many_problems_each_model_solves():
    counts = {kind: found["count"] for kind, found in EXAMPLES.items()}
    assert sum(counts.values()) == 256
    assert (
        "Of these, {only grpo} are solved by GRPO alone, {only warm-start} by the warm start "
        "alone, {both} by both and {neither} by neither."
    ).format(**counts) in PAGE


def test_the_picture_has_a_line_for_each_seed():
    rows = read_table(ROOT / "studies/experiment_curve.csv")
    left, right = experiment_page.draw(rows).axes
    seeds = {row["seed"] for row in rows}
    assert len(left.lines) == len(seeds) == 3 and len(right.lines) == 2 * len(seeds)
    last = [row for row in rows if row["seed"] == "2" and row["greedy"]][-1]
    assert right.lines[-2].get_ydata()[-1] == float(last["greedy"])
