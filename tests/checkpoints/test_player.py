"""The games that tiny-player is shown: by the rules, and without a plan."""

import random
from collections import Counter

import player
import torch
from binary_search import is_in_middle_third, possible_range
from player import example, game, train_player
from pretrain import IGNORED, Stage

from reasoning_from_scratch.tiny.guessing import MOST
from reasoning_from_scratch.tokenizer import END_OF_TEXT, Qwen3Tokenizer
from rfs.files.models import load_model_and_tokenizer

GAMES = 20_000


def games() -> list[tuple[int, list[int]]]:
    """Number and guesses of many games."""
    rng = random.Random(1)
    drawn = [game(rng) for _ in range(GAMES)]
    return [(int(problem.answer), [guess for guess, _ in turns]) for problem, turns in drawn]


def test_each_guess_is_uniform_among_what_is_possible_and_nothing_else():
    """Share of the distance into what is possible, at every turn: as many in each tenth."""
    tenths: Counter[int] = Counter()
    middle, expected = 0, 0.0
    for number, guesses in games():
        for place, guess in enumerate(guesses):
            low, high = possible_range(guesses[:place], number, MOST)
            assert low <= guess <= high
            if high - low + 1 == 10:
                tenths[guess - low] += 1
            middle += is_in_middle_third(low, high, guess)
            alike = range(low, high + 1)
            expected += sum(is_in_middle_third(low, high, other) for other in alike) / len(alike)
    count = sum(tenths.values())
    assert count > 1000
    # Chi-squared of 9 degrees of freedom: above 27.9 once in a thousand.
    assert sum((tenths[i] - count / 10) ** 2 / (count / 10) for i in range(10)) < 27.9
    assert abs(middle - expected) < 4 * (expected**0.5)


def test_only_what_the_player_says_is_learned():
    tokenizer = Qwen3Tokenizer(player.TOKENIZER, eos_token=END_OF_TEXT)
    prompt, ids, targets = example(tokenizer, random.Random(3))
    assert tokenizer.decode(prompt) == "I think of a number from 1 to 64. Guess.\n"
    learned = [token for token in targets if token != IGNORED]
    said = tokenizer.decode([token for token in learned if token != tokenizer.eos_token_id])
    assert said.isdigit() and all(a in (b, IGNORED) for a, b in zip(targets, ids, strict=True))
    heard = [token for token, target in zip(ids, targets, strict=True) if target == IGNORED]
    words = tokenizer.decode(heard).replace("\n", "").replace("]", "").split("[")[1:]
    assert words and set(words) <= {"higher", "lower"}
    assert ids[-1] == targets[-1] == tokenizer.eos_token_id


def test_a_few_steps_make_a_folder_that_opens(tmp_path):
    options = player.Options(out=tmp_path / "player", threads=1)
    train_player(options, Stage("play", 2, {}, 0.02, 0.003, sequences=8))
    model, tokenizer = load_model_and_tokenizer(str(tmp_path / "player"))
    assert model.cfg["emb_dim"] == 128 and tokenizer.eos_token == END_OF_TEXT
    assert all(torch.isfinite(weight).all() for weight in model.parameters())
    assert (tmp_path / "player" / "pretrain_log.jsonl").exists()
