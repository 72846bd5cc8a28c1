"""The shape of the package: imports go one way."""

import ast
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import RARELY_BROKEN, ROOT, SLOWEST_FIRST

PACKAGE = Path(__file__).parents[1] / "reasoning_from_scratch"

# What the book's cells import: its chapters, and the one function in its utils.
CHAPTERS = {*(f"ch0{number}" for number in range(2, 9)), "appendix_f", "utils"}
TORCH_ONLY = {"advantages", "logprobs", "losses"}

# The loop, in the order in which to read it, and what everybody may use.
LOOP = """
    qwen3 stops tokenizer chat_templates problems sampling rewards advantages logprobs losses
    rollouts policy trainer recipes
""".split()
LEAVES = ["text", "errors"]

# A room may import those that stand before it; the loop only the grader.
ROOMS = """
    grading loop tiny files tasks fast optim evaluation report scale run serve commands
""".split()

FILES = sorted(path for path in PACKAGE.rglob("*.py"))


def module_of(path: Path) -> str:
    """The dotted name of a file within the package: run.training; "" for the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES}


def label(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@cache
def imports(path: Path) -> frozenset[str]:
    """Full dotted names of all imports of a file, those inside functions included."""
    package = ("reasoning_from_scratch", *path.relative_to(PACKAGE).parts[:-1])
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) + "." if node.level else ""
            base += node.module or ""
            names |= {f"{base.rstrip('.')}.{alias.name}" for alias in node.names}
    return frozenset(names)


def ours(path: Path) -> set[str]:
    """The other modules of this package that a file imports."""
    found = set()
    for full in imports(path):
        package, *parts = full.split(".")
        if package != "reasoning_from_scratch":
            continue
        # The last part may be a name in the module, or the module itself.
        whole, most = ".".join(parts), ".".join(parts[:-1])
        found.add(whole if whole in MODULES else most)
    return found - {module_of(path), ""}


def test_only_the_packages_door_forwards():
    """What is asked for by name at run time would be no arrow in the checks below."""
    assert [label(path) for path in FILES if "import_module" in path.read_text("utf-8")] == [
        "__init__.py",
        "commands/cli.py",
    ]


def test_no_circle():
    """Of two modules at most one imports the other, also by way of others."""
    below = {module: ours(path) for module, path in MODULES.items()}
    order: list[str] = []
    while below:
        free = sorted(module for module, needs in below.items() if not needs - set(order))
        assert free, f"these import each other in a circle: {sorted(below)}"
        order += free
        below = {module: needs for module, needs in below.items() if module not in free}


@pytest.mark.parametrize("name", [*LOOP, "config"])
def test_the_loop_knows_no_room_but_the_grader(name):
    """Speed, scale, folders, reports, signals and memory are handed to it from outside."""
    known = {*LOOP, *LEAVES, "config", "grading"}
    assert ours(PACKAGE / f"{name}.py") <= known


def room_of(module: str) -> str:
    first = module.partition(".")[0]
    return "loop" if first in LOOP or first == "config" else first


@pytest.mark.parametrize("path", FILES, ids=label)
def test_a_room_imports_those_before_it_and_the_engine_never_a_chapter(path):
    room, needed = room_of(module_of(path)), ours(path)
    if room in ROOMS:  # not a chapter, the package's door, a leaf
        allowed = {*ROOMS[: ROOMS.index(room) + 1], *LEAVES}
        assert {room_of(module) for module in needed} <= allowed
    assert module_of(path) in CHAPTERS or not needed & CHAPTERS


@pytest.mark.parametrize("path", sorted(ROOT.glob("ch0*/*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_takes_from_the_package_and_its_chapters(path):
    """So readers learn two kinds of places, and a function can move without a notebook changing."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = "".join("".join(cell["source"]) + "\n" for cell in cells if cell["cell_type"] == "code")
    taken = re.findall(r"^\s*(?:from|import) reasoning_from_scratch\.([\w.]+)", code, flags=re.M)
    assert set(taken) <= CHAPTERS


@pytest.mark.parametrize("name", sorted(TORCH_ONLY))
def test_the_mathematics_needs_only_torch(name):
    path = PACKAGE / f"{name}.py"
    outside = {full.split(".")[0] for full in imports(path)} - set(sys.stdlib_module_names)
    assert outside <= {"torch", "reasoning_from_scratch"}
    assert ours(path) <= TORCH_ONLY | {"config"}  # its choices, which need not even that


def test_the_slowest_files_exist():
    """Else a file that was renamed would quietly come last, and a worker wait for it alone."""
    for name in SLOWEST_FIRST + RARELY_BROKEN:
        path, _, test = name.partition("::")
        assert (ROOT / path).exists(), name
        found = "" if not test else (ROOT / path).read_text(encoding="utf-8")
        assert not test or f"def {test}(" in found or f'"id": "{test}"' in found, name
    assert len(set(SLOWEST_FIRST)) == len(SLOWEST_FIRST)


def test_what_images_of_containers_set_reaches_no_test():
    names = ("PYTHONDONTWRITEBYTECODE", "MPLBACKEND")
    code = "import os, conftest; print(sorted(os.environ))"
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | dict.fromkeys(names, "Agg"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert not any(name in found.stdout for name in names)
