"""The forest plot: the largest effect on top, each with its interval, on an axis with a unit."""

from reasoning_from_scratch.evaluation.paired import Effect
from reasoning_from_scratch.report import forest


def test_a_picture_is_written(tmp_path):
    path = forest.forest_plot({"a": Effect(1.0, 0.1, 3)}, "x (unit)", tmp_path / "f.png")
    assert path.read_bytes().startswith(b"\x89PNG")
