"""Tokens shaded by their probability, and characters split between tokens."""

import pytest
from report_groups import ByteTokenizer, Llama2Tokenizer

from rfs.report.tokens import Shader, TokenTexts
from tests.program.report.written import Page


def test_tokens_are_shaded_by_their_probability():
    logprobs = [0.0, -0.2, -0.5, -1.0, -2.0, -4.0, -9.0, float("-inf")]
    shaded = Shader(ByteTokenizer()).shade(list(b"abcdefgh"), logprobs, [0.0] * 8)
    classes = [attrs.get("class") for tag, attrs, _ in Page(shaded.html).elements if tag == "i"]
    assert classes == [None, "s1", "s2", "s3", "s4", "s5", "s6", "s6"]


def test_an_entropy_rounded_to_nothing_has_no_sign():
    shaded = Shader(ByteTokenizer()).shade(list(b"abc"), [-1e-9, -0.0006, 0.0], [-1e-9, 0.25, 0.0])
    assert (shaded.logprobs, shaded.entropies) == ("0.000 -0.001 0.000", "0.000 0.250 0.000")


@pytest.mark.parametrize("text", ["plain", "é", "😀!", "1é2😀3漢", "", "\ufffd"])
def test_split_characters_appear_at_their_last_token(text):
    texts = TokenTexts(ByteTokenizer()).texts_of(list(text.encode()))
    assert "".join(texts) == text and len(texts) == len(text.encode())


def test_broken_bytes_stay_in_their_place():
    ids = [*b"a", 0xF0, 0x9F, *b"b", 0xC3, *b"c", 0xE6]
    texts = TokenTexts(ByteTokenizer()).texts_of(ids)
    assert len(texts) == len(ids)
    assert "".join(texts) == ByteTokenizer().decode(ids)
    assert [texts[i] for i in (0, 3, 5)] == ["a", "b", "c"]


def test_words_keep_their_spaces_with_a_tokenizer_that_drops_a_texts_first_one():
    tokenizer, ids = Llama2Tokenizer(), [0, 1, 2, 0, 3, 4, 5, 6, 1]
    texts = TokenTexts(tokenizer).texts_of(ids)
    assert texts == [" the", " cat", "s", " the", " ", "  ", "", "é", " cat"]
    assert "".join(texts)[1:] == tokenizer.decode(ids) == "the cats the   é cat"
