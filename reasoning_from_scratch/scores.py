"""From graded answers to scores: accuracy with its interval, pass@k, majority vote."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from answer_grader import grade_answer
from reasoning_from_scratch.text import percent, percent_range


class Answers:
    """Rows by problem, kept in memory."""

    def __init__(self) -> None:
        self.groups: dict[int, list[dict]] = {}  # problem, counted from 0 -> its rows

    def rows(self) -> list[dict]:
        """All rows, by problem, then sample."""
        return [row for index in sorted(self.groups) for row in self.groups[index]]

    def add(self, index: int, rows: list[dict]) -> None:
        """Keeps the rows of a problem that has just finished."""
        self.groups[index] = rows

    def finish(self, card: dict) -> None:
        """All problems are answered."""

    def read_card(self) -> dict:
        """What is known of an earlier evaluation."""
        return {}


@dataclass
class EvalResult:
    """What an evaluation measured; `rows` holds one dict per answer, by problem, then sample."""

    accuracy: float
    interval: tuple[float, float]  # 95%, Wilson
    pass_at: dict[int, float]
    majority: float | None  # None: the judge does not say which answer it read
    mean_length: float
    cutoff_share: float
    parse_rate: float
    tokens_per_sec: float
    rows: list[dict]

    def scores(self) -> dict[str, Any]:
        """Everything but the rows."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "rows"}

    def report(self) -> str:
        """The scores for people, one per line."""
        low, high = self.interval
        rows = {"accuracy": f"{percent(self.accuracy)}  (95% interval {percent_range(low, high)})"}
        samples = max(self.pass_at)
        if samples > 1:
            powers = {2**i for i in range(1, samples.bit_length())} | {samples}
            rows |= {f"pass@{k}": percent(self.pass_at[k]) for k in sorted(powers) if k <= samples}
            if self.majority is not None:
                rows["majority vote"] = percent(self.majority)
        rows["mean length"] = f"{self.mean_length:.1f} tokens"
        rows["cut off"] = percent(self.cutoff_share)
        rows["answers parsed"] = percent(self.parse_rate)
        rows["speed"] = f"{self.tokens_per_sec:,.0f} tokens/s"
        return "\n".join(f"  {name:<16}{value}" for name, value in rows.items())


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that k of n answers, drawn without replacement, hold one of the c correct ones.

    Unbiased for pass@k, unlike 1 - (1 - c/n)^k (Chen et al. 2021, arXiv:2107.03374).
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass@k needs 0 <= c <= n and 1 <= k <= n, not n={n}, c={c}, k={k}")
    draws = math.comb(n, k)
    return (draws - math.comb(n - c, k)) / draws  # whole numbers of any size, rounded only here


def wilson_interval(correct: float, total: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's score interval for a share; z = 1.96 gives 95%. Sane at 0 and at 1."""
    share = correct / total
    middle = share + z**2 / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z**2 / (4 * total**2))
    scale = 1 + z**2 / total
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def majority_share(rows: list[dict]) -> float:
    """1 if the most frequent answer of one problem is correct, 0 if not.

    Equal answers in different spelling vote together; what cannot be parsed does not vote; a tie
    is broken at random, so its value is the share of correct ones among the tied answers.
    """
    parties = ballots([row for row in rows if row["parsed"]], same_vote)
    most_votes = max(map(len, parties), default=0)
    winners = [party[0]["correct"] for party in parties if len(party) == most_votes]
    return sum(winners) / len(winners) if winners else 0.0


def ballots(rows: list[dict], same: Callable[[dict, dict], bool]) -> list[list[dict]]:
    """The answers, grouped by which are the same, in the order in which they came."""
    parties: list[list[dict]] = []
    by_spelling: dict[tuple, list[dict]] = {}  # equal spellings need no comparison
    for row in rows:
        spelling = row.get("correct"), row["extracted"]
        if spelling in by_spelling:
            by_spelling[spelling].append(row)
            continue
        for party in parties:
            if same(row, party[0]):
                party.append(row)
                break
        else:
            party = [row]
            parties.append(party)
        by_spelling[spelling] = party
    return parties


def same_vote(row: dict, other: dict) -> bool:
    """Whether two answers to one problem are equal, and graded so. The correct ones are."""
    return row["correct"] == other["correct"] and (row["correct"] or equal_answers(row, other))


def equal_answers(row: dict, other: dict) -> bool:
    """Whether two answers are equal, perhaps in different spelling."""
    return row["extracted"] == other["extracted"] or grade_answer(
        row["extracted"], other["extracted"]
    )


def mean(rows: list[dict], key: str) -> float:
    """The mean of one column."""
    return sum(row[key] for row in rows) / len(rows)


def score_rows(rows: list[dict], num_samples: int, tokens_per_sec: float) -> EvalResult:
    """All figures of an evaluation from its rows (num_samples rows per problem, in order)."""
    groups = [rows[i : i + num_samples] for i in range(0, len(rows), num_samples)]
    correct_counts = [sum(row["correct"] for row in group) for group in groups]
    accuracy = mean(rows, "correct")
    # A verifier or an environment does not say which answer it read, so there is no vote.
    has_votes = "reward" not in rows[0]
    pass_at = {
        k: sum(pass_at_k(num_samples, c, k) for c in correct_counts) / len(groups)
        for k in range(1, num_samples + 1)
    }
    return EvalResult(
        accuracy=accuracy,
        # Several answers to one problem are not independent: the problems are what we have n of.
        interval=wilson_interval(accuracy * len(groups), len(groups)),
        pass_at=pass_at,
        majority=sum(map(majority_share, groups)) / len(groups) if has_votes else None,
        mean_length=mean(rows, "tokens"),
        cutoff_share=1.0 - mean(rows, "stopped"),
        parse_rate=mean(rows, "parsed"),
        tokens_per_sec=tokens_per_sec,
        rows=rows,
    )
