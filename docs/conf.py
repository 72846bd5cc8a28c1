"""How Sphinx makes the book's site of notebooks and pages; `rfs book` starts it.

Nothing is executed: notebooks are shown with the outputs that are stored in them. What Sphinx does
not know stands below: how a page is run, where links to files lead, and what a picture shows.
"""

import ast
import json
import re
import shutil
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from posixpath import normpath

from docutils import nodes
from sphinx.addnodes import download_reference, pending_xref
from sphinx.util.osutil import relative_uri

from rfs.commands.playground import engine_script

ROOT = Path(__file__).resolve().parents[1]
ADDRESS = re.search(r'^Repository = "(.*)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.M)

project = "Reasoning from scratch"
html_title = project
language = "en"
author = ""  # otherwise Sphinx names one on every page
root_doc = "index"
include_patterns = """
    index.md README.md CHANGELOG.md CONTRIBUTING.md ch0*/*.ipynb ch0*/README.md
    ch08/probes.md ch08/smollm2.md ch08/adapter/README.md docs/*.md docs/playground/README.md
    benchmarks/README.md studies/README.md
    checkpoints/README.md checkpoints/tiny-*/README.md checkpoints/qwen-*/README.md
    answer_grader/README.md tests/faults/README.md
""".split()
exclude_patterns = [".*", "runs", "book"]

extensions = ["myst_nb"]
nb_execution_mode = "off"
nb_merge_streams = True
nb_render_markdown_format = "myst"  # outputs are written in the same Markdown as cells: tables
nb_ipywidgets_js = {}  # they would be fetched from outside; a stored bar has its text too
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]
myst_enable_extensions = ["dollarmath", "colon_fence", "attrs_inline"]
myst_heading_anchors = 4  # as on GitHub: a heading in small letters, with - for spaces

html_theme = "sphinx_book_theme"
html_context = {"default_mode": "auto"}  # dark where the reader's system is
html_theme_options = {
    "show_toc_level": 1,
    "navbar_persistent": [],
    "content_footer_items": [],  # there is no one author, and no date
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
if ADDRESS:
    html_theme_options |= {"repository_url": ADDRESS[1], "repository_branch": "main"}
    html_theme_options["use_repository_button"] = True
    html_theme_options["launch_buttons"] = {"colab_url": "https://colab.research.google.com"}
# MathJax in one file, fonts included: browsers do not read fonts beside a page on the disk.
mathjax_path = "tex-svg.js"
html_static_path = ["site", str(files("sphinx-mathjax-offline") / "static/mathjax/tex-svg.js")]
html_css_files = ["book.css"]
html_js_files = ["frames.js", "tables.js"]
html_show_search_summary = False  # it would fetch the pages; search.js knows their texts
html_use_index = False
html_show_sphinx = False
html_show_copyright = False


# --- How to run a page ---

BOX = """
:::{{admonition}} Run it yourself
:class: run-it
{text}
:::

"""
NOTEBOOK = """\
These outputs were computed earlier and stored. To change a cell and see what happens, open the
notebook in [your clone of the repository](/README.md#run-it):

```bash
uv run --extra notebook jupyter lab --notebook-dir . {path}
```"""
PAGE = """\
Commands on this page are for a terminal in
[your clone of the repository](/README.md#run-it)."""


def say_how_to_run(app, docname, source):
    """A box before the first section of each page, but the two that say it in their text."""
    if docname in (root_doc, "README"):
        return
    path = app.env.doc2path(docname, base=False)
    if path.suffix == ".md":
        text = re.sub(r"^\[!\[Open in Colab\].*\n", "", source[0], flags=re.M)
        source[0] = with_box(text, PAGE)
    else:
        notebook = json.loads(source[0])
        # The buttons for Colab are pictures from outside; the theme has one of its own.
        cells = [cell for cell in notebook["cells"] if not cell["id"].startswith("colab-")]
        first, notebook["cells"] = cells[0], cells
        first["source"] = with_box("".join(first["source"]), NOTEBOOK.format(path=path.as_posix()))
        source[0] = json.dumps(notebook)


def with_box(page, text):
    return re.sub(r"^(?=## )|\Z", BOX.format(text=text), page, count=1, flags=re.M)


# --- Where links to files lead ---

COPIED = {".html", ".csv", ".txt"}  # a browser shows or saves them as they are
LANGUAGES = {".py": "python", ".js": "javascript", ".css": "css", ".yml": "yaml"}
MADE = {"playground.html": "playground.html", "book/index.html": "index.html"}  # by `rfs`, here
EXPLORABLES = "docs/explore"
TEMPLATES = "rfs/report/templates"
TAKEN = ("rfs/playground/grpo.js", f"{TEMPLATES}/percent.js", f"{TEMPLATES}/colors.css")
FRAME = '<iframe class="explorable" loading="lazy" src="{}" title="{}"></iframe>'
linked: set[str] = set()  # from the root


def link_to_files(app, doctree):
    """A link to code leads to a page that shows it, one to another file to a copy of that file."""
    docname = app.env.docname
    for node in [*doctree.findall(download_reference), *doctree.findall(pending_xref)]:
        path = normpath(f"{docname}/../{node['reftarget']}")
        if path not in MADE:
            if not (ROOT / path).is_file():
                continue  # another page; Sphinx knows them
            linked.add(path)
        page = path if Path(path).suffix in COPIED else f"{path}.html"
        here, there = app.builder.get_target_uri(docname), MADE.get(path, page)
        link = nodes.reference("", "", *node.children, refuri=relative_uri(here, there))
        paragraph = node.parent
        node.replace_self(link)
        if path.startswith(EXPLORABLES) and paragraph.astext().startswith("Try it:"):
            html = FRAME.format(link["refuri"], escape(link.astext()))
            place = paragraph.parent.index(paragraph) + 1
            paragraph.parent.insert(place, nodes.raw("", html, format="html"))


def pages_of_code(app):
    """The pages that such links lead to."""
    for name in sorted(linked):
        path, copy = ROOT / name, Path(app.outdir, name)
        if path.suffix == ".html":  # a run's report, which leads to the files beside it
            shutil.copytree(path.parent, copy.parent, dirs_exist_ok=True)
        elif path.suffix in COPIED:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        else:
            code, language = path.read_text("utf-8"), LANGUAGES.get(path.suffix, "text")
            shown = app.builder.highlighter.highlight_block(code, language, force=True)
            box = f'<div class="highlight-{language} notranslate">{shown}</div>'
            body = f"<h1><code>{escape(name)}</code></h1>{box}"
            yield name, {"title": name, "body": body}, "page.html"


def copy_explorables(app, error):
    """Pages in which an idea can be dragged around: each alone, and framed where a chapter says
    "Try it". They take some files of other pages, and here chapters are pages."""
    if error:
        return
    folder = Path(app.outdir, EXPLORABLES)
    shutil.copytree(ROOT / EXPLORABLES, folder, dirs_exist_ok=True)
    for page in folder.glob("*.html"):
        text = page.read_text("utf-8").replace(".ipynb", ".html")
        page.write_text(text.replace("../../index.md", "../../index.html"), "utf-8")
    for name in TAKEN:
        goal = Path(app.outdir, name)
        goal.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, goal)
    (folder / "engine.js").write_text(engine_script(), "utf-8")


