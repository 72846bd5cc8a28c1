"""Which files a reader must open to follow one training step: counted with a profiler.

`python tests/test_way_of_a_step.py FOLDER` prints them.
"""

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import reasoning_from_scratch

PACKAGE = Path(reasoning_from_scratch.__file__).parent
AS_ONE = ("grading", "report")  # a judgment and a page are one thing to whoever reads the loop
STEP_FILES, START_FILES = 20, 47
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
        if here == "optim/adamw.py" and frame.f_code.co_name == "step":
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
            inside = path.is_relative_to(PACKAGE) and path.suffix == ".py"
            parts = path.relative_to(PACKAGE).parts if inside else ("",)
            self.known[filename] = parts[0] if parts[0] in AS_ONE else "/".join(parts)
        return self.known[filename]


def train_watched(folder: Path) -> Way:
    """`rfs train` with its defaults on the shipped model, in this process."""
    from reasoning_from_scratch.commands.cli import main

    way = Way()
    sys.setprofile(way.called)
    try:
        main(["train", *TRAIN.split(), str(folder)])
    finally:
        sys.setprofile(None)
    return way


def test_a_step_enters_few_files(tmp_path):
    """In a process of its own: what other tests have imported or patched does not count."""
    job = [sys.executable, __file__, str(tmp_path / "run")]
    found = subprocess.run(job, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stdout + found.stderr


if __name__ == "__main__":
    found = train_watched(Path(sys.argv[1]))
    print(f"\none step enters {len(found.step)} files:", *sorted(found.step), sep="\n  ")
    start = f"from `rfs train` to the first update, {len(found.start)} files:"
    print(start, *sorted(found.start), sep="\n  ")
    few = len(found.step) <= STEP_FILES and len(found.start) <= START_FILES
    sys.exit(0 if found.updates == 4 and few else 1)
