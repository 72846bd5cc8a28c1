"""rfs book: a site whose every page works in a browser without a network."""

import base64
import contextlib
import importlib.resources
import io
import re
import sys
import time
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from browser import Browser
from matplotlib.image import imread

from rfs.commands import book
from rfs.commands.cli import main
from tests.conftest import ROOT

pytest.importorskip("sphinx", reason="the extra `book` is not installed")
LOADED = ("stylesheet", "icon", "preload", "modulepreload")  # what a page fetches with <link>


class Page(HTMLParser):
    """What a page has: ids, links, pictures, and what it loads."""

    def __init__(self, file: Path):
        super().__init__()
        self.ids, self.links, self.loads, self.pictures, self.next = set(), [], [], [], None
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.ids |= {values[key] for key in ("id", "name") if values.get(key)}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
            if "right-next" in (values.get("class") or ""):
                self.next = values["href"]
        if tag == "img":
            self.pictures.append((values["src"], values.get("alt")))
        if "src" in values or (tag == "link" and values.get("rel") in LOADED):
            self.loads.append(values.get("src") or values["href"])


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The site's folder, and what was said while it was made."""
    out, said = tmp_path_factory.mktemp("book") / "site", io.StringIO()
    with contextlib.redirect_stderr(said):
        assert main(["book", "--out", str(out)]) == 0
    return out, said.getvalue()


@pytest.fixture(scope="module")
def site(built):
    return built[0]


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Page]:
    return {
        file: Page(file) for file in sorted(site.rglob("*.html")) if "_static" not in file.parts
    }


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


def test_sphinx_has_nothing_to_complain_about(built):
    assert [line for line in built[1].splitlines() if " ..." not in line] == []


def test_every_notebook_and_doc_is_a_page(site):
    sources = [*ROOT.glob("ch0*/*.ipynb"), *ROOT.glob("docs/*.md"), *ROOT.glob("ch0*/README.md")]
    names = [source.relative_to(ROOT).with_suffix(".html") for source in sources]
    assert [name for name in names if not (site / name).is_file()] == []
    assert (site / "playground.html").stat().st_size > 10e6


def test_every_link_and_anchor_leads_somewhere(site, pages):
    broken = defaultdict(list)
    for file, page in pages.items():
        if file.name.startswith("train_iteration_"):
            continue  # of the shipped run, whose other steps' pages are not kept
        for target in [*page.links, *page.loads]:
            parts = urlsplit(target)
            if parts.scheme or target == "#":
                continue
            goal = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            known = goal not in pages or not parts.fragment or parts.fragment in pages[goal].ids
            if not goal.is_file() or not known:
                broken[str(file.relative_to(site))].append(target)
    assert dict(broken) == {}


def test_no_page_loads_anything_from_outside(pages):
    outside = {load for page in pages.values() for load in page.loads if "//" in load[:8]}
    assert outside == set()


def test_every_picture_is_described(site, pages):
    """Where nothing is said, Sphinx puts the picture's address."""
    bare = {
        (str(file.relative_to(site)), source)
        for file, page in pages.items()
        for source, alt in page.pictures
        if not alt or alt == source
    }
    assert bare == set()


def test_one_can_read_from_the_first_page_to_the_last(site, pages):
    read, file = [], site / "index.html"
    while file not in read:
        read.append(file)
        file = (file.parent / (pages[file].next or file.name)).resolve()
    sources = [*ROOT.glob("ch0*/*.ipynb"), *ROOT.glob("docs/*.md")]
    missed = {site / source.relative_to(ROOT).with_suffix(".html") for source in sources} - {*read}
    assert missed == set()


def test_each_notebook_says_how_it_is_opened(site):
    for notebook in ROOT.glob("ch0*/*.ipynb"):
        name = notebook.relative_to(ROOT)
        text = (site / name.with_suffix(".html")).read_text(encoding="utf-8")
        words = re.sub("<[^>]*>", "", text)
        assert f"jupyter lab --notebook-dir . {name.as_posix()}\n" in words


def test_tables_are_tables(site, pages):
    """Those that a cell put out, too."""
    rows = {file.name for file in pages if re.search(r"<p>\s*\|", file.read_text("utf-8"))}
    assert rows == set()


# What is wrong with the page that is open: formulas that were not set, or set with an error.
FORMULAS = """(async () => {
  if (window.MathJax) await MathJax.startup.promise;
  const all = [...document.querySelectorAll(".math")];
  const bare = all.filter((e) => !e.querySelector("mjx-container"));
  const faulty = [...document.querySelectorAll("[data-mjx-error]")];
  return [...bare, ...faulty].map((e) => e.textContent.slice(0, 60));
})()"""


