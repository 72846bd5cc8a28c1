"""An environment, and how it talks with a rollout: text to tokens and back, limits and failures."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from reasoning_from_scratch.errors import unknown_name
from reasoning_from_scratch.problems import Problem, is_file_function, refuse_bare_file
from reasoning_from_scratch.sampling import Partner, Rollout, Sampling
from reasoning_from_scratch.tokenizer import text_before_stop
from rfs.tasks.environments.calculator import Calculator
from rfs.tasks.environments.guess import Guess
from rfs.tasks.environments.retry import Retry
from rfs.tasks.environments.tools import (
    TOOL_SECONDS,
    ToolEnvironment,
    ToolEnvironmentFactory,
    ToolResults,
    makes_tool_objects,
    tool_environment_factory,
)
from rfs.tasks.foreign import InvalidResult, call_guarded, finite_numbers, short_repr
from rfs.tasks.own_task import function_from_file


class Environment(Protocol):
    """What answers the model. One is made for each rollout, from its problem."""

    def reply(self, turn: str) -> str | ToolResults | None:
        """The reply to a turn of the model: a text, or results of tools. None: it is over."""

    def rewards(self) -> dict[str, float]:
        """The rewards of the rollout, read when it is over: `correct`, and other parts."""


MakeEnvironment = Callable[[Problem], Environment]
BUILT_IN_ENVIRONMENTS: dict[str, MakeEnvironment] = {"guess": Guess, "retry": Retry}
REPLY_SECONDS = 5.0  # for one call of an environment
LONGEST_REPLY = 10_000  # characters


def environment_factory(name: str) -> MakeEnvironment:
    """What makes an environment from a problem: a built-in environment, or FILE.py:CLASS."""
    refuse_bare_file(name, "class")
    if name not in BUILT_IN_ENVIRONMENTS and not is_file_function(name):
        raise unknown_name("environment", name, [*BUILT_IN_ENVIRONMENTS, "FILE.py:CLASS"])
    if name in BUILT_IN_ENVIRONMENTS:
        return BUILT_IN_ENVIRONMENTS[name]
    member = function_from_file(name)
    return tool_environment_factory(member) if makes_tool_objects(member) else member


def gives_own_reward(name: str) -> bool:
    """Whether an environment is known to need neither a problem's answer nor the grader."""
    factory = environment_factory(name)
    return isinstance(factory, ToolEnvironmentFactory) and factory.gives_reward


def partner_factory(
    sampling: Sampling, tokenizer, problems: Sequence[Problem]
) -> Callable[[int], Partner]:
    """A function that makes the Partner of a rollout from the index of its problem."""
    if sampling.environment is None:
        return lambda index: Calculator(tokenizer)
    make_environment = environment_factory(sampling.environment)
    return lambda index: Conversation(make_environment, problems[index], tokenizer, sampling)


class Conversation(Partner):
    """The Partner that speaks for an environment. If that fails, only its rollout ends."""

    def __init__(
        self, make_environment: MakeEnvironment, problem: Problem, tokenizer, sampling: Sampling
    ) -> None:
        self.tokenizer, self.sampling = tokenizer, sampling
        self.calculator = Calculator(tokenizer) if sampling.calculator else None
        self.turns, self.turn_start = 0, 0
        self.failure, self.ran_out = "", False
        has_tools = isinstance(make_environment, ToolEnvironmentFactory)
        self.seconds = TOOL_SECONDS if has_tools else REPLY_SECONDS
        self.environment = self.call_environment(unchanged, lambda: make_environment(problem))

    def call_environment(self, convert: Callable[[Any], Any], call: Callable[[], object]) -> Any:
        """What a call of the environment returns, converted by `convert`; None if it fails or an
        earlier call failed. The first failure is recorded."""
        if self.failure:
            return None
        result, self.failure = call_guarded(convert, self.seconds, call)
        return result

    def begin(self, prompt_ids: list[int], most: int) -> list[int]:
        """The prompt; for tools, one that lists them and contains the text from `reset`."""
        if not isinstance(self.environment, ToolEnvironment):
            return prompt_ids
        tool_prompt_ids = self.environment.prompt_ids(self.tokenizer)
        if len(tool_prompt_ids) <= most:
            return tool_prompt_ids
        self.failure = (
            "has, with its tools and what reset said, a prompt of "
            f"{len(tool_prompt_ids):,} tokens; there is room for {most:,}"
        )
        return prompt_ids

    def hear(self, response_ids: list[int], stopped: bool) -> list[int] | None:
        """The reply's tokens at the end of a turn; within one, what a calculator says."""
        turn = response_ids[self.turn_start :]
        cut_off = 0 < self.sampling.max_turn_tokens <= len(turn) - stopped
        if not stopped and not cut_off:
            reply_ids = self.calculator.hear(response_ids, stopped) if self.calculator else []
        else:
            text = (
                text_before_stop(self.tokenizer, turn) if stopped else self.tokenizer.decode(turn)
            )
            reply_ids = self.answer(text, stopped)
        if reply_ids and (stopped or cut_off):
            self.turn_start = len(response_ids) + len(reply_ids)
        return reply_ids

    def answer(self, turn: str, stopped: bool) -> list[int] | None:
        """The environment's reply to a finished turn, as tokens; None if the rollout is over."""
        self.turns += 1
        reply = self.call_environment(as_reply, lambda: self.environment.reply(turn))
        if self.failure or reply is None:
            return None
        if self.turns == self.sampling.max_turns:
            self.ran_out = True
            return None
        from_tools = isinstance(reply, ToolResults)
        text = (self.tokenizer.results_turn if from_tools else self.tokenizer.reply_turn)(reply)
        end_of_turn = [] if stopped else [self.tokenizer.eos_token_id]
        return end_of_turn + self.tokenizer.encode(text, chat_wrapped=False)

    def leave(self, rollout: Rollout) -> None:
        """Record the rewards. The environment does not see a turn that the length limit cut off."""
        rewards = self.call_environment(as_rewards, lambda: self.environment.rewards())
        rollout.turns, rollout.ran_out = max(1, self.turns), self.ran_out
        rollout.failure = self.failure
        rollout.outcome = rewards or {"correct": 0.0}


# --- what an environment must return ---

# Other metrics of a rollout (report/metrics.py), whose names a reward would overwrite.
TAKEN_NAMES = (
    "reward_failed overlong cutoff_share ac_tokens_per_turn ob_tokens_per_turn "
    "turns_per_episode total_episodes total_turns total_ac_tokens total_ob_tokens "
    "forced_tokens_per_turn ran_out_of_turns"
).split()


def unchanged(environment: Any) -> Any:
    return environment


def as_reply(value: Any) -> str | ToolResults | None:
    """A text that a tokenizer takes, or what tools have returned, or None."""
    if value is None or isinstance(value, ToolResults):
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
        if name in TAKEN_NAMES:
            raise InvalidResult(f"returned a reward {name!r}, a name that is taken: choose another")
    return parts
