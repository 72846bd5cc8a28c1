"""An environment, and how it talks with a rollout: text to tokens and back, limits and failures."""

from collections.abc import Callable, Sequence
from typing import Protocol

from reasoning_from_scratch.environments.calculator import Calculator
from reasoning_from_scratch.environments.guess import Guess
from reasoning_from_scratch.environments.retry import Retry
from reasoning_from_scratch.errors import unknown_name
from reasoning_from_scratch.files.own_task import TooSlow, is_number, own_function, with_limit
from reasoning_from_scratch.problems import Problem, is_own
from reasoning_from_scratch.sampling import Partner, Rollout, Sampling


class Environment(Protocol):
    """What answers the model. One is made for each rollout, from its problem."""

    def reply(self, turn: str) -> str | None:
        """What it says to a turn of the model; None: it is over."""

    def rewards(self) -> dict[str, float]:
        """What the rollout is paid, asked when it is over: `correct`, and other parts."""


OURS: dict[str, Callable[[Problem], Environment]] = {"guess": Guess, "retry": Retry}
REPLY_SECONDS = 5.0  # for one call of an environment
LONGEST_REPLY = 10_000  # characters


def environment_of(name: str) -> Callable[[Problem], Environment]:
    """What makes an environment from a problem: one of ours, or FILE.py:CLASS."""
    if name not in OURS and not is_own(name):
        raise unknown_name("environment", name, [*OURS, "FILE.py:CLASS"])
    return OURS[name] if name in OURS else own_function(name)


def partners_of(
    sampling: Sampling, tokenizer, problems: Sequence[Problem]
) -> Callable[[int], Partner]:
    """What makes the Partner of a rollout from the number of its problem."""
    if sampling.environment is None:
        return lambda number: Calculator(tokenizer)
    kind = environment_of(sampling.environment)
    return lambda number: Conversation(kind, problems[number], tokenizer, sampling)


class Conversation:
    """The Partner that speaks for an environment of which nothing that it does ends the run."""

    def __init__(
        self, kind: Callable[[Problem], Environment], problem: Problem, tokenizer, limits: Sampling
    ) -> None:
        self.tokenizer, self.limits = tokenizer, limits
        self.calculator = Calculator(tokenizer) if limits.calculator else None
        self.turns, self.turn_start = 0, 0
        self.failure, self.ran_out = "", False
        self.environment = self.ask(kind, problem)

    def ask(self, function: Callable, *given: object):
        """What a call of the environment returns; None if it fails, which is written down."""
        if self.failure:
            return None
        try:
            return with_limit(REPLY_SECONDS, function, *given)
        except TooSlow:
            self.failure = f"took longer than {REPLY_SECONDS:g} s"
        except (Exception, SystemExit) as error:
            self.failure = f"raised {type(error).__name__}: {error}"
        return None

    def hear(self, response_ids: list[int], stopped: bool) -> list[int] | None:
        """The reply's tokens at the end of a turn; within one, what a calculator says."""
        turn = response_ids[self.turn_start : len(response_ids) - stopped]
        cut = bool(self.limits.max_turn_tokens) and len(turn) >= self.limits.max_turn_tokens
        if not stopped and not cut:
            said = self.calculator.hear(response_ids, stopped) if self.calculator else []
        else:
            said = self.answer(self.tokenizer.decode(turn), stopped)
        if said:
            self.turn_start = len(response_ids) + len(said) if stopped or cut else self.turn_start
        return said

    def answer(self, turn: str, stopped: bool) -> list[int] | None:
        """What the environment says to a turn that is over, as tokens; None: it says nothing."""
        self.turns += 1
        reply = self.ask(self.environment.reply, turn) if self.environment else None
        if not self.failure and reply is not None and not isinstance(reply, str):
            self.failure = f"replied no text: {reply!r:.80}"
        elif isinstance(reply, str) and len(reply) > LONGEST_REPLY:
            self.failure = f"replied {len(reply):,} characters; {LONGEST_REPLY:,} are allowed"
        if self.failure or reply is None:
            return None
        if self.turns == self.limits.max_turns:
            self.ran_out = True
            return None
        text = self.tokenizer.reply_turn(reply)
        ended = [] if stopped else [self.tokenizer.eos_token_id]
        return ended + self.tokenizer.encode(text, chat_wrapped=False)

    def leave(self, rollout: Rollout) -> None:
        """What the environment pays. A turn that the length limit cut off is not shown to it."""
        found = self.ask(self.environment.rewards) if self.environment else None
        if not self.failure and not is_payment(found):
            self.failure = f"paid no numbers with `correct` among them: {found!r:.80}"
        rollout.turns, rollout.ran_out = max(1, self.turns), self.ran_out
        rollout.failure = self.failure
        paid = {} if self.failure else {name: float(value) for name, value in found.items()}
        rollout.outcome = {"correct": 0.0} | paid


def is_payment(found: object) -> bool:
    return isinstance(found, dict) and "correct" in found and all(map(is_number, found.values()))
