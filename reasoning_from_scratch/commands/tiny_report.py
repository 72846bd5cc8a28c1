"""`rfs tiny-report`: what a tiny model can do, and what it does of its own accord."""

from collections import defaultdict
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

from reasoning_from_scratch.evaluation.evaluate import EvalResult, evaluate, open_model
from reasoning_from_scratch.files.problem_sets import load_problems
from reasoning_from_scratch.problems import Problem, render_prompt
from reasoning_from_scratch.sampling import Sampling, greedy
from reasoning_from_scratch.tiny.world import WORKED_START

MAX_NEW_TOKENS = 160  # the longest working, of the longer problems, has 118


@dataclass
class TinyReportOptions:
    """Options of `rfs tiny-report`."""

    model: str = "tiny-base"
    """tiny-base, tiny-grpo, or what has the tiny model's tokenizer: a folder, file or run."""
    limit: int | None = None
    """Use only the first so many problems of each set."""
    samples: int = 4
    """Answers per problem at temperature 1."""
    seed: int = 0
    """Seed of those answers."""


def begin_answers(tokenizer) -> tuple:
    """A tokenizer and a prompt function that end in the first words of a worked solution.

    A model that ends turns gets them as the first words of its thought.
    """
    if not tokenizer.apply_chat_template:
        return tokenizer, lambda problem: f"{render_prompt(problem)} {WORKED_START}"
    plain = copy(tokenizer)  # the turn is written here, so it must not be wrapped again
    plain.apply_chat_template = False
    return (
        plain,
        lambda problem: f"{tokenizer.wrap_chat(render_prompt(problem))}<think>\n{WORKED_START}",
    )


def starts_working(row: dict) -> bool:
    answer = row["generated_text"].removeprefix("<think>").lstrip()
    return answer.startswith(WORKED_START)


def share(rows: list[dict], test: Callable[[dict], bool]) -> float:
    return sum(map(test, rows)) / len(rows)


def by_family(problems: list[Problem], result: EvalResult) -> dict[str, float]:
    """Accuracy for each type of problem."""
    families = defaultdict(list)
    for problem, row in zip(problems, result.rows, strict=True):
        families[problem.type].append(row["correct"])
    return {name: sum(right) / len(right) for name, right in sorted(families.items())}


def tiny_figures(model, tokenizer, options: TinyReportOptions) -> dict:
    """All figures of the report, as numbers."""
    sets = {name: load_problems(name, limit=options.limit) for name in ("tiny-test", "tiny-longer")}
    figures = {}
    for name, problems in sets.items():
        show = {"progress": True, "name": name}
        likeliest = evaluate(model, tokenizer, problems, greedy(MAX_NEW_TOKENS), **show)
        several = Sampling(MAX_NEW_TOKENS, rollouts=options.samples, seed=options.seed)
        sampled = evaluate(model, tokenizer, problems, several, **show)
        begin_tokenizer, begin = begin_answers(tokenizer)
        begun = evaluate(
            model, begin_tokenizer, problems, greedy(MAX_NEW_TOKENS), **show, prompt_fn=begin
        )
        figures[name] = {
            "problems": len(problems),
            "greedy accuracy": likeliest.accuracy,
            "greedy length": likeliest.mean_length,
            "greedy, works it out": share(likeliest.rows, starts_working),
            "sampled reward": sampled.accuracy,
            "sampled, works it out": share(sampled.rows, starts_working),
            "begun accuracy": begun.accuracy,
            "begun, by family": by_family(problems, begun),
            "greedy, by family": by_family(problems, likeliest),
        }
    return figures


def report_text(name: str, figures: dict) -> str:
    """One column per problem set, one row per figure; then the families of the test set."""
    sets = list(figures)
    lines = [f"{name:<34}" + "".join(f"{s:>14}" for s in sets)]
    for key, value in figures[sets[0]].items():
        if isinstance(value, dict):
            continue
        shown = (
            "{:>14.1f}"
            if "length" in key
            else "{:>14}"
            if isinstance(value, int)
            else ("{:>14.1%}")
        )
        lines.append(f"{key:<34}" + "".join(shown.format(figures[s][key]) for s in sets))
    lines += ["", f"{'family, ' + sets[0]:<34}{'greedy':>14}{'begun':>14}"]
    begun_by, greedy_by = (figures[sets[0]][f"{k}, by family"] for k in ("begun", "greedy"))
    lines += [f"{k:<34}{greedy_by[k]:>14.1%}{begun_by[k]:>14.1%}" for k in begun_by]
    return "\n".join(lines)


def tiny_report(options: TinyReportOptions) -> None:
    """Greedy, sampled, and with the first words of a worked solution given: the tiny model."""
    model, tokenizer = open_model(options.model, "cpu", "float32")
    print(report_text(options.model, tiny_figures(model, tokenizer, options)))