def test_every_page_opens_without_an_error_and_without_a_request(site, pages, browser):
    faults = {}
    for file in pages:
        if file.name != "playground.html":  # tests/program/commands/test_playground.py
            browser.errors.clear()
            browser.open(file)
            found = [*browser.run(FORMULAS), *browser.errors]
            if found:
                faults[str(file.relative_to(site))] = found
    assert faults == {}
    assert {urlsplit(address).scheme for address in browser.addresses} <= {"file", "data", "blob"}


# The rules of axe-core that a page breaks in a serious way, and where. What is framed in it is
# looked at by itself.
SERIOUS = """axe.run({resultTypes: ["violations"], iframes: false})
  .then(({violations}) => violations
  .filter(({impact}) => ["serious", "critical"].includes(impact))
  .map(({id, nodes}) => [id, ...nodes.slice(0, 3).map(({html}) => html.slice(0, 150))]))"""
LOOKED_AT = """
    index.html README.html ch06/ch06_main.html ch07/ch07_turns.html ch07/README.html
    ch08/ch08_main.html
    docs/your_own.html docs/playground/README.html search.html
    reasoning_from_scratch/trainer.py.html ch06/ch06_short.html docs/explore/advantages.html
    docs/explore/clip.html docs/explore/kl.html docs/explore/push.html
""".split()


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_nothing_keeps_people_from_reading(site, browser, mode):
    axe = importlib.resources.files("axe_core_python") / "axe.min.js"
    seen = [{"name": "prefers-color-scheme", "value": mode}]
    browser.send("Emulation.setEmulatedMedia", features=seen)
    faults = {}
    for name in LOOKED_AT:
        browser.open(site / name)
        if "explore" not in name:  # those take their colors from the system, by themselves
            browser.run(FORMULAS)
            assert browser.run("document.documentElement.dataset.theme") == mode
        browser.run(axe.read_text(encoding="utf-8") + ";0")
        if found := browser.run(SERIOUS):
            faults[name] = found
    assert faults == {}


