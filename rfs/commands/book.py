"""`rfs book`: the notebooks and pages as a website that opens from disk, without a network."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.disk import disk_errors_as
from reasoning_from_scratch.text import visible
from rfs.commands.options import BookOptions, PlaygroundOptions
from rfs.commands.playground import build_page, page_entries
from rfs.evaluation.evaluate import progress_bar

ROOT = Path(__file__).resolve().parents[2]


def book(options: BookOptions) -> int:
    """Writes the site, including the playground. Notebooks keep their stored outputs."""
    if not (ROOT / "docs" / "conf.py").is_file():
        raise UserError("an installed package has no pages; run this in a clone of the repository")
    try:
        from sphinx.application import Sphinx
    except ImportError:
        raise UserError(
            "the site needs Python 3.11 or newer and Sphinx: uv run --extra book rfs book"
        ) from None
    out = Path(options.out)
    if out.exists() and not (out.is_dir() and is_empty_or_a_site(out)):
        raise UserError(f"{out} exists and is not a site; choose another folder with --out")
    print("reading and writing the pages takes about a minute ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        site, pages = Path(folder, "site"), Path(folder, "pages")  # pages: parsed by Sphinx
        sphinx = Sphinx(ROOT, ROOT / "docs", site, pages, "html", status=None, warning=sys.stderr)
        with pages_counted(sphinx):
            sphinx.build()
        page = build_page(page_entries(PlaygroundOptions()), book="index.html")
        (site / "playground.html").write_text(page, encoding="utf-8", newline="\n")
        with disk_errors_as(f"cannot write {out}", "choose another --out"):
            for file in sorted(file for file in site.rglob("*") if file.is_file()):
                target = out / file.relative_to(site)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)
    count = len(sphinx.env.found_docs)
    print(visible(f"{out / 'index.html'}: {count} pages and the playground; open it in a browser"))
    return 0


@contextmanager
def pages_counted(sphinx) -> Iterator[None]:
    """A bar in a terminal of how many pages have been read, then written."""
    if not sys.stderr.isatty():
        yield
        return
    bar = progress_bar(0, label="pages", unit="page")

    def set_total(app, environment, names: list[str]) -> None:
        bar.total = 2 * len(names)

    sphinx.connect("env-before-read-docs", set_total)
    for event in ("doctree-read", "html-page-context"):
        sphinx.connect(event, lambda *about: bar.update())
    with bar:
        yield


def is_empty_or_a_site(folder: Path) -> bool:
    """Whether a folder is empty or holds a site of ours; other files are never overwritten."""
    return not any(folder.iterdir()) or (folder / "searchindex.js").is_file()
