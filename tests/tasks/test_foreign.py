"""Code that is not ours: a hundred hostile objects, and not one that ends a run."""

import asyncio
import itertools

import pytest
from toy import toy_problems, toy_tokenizer

from reasoning_from_scratch.sampling import Rollout, Sampling
from reasoning_from_scratch.tasks import foreign
from reasoning_from_scratch.tasks.environments import conversation
from reasoning_from_scratch.tasks.environments.conversation import Conversation
from reasoning_from_scratch.tasks.foreign import called, error_in_words, in_words
from reasoning_from_scratch.tasks.own_task import Verifier

LIMIT = 0.2  # seconds

# ---- what happens when somebody looks at it


class Odd(BaseException):
    """An error that cannot be printed."""

    def __str__(self):
        raise RuntimeError("no words")

    __repr__ = __str__


class Nameless(type):
    @property
    def __name__(cls):
        raise RuntimeError("no name")


class Unnamed(Exception, metaclass=Nameless):
    pass


def raising(error):
    def act(*_, **__):
        raise error

    return act


def endless(*_, **__):
    while True:
        pass


ACTS = {
    "an error": raising(ValueError("bad")),
    "an exit": raising(SystemExit(1)),
    "cancelled": raising(asyncio.CancelledError()),
    "a generator's end": raising(GeneratorExit()),
    "no more items": raising(StopIteration()),
    "no memory": raising(MemoryError()),
    "an odd error": raising(Odd()),
    "an unnamed error": raising(Unnamed()),
    "endless": endless,
    "nothing": lambda *_, **__: None,
}
HOOKS = "__repr__ __str__ __float__ __bool__ __len__ __iter__ __hash__ __eq__".split()


GOOD = {object: (), str: ("7",), float: (0.5,), dict: ({"correct": 1.0},)}


def of_kind(base, hook, act):
    """A value of that kind, fit but for what it does where it is asked for that."""
    return type("Hostile", (base,), {hook: act})(*GOOD[base])


def liar(kind):
    """Says of itself to be a text, a number or a dictionary, and is none."""
    return type("Liar", (), {"__class__": property(lambda self: kind)})()


VALUES = {
    **{
        f"{base.__name__}, {hook}: {name}": (of_kind, base, hook, act)
        for base, hook, (name, act) in itertools.product(GOOD, HOOKS, ACTS.items())
    },
    **{f"a liar: {kind.__name__}": (liar, kind) for kind in (str, float, dict)},
    "half a surrogate": (lambda: "a\ud800b",),
    "NUL": (lambda: "\0",),
    "nan": (lambda: float("nan"),),
    "too large": (lambda: 10**400,),
    "false": (lambda: False,),
    "empty text": (lambda: "",),
    "an odd name": (lambda: {"correct": 1.0, "reward/total": 1.0},),
    "a name that is none": (lambda: {"correct": 1, of_kind(object, "__str__", endless): 1},),
    "our name": (lambda: {"correct": 1.0, "reward_failed": 1.0},),
    "no number": (lambda: {"correct": of_kind(object, "__float__", ACTS["cancelled"])},),
}  # fmt: skip
QUICK = [name for name in VALUES if "endless" not in name and "a name that is none" not in name]
SLOW = [name for name in VALUES if name not in QUICK]


def value_of(name):
    make, *arguments = VALUES[name]
    return make(*arguments)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(conversation, "REPLY_SECONDS", LIMIT)
    monkeypatch.setattr(foreign, "SECONDS_TO_SHOW", LIMIT)


def is_plain(failure):
    return type(failure) is str and len(failure) < 2_000


def judged(name):
    paid, failure = Verifier(lambda text, problem: value_of(name), seconds=LIMIT)("text", None)
    assert type(paid) is float and is_plain(failure)
    assert not failure or paid == 0.0


class Talk:
    """An environment that is well but for one thing."""

    def __init__(self, problem):
        pass

    def reply(self, turn):
        return None

    def rewards(self):
        return {"correct": 1.0}