def test_a_phone_shows_whole_lines(site, browser):
    """Code and tables may scroll in their boxes; the page itself does not."""
    browser.send(
        "Emulation.setDeviceMetricsOverride",
        **{"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True},
    )
    wide = {}
    for file in (*site.glob("*.html"), *site.glob("ch0*/*.html"), *site.glob("docs/*.html")):
        if file.name != "playground.html":
            browser.open(file)
            browser.run(FORMULAS)
            width = browser.run("document.documentElement.scrollWidth")
            if width > 390:
                wide[str(file.relative_to(site))] = width
    browser.send("Emulation.clearDeviceMetricsOverride")
    assert wide == {}


def test_search_finds_pages_on_the_disk(site, browser):
    browser.errors.clear()
    browser.send("Page.navigate", url=(site / "search.html").as_uri() + "?q=advantage")
    browser.wait("document.querySelectorAll('ul.search li').length > 3")
    assert browser.errors == []
    links = "[...document.querySelectorAll('ul.search a')].map((a) => a.href.split('#')[0])"
    found = browser.run(links)
    assert len(found) == len(set(found))  # each page once
    with_excerpt = browser.run("document.querySelectorAll('ul.search li:has(mark)').length")
    assert with_excerpt > len(found) / 2  # the others have it in code only
    excerpt = "document.querySelector('ul.search .context').textContent"
    assert "advantage" in browser.run(excerpt).lower() and len(browser.run(excerpt)) < 500
    browser.send("Page.navigate", url=(site / "search.html").as_uri() + "?q=<img src=x>qwertz")
    status = "typeof Search === 'object' && (Search.status?.textContent ?? '')"
    browser.wait(f"({status}).startsWith?.('No page has it')")
    assert not browser.run("document.querySelector('#search-results img')")


def test_nobody_is_named_as_an_author_that_is_not_set(site, pages):
    assert [file for file in pages if "Author name not set" in file.read_text("utf-8")] == []


def test_the_first_page_begins_with_what_training_changes(site, browser):
    screen = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.send("Emulation.setDeviceMetricsOverride", **screen)
    browser.open(site / "index.html")
    bottom = "document.querySelector('.pair').getBoundingClientRect().bottom"
    assert browser.run(bottom) <= 900
    browser.send("Emulation.clearDeviceMetricsOverride")


def test_commands_fit_a_phone(site, browser):
    screen = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    browser.send("Emulation.setDeviceMetricsOverride", **screen)
    browser.open(site / "README.html")
    boxes = "[...document.querySelectorAll('.highlight-bash pre')]"
    assert browser.run(f"{boxes}.length") >= 4
    assert browser.run(f"{boxes}.filter((box) => box.scrollWidth > box.clientWidth).length") == 0
    browser.open(site / "ch08/ch08_main.html")  # a wide table scrolls, its rows keep their names
    name = "document.querySelector('.cell_output tbody th')"
    assert browser.run(f"getComputedStyle({name}).position") == "sticky"
    browser.send("Emulation.clearDeviceMetricsOverride")


def test_a_table_that_goes_on_says_so(site, browser):
    """Until one has scrolled to its end."""
    screen = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.send("Emulation.setDeviceMetricsOverride", **screen)
    for name, selector in (
        ("ch08/ch08_main.html", ".cell_output .output"),
        ("ch07/README.html", ".pst-scrollable-table-container"),
    ):
        browser.open(site / name)
        wide = f"[...document.querySelectorAll('{selector}')]"
        wide += ".filter((box) => box.querySelector('table') && box.scrollWidth > box.clientWidth)"
        browser.run(f"table = {wide}[0]; hint = table.previousElementSibling; 0")
        shown = "hint.checkVisibility({visibilityProperty: true})"
        assert browser.run("hint.textContent") == "the table goes on to the right →"
        assert browser.run(shown) and browser.run("table.className").endswith("fades")
        browser.run("table.scrollLeft = 9999")
        browser.wait(f"!{shown} && !table.classList.contains('fades')")
    bare = "[...document.querySelectorAll('.goes-on')].filter((hint) => hint.checkVisibility() && "
    bare += "hint.nextElementSibling.scrollWidth <= hint.nextElementSibling.clientWidth).length"
    assert browser.run(bare) == 0  # where the whole table is in sight
    browser.send("Emulation.clearDeviceMetricsOverride")


def brightness(browser, frame: str) -> float:
    """Of the corner of a frame in the page, from 0 to 1."""
    browser.run(f"{frame}.scrollIntoView()")
    at = f"(({{x, y}}) => [x + scrollX, y + scrollY])({frame}.getBoundingClientRect())"
    box = browser.run(at)
    clip = {"x": box[0] + 4, "y": box[1] + 4, "width": 8, "height": 8, "scale": 1}
    picture = browser.send("Page.captureScreenshot", clip=clip)["data"]
    return imread(io.BytesIO(base64.b64decode(picture)))[..., :3].mean()


def test_a_framed_page_follows_the_button_for_dark(site, browser):
    """And not the reader's system, which is light here."""
    light = [{"name": "prefers-color-scheme", "value": "light"}]
    browser.send("Emulation.setEmulatedMedia", features=light)
    browser.open(site / "ch06/ch06_main.html")
    frame = "document.querySelector('iframe.explorable')"
    browser.run(f"{frame}.loading = 'eager'")
    for theme, dark in (("dark", True), ("light", False), ("dark", True)):
        browser.run(f"document.documentElement.dataset.theme = '{theme}'; {frame}.scrollIntoView()")
        deadline = time.monotonic() + 20
        while (brightness(browser, frame) < 0.5) != dark:
            assert time.monotonic() < deadline, theme
            time.sleep(0.1)
    browser.send("Emulation.setEmulatedMedia", features=[])


def test_the_way_back_to_the_book(site, pages):
    assert "index.html" in pages[site / "playground.html"].links
    for file in (site / "docs/explore").glob("*.html"):
        assert "../../index.html" in pages[file].links


def test_on_paper_there_is_the_text_alone(site, browser):
    browser.open(site / "docs/your_own.html")
    browser.send("Emulation.setEmulatedMedia", media="print")
    shown = "(name) => [...document.querySelectorAll(name)].some((e) => e.offsetParent !== null)"
    assert browser.run(f"({shown})('article p')")
    assert not browser.run(
        f"({shown})('.bd-sidebar-primary, .bd-sidebar-secondary, .prev-next-area')"
    )
    browser.send("Emulation.setEmulatedMedia", media="")


# --- mistakes ---


def test_a_folder_with_something_else_is_left_alone(tmp_path, capsys):
    (tmp_path / "index.html").write_text("mine")
    assert main(["book", "--out", str(tmp_path)]) == 2
    assert "choose another folder with --out" in capsys.readouterr().err
    assert (tmp_path / "index.html").read_text() == "mine"


def test_what_is_missing_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "sphinx.application", None)
    assert main(["book", "--out", str(tmp_path / "site")]) == 2
    assert "uv run --extra book rfs book" in capsys.readouterr().err
    monkeypatch.setattr(book, "ROOT", tmp_path)
    assert main(["book"]) == 2
    assert "run this in a clone" in capsys.readouterr().err
