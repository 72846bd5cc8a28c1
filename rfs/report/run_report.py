"""report.html: a run on one page, from its files alone."""

from pathlib import Path
from typing import Any, NamedTuple

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.text import evenly_spaced, percent, shorten
from rfs.report.metrics import ENTROPY, REWARD, RIGHT, TOKENS

from .learned import SHOWN_TEXT, EvalRow, eval_rows, learning_summary
from .pages import render, write_unsynced
from .probe_story import biggest_change, slider_data
from .run_files import (
    RunFiles,
    first_and_last_means,
    is_number,
    metric_values,
    read_all_rollouts,
    read_run,
)
from .settings import changed_settings
from .ways import first_and_last, train_answers, ways_over_time
from .wording import wordings

RECENT_STEPS = 5  # the best and the worst rollouts are picked from these
NUM_PICKED = 3
LISTED_STEPS = 400
HEADLINES = (
    ("reward", REWARD, ".3f"),
    ("correct in training", RIGHT, "%"),
    ("tokens per answer", TOKENS, ".1f"),
    ("entropy", ENTROPY, ".3f"),
)
SUPERVISED_HEADLINES = (("loss", "optim/loss", ".3f"), ("tokens per answer", TOKENS, ".1f"))
# How to recognize each of tiny.ways.WAYS in a text, in the order of the style sheet's colors.
WAY_WORDS = {
    "answer only": "no solution step, only the box",
    "rough": "about every second solution step, the others done in the head",
    "full": "one line for each step",
    "checked": "one line for each step, most of them checked: “Yes”, or “No” and a number",
}
SPANS = ("sampling", "reward", "train", "eval", "save", "report")


def write_run_report(folder: str | Path) -> Path:
    """Write report.html into the run's folder and return its path."""
    path = Path(folder) / "report.html"
    if path.exists() and not (path.parent / "metrics.jsonl").exists():
        raise UserError(
            f"{folder} has lost its metrics.jsonl, so {path} is left as it is: a new one would "
            "have no curves"
        )
    write_unsynced(path, run_page(folder))
    return path


def run_page(folder: str | Path) -> str:
    """The page as text."""
    from .curves import make_charts  # matplotlib takes half a second to load
    from .ways_picture import way_pictures

    run = read_run(folder)
    answers = train_answers(run)
    charts, rows = make_charts(run), eval_rows(run)
    summaries = [learning_summary(run, name) for name in run.evals]
    return render(
        "run.html",
        script="run.js",
        run=run,
        title=_title(run),
        state=_state(run),
        tiles=_run_tiles(run, rows),
        change=biggest_change(run.probes),
        data={"charts": _chart_data(charts), "probes": slider_data(run.probes)},
        charts=charts,
        ways=way_pictures(ways_over_time(answers)) if answers else [],
        way_ends=first_and_last(answers) if answers else [],
        way_words=WAY_WORDS,
        wordings=wordings(run),
        evals=rows,
        learned=[summary for summary in summaries if summary],
        picked=_best_and_worst(read_all_rollouts(run.train_files[-RECENT_STEPS:])),
        times=_time_shares(run.metrics),
        chosen=changed_settings(run.config),
        config=_flattened({name: v for name, v in run.config.items() if name != "set_by"}),
        steps=_listed_steps(run),
        step_columns=[name for name, *_ in _measured_headlines(run)],
        text_limit=SHOWN_TEXT,
    )


def _title(run: RunFiles) -> str:
    recipe, model = run.config.get("recipe"), run.config.get("model")
    return shorten(f"{recipe} on {model}", 100) if recipe and model else run.name


def _state(run: RunFiles) -> str:
    if not run.metrics:
        return "no step finished yet"
    last = run.metrics[-1]
    total = run.config.get("steps")
    done = f"{last['step'] + 1:,}" + (f" of {total:,}" if isinstance(total, int) else "") + " steps"
    finished = any(row.get("final") for row in run.checkpoints)
    return f"{done}, {'finished' if finished else 'not finished'}"


