"""What README and the pages beside it say about the code is still so.

`python tests/test_readme.py` writes README's map anew, and the repository's address wherever it
stands, from pyproject.toml.
"""

import ast
import json
import re
from importlib import import_module
from pathlib import Path

import pytest
from test_structure import ROOMS

import reasoning_from_scratch
from reasoning_from_scratch.report.glossary import metrics_glossary

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "reasoning_from_scratch"
LOOP = """
    qwen3 tokenizer problems sampling rewards advantages logprobs losses rollouts trainer recipes
    config
""".split()
PAGES = [
    path
    for pattern in ("*.md", "docs/*.md", "*/README.md", "reasoning_from_scratch/*/README.md")
    for path in sorted(ROOT.glob(pattern))
]
NOTEBOOKS = sorted(ROOT.glob("ch0*/*.ipynb"))
WITH_ADDRESS = [ROOT / "CITATION.cff", *sorted(ROOT.glob("ch0*/README.md")), *NOTEBOOKS]
ADDRESS = re.compile(r"(?:(?<=github\.com/)|(?<=\.com/github/))[\w.-]+/reasoning-from-scratch\b")


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


README = text_of(ROOT / "README.md")


def test_the_metrics_glossary_is_the_one_in_the_code():
    _, shown = text_of(ROOT / "docs" / "metrics.md").split("<!-- metrics glossary:", 1)
    shown = shown.split("-->", 1)[1].split("<!-- end of metrics glossary -->")[0]
    assert shown.strip() == metrics_glossary()


def short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def headings(path: Path) -> set[str]:
    """The anchors of a page: its headings in small letters, with - for spaces."""
    found = re.findall(r"^#+ (.*)$", text_of(path), flags=re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in found}


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", text_of(page)):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        assert not anchor or anchor in headings(file), target


def test_the_map_is_what_ls_shows():
    assert shown_map(README) == package_map()


def shown_map(text: str) -> str:
    return text.split("<!-- the map -->")[1].split("<!-- end of the map -->")[0].strip()


def package_map() -> str:
    """What `ls` shows of the package, the loop first, each with the first line of its docstring."""
    rows = [("", "-- the loop, in the order in which to read it")]
    rows += [(f"{name}.py", about(PACKAGE / f"{name}.py")) for name in LOOP]
    rows += [("", "-- rooms around it")]
    rooms = sorted(path.parent for path in PACKAGE.glob("*/__init__.py"))
    rows += [(f"{room.name}/", about(room / "__init__.py")) for room in rooms]
    rows += [("", "-- the book, and what all may use")]
    rest = sorted(set(PACKAGE.glob("*.py")) - {PACKAGE / f"{name}.py" for name in LOOP})
    rows += [(path.name, about(path)) for path in rest]
    width = max(len(name) for name, _ in rows) + 2
    lines = [f"{name:<{width}}{text}" if name else text for name, text in rows]
    return "\n".join(["```text", *lines, "```"])


def about(path: Path) -> str:
    """The first line of a docstring: of a room's door, or of a module."""
    return ast.get_docstring(ast.parse(text_of(path))).splitlines()[0]


def test_the_picture_shows_files_and_rooms_that_exist():
    picture = text_of(ROOT / "docs" / "architecture.svg")
    shown = " ".join(re.findall(r'class="file"[^>]*>([^<]*)<', picture)).split()
    rooms = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    assert {name for name in shown if name.endswith("/")} == rooms
    assert [name for name in shown if not (PACKAGE / name).exists()] == []


def test_the_picture_shows_rooms_in_the_order_of_their_imports():
    tower = text_of(ROOT / "docs" / "architecture.svg").split("Who may import whom")[1]
    shown = re.findall(r">(\w+)/<", tower)
    assert shown == [room for room in ROOMS if room != "loop"]


def test_what_the_changelog_sends_people_to_exists():
    unreleased = text_of(ROOT / "CHANGELOG.md").split("## 0.1.0")[0]
    targets = re.findall(r"^\| .* \| (.*) \|$", unreleased, flags=re.M)[1:]
    names = [name for cell in targets for name in re.findall(r"`([\w.]+)`", cell)]
    assert len(names) > 30
    for name in names:
        module = PACKAGE / name.replace(".", "/")
        where, _, last = name.rpartition(".")
        whole = module.with_suffix(".py").exists()
        assert whole or hasattr(import_module(f"reasoning_from_scratch.{where}"), last), name


@pytest.mark.parametrize("name", reasoning_from_scratch._LIVES_IN)
def test_what_a_script_needs_most_can_be_imported(name):
    assert callable(getattr(reasoning_from_scratch, name))


def address() -> str:
    """OWNER/NAME on GitHub, from pyproject.toml."""
    project = text_of(ROOT / "pyproject.toml")
    return re.search(r'^Repository = "https://github.com/(.*)"$', project, flags=re.M)[1]


@pytest.mark.parametrize("path", WITH_ADDRESS, ids=short)
def test_the_address_is_that_of_pyproject(path):
    assert set(ADDRESS.findall(text_of(path))) == {address()}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=short)
def test_the_button_opens_this_notebook_and_fetches_its_folder(path):
    first, second = json.loads(text_of(path))["cells"][:2]
    assert f"colab.research.google.com/github/{address()}/blob/main/{short(path)}" in "".join(
        first["source"]
    )
    assert f'"cd", "book/{path.parent.name}"' in "".join(second["source"])


if __name__ == "__main__":
    README = README.replace(shown_map(README), package_map())
    (ROOT / "README.md").write_text(README, encoding="utf-8")
    for path in WITH_ADDRESS:
        path.write_text(ADDRESS.sub(address(), text_of(path)), encoding="utf-8")
