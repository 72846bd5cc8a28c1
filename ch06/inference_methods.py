"""Better answers without training: a prompt, a vote, a score, a second look; and what each costs.

Every method here spends more tokens on a problem than one greedy answer. Chapters 4 and 5 build
them for one problem at a time; here many problems are answered side by side, every try is kept,
and the tokens of all of them are counted. No method knows whether a try is correct.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from choices import SCORES, best, first, vote

from reasoning_from_scratch.ch05 import make_critique_prompt, make_refine_prompt
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.problems import Problem, problem_prompt, render_prompt
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.rollouts import Group, sample_each
from reasoning_from_scratch.sampling import Sampling
from reasoning_from_scratch.scores import EvalResult, mean
from reasoning_from_scratch.text import percent, percent_range
from rfs.engine import FAST
from rfs.evaluation.evaluate import (
    Keep,
    answer_rows,
    answer_source,
    answered,
    check_problems,
    describe,
    describe_sampling,
    shown,
)

THINK_ALOUD = "\n\nExplain step by step."  # turns a prompt into a chain-of-thought prompt


@dataclass(frozen=True)
class Method:
    """What a method does with a problem."""

    choose: Callable[[list[dict]], dict] = first
    score: str = ""  # a name in SCORES
    greedy: bool = False
    several: bool = False  # several tries side by side: `samples` says how many
    refines: bool = False  # a draft, a review, a revision
    suffix: str = ""  # added to the prompt


METHODS = {
    "greedy": Method(greedy=True),
    "cot": Method(greedy=True, suffix=THINK_ALOUD),
    "sample": Method(),
    "vote": Method(vote, several=True),
    "vote_logprob": Method(vote, "logprob", several=True),  # the score decides a tie
    "vote_heuristic": Method(vote, "heuristic", several=True),
    "best_logprob": Method(best, "logprob", several=True),
    "best_heuristic": Method(best, "heuristic", several=True),
    "refine": Method(refines=True),  # the revision is always kept
    "refine_logprob": Method(score="logprob", refines=True),  # unless its score is lower
    "refine_heuristic": Method(score="heuristic", refines=True),
}


def method_label(name: str, samples: int) -> str:
    """A method's name in files and tables."""
    return f"{name}_{samples}" if METHODS[name].several else name


def answer_with(
    name: str,
    model,
    tokenizer,
    problems: Sequence[Problem],
    sampling: Sampling,
    *,
    iterations: int = 1,
    max_critique_tokens: int = 256,
    prompt_suffix: str = "",
    fallback: str | None = "number_then_full",
    out_path: str | Path | None = None,
    progress: bool = False,
    problem_set: str = "",
    model_name: str = "",
) -> EvalResult:
    """Answers every problem with the method of this name and grades what it chose.

    `sampling.rollouts` is the number of tries, for methods that make several. With `out_path`,
    a problem's line is on disk as soon as it is answered, and the same call continues from there.
    The line describes the chosen try, but its `tokens` are all that the problem cost.
    """
    method = METHODS[name]
    if method.greedy:
        sampling = replace(sampling, temperature=0.0, top_p=1.0, top_k=0)
    if not method.several:
        sampling = replace(sampling, rollouts=1)
    elif sampling.temperature == 0:
        raise UserError(f"{name} needs --temperature above 0: greedy answers are equal")
    suffix = prompt_suffix or method.suffix

    def prompt_fn(problem: str) -> str:
        return render_prompt(problem) + suffix

    numbers = {"samples": sampling.rollouts, "max_new_tokens": sampling.max_new_tokens}
    numbers |= {"iterations": iterations, "max_critique_tokens": max_critique_tokens}
    for option, number in numbers.items():
        if number < 1:
            raise UserError(f"--{option} is {number}, but must be at least 1")
    check_problems(problems)
    if rules := next((problem.rules for problem in problems if problem.rules), ""):
        raise UserError(f"problems of {rules} have rules of their own: use rfs evaluate for them")
    settings = {
        "method": name,
        **describe_sampling(sampling),
        **describe(model, tokenizer, problems, prompt_fn, answer_source(fallback, None)),
    }
    if method.refines:
        settings |= {"iterations": iterations, "max_critique_tokens": max_critique_tokens}
    solver = Solver(
        method, model, tokenizer, shown(model, tokenizer, problems, prompt_fn), sampling, fallback
    )

    def work(todo: list[int], keep: Keep) -> None:
        if method.refines:
            solver.refine(todo, keep, iterations, max_critique_tokens)
        else:
            solver.choose(todo, keep)

    where = {"out_path": out_path, "progress": progress, "name": problem_set}
    return answered(problems, settings, work, model=model, model_name=model_name, **where)


