"""Appendix F, two more ways to compare models: multiple choice, and a ranking from votes."""

import torch

from reasoning_from_scratch.ch02 import generate_text_basic_stream_cache

CHOICES = ("A", "B", "C", "D")


def predict_choice(model, tokenizer, prompt_fmt, max_new_tokens=8):
    """The first of A to D that the model writes after a question with its choices, else None.

    It must be a separate token, as in " B" or "(B)": the A of "Answer" does not count, nor does the
    word "a".
    """
    weights = model.parameters() if isinstance(model, torch.nn.Module) else ()
    device = next((weight.device for weight in weights), "cpu")
    tokens = generate_text_basic_stream_cache(
        model=model,
        token_ids=torch.tensor([tokenizer.encode(prompt_fmt)], device=device),  # (1, T)
        max_new_tokens=max_new_tokens,
        eos_token_id=tokenizer.eos_token_id,
    )
    for token in tokens:
        letter = tokenizer.decode([token.item()]).strip(" \n\t()[].:*")
        if letter in CHOICES:
            return letter
    return None


def elo_ratings(vote_pairs, k_factor=32, initial_rating=1000):
    """{model: its rating} after all votes, counted one (winner, loser) after another.

    A lead of 400 points means that a model is expected to win 10 votes of 11. A vote moves both
    ratings, more if it was unexpected; the winner gains what the loser loses.
    """
    ratings = {}
    for winner, loser in vote_pairs:
        for model in (winner, loser):
            ratings.setdefault(model, initial_rating)
        lead = ratings[winner] - ratings[loser]
        expected = 1 / (1 + 10 ** (-lead / 400))  # the winner's share of votes, by the ratings
        gain = k_factor * (1 - expected)
        ratings[winner] += gain
        ratings[loser] -= gain
    return ratings