def _run_tiles(run: RunFiles, evals: list[EvalRow]) -> list[tuple[str, str, str]]:
    """Name, current value, and first value."""
    tiles = []
    for name in run.evals:
        rows = [row for row in evals if row.name == name]
        if rows:
            latest = rows[-1]
            before = f"from {percent(rows[0].accuracy)}" if len(rows) > 1 else ""
            label = f"accuracy, {name} ({latest.problems})"
            tiles.append((label, percent(latest.accuracy), before))
    for name, key, spec in _headlines(run):
        values = metric_values(run.metrics, key)
        if values:
            first, last = first_and_last_means(values)
            before = f"from {_formatted(first, spec)}" if len(values) > 1 else ""
            name = name.replace("answer", run.unit)  # of the tokens
            tiles.append((name, _formatted(last, spec), before))
    seconds = sum(row.get("time/total") or 0.0 for row in run.metrics)
    if seconds:
        tiles.append(("time", _duration(seconds), f"{seconds / len(run.metrics):.2f} s a step"))
    return tiles


def _headlines(run: RunFiles) -> tuple[tuple[str, str, str], ...]:
    return SUPERVISED_HEADLINES if run.supervised else HEADLINES


def _formatted(value: float, spec: str) -> str:
    return percent(value) if spec == "%" else format(value, spec)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, hours = seconds / 60, seconds / 3600
    return f"{minutes:.1f} min" if minutes < 60 else f"{hours:.1f} h"


def _chart_data(charts: list) -> list[dict]:
    return [
        {
            "shares": chart.are_shares,
            "lines": [
                {"label": line.label, "steps": line.steps, "values": _rounded(line.values)}
                for line in chart.lines
            ],
        }
        for chart in charts
    ]


def _rounded(values: list[float]) -> list[float]:
    """Enough digits for the value shown under a chart."""
    return [float(f"{value:.5g}") for value in values]


def _best_and_worst(rows: list[dict]) -> list[tuple[str, list[dict]]]:
    """Best and worst answers of the last steps; among ties, those that move the model most."""
    rows = [row for row in rows if None not in (row["total_reward"], row["advantage"])]  # NaN
    ascending = sorted(rows, key=lambda row: (row["total_reward"], row["advantage"]))
    worst, best = _of_different_problems(ascending), _of_different_problems(ascending[::-1])
    return [("Best", best), ("Worst", worst)] if rows else []


def _of_different_problems(rows: list[dict]) -> list[dict]:
    first: dict[tuple[str, str], dict] = {}  # several problems may have the same id
    for row in rows:
        first.setdefault((row["problem_id"], row["steps"][0]["logs"]["problem"]), row)
    return list(first.values())[:NUM_PICKED]


def _time_shares(rows: list[dict]) -> list[tuple[str, float]]:
    """Each stage's share of the run's time."""
    sums = {name: sum(row.get(f"time/{name}") or 0.0 for row in rows) for name in SPANS}
    total = sum(row.get("time/total") or 0.0 for row in rows) or sum(sums.values())
    shares = [(name, value / total) for name, value in sums.items() if value]
    remainder = 1.0 - sum(share for _, share in shares)
    return [*shares, ("other", remainder)] if shares and remainder > 0.005 else shares


def _flattened(config: dict, prefix: str = "") -> list[tuple[str, Any]]:
    rows = []
    for key, value in config.items():
        if isinstance(value, dict) and value:
            rows += _flattened(value, f"{prefix}{key}.")
        else:
            text = "" if value is None else shorten(str(value), 500)
            rows.append((shorten(f"{prefix}{key}", 100), text))
    return rows


def _measured_headlines(run: RunFiles) -> list[tuple[str, str, str]]:
    return [headline for headline in _headlines(run) if metric_values(run.metrics, headline[1])]


class ListedStep(NamedTuple):
    """A row of the table of pages."""

    number: int  # from 1
    page: str  # of what was sampled in it; "" if there is none
    figures: list[str]  # of the headlines that the run has
    evals: list[tuple[str, str]]  # what was evaluated before it, and its page


def _listed_steps(run: RunFiles) -> list[ListedStep]:
    """The steps that have pages. A training file's number counts from 0; an evaluation's is the
    number of steps before it."""
    metrics, headlines = {row["step"]: row for row in run.metrics}, _measured_headlines(run)
    rows = []
    for step, names in evenly_spaced(list(run.pages.items()), LISTED_STEPS):
        page = next((name for name in names if name.startswith("train_")), "")
        values = [(metrics.get(step, {}).get(key), spec) for _, key, spec in headlines]
        figures = [_formatted(value, spec) if is_number(value) else "" for value, spec in values]
        evals = [
            (name.removeprefix("eval_").split("_iteration_")[0], name)
            for name in names
            if name != page
        ]
        rows.append(ListedStep(step + 1, page, figures if page else [""] * len(figures), evals))
    return rows
