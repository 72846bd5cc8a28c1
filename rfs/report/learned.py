"""What a run learned, problem by problem, from the answers at its evaluations."""

from dataclasses import dataclass

from reasoning_from_scratch.text import shorten

from .evals import EvalAnswer, EvalRow
from .run_files import RunFiles

SHOWN_PROBLEMS = 8
SHOWN_TEXT = 4000


@dataclass
class Moment:
    """The answers to one problem at one evaluation."""

    step: int
    share: float  # of correct answers
    answer: str  # the first answer's box; without boxes, its last line
    text: str
    samples: int


@dataclass
class Story:
    """One problem, from evaluation to evaluation."""

    problem_id: str
    problem: str
    truth: str
    moments: list[Moment]

    @property
    def gain(self) -> float:
        return self.moments[-1].share - self.moments[0].share

    @property
    def best_share(self) -> float:
        return max(moment.share for moment in self.moments)


@dataclass
class LearningSummary:
    name: str
    steps: list[int]
    improved: list[Story]
    failing: list[Story]
    counts: list[tuple[str, str, int]]  # class, label, problems


def eval_rows(run: RunFiles) -> list[EvalRow]:
    rows = [row for evals in run.evals.values() for row in evals.rows]
    return sorted(rows, key=lambda row: (row.step, row.name))


def learning_summary(run: RunFiles, name: str) -> LearningSummary | None:
    """What changed since the first evaluation; None before the second."""
    by_step = run.evals[name].shown_answers
    if len(by_step) < 2:
        return None
    stories = _stories(by_step)
    improved = sorted(stories, key=lambda s: (-s.gain, s.moments[0].share))
    failing = [story for story in stories if story.moments[-1].share < 0.5]
    failing.sort(key=lambda s: (s.moments[-1].share, s.best_share))
    return LearningSummary(
        name,
        list(by_step),
        [story for story in improved if story.gain > 0][:SHOWN_PROBLEMS],
        failing[:SHOWN_PROBLEMS],
        _counts(stories),
    )


def _stories(by_step: dict[int, list[EvalAnswer]]) -> list[Story]:
    """The stories of the problems that are in every shown evaluation."""
    all_answers = [answer for answers in by_step.values() for answer in answers]
    # An environment, or a verifier of your own, may read anything.
    all_boxed = all(answer.boxed for answer in all_answers if answer.correct)
    answers_by_problem = []
    for answers in by_step.values():
        by_problem: dict[tuple[int, str], list[EvalAnswer]] = {}
        for answer in answers:
            by_problem.setdefault((answer.problem_index, answer.problem_id), []).append(answer)
        answers_by_problem.append(by_problem)
    stories = []
    for key, (first, *_) in answers_by_problem[0].items():
        if all(key in by_problem for by_problem in answers_by_problem):
            moments = [
                _moment(step, by_problem[key], all_boxed)
                for step, by_problem in zip(by_step, answers_by_problem, strict=True)
            ]
            stories.append(Story(first.problem_id, first.problem, first.truth, moments))
    return stories


def _moment(step: int, answers: list[EvalAnswer], all_boxed: bool) -> Moment:
    share = sum(answer.correct for answer in answers) / len(answers)
    first = answers[0]
    last_line = "" if all_boxed else shorten(first.text.strip().rpartition("\n")[2], 60)
    return Moment(step, share, first.boxed or last_line, first.text, len(answers))


def _counts(stories: list[Story]) -> list[tuple[str, str, int]]:
    """First versus last evaluation; solved means that at least half of the answers are correct."""
    kinds = {
        (True, True): ("good", "✓ correct both times"),
        (False, True): ("learned", "↑ learned"),
        (True, False): ("lost", "↓ lost"),
        (False, False): ("bad", "✗ incorrect both times"),
    }
    counts = dict.fromkeys(kinds, 0)
    for story in stories:
        counts[story.moments[0].share >= 0.5, story.moments[-1].share >= 0.5] += 1
    return [(*kinds[key], count) for key, count in counts.items() if count]
