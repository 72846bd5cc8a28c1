"""The notebooks and the package hold one copy of every idea.

A function or class at the top level of a notebook cell whose name exists in the package must
have the package's text to the letter, comments and decorators included. Any other name ends in
`_draft` (an attempt that is improved a few cells later) or begins with `plot_` or `show_`.

    python tests/book/notebook_mirror.py          names what differs, and fails
    python tests/book/notebook_mirror.py --fix    rewrites those cells from the package
"""

import ast
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK_ONLY_PREFIXES, NOTEBOOK_ONLY_SUFFIX = ("plot_", "show_"), "_draft"
Definition = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def definitions(source):
    """(name, first line, last line) of each top-level definition; lines count from 0."""
    found = []
    for node in ast.parse(source).body:
        if isinstance(node, Definition):
            first = min([node.lineno] + [d.lineno for d in node.decorator_list]) - 1
            found.append((node.name, first, node.end_lineno))
    return found


def package_texts(package=ROOT / "reasoning_from_scratch"):
    """name -> {module: text of its definition} over the whole package."""
    texts = {}
    for path in sorted(package.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        lines = source.splitlines()
        for name, first, last in definitions(source):
            module = path.relative_to(package).as_posix()
            texts.setdefault(name, {})[module] = "\n".join(lines[first:last])
    return texts


def python_of(cell):
    """The cell's source with magics and shell lines blanked, so that it parses."""
    lines = "".join(cell["source"]).splitlines()
    return ["" if line.lstrip().startswith(("%", "!")) else line for line in lines]


def check_cell(cell, texts):
    """(complaints, the source that the cell should have)."""
    complaints, lines = [], "".join(cell["source"]).splitlines()
    for name, first, last in reversed(definitions("\n".join(python_of(cell)))):
        shown = "\n".join(lines[first:last])
        if name.startswith(NOTEBOOK_ONLY_PREFIXES) or name.endswith(NOTEBOOK_ONLY_SUFFIX):
            if name in texts:
                complaints.append(f"{name} is a notebook-only name, but the package has it")
        elif name not in texts:
            complaints.append(f"{name} is not in the package: end its name in _draft")
        elif shown not in texts[name].values():
            complaints.append(f"{name} differs from the package's")
            lines[first:last] = next(iter(texts[name].values())).splitlines()
    return complaints, "\n".join(lines)


def notebooks():
    """The chapters' texts; exercises and solutions define functions of the reader's own."""
    return sorted([*ROOT.glob("ch0*/ch0*_main.ipynb"), ROOT / "ch07" / "ch07_turns.ipynb"])


def check_notebook(path, texts, fix=False):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    complaints = []
    for index, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] != "code" or "solution" in cell["metadata"].get("tags", []):
            continue
        found, wanted = check_cell(cell, texts)
        complaints += [f"{path.name}, cell {index}: {complaint}" for complaint in found]
        if fix and wanted != "".join(cell["source"]).rstrip("\n"):
            cell["source"] = wanted.splitlines(keepends=True)
    if fix and complaints:
        text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
        path.write_text(text, encoding="utf-8")
    return complaints


def main():
    texts = package_texts()
    fix = "--fix" in sys.argv[1:]
    complaints = [c for path in notebooks() for c in check_notebook(path, texts, fix)]
    print("\n".join(complaints) or "The notebooks show what the package runs.")
    return 1 if complaints and not fix else 0


if __name__ == "__main__":
    sys.exit(main())
