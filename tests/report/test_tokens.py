"""Tokens shaded by their probability, and characters split between tokens."""

from html.parser import HTMLParser

import pytest
from report_groups import ByteTokenizer

from reasoning_from_scratch.report.tokens import Shader, TokenTexts


class Page(HTMLParser):
    """Collects (tag, attributes, text directly inside) in document order."""

    def __init__(self, html: str):
        super().__init__()
        self.elements: list[tuple[str, dict, list[str]]] = []
        self._open: list[int] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), []))
        if tag not in ("meta", "link", "input", "br", "line", "circle", "path", "rect"):
            self._open.append(len(self.elements) - 1)

    def handle_endtag(self, tag):
        while self._open and self.elements[self._open.pop()][0] != tag:
            pass

    def handle_data(self, data):
        for place in self._open:
            self.elements[place][2].append(data)

    def texts(self, tag: str, cls: str = "") -> list[str]:
        return [
            "".join(text)
            for name, attrs, text in self.elements
            if name == tag and cls in (attrs.get("class") or "").split() + [""]
        ]


def test_tokens_are_shaded_by_their_probability():
    logprobs = [0.0, -0.2, -0.5, -1.0, -2.0, -4.0, -9.0, float("-inf")]
    shaded = Shader(ByteTokenizer()).shade(list(b"abcdefgh"), logprobs, [0.0] * 8)
    classes = [attrs.get("class") for tag, attrs, _ in Page(shaded.html).elements if tag == "i"]
    assert classes == [None, "s1", "s2", "s3", "s4", "s5", "s6", "s6"]


@pytest.mark.parametrize("text", ["plain", "é", "😀!", "1é2😀3漢", "", "\ufffd"])
def test_split_characters_appear_at_their_last_token(text):
    texts = TokenTexts(ByteTokenizer()).each(list(text.encode()))
    assert "".join(texts) == text and len(texts) == len(text.encode())


def test_broken_bytes_stay_in_their_place():
    ids = [*b"a", 0xF0, 0x9F, *b"b", 0xC3, *b"c", 0xE6]
    texts = TokenTexts(ByteTokenizer()).each(ids)
    assert len(texts) == len(ids)
    assert "".join(texts) == ByteTokenizer().decode(ids)
    assert [texts[i] for i in (0, 3, 5)] == ["a", "b", "c"]
