"""The conversations that tiny-mender is shown: their shares, and what of them is learned."""

import random
from collections import Counter
from functools import cache

import mender
import pytest
from pretrain import IGNORED, Stage

from reasoning_from_scratch.environments.retry import TRY_AGAIN
from reasoning_from_scratch.files.weights import load_model_and_tokenizer
from reasoning_from_scratch.rewards import correctness
from reasoning_from_scratch.tiny.world import tiny_problem
from reasoning_from_scratch.tokenizer import Qwen3Tokenizer

COUNT = 1500


@cache
def tokenizer() -> Qwen3Tokenizer:
    return load_model_and_tokenizer("tiny-base")[1]


def shown(index, way):
    """A problem, the turns of the conversation about it, and its tokens and targets."""
    row = tiny_problem("train", mender.FIRST_PROBLEM + index)
    ids, targets = mender.conversation(tokenizer(), row, way, random.Random(index), blur=0.0)
    return row, tokenizer().decode(ids).split(tokenizer().reply_turn(TRY_AGAIN)), ids, targets


def test_the_first_answers_come_in_the_shares_of_tiny_base():
    ways, shares = zip(*mender.MEND.mixture.items(), strict=True)
    drawn = Counter(
        random.Random(f"{mender.MEND.name} {index}").choices(ways, shares)[0]
        for index in range(mender.FIRST_PROBLEM, mender.FIRST_PROBLEM + COUNT)
    )
    for way, share in mender.HABIT.mixture.items():
        assert drawn[way] / COUNT == pytest.approx(share, abs=0.035)


def test_an_answer_at_once_is_wrong_and_mended_by_a_working():
    for index in range(100):
        row, turns, _, _ = shown(index, "at once")
        assert [correctness(turn, row["answer"]) for turn in turns] == [0.0, 1.0]
        assert "=" not in turns[0] and "=" in turns[1]


@pytest.mark.parametrize("way", ["rough", "full", "checked"])
def test_a_working_is_right_and_ends_the_conversation(way):
    row, turns, _, _ = shown(5, way)
    assert len(turns) == 1 and correctness(turns[0], row["answer"]) == 1.0


def test_neither_the_wrong_answer_nor_what_is_said_to_it_is_learned():
    _, turns, ids, targets = shown(7, "at once")
    unlearned = [token for token, target in zip(ids, targets, strict=True) if target == IGNORED]
    wrong = turns[0].split("{")[1].split("}")[0]
    assert tokenizer().decode(unlearned) == wrong + tokenizer().reply_turn(TRY_AGAIN)
    assert all(target in (token, IGNORED) for token, target in zip(ids, targets, strict=True))


def test_two_steps_make_a_folder_that_opens(tmp_path):
    options = mender.Options(out=tmp_path / "mender", threads=1)
    stage = Stage("mend", 2, mender.MEND.mixture, 0.005, 0.0006, sequences=4, blur=0.05)
    mender.make_mender(options, stage)
    model, _ = load_model_and_tokenizer(str(tmp_path / "mender"))
    before, _ = load_model_and_tokenizer("tiny-base")
    assert not model.tok_emb.weight.equal(before.tok_emb.weight)
    assert (tmp_path / "mender" / "pretrain_log.jsonl").exists()
