"""Who judges a rollout: the grader, a verifier from a file, the rules of a set, an environment."""

from collections.abc import Iterable

from reasoning_from_scratch.config import Rewards
from reasoning_from_scratch.errors import unknown_name
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.rewards import correctness
from reasoning_from_scratch.rollouts import Judge, grader
from reasoning_from_scratch.sampling import Rollout
from rfs.tasks.foreign import Unfit
from rfs.tasks.own_task import Verifier, function_from_file
from rfs.tasks.problem_sets import SOURCES

RULES = {kind.rules: Verifier(kind.score) for kind in SOURCES if kind.rules}


def verifier_of(problem: Problem, named: Verifier | None = None) -> Verifier | None:
    """Who judges the answers to a problem: the verifier that the reader `named`, else the rules of
    the problem's set, as a verifier; None means the grader."""
    if named or not problem.rules:
        return named
    if problem.rules not in RULES:
        raise unknown_name("set with rules of its own", problem.rules, RULES)
    return RULES[problem.rules]


def reward_by_set(text: str, problem: Problem) -> float:
    """The reward by the rules of the problem's set, if it has some, or by the grader. Raises Unfit
    if the rules fail."""
    verifier = verifier_of(problem)
    if verifier is None:
        return correctness(text, problem.answer)
    reward, failure = verifier(text, problem)
    if failure:
        raise Unfit(failure)
    return reward


def named_verifier(name: str | None) -> Verifier | None:
    """The verifier that --reward names, if it names one."""
    return Verifier(function_from_file(name), source=name) if name else None


def judge_of(config: Rewards) -> Judge:
    """The judge of a run, as its options say."""
    return judge_by(named_verifier(config.reward), config.reward_parts)


def judge_by(named: Verifier | None, weights: Iterable[str] = ()) -> Judge:
    """judge(rollout, problem) -> reward parts. The first of these decides: an environment that has
    talked with the model, the verifier that the reader `named`, the rules of the problem's set, the
    grader. An environment must pay the parts that have weights."""

    def judge(rollout: Rollout, problem: Problem) -> dict[str, float]:
        if rollout.outcome is not None:
            return paid_by_environment(rollout, weights)
        verifier = verifier_of(problem, named)
        if verifier is None:
            return grader(rollout, problem)
        correct, rollout.failure = verifier(rollout.text, problem)
        return {"correct": correct, "reward_failed": float(bool(rollout.failure))}

    return judge


def paid_by_environment(rollout: Rollout, weights: Iterable[str]) -> dict[str, float]:
    """The rewards from an environment, with every part that has a weight. An environment that
    lacks a part has failed, and its rollout gets 0."""
    missing = missing_part(weights, rollout.outcome)
    if missing and not rollout.failure:
        rollout.failure, rollout.outcome = missing, {"correct": 0.0}
    failed = {"reward_failed": 1.0} if rollout.failure else {}
    others = dict.fromkeys((name for name in weights if name != "wrong"), 0.0)
    return others | rollout.outcome | failed


def missing_part(weights: Iterable[str], paid: dict[str, float]) -> str:
    """Which part with a weight the environment does not return; "" if it returns all."""
    for name in weights:
        if name not in paid and name != "wrong":  # by default that one is 1 - correct
            return f"returned no {name} of --reward-parts; it returns {', '.join(paid)}"
    return ""
