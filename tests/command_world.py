"""Commands one after another on real folders: a model of a few thousand weights, saved, that
`rfs train` opens as it opens any other."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from toy import toy_model, toy_problems, toy_tokenizer

from reasoning_from_scratch.files.weights import load_state, save_hf_folder
from rfs.commands import cli

# Small, but with saves of every kind.
SHORT = (
    "--steps 4 --save-every 2 --eval-every 3 --problems-per-step 2 --rollouts 12 "
    "--max-new-tokens 4 --lr 1e-2 --device cpu --no-preflight --num-groups-to-log 1"
).split()


def make_world(folder: Path) -> None:
    """tiny-toy/, tiny-other/ and problems.jsonl."""
    tokenizer = toy_tokenizer(folder)
    for seed, name in enumerate(("tiny-toy", "tiny-other")):
        (folder / name).mkdir()
        save_hf_folder(toy_model(seed), tokenizer, folder / name)
    rows = [{"problem": p.problem, "answer": p.answer, "id": p.id} for p in toy_problems(8)]
    (folder / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def train_words(world: Path, run: Path | str, *more: object) -> list[str]:
    """`rfs train` on that model and those problems; later flags win over earlier ones."""
    start = ["--model", f"{world}/tiny-toy"]
    task = ["--problems", f"{world}/problems.jsonl", "--eval-problems", f"{world}/problems.jsonl"]
    return ["train", *start, *task, *SHORT, "--log-path", str(run), *map(str, more)]


def saved(run: Path, batch: int) -> dict:
    """The weights that a run has saved after so many steps."""
    return load_state(run / "checkpoints" / f"{batch:06d}")


def equal(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(one[name].equal(other[name]) for name in one)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file under a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def commands(words: Sequence[str], where: Path | None = None) -> int:
    """The exit code of a command of `rfs`, started in that folder."""
    before = Path.cwd()
    os.chdir(where or before)
    try:
        return cli.main(list(words))
    finally:
        os.chdir(before)


def run(world: Path, name: str, *more: object) -> Path:
    """The folder of a run made there by `rfs train`."""
    assert commands(train_words(world, world / name, *more)) == 0
    return world / name


def refused(words: list[str], capsys, where: Path | None = None) -> str:
    """What was said by a command that must be refused."""
    capsys.readouterr()
    assert commands(words, where) == 2
    (line,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("rfs train: ")]
    return line


def resume(path: Path | str, *more: object) -> list[str]:
    return ["train", "--resume", str(path), *map(str, more)]
