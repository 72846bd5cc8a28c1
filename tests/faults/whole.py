"""What a run folder must be like after whatever happened: whole, and as if nothing had."""

import csv
import json
from pathlib import Path

from safetensors.torch import load_file
from toy import timeless

from reasoning_from_scratch.text import scan_json_lines
from rfs.files.saved_models import CARD_FILE

NOT_COMPARED = {"logs.log"}
SAVE_KEYS = ("name", "batch", "final", "best", "eval_acc")


def lines(path: Path) -> list[dict]:
    rows, bad = scan_json_lines(path)
    assert not bad, f"{path} has damaged lines {bad}"
    return rows


def names(run: Path) -> set[str]:
    return {path.relative_to(run).as_posix() for path in run.rglob("*")} - NOT_COMPARED


def check_whole(run: Path) -> None:
    """No file is half-written, temporary or unnamed."""
    for path in run.rglob("*"):
        assert not path.name.startswith("."), f"{path} is left over"
        if path.suffix == ".jsonl":
            assert path.read_bytes()[-1:] in (b"\n", b""), f"{path} ends inside a line"
            lines(path)
        elif path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".html":
            assert path.read_text().rstrip().endswith("</html>"), f"{path} is cut off"
        elif path.suffix == ".safetensors":
            load_file(path)
    steps = [row["step"] for row in lines(run / "metrics.jsonl")]
    assert steps == list(range(len(steps)))
    with open(run / "metrics.csv", newline="") as file:
        assert [int(row["step"]) for row in csv.DictReader(file)] == steps
    for name in ("timing_spans.jsonl", "probes.jsonl"):
        seen = [row["step"] for row in lines(run / name)]
        assert seen == sorted(set(seen))
    saves = lines(run / "checkpoints.jsonl")
    for line in saves:
        place = run / "checkpoints" / f"{line['batch']:06d}"
        assert (place / CARD_FILE).is_file() and (place / "config.json").is_file()
    states = {f"{line['batch']:06d}" for line in saves if "state_path" in line}
    assert {path.name for path in run.glob("training_state/*")} == states
    assert {path.name for path in run.glob("checkpoints/*")} == {
        f"{line['batch']:06d}" for line in saves
    }


def same_runs(one: Path, other: Path) -> None:
    """Same files; same weights, optimizer states and rollouts to the bit; same metrics."""
    check_whole(one)
    assert names(one) == names(other)
    assert timeless(lines(one / "metrics.jsonl")) == timeless(lines(other / "metrics.jsonl"))
    saves = [
        [{k: x.get(k) for k in SAVE_KEYS} for x in lines(run / "checkpoints.jsonl")]
        for run in (one, other)
    ]
    assert saves[0] == saves[1]
    for path in one.rglob("*"):
        if path.suffix == ".safetensors" or path.name.endswith("_summaries.jsonl"):
            twin = other / path.relative_to(one)
            assert path.read_bytes() == twin.read_bytes(), f"{path} differs"


def kind_of(path: Path) -> str:
    """The name without what differs from step to step and from process to process."""
    name = "".join("0" if letter.isdigit() else letter for letter in path.name)
    while "00" in name:
        name = name.replace("00", "0")
    return name
