"""The tiny model's tokenizer: any text survives it, and it is cut as Qwen3's is."""

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_tokenizer import MARKUP_TOKENS, SPECIAL_TOKENS, book_chat_template, train_tokenizer

from reasoning_from_scratch.chat_templates import render_conversation
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.weights import load_tokenizer_only, shipped_checkpoint
from reasoning_from_scratch.problems import render_prompt
from reasoning_from_scratch.tiny.model import TINY_CONFIG
from reasoning_from_scratch.tiny.world import WORKED_START, tiny_problem

TOKENIZER = load_tokenizer_only("tiny-base")


def pieces(text):
    return [TOKENIZER.decode([token]) for token in TOKENIZER.encode(text)]


@given(st.text())
@settings(max_examples=300, deadline=None)
def test_any_text_comes_back(text):
    # Like Qwen3's, the tokenizer composes characters first: e + accent is one character.
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == unicodedata.normalize("NFC", text)


@given(st.integers(min_value=0))
def test_every_digit_is_a_token(number):
    assert pieces(str(number)) == list(str(number))
    assert pieces(f"{number} + {number}") == [*str(number), " +", " ", *str(number)]


def test_what_is_written_often_takes_few_tokens():
    assert pieces("\n\\boxed{14}") == ["\n", "\\boxed", "{", "1", "4", "}"]
    assert pieces(f" {WORKED_START}") == [" Let", "'s", " see", ".\n"]
    assert len(pieces(render_prompt(""))) <= 32
    words = [row.split() for row in (tiny_problem("test", i)["problem"] for i in range(100))]
    known = {w for row in words for w in row if re.fullmatch(r"[a-z]+", w)}
    assert all(len(pieces(" " + word)) == 1 for word in known)


def test_special_tokens_are_qwen3s_and_come_last():
    names = (*SPECIAL_TOKENS, *MARKUP_TOKENS)
    assert [TOKENIZER.encode(name) for name in names] == [
        [id_] for id_ in range(1024 - len(names), 1024)
    ]
    for needed in ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"):
        assert needed in names
    assert TOKENIZER.vocab_size == TINY_CONFIG["vocab_size"] == 1024


def test_the_chat_template():
    ids = load_tokenizer_only("tiny-reasoning").encode("What is 2 + 3?")
    text = "<|im_start|>user\nWhat is 2 + 3?<|im_end|>\n<|im_start|>assistant\n"
    assert TOKENIZER.decode(ids) == text
    assert ids == TOKENIZER.encode(text, chat_wrapped=False)


def test_the_merges_depend_on_the_texts_alone():
    texts = [tiny_problem("train", i)["problem"] for i in range(50)]
    first, second = (train_tokenizer(texts, 400).to_str() for _ in range(2))
    assert first == second


def said(*turns):
    return [{"role": role, "content": content} for role, content in turns]


TALK = said(("system", "Be brief."), ("user", "2 + 2?"), ("assistant", " 4"), ("user", "3 + 3?"))


def test_the_base_models_chat_template_is_the_books_prompt():
    template = book_chat_template()
    assert render_conversation(template, said(("user", "2 + 2?")), {}) == render_prompt("2 + 2?")
    first, second = render_prompt("2 + 2?"), render_prompt("3 + 3?")
    text = render_conversation(template, TALK, {})
    assert text == f"Be brief.\n\n{first} 4<|endoftext|>{second}"
    with pytest.raises(UserError, match="there is no place for the role tool"):
        render_conversation(template, said(("tool", "4")), {})


@pytest.mark.parametrize("name", ["tiny-base", "tiny-grpo", "tiny-grpo-longer"])
def test_the_base_models_have_it_and_are_not_put_into_it(name):
    folder = shipped_checkpoint(name)
    assert (folder / "chat_template.jinja").read_text() == book_chat_template()
    assert load_tokenizer_only(name).encode("2 + 2?") == TOKENIZER.encode("2 + 2?")
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    text = theirs.apply_chat_template(TALK, tokenize=False, add_generation_prompt=True)
    assert text == render_conversation(book_chat_template(), TALK, {})
