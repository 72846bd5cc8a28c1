"""Qwen3Tokenizer: round trips, special tokens, end of text, the chat template."""

import shutil
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.tokenizer import Qwen3Tokenizer

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]


@pytest.fixture(scope="module")
def tokenizer(tiny_tokenizer_file):
    return Qwen3Tokenizer(tiny_tokenizer_file)


@settings(max_examples=300, deadline=None)
@given(text=st.text())
def test_any_text_survives_a_round_trip(tokenizer, text):
    # Qwen3's tokenizer composes characters (NFC) first, and loses nothing else.
    assert tokenizer.decode(tokenizer.encode(text)) == unicodedata.normalize("NFC", text)


@settings(max_examples=200, deadline=None)
@given(text=st.lists(st.sampled_from(SPECIAL) | st.text(alphabet="ab 1\n<|>/")).map("".join))
def test_special_tokens_survive_among_text(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    special_ids = {tokenizer._tok.token_to_id(token) for token in SPECIAL}
    assert sum(i in special_ids for i in ids) == sum(text.count(token) for token in SPECIAL)


@pytest.mark.parametrize("token", SPECIAL)
@pytest.mark.parametrize("chat", [False, True])
def test_a_special_token_alone_is_one_id_whatever_the_template(tiny_tokenizer_file, token, chat):
    tokenizer = Qwen3Tokenizer(tiny_tokenizer_file, apply_chat_template=chat)
    assert tokenizer.encode(token) == [tokenizer._tok.token_to_id(token)]


@pytest.mark.parametrize(
    "name, expected",
    [
        ("tokenizer-base.json", "<|endoftext|>"),
        ("tokenizer-reasoning.json", "<|im_end|>"),
        ("tokenizer-reasoning-from-base.json", "<|im_end|>"),
        ("tokenizer.json", "<|im_end|>"),
    ],
)
def test_end_of_text_follows_the_file_name(tiny_tokenizer_file, tmp_path, name, expected):
    path = shutil.copy(tiny_tokenizer_file, tmp_path / name)
    tokenizer = Qwen3Tokenizer(path)
    assert tokenizer.decode([tokenizer.eos_token_id]) == expected
    assert tokenizer.decode([tokenizer.pad_token_id]) == "<|endoftext|>"


USER = "<|im_start|>user\nWhat is 1 + 1?<|im_end|>\n"


@pytest.mark.parametrize(
    "options, expected",
    [
        ({}, USER),
        ({"add_generation_prompt": True, "add_thinking": True}, USER + "<|im_start|>assistant\n"),
        (
            {"add_generation_prompt": True},
            USER + "<|im_start|>assistant\n<think>\n\n</think>\n\n",
        ),
    ],
)
def test_chat_template_is_the_documented_string(tiny_tokenizer_file, options, expected):
    tokenizer = Qwen3Tokenizer(tiny_tokenizer_file, apply_chat_template=True, **options)
    ids = tokenizer.encode("What is 1 + 1?")
    assert tokenizer.decode(ids) == expected
    assert ids[0] == tokenizer._tok.token_to_id("<|im_start|>")


def test_chat_wrapped_overrides_the_constructor(tiny_tokenizer_file):
    plain = Qwen3Tokenizer(tiny_tokenizer_file)
    chat = Qwen3Tokenizer(tiny_tokenizer_file, apply_chat_template=True)
    assert chat.encode("hi", chat_wrapped=False) == plain.encode("hi")
    assert plain.encode("hi", chat_wrapped=True) == chat.encode("hi")
    assert plain.decode(plain.encode("hi")) == "hi"


def test_a_prompt_stays_whole_however_texts_were_cut_and_filled(tiny_tokenizer_file, tmp_path):
    """A fine-tuning script leaves its settings in the file."""
    inner = Tokenizer.from_file(str(tiny_tokenizer_file))
    inner.enable_truncation(4)
    inner.enable_padding(length=16)
    inner.save(str(tmp_path / "tokenizer.json"))
    text = "What is 12 + 30? " * 5
    cut, whole = (Qwen3Tokenizer(p) for p in (tmp_path / "tokenizer.json", tiny_tokenizer_file))
    assert cut.encode(text) == whole.encode(text) and cut.encode("a") == whole.encode("a")


@pytest.mark.parametrize(
    "content, says",
    [
        (None, "tokenizer.json"),
        ("{}", "is not a tokenizer"),
        ("<html></html>", "is not a tokenizer"),
        ("", "is not a tokenizer"),
        (Tokenizer(models.BPE()).to_str(), r"no token <\|im_end\|>"),  # of another model
    ],
)
def test_a_missing_or_wrong_file_is_one_line(tmp_path, content, says):
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=says) as info:
        Qwen3Tokenizer(path)
    assert "\n" not in str(info.value)
