"""Several tries at a problem: how good does each look, and which one should we take?

Nothing here knows whether a try is correct.
"""

import math

from reasoning_from_scratch.ch05 import heuristic_score
from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.fast.packed import packed_logprobs
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.sampling import Rollout
from reasoning_from_scratch.scores import ballots, equal_answers

SCORED_TOKENS = 16_384  # at most this many in one pass that measures confidence

# --- scores: higher is better ---


def mean_logprobs(model, prompt: list[int], answers: list[list[int]]) -> list[float]:
    """The mean log-probability of each answer's tokens after the prompt: the model's confidence.

    It is measured at temperature 1, whatever temperature the answers were sampled with.
    """
    scores = [-math.inf] * len(answers)  # an empty answer must not count as a confident one
    places = [place for place, answer in enumerate(answers) if answer]
    rollouts = [Rollout(None, prompt, answers[at], [0.0] * len(answers[at])) for at in places]
    if rollouts:
        as_it_is = TrainConfig(micro_batch_tokens=SCORED_TOKENS)
        policy = LocalPolicy(model, config=as_it_is, training_pass=packed_logprobs)
        for place, logprobs in zip(places, policy.logprobs(rollouts), strict=True):
            scores[place] = float(logprobs.mean())
    return scores


def by_confidence(model, prompt: list[int], rollouts: list[Rollout], texts: list[str]):
    return mean_logprobs(model, prompt, [rollout.text_ids for rollout in rollouts])


def by_rules(model, prompt: list[int], rollouts: list[Rollout], texts: list[str]):
    return [heuristic_score(text) for text in texts]


SCORES = {"logprob": by_confidence, "heuristic": by_rules}

# --- choosing one of several tries ---


def first(tries: list[dict]) -> dict:
    return tries[0]


def best(tries: list[dict]) -> dict:
    """The try with the highest score; the first one in a tie."""
    return max(tries, key=lambda row: row["score"])


def vote(tries: list[dict]) -> dict:
    """A try with the most frequent answer; equal answers written differently vote together. In a
    tie the best score decides or, without scores, the order."""
    parties = ballots([row for row in tries if row["extracted"]], equal_answers)
    most = max(map(len, parties), default=0)
    tied = [party for party in parties if len(party) == most]
    if len(tied) > 1 and "score" in tries[0]:
        return best([row for party in tied for row in party])
    return tied[0][0] if tied else tries[0]
