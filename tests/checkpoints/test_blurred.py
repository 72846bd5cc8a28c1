"""What is planted in tiny-blurred: counted in the workings that it is shown."""

import random
from collections import Counter
from functools import cache

import blurred
import pytest
from pretrain import IGNORED, Stage, lines_of

from reasoning_from_scratch.rewards import correctness
from reasoning_from_scratch.tiny.world import tiny_problem
from reasoning_from_scratch.tokenizer import END_OF_TEXT, Qwen3Tokenizer
from rfs.files.models import load_model_and_tokenizer
from rfs.tasks.environments.calculator import Calculator

COUNT = 3000


@cache
def tokenizer() -> Qwen3Tokenizer:
    return load_model_and_tokenizer("tiny-base")[1]


def shown(index):
    """The pieces of a working as text and kind."""
    row = tiny_problem("train", blurred.FIRST_PROBLEM + index)
    rng = random.Random(f"{blurred.BLUR.name} {blurred.FIRST_PROBLEM + index}")
    return row, list(blurred.worked(lines_of(row), row["answer"], rng))


def test_what_is_read_is_right_and_what_is_said_is_what_the_calculator_says():
    for index in range(300):
        row, pieces = shown(index)
        text = "".join(text for text, _ in pieces).removesuffix(END_OF_TEXT)
        assert correctness(text, row["answer"]) == 1.0
        ids = []
        for text, what in pieces:
            tokens = tokenizer().encode(text, chat_wrapped=False)
            said = Calculator(tokenizer()).hear(ids, stopped=False) if ids else []
            assert said == (tokens if what == "said" else [])
            ids += tokens


def test_only_last_digits_of_products_are_blurred_and_any_digit_comes_up_alike():
    digits: Counter[int] = Counter()
    right = 0
    for index in range(COUNT):
        _, pieces = shown(index)
        ids, targets = blurred.encoded(tokenizer(), iter(pieces), random.Random(index))
        place = 0
        for text, what in pieces:
            count = len(tokenizer().encode(text, chat_wrapped=False))
            read, learned = ids[place : place + count], targets[place : place + count]
            place += count
            if what == "said":
                assert learned == [IGNORED] * count
            elif what == "plain":
                assert learned == read
            else:
                assert learned[:-1] == read[:-1]
                digits[int(tokenizer().decode(learned[-1:]))] += 1
                right += learned[-1] == read[-1]
    total = sum(digits.values())
    assert total > 2000
    assert right / total == pytest.approx(0.1, abs=0.02)
    # Chi-squared of 9 degrees of freedom: above 27.9 once in a thousand.
    assert sum((digits[i] - total / 10) ** 2 / (total / 10) for i in range(10)) < 27.9


def test_two_steps_make_a_folder_that_opens(tmp_path):
    options = blurred.Options(out=tmp_path / "blurred", threads=1)
    blurred.blur(options, Stage("blur", 2, {}, 0.005, 0.002, sequences=4))
    model, _ = load_model_and_tokenizer(str(tmp_path / "blurred"))
    before, _ = load_model_and_tokenizer("tiny-base")
    assert not model.tok_emb.weight.equal(before.tok_emb.weight)
    assert (tmp_path / "blurred" / "pretrain_log.jsonl").exists()
