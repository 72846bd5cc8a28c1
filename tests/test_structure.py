"""The shape of the package: imports go one way."""

import ast
import sys
from pathlib import Path

import pytest

from tests.conftest import RARELY_BROKEN, ROOT, SLOWEST_FIRST

PACKAGE = Path(__file__).parents[1] / "reasoning_from_scratch"

# What the book's cells import: its chapters, and the one function in its utils.
CHAPTERS = {*(f"ch0{number}" for number in range(2, 8)), "appendix_f", "utils"}
TORCH_ONLY = {"advantages", "logprobs", "losses"}

# The loop, in the order in which to read it, and what everybody may use.
LOOP = """
    qwen3 tokenizer chat_templates problems sampling rewards advantages logprobs losses rollouts
    policy trainer recipes
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


def imports(path: Path, on_demand: bool = False) -> set[str]:
    """Full dotted names of all imports of a file, those inside functions included. What a module's
    `__getattr__` imports, for readers who ask for it there, is another list: `on_demand`."""
    package = ("reasoning_from_scratch", *path.relative_to(PACKAGE).parts[:-1])
    names = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    late = [node for node in tree.body if getattr(node, "name", "") == "__getattr__"]
    inside = [node for function in late for node in ast.walk(function)]
    for node in inside if on_demand else (n for n in ast.walk(tree) if n not in inside):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) + "." if node.level else ""
            base += node.module or ""
            names |= {f"{base.rstrip('.')}.{alias.name}" for alias in node.names}
    return names


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


def test_what_is_fetched_on_demand():
    """The book's cells import these from qwen3, where they cannot be."""
    found = {label(path): imports(path, on_demand=True) for path in FILES}
    found.pop("__init__.py", None)  # the package's door
    assert {name: full for name, full in found.items() if full} == {
        "qwen3.py": {
            "reasoning_from_scratch.tokenizer",
            "reasoning_from_scratch.files.weights",
            "reasoning_from_scratch.files.downloads",
        }
    }


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
def test_a_room_imports_those_before_it(path):
    room = room_of(module_of(path))
    if room not in ROOMS:  # a chapter, the package's door, a leaf
        return
    allowed = {*ROOMS[: ROOMS.index(room) + 1], *LEAVES}
    assert {room_of(module) for module in ours(path)} <= allowed


@pytest.mark.parametrize("path", FILES, ids=label)
def test_the_engine_never_imports_a_chapter(path):
    if module_of(path) not in CHAPTERS:
        assert not ours(path) & CHAPTERS


@pytest.mark.parametrize("name", sorted(TORCH_ONLY))
def test_the_mathematics_needs_only_torch(name):
    path = PACKAGE / f"{name}.py"
    outside = {full.split(".")[0] for full in imports(path)} - set(sys.stdlib_module_names)
    assert outside <= {"torch", "reasoning_from_scratch"}
    assert ours(path) <= TORCH_ONLY | {"config"}  # its choices, which need not even that


def test_the_tree_has_no_leftovers():
    names = {path.stem for path in FILES} - CHAPTERS
    assert not names & {"utils", "helpers", "common", "misc"}
    assert not [name for name in names if name.endswith(("_v2", "_old", "_new", "_copy"))]


def test_the_slowest_files_exist():
    """Else a file that was renamed would quietly come last, and a worker wait for it alone."""
    for name in SLOWEST_FIRST + RARELY_BROKEN:
        path, _, test = name.partition("::")
        assert (ROOT / path).exists() and (not test or f"def {test}(" in (ROOT / path).read_text())
    assert len(set(SLOWEST_FIRST)) == len(SLOWEST_FIRST)


def test_import_arrows_are_seen():
    """The checks above can fail: imports of all spellings are found."""
    trainer = PACKAGE / "grading" / "imaginary.py"
    source = "from ..trainer import train\nimport reasoning_from_scratch.ch06\n"
    source += "def f():\n    from reasoning_from_scratch import losses\n    from . import parser\n"
    found = imports(Imaginary(trainer, source))
    assert found == {
        "reasoning_from_scratch.trainer.train",
        "reasoning_from_scratch.ch06",
        "reasoning_from_scratch.losses",
        "reasoning_from_scratch.grading.parser",
    }


class Imaginary:
    """A path whose text is given."""

    def __init__(self, path: Path, source: str):
        self.relative_to, self.source = path.relative_to, source

    def read_text(self, encoding: str) -> str:
        return self.source
