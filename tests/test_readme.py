"""What the README says about the code is still so."""

import ast
import re
from pathlib import Path

from reasoning_from_scratch.report.glossary import metrics_glossary

ROOT = Path(__file__).parents[1]
LOOP = """
    qwen3 tokenizer problems sampling rewards advantages logprobs losses rollouts trainer recipes
    config
""".split()
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_metrics_glossary_is_the_one_in_the_code():
    _, shown = README.split("<!-- metrics glossary:", 1)
    shown = shown.split("-->", 1)[1].split("<!-- end of metrics glossary -->")[0]
    assert shown.strip() == metrics_glossary()


def test_links_lead_to_files():
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert len(targets) > 10
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_map_is_what_ls_shows():
    """`python tests/test_readme.py` writes it anew."""
    assert shown_map(README) == package_map()


def shown_map(text: str) -> str:
    return text.split("<!-- the map -->")[1].split("<!-- end of the map -->")[0].strip()


def package_map() -> str:
    """What `ls` shows of the package, the loop first, each with the first line of its docstring."""
    package = ROOT / "reasoning_from_scratch"
    rows = [("", "-- the loop, in the order in which to read it")]
    rows += [(f"{name}.py", about(package / f"{name}.py")) for name in LOOP]
    rows += [("", "-- rooms around it")]
    rooms = sorted(path.parent for path in package.glob("*/__init__.py"))
    rows += [(f"{room.name}/", about(room / "__init__.py")) for room in rooms]
    rows += [("", "-- the book, and what all may use")]
    rest = sorted(set(package.glob("*.py")) - {package / f"{name}.py" for name in LOOP})
    rows += [(path.name, about(path)) for path in rest]
    width = max(len(name) for name, _ in rows) + 2
    lines = [f"{name:<{width}}{text}" if name else text for name, text in rows]
    return "\n".join(["```text", *lines, "```"])


def about(path: Path) -> str:
    """The first line of a docstring: of a room's door, or of a module."""
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))).splitlines()[0]


if __name__ == "__main__":
    old = shown_map(README)
    (ROOT / "README.md").write_text(README.replace(old, package_map()), encoding="utf-8")
