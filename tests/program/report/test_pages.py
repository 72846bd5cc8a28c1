"""The frame of the pages: one script may run, files are whole."""

import base64
import hashlib
import os

import pytest

from rfs.report.pages import render, write_unsynced
from tests.program.report.written import Page


def test_only_the_script_of_the_page_may_run():
    page = Page(render("frame.html", "run.js"))
    (script,) = page.texts("script")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [a["content"] for tag, a, _ in page.elements if "http-equiv" in a]
    assert f"script-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';") and "connect-src 'none';" in policy


# ---- files


def test_a_page_replaces_the_one_before(tmp_path):
    page = tmp_path / ("x" * 240 + ".html")  # as long as names may be
    for text in ("old\n", "new ✓\n"):
        write_unsynced(page, text)
        assert page.read_bytes() == text.encode()
    assert list(tmp_path.iterdir()) == [page]


@pytest.mark.parametrize("fails", ["writing", "renaming"])
def test_a_page_that_could_not_be_written_leaves_the_one_before(tmp_path, monkeypatch, fails):
    page = tmp_path / "report.html"
    page.write_text("old")
    text = "new"
    if fails == "writing":
        text = "half\ud800"  # no UTF-8 for that
    else:

        def full(*_):
            raise OSError("no room")

        monkeypatch.setattr(os, "replace", full)
    with pytest.raises((OSError, UnicodeEncodeError)):
        write_unsynced(page, text)
    assert page.read_text() == "old"
    assert list(tmp_path.iterdir()) == [page]
