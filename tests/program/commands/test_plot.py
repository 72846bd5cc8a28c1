"""`rfs plot`: each value at its step, each run by its name, and no picture that says nothing."""

import json
import os
from pathlib import Path

import pytest
from toy import toy_run

from reasoning_from_scratch.errors import UserError
from rfs.commands.cli import main
from rfs.commands.plot import draw_runs, plot_runs, read_metrics


def make_run(folder: Path, steps: int, **values) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    rows = [{"step": step, "env/all/reward/total": 0.1 * step, **values} for step in range(steps)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def panels(figure) -> dict:
    return {axes.get_title(): axes for axes in figure.axes}


def test_without_a_run_it_takes_the_one_that_wrote_last(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["plot"]) == 2
    assert "there is no run in" in capsys.readouterr().err and not list(tmp_path.iterdir())
    for age, name in ((0, "new"), (100, "old")):
        run = make_run(tmp_path / "runs" / name, 3)
        for path in run.iterdir():
            os.utime(path, (1e9 - age, 1e9 - age))
    # A report of the old run makes its folder the newest, but not the run.
    assert main(["report", "runs/old"]) == 0
    assert main(["plot"]) == 0
    assert (tmp_path / "runs/new/curves.png").exists()


@pytest.mark.parametrize(
    "name, says",
    [
        ("curves.xyz", "curves.xyz: a picture's name ends in one of .*.png"),
        ("curves", "ends in one of"),
        ("file/curves.png", "cannot make .*file"),
        ("folder.png", "cannot write .*folder.png: Is a directory"),
    ],
)
def test_a_place_that_cannot_be_written_is_one_line(tmp_path, name, says):
    run = make_run(tmp_path / "run", 3)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(UserError, match=says):
        plot_runs([run], tmp_path / name)


def test_a_folder_without_steps_is_one_line(tmp_path):
    with pytest.raises(UserError, match="give a run folder"):
        plot_runs([tmp_path], tmp_path / "curves.png")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    toy_run(folder / "run", steps=4, eval_every=2)
    return folder / "run"


def test_the_final_evaluation_is_drawn_after_the_last_step(trained):
    axes = panels(draw_runs([trained]))
    (line,) = axes["held-out accuracy"].lines
    assert list(line.get_xdata()) == [0, 2, 4]
    (line,) = axes["reward"].lines
    assert list(line.get_xdata()) == [1, 2, 3, 4]


def test_shares_are_in_percent(trained):
    drawn = panels(draw_runs([trained]))
    shown = {title: axes.yaxis.get_major_formatter()(0.5) for title, axes in drawn.items()}
    assert shown["held-out accuracy"] == shown["groups with signal"] == "50%"
    assert "%" not in shown["reward"] + shown["answer length (tokens)"]


def test_lines_of_another_program_are_left_out(tmp_path, trained):
    lines = (trained / "metrics.jsonl").read_text()
    others = '{"loss": 1}\n{"step": "1", "eval_acc": 0.5}\n{"step": 9, "env/all/correct": "x"}\n'
    (tmp_path / "metrics.jsonl").write_text(others + lines)
    (line,) = panels(draw_runs([tmp_path]))["reward"].lines
    assert list(line.get_xdata()) == [1, 2, 3, 4]


BOOKS = """step,total_steps,loss,reward_avg,tokens_per_sec,avg_response_len,entropy_avg,eval_acc
1,4,0.1,0.25,90,100.5,0.5,
2,4,,0.5,90,101.5,nan,15.5
3,4,0.1,,90,102.5,0.3,
4,4,0.1,0.75,90,103.5,0.2,47.5
"""


def test_a_runs_own_csv_is_drawn_as_the_run(tmp_path, trained):
    """Also where it was made longer: only metrics.jsonl says where the earlier end was."""
    assert read_metrics(trained / "metrics.csv") == read_metrics(trained)


def test_a_csv_of_the_books_scripts_is_drawn_beside_a_run(tmp_path, trained):
    """Its first step is 1, it evaluates after a step, and it may do so in percent."""
    path = tmp_path / "published" / "7_3_plus_tracking.csv"
    path.parent.mkdir()
    path.write_text(BOOKS)
    axes = panels(draw_runs([path]))
    drawn = {name: (list(line.get_xdata()), list(line.get_ydata())) for name, panel in axes.items()
             for line in panel.lines}  # fmt: skip
    assert drawn == {
        "reward": ([1, 2, 4], [0.25, 0.5, 0.75]),
        "held-out accuracy": ([2, 4], [0.155, 0.475]),
        "answer length (tokens)": ([1, 2, 3, 4], [100.5, 101.5, 102.5, 103.5]),
        "entropy (nats per token)": ([1, 3, 4], [0.5, 0.3, 0.2]),
    }
    assert not axes["gradient norm"].get_visible() and axes["reward"].get_visible()
    both = draw_runs([trained, path])
    assert [text.get_text() for text in both.legends[0].texts] == ["run", "7_3_plus_tracking"]
    assert len(panels(both)["reward"].lines) == 2 and len(panels(both)["gradient norm"].lines) == 1
    assert main(["plot", str(trained), str(path), "--out", str(tmp_path / "both.png")]) == 0
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "content, says",
    [
        (None, "cannot read .*No such file"),
        (b"", "no steps of a run; expected some of the columns step, "),
        (b"a,b\n1,2\n", "no steps of a run"),
        (b"step,reward_avg\n1,high\n", "'high' is not a number"),
        (b"\xff\xfe\x00", "cannot read"),
    ],
)
def test_a_csv_that_is_none_of_a_run_is_one_line(tmp_path, content, says):
    path = tmp_path / "metrics.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=says) as info:
        draw_runs([path])
    assert "\n" not in str(info.value)
