"""Code that is not ours: whatever a verifier or an environment raises or returns, no run ends."""

import asyncio

import pytest
import torch
from toy import toy_problems, toy_tokenizer

from reasoning_from_scratch.sampling import Rollout, Sampling
from rfs.tasks.environments import conversation
from rfs.tasks.environments.conversation import Conversation
from rfs.tasks.foreign import call_guarded
from rfs.tasks.own_task import Verifier

LIMIT = 0.2  # seconds


def endless(*_, **__):
    while True:
        pass


ACTS = {
    "an error": ValueError("bad"),
    "an exit": SystemExit(1),
    "cancelled": asyncio.CancelledError(),
    "a generator's end": GeneratorExit(),
    "no more items": StopIteration(),
    "no memory": MemoryError(),
}


def raising(error):
    def act(*_, **__):
        raise error

    return act


def with_float(act):
    return type("Odd", (), {"__float__": act})()


BAD_NUMBERS = {
    "text": "7",
    "none": None,
    "several": torch.zeros(2),
    "not a number": float("nan"),
    "too large": 10**400,
    "larger than squares may be": 1e30,
    "an error": with_float(raising(ValueError("bad"))),
    "endless": with_float(endless),
}


@pytest.mark.parametrize("error", ACTS.values(), ids=ACTS)
def test_whatever_a_verifier_raises_is_reported(error):
    paid, failure = Verifier(raising(error))("text", None)
    assert paid == 0.0 and failure.startswith(f"raised {type(error).__name__}")


@pytest.mark.parametrize("value", BAD_NUMBERS.values(), ids=BAD_NUMBERS)
def test_what_is_no_reward_is_reported(value):
    paid, failure = Verifier(lambda text, problem: value, seconds=LIMIT)("text", None)
    assert paid == 0.0 and failure.startswith(("returned no finite number", "raised", "took"))


def test_numbers_of_other_libraries_are_rewards():
    for value in (True, 1, torch.tensor(1.0), torch.tensor([1])):
        assert Verifier(lambda text, problem, value=value: value)("text", None) == (1.0, "")


class Talk:
    """An environment that is well but for one thing."""

    def __init__(self, problem):
        pass

    def reply(self, turn):
        return None

    def rewards(self):
        return {"correct": 1.0}


@pytest.fixture
def heard(tmp_path, monkeypatch):
    """The rollout after one turn with an environment of these methods."""
    tokenizer = toy_tokenizer(tmp_path)
    monkeypatch.setattr(conversation, "REPLY_SECONDS", LIMIT)

    def talk_with(**methods):
        kind = type("Own", (Talk,), methods)
        talk = Conversation(kind, toy_problems(1)[0], tokenizer, Sampling(40))
        rollout = Rollout(response_ids=[5, tokenizer.eos_token_id], finished=True)
        talk.hear(rollout.response_ids, True)
        talk.leave(rollout)
        assert not rollout.failure or rollout.outcome == {"correct": 0.0}
        return rollout

    return talk_with


@pytest.mark.parametrize("error", ACTS.values(), ids=ACTS)
@pytest.mark.parametrize("method", ["__init__", "reply", "rewards"])
def test_whatever_an_environment_raises_is_reported(error, method, heard):
    assert heard(**{method: raising(error)}).failure.startswith(f"raised {type(error).__name__}")


@pytest.mark.parametrize("method", ["__init__", "reply", "rewards"])
def test_an_environment_that_never_ends_meets_the_limit(method, heard):
    assert "took longer" in heard(**{method: endless}).failure


def paying(name):
    return {"rewards": lambda self: {"correct": 1, name: 9}}


@pytest.mark.parametrize(
    "methods, failure",
    [
        ({"reply": None}, "raised TypeError: 'NoneType' object is not callable"),
        ({"reply": property()}, "raised AttributeError: "),
        ({"rewards": property()}, "raised AttributeError: "),
        ({"reply": lambda self, turn: 7}, "replied no text: 7"),
        ({"reply": lambda self, turn: "a\ud800"}, "replied half of a surrogate pair"),
        ({"reply": lambda self, turn: "x" * 10**6}, "replied 1,000,000 characters"),
        ({"rewards": lambda self: 1.0}, "returned no rewards with `correct` among them: 1.0"),
        ({"rewards": lambda self: {"correct": "yes"}}, "returned no rewards"),
        (paying("reward/total"), "returned a reward 'reward/total'"),
        (paying("a b"), "returned a reward 'a b'"),
        (paying("reward_failed"), "returned a reward 'reward_failed'"),
        ({"__bool__": lambda self: False}, ""),
        ({"__len__": lambda self: 0}, ""),
    ],
)
def test_the_likeliest_mistakes_are_named(methods, failure, heard):
    rollout = heard(**methods)
    assert rollout.failure.startswith(failure) and bool(rollout.failure) == bool(failure)
    assert failure or rollout.outcome == {"correct": 1.0}


class Odd(BaseException):
    """An error that cannot be printed."""

    def __str__(self):
        raise RuntimeError("no words")


def test_an_error_that_cannot_be_printed_has_its_kind(heard):
    failure = "raised Odd: (it cannot be shown)"
    assert Verifier(raising(Odd()))("text", None) == (0.0, failure)
    assert heard(reply=raising(Odd())).failure == failure


# ---- what passes


def test_ctrl_c_passes():
    interrupts = raising(KeyboardInterrupt())
    for function in (interrupts, lambda text, problem: with_float(interrupts)):
        with pytest.raises(KeyboardInterrupt):
            Verifier(function)("text", None)


def test_a_limit_within_a_limit_leaves_the_outer_one():
    def slow():
        assert call_guarded(float, LIMIT, lambda: "7") == (7.0, "")
        endless()

    assert call_guarded(float, LIMIT, slow) == (None, f"took longer than {LIMIT} s")
