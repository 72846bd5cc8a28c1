"""The pages' frame: templates that escape everything; no script but ours may run."""

import base64
import functools
import hashlib
import os
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from reasoning_from_scratch.text import percent, percent_range, shorten, visible

from .palette import colors_css


def _make_visible(value):
    """Runs on every value a template prints, before it is escaped."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@functools.cache
def templates(package: str, folder: str = "templates") -> Environment:
    """The templates in a package's folder, with the filters and the style that all pages share."""
    environment = Environment(
        loader=PackageLoader(package, folder),
        autoescape=True,
        finalize=_make_visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    unbroken_percent = {"percent": lambda share: percent(share).replace(" ", "\u00a0")}
    environment.filters |= {"shorten": shorten, "token_name": token_name, **unbroken_percent}
    environment.globals |= {"percent_range": percent_range, "style": Markup(page_style())}
    return environment


@functools.cache
def asset(name: str) -> str:
    return (files("rfs.report") / "templates" / name).read_text("utf-8")


def content_policy(script: str) -> str:
    """Nothing is loaded from anywhere, and no script runs but the one with this hash."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        f"connect-src 'none'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def token_name(text: str) -> str:
    """A token on its own, with its spaces and line ends visible."""
    return text.replace(" ", "␣").replace("\n", "↵").replace("\t", "⇥")


def page_style() -> str:
    """The style of all our pages: the colors, and how everything looks."""
    return colors_css() + asset("style.css")


def render(template: str, script: str, **values) -> str:
    """A self-contained page: style and script are written into it."""
    code = asset("percent.js") + asset(script)
    return (
        templates("rfs.report")
        .get_template(template)
        .render(
            script=Markup(code),
            policy=content_policy(code),
            **values,
        )
    )


def write_unsynced(path: Path, text: str) -> None:
    """Write beside, then rename: a reader never sees half a file.

    Unlike disk.write_atomically it does not wait for the disk. Waiting would cost more than all
    else in a report, and what a power cut destroys is written again when its step is repeated.
    """
    # The run and `rfs report` may write the same page at the same time.
    partial = path.with_name(f".{path.name[:200]}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8", newline="\n")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)  # half a file, if the disk is full