# --- What the search shows of a page ---


def bring_texts_to_search(app, pagename, templatename, context, doctree):
    """The page for searching, and no other, gets all texts and the script that shows them."""
    if pagename == "search":
        for name in ("texts.js", "search.js"):
            app.add_js_file(name, loading_method="defer")


def write_texts(app, error):
    """The paragraphs of each page, for the excerpts that search.js shows: a browser reads no other
    page from the disk."""
    if error:
        return
    texts = {}
    for name in sorted(app.env.found_docs):
        found = app.env.get_doctree(name).findall(nodes.paragraph)
        texts[name] = [" ".join(node.astext().split()) for node in found]
    file = Path(app.outdir, "_static", "texts.js")
    file.write_text(f"const TEXTS = {json.dumps(texts, ensure_ascii=False)};\n", "utf-8")


# --- What a picture shows, for those who cannot see it ---


def describe_pictures(app, doctree):
    """A notebook's picture is described by its section and, if it has a docstring, by the function
    that drew it."""
    about = {}
    places = ("ch0*", "studies", "rfs/report")
    for file in sorted(path for place in places for path in ROOT.glob(f"{place}/*.py")):
        about |= docstrings(file.read_text("utf-8"))
    for cell in doctree.findall(nodes.container):
        if cell.get("nb_element") != "cell_code":
            continue
        code = next(cell.findall(nodes.literal_block)).astext()
        about |= docstrings(code)
        called = [name for name in re.findall(r"(\w+)\(", code) if name in about]
        section = cell.parent.next_node(nodes.title).astext()
        text = f"{section}. {about[called[-1]]}" if called else section
        for image in cell.findall(nodes.image):
            if "alt" not in image:
                image["alt"] = text.replace("`", "")


@cache
def docstrings(code):
    """The first paragraph of what each function of some code says of itself."""
    code = re.sub("^ *[%!].*", "", code, flags=re.M)  # what only IPython understands
    found = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)]
    texts = {node.name: ast.get_docstring(node) or "" for node in found}
    return {name: " ".join(text.split("\n\n")[0].split()) for name, text in texts.items() if text}


def setup(app):
    app.connect("source-read", say_how_to_run)
    app.connect("doctree-read", link_to_files, priority=100)  # before Sphinx collects downloads
    app.connect("doctree-read", describe_pictures)
    app.connect("html-collect-pages", pages_of_code)
    app.connect("html-page-context", bring_texts_to_search)
    app.connect("build-finished", copy_explorables)
    app.connect("build-finished", write_texts)
