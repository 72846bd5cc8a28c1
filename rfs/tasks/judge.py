"""Who judges a rollout: the grader, a verifier from a file, the rules of a set, an environment."""

from collections.abc import Iterable

from reasoning_from_scratch.config import Rewards
from reasoning_from_scratch.errors import unknown_name
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.rewards import correctness
from reasoning_from_scratch.rollouts import Judge, grader
from reasoning_from_scratch.sampling import Rollout
from rfs.tasks.foreign import InvalidResult
from rfs.tasks.own_task import Verifier, function_from_file
from rfs.tasks.problem_sets import SOURCES

VERIFIERS_BY_RULES = {kind.rules: Verifier(kind.score) for kind in SOURCES if kind.rules}


def verifier_of(problem: Problem, override: Verifier | None = None) -> Verifier | None:
    """The verifier of a problem's answers: `override` if the reader names one, else the rules of
    the problem's set. None means the grader."""
    if override or not problem.rules:
        return override
    if problem.rules not in VERIFIERS_BY_RULES:
        raise unknown_name("set with rules of its own", problem.rules, VERIFIERS_BY_RULES)
    return VERIFIERS_BY_RULES[problem.rules]


def reward_by_rules(text: str, problem: Problem) -> float:
    """The reward by the rules of the problem's set, if it has some, or by the grader. Raises
    InvalidResult if the rules fail."""
    verifier = verifier_of(problem)
    if verifier is None:
        return correctness(text, problem.answer)
    reward, failure = verifier(text, problem)
    if failure:
        raise InvalidResult(failure)
    return reward


def named_verifier(name: str | None) -> Verifier | None:
    """The verifier that --reward names, if it names one."""
    return Verifier(function_from_file(name), source=name) if name else None


def judge_of(config: Rewards) -> Judge:
    """The judge of a run, as its options say."""
    return make_judge(named_verifier(config.reward), config.reward_parts)


def make_judge(override: Verifier | None, weighted_parts: Iterable[str] = ()) -> Judge:
    """judge(rollout, problem) -> reward parts. The first of these decides: an environment that has
    talked with the model, the verifier `override`, the rules of the problem's set, the grader. An
    environment must return all `weighted_parts` except `wrong`."""

    def judge(rollout: Rollout, problem: Problem) -> dict[str, float]:
        if rollout.outcome is not None:
            return environment_rewards(rollout, weighted_parts)
        verifier = verifier_of(problem, override)
        if verifier is None:
            return grader(rollout, problem)
        correct, rollout.failure = verifier(rollout.text, problem)
        return {"correct": correct, "reward_failed": float(bool(rollout.failure))}

    return judge


def environment_rewards(rollout: Rollout, weighted_parts: Iterable[str]) -> dict[str, float]:
    """The rewards from an environment, with every part that has a weight. An environment that
    lacks a part has failed, and its rollout gets 0."""
    missing = missing_part_failure(weighted_parts, rollout.outcome)
    if missing and not rollout.failure:
        rollout.failure, rollout.outcome = missing, {"correct": 0.0}
    failed = {"reward_failed": 1.0} if rollout.failure else {}
    others = dict.fromkeys((name for name in weighted_parts if name != "wrong"), 0.0)
    return others | rollout.outcome | failed


def missing_part_failure(weighted_parts: Iterable[str], rewards: dict[str, float]) -> str:
    """A sentence if rewards lack one of `weighted_parts`; "" if none is missing."""
    for name in weighted_parts:
        if name not in rewards and name != "wrong":  # by default that one is 1 - correct
            return f"returned no {name} of --reward-parts; it returns {', '.join(rewards)}"
    return ""
