"""What README and the pages beside it say about the code is still so.

`python tests/test_readme.py` writes the map in docs/architecture.md anew, and what needs the
repository's address, the Colab buttons first of all, from pyproject.toml; while it has none there
are no buttons.
"""

import ast
import json
import re
from importlib import import_module
from pathlib import Path

import pytest

import reasoning_from_scratch
import rfs

ROOT = Path(__file__).parents[1]
BOOK, PROGRAM, GRADER = (ROOT / name for name in ("reasoning_from_scratch", "rfs", "answer_grader"))
MAP = ROOT / "docs" / "architecture.md"
LOOP = """
    qwen3 tokenizer problems sampling rewards advantages logprobs losses rollouts policy trainer
    recipes config
""".split()
PAGES = [
    path for pattern in ("*.md", "docs/*.md", "*/README.md") for path in sorted(ROOT.glob(pattern))
]
NOTEBOOKS = sorted(ROOT.glob("ch0*/*.ipynb"))
WITH_ADDRESS = [ROOT / "CITATION.cff", *sorted(ROOT.glob("ch0*/README.md")), *NOTEBOOKS]


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


README = text_of(ROOT / "README.md")
PYPROJECT = ROOT / "pyproject.toml"


def short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def headings(path: Path) -> set[str]:
    """The anchors of a page: its headings in small letters, with - for spaces."""
    found = re.findall(r"^#+ (.*)$", text_of(path), flags=re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in found}


# What a reader's own command writes; README says which command.
WRITTEN = {"playground.html": "uv run rfs playground", "book/index.html": "rfs book"}


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", text_of(page)):
        if target in WRITTEN and page.parent == ROOT:
            assert WRITTEN[target] in README
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        assert not anchor or anchor in headings(file), target


def test_the_map_is_what_ls_shows():
    assert shown_map(text_of(MAP)) == house_map()


def shown_map(text: str) -> str:
    return text.split("<!-- the map -->")[1].split("<!-- end of the map -->")[0].strip()


def house_map() -> str:
    """What `ls` shows of the packages, the loop first; of each file the first line."""
    loop = [BOOK / f"{name}.py" for name in LOOP]
    chapters = sorted([*BOOK.glob("ch0*.py"), BOOK / "appendix_f.py", BOOK / "utils.py"])
    rest = sorted(set(BOOK.glob("*.py")) - {*loop, *chapters})
    shelves = {
        "reasoning_from_scratch: the loop, in the order in which to read it": loop,
        "its rooms": rooms_of(BOOK),
        "what readers use, and what all may use": rest,
        "the chapters' functions": chapters,
        "answer_grader": [GRADER / "verdict.py"],
        "rfs": [*rooms_of(PROGRAM), *sorted(PROGRAM.glob("*.py"))],
    }
    rows = []
    for title, paths in shelves.items():
        rows += [
            ("", f"-- {title}"),
            *((path.name + "/" * path.is_dir(), about(path)) for path in paths),
        ]
    width = max(len(name) for name, _ in rows) + 2
    lines = [f"{name:<{width}}{text}" if name else text for name, text in rows]
    return "\n".join(["```text", *lines, "```"])


def rooms_of(package: Path) -> list[Path]:
    return sorted(path.parent for path in package.glob("*/__init__.py"))


def about(path: Path) -> str:
    """The first line of a docstring: of a room's door, or of a module."""
    path = path / "__init__.py" if path.is_dir() else path
    return ast.get_docstring(ast.parse(text_of(path))).splitlines()[0]


def test_the_picture_shows_files_and_rooms_that_exist():
    picture = text_of(ROOT / "docs" / "architecture.svg")
    shown = " ".join(re.findall(r'class="file"[^>]*>([^<]*)<', picture)).split()
    rooms = {f"{path.name}/" for package in (BOOK, PROGRAM) for path in rooms_of(package)}
    assert {name for name in shown if name.endswith("/")} == {*rooms, "answer_grader/"}
    for name in shown:
        assert any((place / name).exists() for place in (ROOT, BOOK, PROGRAM)), name


