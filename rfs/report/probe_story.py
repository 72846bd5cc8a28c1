"""The probes of a run as the slider shows them, and the most telling change."""

from dataclasses import dataclass

from reasoning_from_scratch.text import shorten, visible

SHOWN_ANSWER = 3000  # characters
SHOWN_TRUTH = 300
MIN_SHOWN = 0.0005  # the lowest probability that is not shown as 0.0%


@dataclass
class Change:
    """How the probability of one beginning of the answer moved, averaged over the probes."""

    token: str
    example: str  # first line of an answer that begins so
    first: float
    last: float
    first_step: int
    last_step: int


def slider_data(probes: list[dict]) -> dict | None:
    """The data that the page's script reads, for the problems of the last record."""
    if not probes:
        return None
    by_step = [{_problem_key(probe): probe for probe in row["probes"]} for row in probes]
    problems = [
        {
            "problem": visible(shorten(probe["problem"], SHOWN_ANSWER)),
            "answer": visible(shorten(probe["answer"], SHOWN_TRUTH)),
            "at": [_slider_entry(by_problem.get(_problem_key(probe))) for by_problem in by_step],
        }
        for probe in probes[-1]["probes"]
    ]
    return {"steps": [row["step"] for row in probes], "problems": problems}


def _problem_key(probe: dict) -> tuple[str, str]:
    """Several problems may have the same id."""
    return probe["problem_id"], probe["problem"]


def _slider_entry(probe: dict | None) -> dict | None:
    if probe is None:
        return None
    return {
        "text": visible(shorten(probe["text"], SHOWN_ANSWER)),
        "correct": probe["correct"],
        "finished": probe["finished"],
        "tokens": [_shown_token(token) for token in probe["tokens"]],
        "top": [
            [[_shown_token(token), p] for token, p in candidates if p and p >= MIN_SHOWN]
            for candidates in probe["top"]
        ],
    }


def _shown_token(text: str) -> str:
    return visible(shorten(text, 60))


def biggest_change(probes: list[dict]) -> Change | None:
    """The first token whose probability rose most, if any rose."""
    if len(probes) < 2:
        return None
    first, last = (_first_tokens(row["probes"]) for row in (probes[0], probes[-1]))
    if not last:
        return None
    token = max(last, key=lambda token: last[token] - first.get(token, 0.0))
    before = first.get(token, 0.0)
    if last[token] - before < 0.01:
        return None
    answers = [probe["text"] for probe in probes[-1]["probes"] if probe["tokens"][:1] == [token]]
    example = shorten(answers[0].strip().split("\n")[0], 60) if answers else ""
    return Change(token, example, before, last[token], probes[0]["step"], probes[-1]["step"])


def _first_tokens(probes: list[dict]) -> dict[str, float]:
    """Mean probability of each first token; where a token was not recorded, it counts as 0."""
    mean_probability: dict[str, float] = {}
    for probe in probes:
        for token, p in probe["top"][0] if probe["top"] else []:
            mean_probability[token] = mean_probability.get(token, 0.0) + (p or 0.0) / len(probes)
    return mean_probability
