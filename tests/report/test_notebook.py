"""What the chapter notebooks display: source code and shaded tokens."""

import math
import re

import IPython.display
import pytest
from report_groups import ByteTokenizer

from reasoning_from_scratch.report.notebook import show_source, show_tokens, tokens_html


@pytest.fixture
def displayed(monkeypatch):
    shown = []
    monkeypatch.setattr(IPython.display, "display", lambda thing: shown.append(thing.data))
    return shown


def doubled(number):
    """Twice as much."""
    return 2 * number


def test_source_is_shown_as_it_stands(displayed):
    show_source(doubled)
    assert displayed == [
        '```python\ndef doubled(number):\n    """Twice as much."""\n    return 2 * number\n```'
    ]


def test_the_less_probable_a_token_was_the_darker_it_is():
    page = tokens_html(ByteTokenizer(), list(b"abc"), [0.0, math.log(0.4), -50.0])
    assert re.findall(r"217, 119, 6, ([0-9.]+)", page) == ["0.00", "0.45", "0.75"]
    assert re.findall(r"probability ([0-9.]+)", page) == ["1.000", "0.400", "0.000"]
    assert re.findall(r">(.)</span>", page) == ["a", "b", "c"]


def test_markup_and_line_ends_are_shown(displayed):
    show_tokens(ByteTokenizer(), list(b"<\n"), [-1.0, -1.0])
    (page,) = displayed
    assert ">&lt;</span>" in page and ">↵<br></span>" in page
    assert page.count("<span") == 2


def test_a_probability_for_every_token():
    with pytest.raises(ValueError, match="shorter"):
        tokens_html(ByteTokenizer(), [1, 2], [-1.0])
