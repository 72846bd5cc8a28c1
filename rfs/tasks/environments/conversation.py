"""An environment, and how it talks with a rollout: text to tokens and back, limits and failures."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from reasoning_from_scratch.errors import unknown_name
from reasoning_from_scratch.problems import Problem, is_in_file, refuse_bare_file
from reasoning_from_scratch.sampling import Partner, Rollout, Sampling
from reasoning_from_scratch.tokenizer import ended_text
from rfs.tasks.environments.calculator import Calculator
from rfs.tasks.environments.guess import Guess
from rfs.tasks.environments.retry import Retry
from rfs.tasks.environments.tools import (
    TOOL_SECONDS,
    Results,
    ToolUser,
    ToolUsers,
    makes_tool_users,
    tool_users,
)
from rfs.tasks.foreign import InvalidResult, call_guarded, finite_numbers, short_repr
from rfs.tasks.own_task import function_from_file


class Environment(Protocol):
    """What answers the model. One is made for each rollout, from its problem."""

    def reply(self, turn: str) -> str | Results | None:
        """The reply to a turn of the model: a text, or results of tools. None: it is over."""

    def rewards(self) -> dict[str, float]:
        """The rewards of the rollout, read when it is over: `correct`, and other parts."""


OURS: dict[str, Callable[[Problem], Environment]] = {"guess": Guess, "retry": Retry}
REPLY_SECONDS = 5.0  # for one call of an environment
LONGEST_REPLY = 10_000  # characters


def environment_of(name: str) -> Callable[[Problem], Environment]:
    """What makes an environment from a problem: one of ours, or FILE.py:CLASS."""
    refuse_bare_file(name, "class")
    if name not in OURS and not is_in_file(name):
        raise unknown_name("environment", name, [*OURS, "FILE.py:CLASS"])
    if name in OURS:
        return OURS[name]
    kind = function_from_file(name)
    return tool_users(kind) if makes_tool_users(kind) else kind


def judges_itself(name: str) -> bool:
    """Whether an environment is known to do without a problem's answer and without the grader."""
    kind = environment_of(name)
    return isinstance(kind, ToolUsers) and kind.pays


def partners_of(
    sampling: Sampling, tokenizer, problems: Sequence[Problem]
) -> Callable[[int], Partner]:
    """What makes the Partner of a rollout from the number of its problem."""
    if sampling.environment is None:
        return lambda number: Calculator(tokenizer)
    kind = environment_of(sampling.environment)
    return lambda number: Conversation(kind, problems[number], tokenizer, sampling)


class Conversation(Partner):
    """The Partner that speaks for an environment of which nothing that it does ends the run."""

    def __init__(
        self, kind: Callable[[Problem], Environment], problem: Problem, tokenizer, limits: Sampling
    ) -> None:
        self.tokenizer, self.limits = tokenizer, limits
        self.calculator = Calculator(tokenizer) if limits.calculator else None
        self.turns, self.turn_start = 0, 0
        self.failure, self.ran_out = "", False
        self.seconds = TOOL_SECONDS if isinstance(kind, ToolUsers) else REPLY_SECONDS
        self.environment = self.ask(itself, lambda: kind(problem))

    def ask(self, read: Callable[[Any], Any], call: Callable[[], object]) -> Any:
        """What a call of the environment returns, read by `read`; None if it fails, now or before,
        which is written down."""
        if self.failure:
            return None
        found, self.failure = call_guarded(read, self.seconds, call)
        return found

    def begin(self, prompt_ids: list[int], most: int) -> list[int]:
        """The prompt; one for tools says which there are, and what is to be done with them."""
        if not isinstance(self.environment, ToolUser):
            return prompt_ids
        told = self.environment.prompt_ids(self.tokenizer)
        if len(told) <= most:
            return told
        self.failure = (
            f"has, with its tools and what reset said, a prompt of {len(told):,} tokens; there is "
            f"room for {most:,}"
        )
        return prompt_ids

    def hear(self, response_ids: list[int], stopped: bool) -> list[int] | None:
        """The reply's tokens at the end of a turn; within one, what a calculator says."""
        turn = response_ids[self.turn_start :]
        cut = 0 < self.limits.max_turn_tokens <= len(turn) - stopped
        if not stopped and not cut:
            said = self.calculator.hear(response_ids, stopped) if self.calculator else []
        else:
            text = ended_text(self.tokenizer, turn) if stopped else self.tokenizer.decode(turn)
            said = self.answer(text, stopped)
        if said:
            self.turn_start = len(response_ids) + len(said) if stopped or cut else self.turn_start
        return said

    def answer(self, turn: str, stopped: bool) -> list[int] | None:
        """What the environment says to a turn that is over, as tokens; None: it says nothing."""
        self.turns += 1
        reply = self.ask(as_reply, lambda: self.environment.reply(turn))
        if self.failure or reply is None:
            return None
        if self.turns == self.limits.max_turns:
            self.ran_out = True
            return None
        by_tools = isinstance(reply, Results)
        text = (self.tokenizer.results_turn if by_tools else self.tokenizer.reply_turn)(reply)
        ended = [] if stopped else [self.tokenizer.eos_token_id]
        return ended + self.tokenizer.encode(text, chat_wrapped=False)

    def leave(self, rollout: Rollout) -> None:
        """Record the rewards. The environment does not see a turn that the length limit cut off."""
        rewards = self.ask(as_rewards, lambda: self.environment.rewards())
        rollout.turns, rollout.ran_out = max(1, self.turns), self.ran_out
        rollout.failure = self.failure
        rollout.outcome = rewards or {"correct": 0.0}


# --- what an environment must return ---

# What is measured of each rollout beside its rewards (report/metrics.py), under the same names.
MEASURED = (
    "reward_failed overlong cutoff_share ac_tokens_per_turn ob_tokens_per_turn "
    "turns_per_episode total_episodes total_turns total_ac_tokens total_ob_tokens "
    "forced_tokens_per_turn ran_out_of_turns"
).split()


def itself(environment: Any) -> Any:
    return environment


def as_reply(value: Any) -> str | Results | None:
    """A text that a tokenizer takes, or what tools have returned, or None."""
    if value is None or isinstance(value, Results):
        return value
    if not isinstance(value, str):
        raise InvalidResult(f"replied no text: {short_repr(value)}")
    if len(value) > LONGEST_REPLY:
        raise InvalidResult(f"replied {len(value):,} characters; {LONGEST_REPLY:,} are allowed")
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InvalidResult(
            f"replied half of a surrogate pair, which is not text: {short_repr(value)}"
        )
    return value


def as_rewards(value: Any) -> dict[str, float]:
    """The parts of the reward by their names."""
    parts = finite_numbers(value)
    if parts is None or "correct" not in parts:
        raise InvalidResult(f"returned no rewards with `correct` among them: {short_repr(value)}")
    for name in parts:
        if not name.isidentifier():
            raise InvalidResult(
                f"returned a reward {name!r}, but its name must be a word such as speed"
            )
        if name in MEASURED:
            raise InvalidResult(f"returned a reward {name!r}, a name that is taken: choose another")
    return parts
