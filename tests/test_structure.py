"""The shape of the house: three packages, and imports go one way."""

import ast
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import RARELY_BROKEN, ROOT, SLOWEST_FIRST

# Three packages, each of which may import those before it; notebooks, studies and tests all three.
PACKAGES = ("answer_grader", "reasoning_from_scratch", "rfs")
BOOK, PROGRAM = PACKAGES[1:]

# What the book's cells import: its chapters, and the one function in its utils.
CHAPTERS = {f"{BOOK}.{name}" for name in (*(f"ch0{n}" for n in range(2, 9)), "appendix_f", "utils")}
TORCH_ONLY = {f"{BOOK}.{name}" for name in ("advantages", "logprobs", "losses")}

# The loop, in the order in which to read it, and what everybody may use.
LOOP = """
    qwen3 stops tokenizer chat_templates problems sampling rewards advantages logprobs losses
    rollouts policy trainer recipes config
""".split()
LEAVES = ("text", "errors", "facts")

# A room may import those of its package that stand before it.
ROOMS = {
    BOOK: "loop tiny files problem_sets scores optim fast accuracy own_policy".split(),
    PROGRAM: """
        config files tasks engine own_policy evaluation report scale run serve commands
    """.split(),
}

FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def module_of(path: Path) -> str:
    """The dotted name of a file: rfs.run.start; rfs for rfs/__init__.py."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES}


def label(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def imports(path: Path) -> frozenset[str]:
    """Full dotted names of all imports of a file, those inside functions included."""
    package = path.relative_to(ROOT).parts[:-1]
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
    """The other modules of ours that a file imports."""
    needed = set()
    for full in imports(path):
        if full.split(".")[0] in PACKAGES:
            # The last part may be a name in the module, or the module itself.
            needed.add(full if full in MODULES else full.rpartition(".")[0])
    return needed - {module_of(path), *PACKAGES[1:], ""}


def test_only_the_packages_doors_forward():
    """What is asked for by name at run time would be no arrow in the checks below."""
    assert [label(path) for path in FILES if "import_module" in path.read_text("utf-8")] == [
        "reasoning_from_scratch/__init__.py",
        "rfs/__init__.py",
        "rfs/commands/cli.py",
    ]


@pytest.mark.parametrize("path", FILES, ids=label)
def test_a_package_imports_those_before_it(path):
    package, *_ = module_of(path).split(".")
    allowed = PACKAGES[: PACKAGES.index(package) + 1]
    assert {full.split(".")[0] for full in imports(path)} & set(PACKAGES) <= set(allowed)


def test_no_circle():
    """Of two modules at most one imports the other, also by way of others."""
    below = {module: ours(path) for module, path in MODULES.items()}
    order: list[str] = []
    while below:
        free = sorted(module for module, needs in below.items() if not needs - set(order))
        assert free, f"these import each other in a circle: {sorted(below)}"
        order += free
        below = {module: needs for module, needs in below.items() if module not in free}


@pytest.mark.parametrize("name", LOOP)
def test_the_loop_knows_no_room_but_the_grader(name):
    """Speed, scale, folders, reports, signals and memory are handed to it from outside."""
    needed = {room_of(module) for module in ours(ROOT / BOOK / f"{name}.py")}
    assert needed <= {"loop", "answer_grader", *LEAVES}


def room_of(module: str) -> str:
    package, _, inside = module.partition(".")
    first = inside.partition(".")[0]
    if package == BOOK and first in LOOP:
        return "loop"
    return first if package in ROOMS else package


@pytest.mark.parametrize("path", FILES, ids=label)
def test_a_room_imports_those_before_it_and_nothing_but_chapters_a_chapter(path):
    module, needed = module_of(path), ours(path)
    package, room = module.partition(".")[0], room_of(module)
    rooms = ROOMS.get(package, [])
    if room in rooms:  # not a chapter, a package's door, a leaf
        same = {room_of(one) for one in needed if one.partition(".")[0] == package}
        assert same <= {*rooms[: rooms.index(room) + 1], *LEAVES}
    assert module in CHAPTERS or not needed & CHAPTERS


@pytest.mark.parametrize("name", sorted(TORCH_ONLY))
def test_the_mathematics_needs_only_torch(name):
    path = MODULES[name]
    outside = {full.split(".")[0] for full in imports(path)} - set(sys.stdlib_module_names)
    assert outside <= {"torch", BOOK}
    assert ours(path) <= TORCH_ONLY | {f"{BOOK}.config"}  # its choices, which need not even that


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
