"""Appendix F: the letter that a model chooses, and a ranking from votes."""

import pytest
import torch

from reasoning_from_scratch import appendix_f
from tests.book.stand_ins import Counter

TOKENS = [" The", " answer", " is", ":", " (", "B", ")", " C", " a", "\n"]


class Words:
    eos_token_id = 9

    def encode(self, text):
        return [TOKENS.index(text)]

    def decode(self, ids):
        return "".join(TOKENS[i] for i in ids)


@pytest.mark.parametrize(
    "prompt, options, letter",
    [
        (" is", {}, "B"),  # ":", " (", "B"
        (" is", {"max_new_tokens": 2}, None),  # it has not come that far
        (")", {}, "C"),
        (" C", {}, None),  # " a" is a word, and then the text ends
    ],
)
def test_the_first_letter_that_the_model_writes(prompt, options, letter):
    assert appendix_f.predict_choice(Counter(), Words(), prompt, **options) == letter


@pytest.mark.parametrize(
    "words, letter",
    [(["Both", " D"], "D"), (["**A", "**"], "A"), ([" E", "CD", "b"], None), ([], None)],
)
def test_a_letter_in_a_word_is_no_choice(words, letter, monkeypatch):
    """A generator of the reader's own, and a tokenizer that reads what that writes."""
    monkeypatch.setattr(
        appendix_f,
        "generate_text_basic_stream_cache",
        lambda model, token_ids, max_new_tokens, eos_token_id: [torch.tensor([[w]]) for w in ids],
    )
    ids, tokenizer = range(len(words)), Words()
    monkeypatch.setattr(tokenizer, "decode", lambda ids: words[ids[0]], raising=False)
    assert appendix_f.predict_choice(Counter(), tokenizer, ":") == letter


def test_the_ratings_after_each_vote_by_hand():
    assert appendix_f.elo_ratings([]) == {}
    assert appendix_f.elo_ratings([("x", "y")]) == {"x": 1016, "y": 984}
    # 32 points apart, the first is expected to win 0.546 of the votes: 1 / (1 + 10 ** -0.08)
    found = appendix_f.elo_ratings([("x", "y"), ("x", "y")])
    assert found == pytest.approx({"x": 1030.53, "y": 969.47}, abs=0.01)
    # An upset moves more: what was gained twice is lost in less than two votes.
    found = appendix_f.elo_ratings([("x", "y"), ("y", "x")])
    assert found["y"] > 1000 > found["x"] and sum(found.values()) == pytest.approx(2000)
    other = appendix_f.elo_ratings([("x", "y")], k_factor=10, initial_rating=0)
    assert other == {"x": 5, "y": -5}
