"""What the museum shows of a real model's run that unlearned."""

import pytest

from reasoning_from_scratch.errors import UserError
from rfs import configure, train
from tests.studies.made_data import STUDIES  # noqa: F401  puts the studies on the path

import naive_run  # isort: skip


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The files, made from a run of the tiny model."""
    sizes = dict(model="tiny-base", steps=2, problems_per_step=2, rollouts=2, max_new_tokens=24)
    train(configure("grpo", **sizes, preflight=False, log_path=str(tmp_path / "run")), quiet=True)
    monkeypatch.setattr(naive_run, "CURVES", tmp_path / "naive.csv")
    monkeypatch.setattr(naive_run, "ANSWERS", tmp_path / "naive.json")
    naive_run.main(naive_run.Options(tmp_path / "run"))


def test_the_first_and_the_last_step_are_shown(kept, capsys):
    naive_run.show_answers(count=1)
    shown = capsys.readouterr().out
    assert shown.startswith("step 1: ") and "\nstep 2: " in shown
    assert shown.count("reward ") == 2 and "<- the length limit" in shown


def test_a_panel_for_each_curve(kept):
    panels = [panel for panel in naive_run.drawn().axes if panel.get_visible()]
    assert [panel.get_title() for panel in panels] == [*naive_run.CURVE_TITLES.values()]
    # thin and thick, of this run and of the repaired one
    assert all(
        len([line for line in panel.lines if len(line.get_xdata())]) == 4 for panel in panels
    )


def test_a_folder_without_a_run_is_refused_and_the_stored_files_stay(kept, tmp_path):
    before = naive_run.CURVES.read_text(), naive_run.ANSWERS.read_text()
    with pytest.raises(UserError, match="elsewhere holds no run"):
        naive_run.main(naive_run.Options(tmp_path / "elsewhere"))
    assert (naive_run.CURVES.read_text(), naive_run.ANSWERS.read_text()) == before
