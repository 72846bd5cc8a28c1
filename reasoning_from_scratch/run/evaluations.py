"""Evaluations of a run: held-out problems and evaluators of one's own; and the pages about it."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

import torch

from reasoning_from_scratch.config import TrainConfig, replaced
from reasoning_from_scratch.evaluation.evaluate import pass_at_k
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.report import record_probes, write_iteration, write_run_report
from reasoning_from_scratch.report.clock import Clock
from reasoning_from_scratch.report.health import failure_reports
from reasoning_from_scratch.report.iteration import when
from reasoning_from_scratch.rollouts import Group, Judge
from reasoning_from_scratch.run.folder import RunFolder
from reasoning_from_scratch.scale.ranks import Ranks
from reasoning_from_scratch.tasks.own_task import Evaluator
from reasoning_from_scratch.text import counted, one_line

PROBE_PROBLEMS = 4  # problems whose answers are followed through the whole run
SMOKE_PROBES = 1
PAGE_REST = 20  # so many times as long as report.html took to write, it is left alone

log = logging.getLogger("reasoning_from_scratch")


@dataclass
class Pages:
    """What people read of a run: a page for each step, and report.html."""

    config: TrainConfig
    policy: LocalPolicy
    folder: RunFolder
    ranks: Ranks
    clock: Clock
    judge: Judge
    probes: Sequence[Problem]  # whose answers report.html follows
    first_step: int
    told: set[str] = field(default_factory=set)  # how the judge failed, as far as it was said
    written: float = 0.0  # when report.html was, by time.monotonic()
    seconds: float = 0.0  # how long that took

    def rollouts(self, split: str, step: int, groups: Sequence[Group]) -> None:
        """All rollouts of a step for people and machines, before any group is dropped."""
        if not self.ranks.writes:
            return
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        for report in failure_reports(rollouts, self.told):
            log.warning("%s, %s: %s", split, when(split, step), report)
        with self.clock("report"):
            write_iteration(
                self.folder.path,
                split,
                step,
                groups,
                self.policy.tokenizer,
                num_groups_to_log=self.config.num_groups_to_log,
                in_folders=self.config.iteration_folders,
            )

    def report_if_due(self, step: int) -> None:
        """report.html from the files, and what the model answers to the probe problems now."""
        every = self.config.report_every
        ends = step in (self.first_step, self.config.steps)
        if ends or (every and step % every == 0):
            self.report(step, begins=step == self.first_step)

    def report(self, step: int, begins: bool = False) -> None:
        with self.clock("report"), self.policy.whole() as model:
            if not self.ranks.writes:
                return
            probes = self.probes[: SMOKE_PROBES if self.config.smoke else PROBE_PROBLEMS]
            if begins:
                log.info("answering %s that the report follows", counted(len(probes), "problem"))
            record_probes(
                self.folder.path,
                step,
                model,
                self.policy.tokenizer,
                probes,
                self.config.max_new_tokens,
                self.judge,
                self.config,
            )
            if not begins:
                self.write(last=step == self.config.steps)

    def write(self, last: bool) -> None:
        """report.html is read from all files so far: the longer that takes, the rarer it is."""
        before = time.monotonic()
        if last or before - self.written > PAGE_REST * self.seconds:
            write_run_report(self.folder.path)
            self.written = time.monotonic()
            self.seconds = self.written - before


@dataclass
class Evaluations:
    """What is measured of the weights beside the updates."""

    config: TrainConfig
    policy: LocalPolicy
    problem_sets: dict[str, Sequence[Problem]]  # by name; the first one is what eval_acc is about
    own: Sequence[Evaluator]
    pages: Pages
    ranks: Ranks
    clock: Clock
    judge: Judge

    def measure(self, step: int) -> tuple[dict[str, float], dict[str, tuple[float, int]]]:
        """The numbers of an evaluation; and of each set its accuracy and its size."""
        numbers: dict[str, float] = {}
        scores: dict[str, tuple[float, int]] = {}
        for name, problems in self.problem_sets.items():
            with self.clock("eval"):
                groups = self.answers(problems)
            self.pages.rollouts(f"eval/{name}", step, groups)
            numbers = eval_metrics(name, groups) | numbers  # eval_acc is that of the first set
            scores[name] = numbers[f"{name}/env/all/correct"], len(groups)
        return numbers | {"eval_step": step} | self.own_numbers(step), scores

    def answers(self, problems: Sequence[Problem]) -> list[Group]:
        """Held-out problems, answered and judged: greedily, unless several samples are asked."""
        config = self.config
        asked = replaced(config, rollouts=config.eval_samples, keep_sampling_mask=False)
        if config.eval_samples == 1:
            asked = replaced(asked, temperature=0.0)
        return self.policy.sample(problems, asked, judge=self.judge)

    def own_numbers(self, step: int) -> dict[str, float]:
        """What evaluators of one's own return of these weights."""
        numbers: dict[str, float] = {}
        if not self.own:
            return numbers
        with self.clock("eval"), self.policy.whole() as model, torch.no_grad():
            for evaluator in self.own if self.ranks.writes else ():
                found, failure = evaluator(model, self.policy.tokenizer)
                numbers |= found
                if failure:
                    words = one_line(failure, 300)
                    log.warning("evaluator %s %s: it %s", evaluator.name, when("eval", step), words)
        return self.ranks.agreed(numbers)


def eval_metrics(name: str, groups: Sequence[Group]) -> dict[str, float]:
    """<name>/env/all/... of one evaluation, and eval_acc, the column of the book's CSV."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    metrics = {
        f"{name}/env/all/{part}": fmean(rollout.rewards.get(part, 0.0) for rollout in rollouts)
        for part in {part: None for rollout in rollouts for part in rollout.rewards}
    }
    turns = sum(rollout.turns for rollout in rollouts)
    metrics[f"{name}/env/all/ac_tokens_per_turn"] = sum(r.num_sampled for r in rollouts) / turns
    samples = len(groups[0].rollouts)
    # A verifier of your own may also pay in part: right is what earns everything.
    right = [sum(r.rewards["correct"] >= 1 for r in group.rollouts) for group in groups]
    for k in (k for k in (*range(1, 17), 32, 64) if k <= samples):
        metrics[f"{name}/pass@{k}"] = fmean(pass_at_k(samples, c, k) for c in right)
    return metrics | {"eval_acc": metrics[f"{name}/env/all/correct"]}
