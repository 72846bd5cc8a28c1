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
    said: str  # the first answer's box; "" if it has none
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
    def ever(self) -> float:
        return max(moment.share for moment in self.moments)


@dataclass
class Learned:
    name: str
    steps: list[int]
    improved: list[Story]
    failing: list[Story]
    counts: list[tuple[str, str, int]]  # class, label, problems


def eval_rows(run: RunFiles) -> list[EvalRow]:
    rows = [row for evals in run.evals.values() for row in evals.rows]
    return sorted(rows, key=lambda row: (row.step, row.name))


def learned(run: RunFiles, name: str) -> Learned | None:
    """What changed since the first evaluation; None before the second."""
    by_step = run.evals[name].shown
    if len(by_step) < 2:
        return None
    stories = _stories(by_step)
    improved = sorted(stories, key=lambda s: (-s.gain, s.moments[0].share))
    failing = [story for story in stories if story.moments[-1].share < 0.5]
    failing.sort(key=lambda s: (s.moments[-1].share, s.ever))
    return Learned(
        name,
        list(by_step),
        [story for story in improved if story.gain > 0][:SHOWN_PROBLEMS],
        failing[:SHOWN_PROBLEMS],
        _counts(stories),
    )


def _stories(by_step: dict[int, list[EvalAnswer]]) -> list[Story]:
    """The stories of the problems that are in every shown evaluation."""
    every = [answer for answers in by_step.values() for answer in answers]
    # An environment, or a verifier of your own, may read anything.
    boxed = all(answer.boxed for answer in every if answer.right)
    grouped = []
    for answers in by_step.values():
        groups: dict[tuple[int, str], list[EvalAnswer]] = {}
        for answer in answers:
            groups.setdefault((answer.place, answer.problem_id), []).append(answer)
        grouped.append(groups)
    stories = []
    for key, (first, *_) in grouped[0].items():
        if all(key in groups for groups in grouped):
            moments = [
                _moment(step, groups[key], boxed)
                for step, groups in zip(by_step, grouped, strict=True)
            ]
            stories.append(Story(first.problem_id, first.problem, first.truth, moments))
    return stories


def _moment(step: int, answers: list[EvalAnswer], boxed: bool) -> Moment:
    share = sum(answer.right for answer in answers) / len(answers)
    first = answers[0]
    last_line = "" if boxed else shorten(first.text.strip().rpartition("\n")[2], 60)
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
