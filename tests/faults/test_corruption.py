"""Files of a run that were cut off: it goes on, or one line says what is damaged."""

import json
import logging
import random
import shutil
from pathlib import Path

import pytest
from faults import kill_loop
from toy import resumed_run, timeless

from reasoning_from_scratch.errors import UserError
from rfs.run.options import resumed_config
from rfs.run.training_run import TrainingRun
from tests.faults.whole import kind_of, lines

CRASHED_AT = 7


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The undisturbed run, and one that crashed in its eighth step."""
    folder = tmp_path_factory.mktemp("runs")
    kill_loop.start_or_resume(folder / "plain", folder)
    write = TrainingRun.record

    def crashing(self, row, spans):
        if row["step"] == CRASHED_AT:
            raise RuntimeError("crash")
        write(self, row, spans)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(TrainingRun, "record", crashing)
        kill_loop.start_or_resume(folder / "plain0", folder)
    return folder


def resumed(runs: Path, copy: Path, caplog) -> str:
    """Run the damaged copy to its end, which must be that of the undisturbed run; what was said."""
    caplog.clear()
    logging.getLogger("reasoning_from_scratch").propagate = True
    resumed_run(copy)
    for name in ("checkpoints/000010/model", "training_state/000010/optimizer"):
        ends = [run / f"{name}.safetensors" for run in (copy, runs / "plain")]
        assert ends[0].read_bytes() == ends[1].read_bytes()
    rows, whole = (timeless(lines(run / "metrics.jsonl")) for run in (copy, runs / "plain"))
    assert [row for row in whole if row["step"] >= CRASHED_AT] == rows[-3:]
    assert all(row in whole for row in rows)
    assert len(rows) == len(whole) or "lost, the saved weights are not" in caplog.text
    return caplog.text


def damaged_copy(runs: Path, copy: Path, name: Path | str, change) -> None:
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(runs / "plain0", copy)
    path = copy / name
    data = path.read_bytes()
    path.unlink()  # it may have a second name
    path.write_bytes(change(data))


def cut(chance: random.Random):
    return lambda data: data[: chance.randrange(len(data))] if data else data


def of_the_newest_save(path: Path) -> bool:
    places = [("checkpoints", "000007"), ("training_state", "000007")]
    return path.parts[:2] in places and path.name != "README.md"


def one_of_each_kind(run: Path) -> list[Path]:
    """The newest of each; what lies in a save is another kind."""
    paths = sorted(path.relative_to(run) for path in run.rglob("*") if path.is_file())
    kinds = {(path.parent.name.isdigit(), kind_of(path)): path for path in paths}
    return list(kinds.values())


def check_cut(runs, tmp_path, name, chance, caplog) -> None:
    """A file of the newest save: one line says which folder to delete, or what is wrong in which
    file. Without that save, and without any other file's rest, the run goes on."""
    copy = tmp_path / "plain0"
    damaged_copy(runs, copy, name, cut(chance))
    if name == Path("config.json"):
        with pytest.raises(UserError, match="config.json is damaged"):
            resumed_config(copy)
        return
    if not of_the_newest_save(name):
        resumed(runs, copy, caplog)
        return
    try:
        resumed_run(copy)
    except UserError as error:
        assert "\n" not in str(error) and "000007" in str(error)
        for place in ("checkpoints", "training_state"):
            shutil.rmtree(copy / place / "000007")
        assert "after 6 of 10 steps" in resumed(runs, copy, caplog)


def test_each_file_cut_off_at_a_random_place(runs, tmp_path, caplog):
    chance = random.Random(0)
    names = one_of_each_kind(runs / "plain0")
    assert {"config.json", "metrics.jsonl", "checkpoints.jsonl"} <= {str(name) for name in names}
    assert len(names) > 20
    for name in names:
        check_cut(runs, tmp_path, name, chance, caplog)


# ---- a configuration from another version


def with_values(**values):
    return lambda data: json.dumps(json.loads(data) | values).encode()


def test_a_key_of_a_newer_version_is_told_and_left_out(runs, tmp_path, caplog):
    damaged_copy(runs, tmp_path / "plain0", "config.json", with_values(quantum=True))
    said = resumed(runs, tmp_path / "plain0", caplog)
    assert "ignoring quantum, unknown to this version" in said


@pytest.mark.parametrize(
    ("key", "value"),
    [("objective", "ppo9"), ("steps", "ten"), ("lr", [1]), ("save_every", 2.5), ("set_by", 3)],
)
def test_a_value_of_a_newer_version_is_refused(runs, tmp_path, key, value):
    """Without it the run would be another one."""
    damaged_copy(runs, tmp_path / "plain0", "config.json", with_values(**{key: value}))
    with pytest.raises(UserError, match=f"this version does not know {key}") as caught:
        resumed_config(tmp_path / "plain0")
    assert "\n" not in str(caught.value)