def test_what_the_changelog_sends_people_to_exists():
    unreleased = text_of(ROOT / "CHANGELOG.md").split("## 0.1.0")[0]
    targets = re.findall(r"^\| .* \| (.*) \|$", unreleased, flags=re.M)[1:]
    names = [name for cell in targets for name in re.findall(r"`([\w.]+)`", cell)]
    assert names
    for name in names:
        whole = name if name.startswith("rfs.") else f"reasoning_from_scratch.{name}"
        where, _, last = whole.rpartition(".")
        file = ROOT / whole.replace(".", "/")
        assert file.with_suffix(".py").exists() or hasattr(import_module(where), last), name


@pytest.mark.parametrize("package", [reasoning_from_scratch, rfs])
def test_what_a_script_needs_most_can_be_imported(package):
    assert all(callable(getattr(package, name)) for name in package._LIVES_IN)


def address() -> str | None:
    """OWNER/NAME on GitHub, from pyproject.toml; None while there is no such place."""
    project = text_of(PYPROJECT)
    found = re.search(r'^Repository = "https://github.com/(.*)"$', project, flags=re.M)
    return found and found[1]


BUTTON = (
    "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
    "(https://colab.research.google.com/github/{address}/blob/main/{notebook})"
)
INSTALL = """import sys

if "google.colab" in sys.modules:  # it opens this page alone: fetch all
    shell = get_ipython()
    address = "https://github.com/{address}"
    shell.system(f"git clone -q --depth 1 {{address}} book")
    shell.run_line_magic("cd", "book/{folder}")
    shell.run_line_magic("pip", "install -q ..")"""


def addressed(path: Path, text: str, address: str | None) -> str:
    """A file with the buttons and links that lead to `address`; without any where there is none."""
    if path.suffix == ".cff":
        text = re.sub("^repository-code:.*\n", "", text, flags=re.M)
        line = f"repository-code: https://github.com/{address}\n" if address else ""
        return re.sub("(^license:.*\n)", rf"\1{line}", text, flags=re.M)
    if path.suffix == ".md":
        title, _, rest = text.partition("\n\n")
        rest = rest.partition("\n\n")[2] if rest.startswith("[![Open in Colab]") else rest
        main = f"{path.parent.name}/{path.parent.name}_main.ipynb"
        button = BUTTON.format(address=address, notebook=main)
        return "\n\n".join([title, button, rest] if address else [title, rest])
    notebook = json.loads(text)
    cells = [cell for cell in notebook["cells"] if not cell["id"].startswith("colab-")]
    if address:
        button = BUTTON.format(address=address, notebook=short(path))
        button += " On your own machine the next cell does nothing."
        install = INSTALL.format(address=address, folder=path.parent.name)
        empty = {"execution_count": None, "outputs": []}
        cells = [
            {"cell_type": "markdown", "id": "colab-button", "metadata": {}} | lines(button),
            {"cell_type": "code", "id": "colab-install", "metadata": {}} | empty | lines(install),
            *cells,
        ]
    return json.dumps(notebook | {"cells": cells}, indent=1, ensure_ascii=False) + "\n"


def lines(text: str) -> dict[str, list[str]]:
    return {"source": text.splitlines(keepends=True)}


@pytest.mark.parametrize("path", WITH_ADDRESS, ids=short)
def test_the_address_is_that_of_pyproject_or_nowhere(path):
    text = text_of(path)
    assert addressed(path, text, address()) == text
    assert "github.com/OWNER" not in text and "github.com/OWNER" not in text_of(PYPROJECT)


if __name__ == "__main__":
    MAP.write_text(text_of(MAP).replace(shown_map(text_of(MAP)), house_map()), encoding="utf-8")
    for path in WITH_ADDRESS:
        path.write_text(addressed(path, text_of(path), address()), encoding="utf-8")
