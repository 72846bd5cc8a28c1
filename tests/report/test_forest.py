"""The forest plot: the largest effect on top, each with its interval, on an axis with a unit."""

from reasoning_from_scratch.evaluation.paired import Effect
from reasoning_from_scratch.report import forest


def test_sorted_with_intervals(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(forest, "save_picture", lambda figure, path: drawn.append(figure) or path)
    effects = {
        "a": Effect(-2.0, 0.5, 5),
        "b": Effect(3.0, 1.0, 5),
        "c": Effect(1.0, 1.0, 5),
        "one seed": Effect(0.5, float("nan"), 1),
    }
    forest.forest_plot(effects, "accuracy (percentage points)", tmp_path / "forest.png")
    (panel,) = drawn[0].axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["a", "one seed", "c", "b"]
    assert panel.get_xlabel() == "accuracy (percentage points)"
    bars = [part.get_segments()[0] for part in panel.collections]
    low, high = bars[3][:, 0]  # of b: 2.78 standard errors to each side
    assert (round(low, 2), round(high, 2)) == (0.22, 5.78)
    marks = [line.get_marker() for line in panel.lines if len(line.get_xdata()) == 1]
    assert {"s", "o", "D"} <= set(marks)  # surely below, surely above, neither


def test_a_picture_is_written(tmp_path):
    path = forest.forest_plot({"a": Effect(1.0, 0.1, 3)}, "x (unit)", tmp_path / "f.png")
    assert path.read_bytes().startswith(b"\x89PNG")
