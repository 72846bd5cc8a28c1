"""Which files a reader must open to follow one training step: counted with a profiler.

`python tests/test_way_of_a_step.py FOLDER` prints them; without a folder, those of a reader's loop.
"""

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import reasoning_from_scratch

ROOT = Path(reasoning_from_scratch.__file__).parents[1]
BOOK = "reasoning_from_scratch/"
OURS = (BOOK, "rfs/", "answer_grader/")
AS_ONE = ("answer_grader/", "rfs/report/")  # a judgment and a page are one thing to who reads them
STEP_FILES, START_FILES, LOOP_FILES = 22, 55, 26
TRAIN = "--model tiny --steps 4 --seed 1 --log-path"


@dataclass
class Way:
    """What calls entered, from the start to the first update, and from the second to the third."""

    updates: int = 0
    start: set[str] = field(default_factory=set)
    step: set[str] = field(default_factory=set)
    known: dict[str, str] = field(default_factory=dict)  # file name -> its name here, or ""

    def called(self, frame, event: str, _) -> None:
        """For sys.setprofile: every call of a Python function."""
        here = self.name(frame.f_code.co_filename)
        if event != "call" or not here:
            return
        if here == f"{BOOK}optim/adamw.py" and frame.f_code.co_name == "step":
            self.updates += 1
        if self.updates == 0 and here not in self.start and not self.imports(frame):
            self.start.add(here)
        if self.updates == 2:
            self.step.add(here)

    def imports(self, frame) -> bool:
        """Whether a module is only being loaded: its definitions are run, none of its functions."""
        while frame is not None:
            if frame.f_code.co_name == "<module>" and self.name(frame.f_code.co_filename):
                return True
            frame = frame.f_back
        return False

    def name(self, filename: str) -> str:
        if filename not in self.known:
            path = Path(filename)
            inside = path.is_relative_to(ROOT) and path.suffix == ".py"
            name = path.relative_to(ROOT).as_posix() if inside else ""
            name = name if name.startswith(OURS) else ""
            self.known[filename] = next((one for one in AS_ONE if name.startswith(one)), name)
        return self.known[filename]


def train_watched(folder: Path) -> Way:
    """`rfs train` with its defaults on the shipped model, in this process."""
    from rfs.commands.cli import main

    way = Way()
    sys.setprofile(way.called)
    try:
        main(["train", *TRAIN.split(), str(folder)])
    finally:
        sys.setprofile(None)
    return way


def loop_watched() -> Way:
    """A reader's own loop, as in chapter 6's short notebook."""
    way = Way()
    sys.setprofile(way.called)
    from reasoning_from_scratch import Policy, TrainConfig, grade_answer, load_problems

    config = TrainConfig(
        rollouts=4, max_new_tokens=32, objective="reinforce", aggregate="token", seed=1
    )
    policy = Policy.load("tiny", device="cpu")
    groups = policy.sample(load_problems("tiny", limit=4), config)
    for group in groups:
        rewards = [float(grade_answer(one.text, group.problem.answer)) for one in group.rollouts]
        for one, reward in zip(group.rollouts, rewards, strict=True):
            one.advantage = reward - sum(rewards) / len(rewards)
    rollouts = [one for group in groups for one in group.rollouts]
    policy.forward_backward(rollouts, config, sum(len(one.response_ids) for one in rollouts))
    policy.optim_step(1e-4)
    sys.setprofile(None)
    return way


@pytest.mark.parametrize("what", ["train", "loop"])
def test_a_step_enters_few_files(tmp_path, what):
    """In a process of its own: what other tests have imported or patched does not count."""
    job = [sys.executable, __file__, *([str(tmp_path / "run")] if what == "train" else [])]
    ended = subprocess.run(job, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr


if __name__ == "__main__":
    if sys.argv[1:]:
        way = train_watched(Path(sys.argv[1]))
        print(f"\none step enters {len(way.step)} files:", *sorted(way.step), sep="\n  ")
        start = f"from `rfs train` to the first update, {len(way.start)} files:"
        print(start, *sorted(way.start), sep="\n  ")
        few = len(way.step) <= STEP_FILES and len(way.start) <= START_FILES
        sys.exit(0 if way.updates == 4 and few else 1)
    way = loop_watched()
    print(f"from a reader's loop to its first update, {len(way.start)} files:")
    print(*sorted(way.start), sep="\n")
    elsewhere = [name for name in way.start if not name.startswith((BOOK, "answer_grader/"))]
    sys.exit(0 if way.updates == 1 and len(way.start) <= LOOP_FILES and not elsewhere else 1)