@dataclass
class Solver:
    """Answers problems with one method; a problem is known by its number."""

    method: Method
    model: Qwen3Model
    tokenizer: object
    problems: Sequence[Problem]
    sampling: Sampling
    fallback: str | None

    def ask(
        self, problems: dict[int, Problem], phase: int = 0, **changes: int
    ) -> Iterator[tuple[int, Group]]:
        """The answers to each problem, as they finish. Drafts, reviews and revisions are phases,
        each with random streams of its own: no answer depends on the other problems in the call."""
        sampling, left = replace(self.sampling, **changes), list(problems.values())
        for group in sample_each(
            self.model, self.tokenizer, left, sampling, phase, list(problems), engine=FAST
        ):
            yield group.rollouts[0].place[0], group

    def choose(self, todo: list[int], keep: Keep) -> None:
        """Makes all tries of a problem side by side, then chooses one."""
        for number, group in self.ask({number: self.problems[number] for number in todo}):
            tries = self.tries(number, group)
            chosen = self.method.choose(tries)
            keep(number, [final_row(chosen, tries, sum(row["tokens"] for row in tries))])

    def tries(self, number: int, group: Group) -> list[dict]:
        """Answers to a problem, graded, and scored if the method needs scores."""
        rows = answer_rows(number, group, self.fallback, None)
        if self.method.score:
            prompt = self.tokenizer.encode(problem_prompt(self.problems[number]))
            texts = [row["generated_text"] for row in rows]
            score = SCORES[self.method.score]
            values = score(self.model, prompt, group.rollouts, texts)
            for row, value in zip(rows, values, strict=True):
                row["score"] = value
        return rows

    def refine(self, todo: list[int], keep: Keep, iterations: int, critique_tokens: int) -> None:
        """Batch by batch: drafts, then their reviews, then their revisions."""
        size = max(1, self.sampling.sample_rows)
        for part in (todo[start : start + size] for start in range(0, len(todo), size)):
            drafts = dict(self.ask({number: self.problems[number] for number in part}))
            tries = {number: self.tries(number, drafts[number]) for number in part}
            kept = {number: rows[0] for number, rows in tries.items()}
            tokens = {number: row["tokens"] for number, row in kept.items()}
            for phase in range(1, 2 * iterations, 2):
                questions = {
                    number: make_critique_prompt(row["problem"], row["generated_text"])
                    for number, row in kept.items()
                }
                reviews = self.reply(questions, phase, max_new_tokens=critique_tokens)
                said = {n: review.rollouts[0].text for n, review in reviews.items()}
                questions = {
                    n: make_refine_prompt(kept[n]["problem"], kept[n]["generated_text"], text)
                    for n, text in said.items()
                }
                for number, review in reviews.items():
                    tokens[number] += len(review.rollouts[0].response_ids)
                for number, revision in self.reply(questions, phase + 1).items():
                    (row,) = self.tries(number, revision)
                    tokens[number] += row["tokens"]
                    tries[number].append(row | {"review": said[number]})
                    if row.get("score", 0.0) >= kept[number].get("score", 0.0):
                        kept[number] = row
            for number in part:
                keep(number, [final_row(kept[number], tries[number], tokens[number])])

    def reply(self, questions: dict[int, str], phase: int, **changes: int) -> dict[int, Group]:
        """An answer to each question that leaves room for one in the model's context. If a draft
        and its review are too long to be read again, the draft is kept."""
        context = self.model.cfg["context_length"]
        readable = {
            number: replace(self.problems[number], prompt=text)
            for number, text in questions.items()
            if len(self.tokenizer.encode(text)) < context
        }
        groups = dict(self.ask(readable, phase, **changes))
        return {number: groups[number] for number in readable}


PER_TRY = ("generated_text", "extracted", "correct", "tokens", "stopped", "score", "review")


def final_row(chosen: dict, tries: list[dict], tokens: int) -> dict:
    """A problem's line: the chosen try, and a short record of all of them."""
    short = [{key: storable(row[key]) for key in PER_TRY if key in row} for row in tries]
    row = {key: value for key, value in chosen.items() if key != "score"}
    return row | {"sample": 0, "tokens": tokens, "tries": short}


def storable(value):
    """JSON has no infinity: the score of an empty answer is null."""
    return None if value == -math.inf else value


# --- reports ---


def method_report(result: EvalResult) -> str:
    """What a method achieved, and at what cost."""
    low, high = result.interval
    rows = {"accuracy": f"{percent(result.accuracy)}  (95% interval {percent_range(low, high)})"}
    if any(len(row["tries"]) > 1 for row in result.rows):
        rows["first try"] = percent(mean([row["tries"][0] for row in result.rows], "correct"))
        rows["some try"] = percent(some_try(result))
    rows["tokens"] = f"{result.mean_length:.1f} per problem"
    rows["speed"] = f"{result.tokens_per_sec:,.0f} tokens/s"
    return "\n".join(f"  {name:<12}{value}" for name, value in rows.items())


def some_try(result: EvalResult) -> float:
    """The share of problems with a correct try: the most that any choice could achieve."""
    return sum(any(t["correct"] for t in row["tries"]) for row in result.rows) / len(result.rows)


def methods_table(results: dict[tuple[str, str], EvalResult]) -> str:
    """(model, method) -> accuracy against tokens, in Markdown."""
    lines = [
        "| model | method | n | correct | 95% interval | some try correct | tokens per problem |",
        "|---|---|---|---|---|---|---|",
    ]
    for (model, method), result in results.items():
        low, high = result.interval
        lines.append(
            f"| {model} | {method} | {len(result.rows)} | {percent(result.accuracy)} "
            f"| {percent_range(low, high)} | {percent(some_try(result))} "
            f"| {result.mean_length:.1f} |"
        )
    return "\n".join(lines)
