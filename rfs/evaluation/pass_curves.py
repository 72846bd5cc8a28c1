"""pass@k as a curve over k: what a model can solve if it may try often enough, with error bands."""

from dataclasses import dataclass

import torch
from torch import Tensor

from reasoning_from_scratch.sampling import stream_key, uniform_at
from reasoning_from_scratch.scores import EvalResult, pass_at_k
from reasoning_from_scratch.text import percent, percent_range, points

RESAMPLES = 2000
BAND = 0.95


@dataclass
class Curve:
    """A value for each k from 1 to K, and the ends of its 95% band."""

    mean: list[float]
    low: list[float]
    high: list[float]


def pass_rates(result: EvalResult) -> Tensor:
    """pass@k of each problem of an evaluation, (N, K): a row per problem, a column per k."""
    samples = max(result.pass_at)
    correct = torch.tensor([row["correct"] for row in result.rows]).view(-1, samples)
    ks = range(1, samples + 1)
    by_count = [[pass_at_k(samples, c, k) for k in ks] for c in range(samples + 1)]
    return torch.tensor(by_count, dtype=torch.float64)[correct.sum(1)]


def curve_with_band(rates: Tensor, seed: int = 0) -> Curve:
    """The mean over the problems of rates (N, K), and its band.

    The band asks what would have come out on other problems of the same kind. Answers to one
    problem are not independent, so whole problems are drawn anew, with replacement (Efron 1979).
    Equal seeds draw the same problems for each model, and the band of a difference of two models'
    rates is narrower than that of either. Where every problem came out alike, at 0 or at 1, there
    is nothing to resample and the band has no width: it says too little there.
    """
    count = len(rates)
    draws = uniform_at(stream_key(seed, 0, 0, 0), torch.arange(RESAMPLES * count))
    resampled = (draws.double() * count).long().view(RESAMPLES, count)
    # With the number of times that each problem was drawn, all means are one matrix product.
    draw_counts = torch.zeros(RESAMPLES, count, dtype=rates.dtype)
    draw_counts.scatter_add_(1, resampled, torch.ones_like(draw_counts))
    means = draw_counts @ rates / count  # (RESAMPLES, K)
    low, high = means.quantile(torch.tensor([(1 - BAND) / 2, (1 + BAND) / 2]).to(means), dim=0)
    return Curve(rates.mean(0).tolist(), low.tolist(), high.tolist())


def shown_ks(largest: int) -> list[int]:
    """1, 2, 4, ... and the largest k."""
    return sorted({2**i for i in range(largest.bit_length())} | {largest})


def pass_table(rates: dict[str, Tensor]) -> str:
    """A row per k, a column per model, and how far each is above the first; in Markdown."""
    (first, base), *others = rates.items()
    columns = {
        name: map(share_with_band, *curve_values(curve_with_band(rates_NK)))
        for name, rates_NK in rates.items()
    }
    for name, rates_NK in others:
        gain = curve_with_band(rates_NK - base)
        columns[f"{name} minus {first}"] = map(difference_with_band, *curve_values(gain))
    rows = zip(*columns.values(), strict=True)
    ks = range(1, base.shape[1] + 1)
    table = {k: row for k, row in zip(ks, rows, strict=True) if k in shown_ks(len(ks))}
    lines = [["k", *columns], ["---:"] * (1 + len(columns))]
    lines += [[str(k), *row] for k, row in table.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def curve_values(curve: Curve) -> tuple[list[float], list[float], list[float]]:
    return curve.mean, curve.low, curve.high


def share_with_band(mean: float, low: float, high: float) -> str:
    return f"{percent(mean)} ({percent_range(low, high)})"


def difference_with_band(mean: float, low: float, high: float) -> str:
    return f"{points(mean)} ({points(low)} to {points(high)})"