def spoken_with(kind, tokenizer):
    talk = Conversation(kind, toy_problems(1)[0], tokenizer, Sampling(40))
    rollout = Rollout(response_ids=[5, tokenizer.eos_token_id], finished=True)
    said = talk.hear(rollout.response_ids, True)
    talk.leave(rollout)
    assert said is None or all(type(token) is int for token in said)
    assert is_plain(rollout.failure)
    assert all(type(name) is str and type(v) is float for name, v in rollout.outcome.items())
    assert not rollout.failure or rollout.outcome == {"correct": 0.0}
    return rollout


def talked(name, tokenizer):
    value = value_of(name)
    for method in ("reply", "rewards"):
        spoken_with(type("Own", (Talk,), {method: lambda self, *_: value}), tokenizer)
    spoken_with(lambda problem: value, tokenizer)  # it is the environment itself


@pytest.fixture
def tokenizer(tmp_path):
    return toy_tokenizer(tmp_path)


@pytest.mark.parametrize("first", HOOKS)
def test_whatever_it_returns_ends_no_run(first, tokenizer):
    for name in QUICK:
        if f"{first}:" in name or ("__" not in name and first == HOOKS[0]):
            judged(name)
            talked(name, tokenizer)


@pytest.mark.parametrize("name", [name for name in SLOW if "object" in name or "dict, __r" in name])
def test_what_never_ends_meets_the_limit(name, tokenizer):
    judged(name)
    spoken_with(type("Own", (Talk,), {"rewards": lambda self: value_of(name)}), tokenizer)


@pytest.mark.parametrize("act", [act for act in ACTS.values() if act is not endless])
@pytest.mark.parametrize("method", ["__init__", "reply", "rewards", "__getattribute__", "__bool__"])
def test_whatever_an_environment_does_ends_no_run(act, method, tokenizer):
    spoken_with(type("Own", (Talk,), {method: act}), tokenizer)


@pytest.mark.parametrize("act", [act for act in ACTS.values() if act is not endless])
def test_whatever_a_verifier_raises_ends_no_run(act):
    paid, failure = Verifier(act)("text", None)
    assert paid == 0.0 and is_plain(failure) and failure


def paying(name):
    return {"rewards": lambda self: {"correct": 1, name: 9}}


@pytest.mark.parametrize(
    "methods, failure",
    [
        ({"reply": None}, "raised TypeError: 'NoneType' object is not callable"),
        ({"reply": property()}, "raised AttributeError: "),
        ({"rewards": property()}, "raised AttributeError: "),
        ({"reply": lambda self, turn: "a\ud800"}, "replied half of a surrogate pair"),
        ({"reply": lambda self, turn: "x" * 10**6}, "replied 1,000,000 characters"),
        (paying("reward/total"), "returned a reward 'reward/total'"),
        (paying("reward_failed"), "returned a reward 'reward_failed'"),
        ({"__bool__": lambda self: False}, ""),
        ({"__len__": lambda self: 0}, ""),
    ],
)
def test_the_likeliest_mistakes_are_named(methods, failure, tokenizer):
    rollout = spoken_with(type("Own", (Talk,), methods), tokenizer)
    assert rollout.failure.startswith(failure) and bool(rollout.failure) == bool(failure)
    assert failure or rollout.outcome == {"correct": 1.0}


def test_an_error_that_cannot_be_printed_has_its_kind():
    assert error_in_words(Odd()) == "Odd: (it cannot be shown)"
    assert error_in_words(Unnamed("so")) == "(it cannot be shown): so"


# ---- what passes


@pytest.mark.parametrize("hook", ["__float__", "__repr__", "__str__"])
def test_ctrl_c_passes_wherever_it_comes(hook):
    interrupts = raising(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        Verifier(lambda text, problem: interrupts())("text", None)
    value = of_kind(object, hook, interrupts)
    with pytest.raises(KeyboardInterrupt):
        in_words(value, float if hook == "__float__" else str if hook == "__str__" else repr)


def test_a_limit_within_a_limit_leaves_the_outer_one():
    def slow():
        in_words("quick")
        endless()

    assert called(lambda value: value, LIMIT, slow) == (None, f"took longer than {LIMIT} s")
