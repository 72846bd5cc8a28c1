"""Appendix F: the letter that a model chooses, and a ranking from votes."""

from types import SimpleNamespace

import pytest

from reasoning_from_scratch import appendix_f
from tests.book.stand_ins import Counter

TOKENS = [" The", " answer", " is", ":", " (", "B", ")", " C", " a", "\n"]


def tokenizer_of(tokens):
    return SimpleNamespace(
        eos_token_id=9,
        encode=lambda text: [tokens.index(text)],
        decode=lambda ids: "".join(tokens[i] for i in ids if i < len(tokens)),
    )


@pytest.mark.parametrize(
    "tokens, prompt, options, letter",
    [
        (TOKENS, " is", {}, "B"),  # ":", " (", "B"
        (TOKENS, " is", {"max_new_tokens": 2}, None),  # it has not come that far
        (TOKENS, ")", {}, "C"),
        (TOKENS, " C", {}, None),  # " a" is a word, and then the text ends
        # A letter in a word is no choice.
        ([":", "Both", " D"], ":", {}, "D"),
        ([":", "**A", "**"], ":", {}, "A"),
        ([":", " E", "CD", "b"], ":", {}, None),
    ],
)
def test_the_first_letter_that_the_model_writes(tokens, prompt, options, letter):
    assert appendix_f.predict_choice(Counter(), tokenizer_of(tokens), prompt, **options) == letter


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
