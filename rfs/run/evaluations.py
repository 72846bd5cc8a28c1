"""Evaluations of a run: held-out problems, and your own evaluators."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import torch

from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.rollouts import Group, Judge, worked_rollout
from reasoning_from_scratch.text import one_line
from rfs.config import RunConfig, replaced
from rfs.evaluation.evaluate import pass_at_k
from rfs.report.clock import Clock
from rfs.report.iteration import step_label
from rfs.report.run_pages import Pages
from rfs.scale.ranks import Ranks
from rfs.tasks.own_task import Evaluator

log = logging.getLogger("reasoning_from_scratch")


@dataclass
class Evaluations:
    """Measures the weights between updates."""

    config: RunConfig
    policy: LocalPolicy
    problem_sets: dict[str, Sequence[Problem]]  # by name; eval_acc is about the first one
    evaluators: Sequence[Evaluator]  # your own
    pages: Pages
    ranks: Ranks
    clock: Clock
    judge: Judge

    def measure(self, step: int) -> tuple[dict[str, float], dict[str, tuple[float, int]]]:
        """The numbers of an evaluation, and the accuracy and size of each set."""
        numbers: dict[str, float] = {}
        scores: dict[str, tuple[float, int]] = {}
        for name, problems in self.problem_sets.items():
            with self.clock("eval"):
                groups = self.sample(problems)
            self.pages.write_rollouts(f"eval/{name}", step, groups)
            metrics = eval_metrics(name, groups)
            if self.config.is_supervised:
                metrics |= self.loss_metrics(name, problems)
            accuracy = metrics["eval_acc"]
            if scores:  # eval_acc, eval_... are those of the first set
                metrics = {k: value for k, value in metrics.items() if k.startswith(f"{name}/")}
            numbers |= metrics
            scores[name] = accuracy, len(groups)
        return numbers | {"eval_step": step} | self.evaluator_numbers(step), scores

    def sample(self, problems: Sequence[Problem]) -> list[Group]:
        """Answers to held-out problems, with greedy decoding unless several samples are wanted, and
        with the weights that are trained."""
        sampling = replaced(
            self.config,
            rollouts=self.config.eval_samples,
            keep_sampling_mask=False,
            sampling_weights="same",
        )
        if self.config.eval_samples == 1:
            sampling = replaced(sampling, temperature=0.0)
        return self.policy.sample(problems, sampling, judge=self.judge)

    def loss_metrics(self, name: str, problems: Sequence[Problem]) -> dict[str, float]:
        """The supervised loss on the held-out problems' solutions, in nats per token."""
        solved = [problem for problem in problems if problem.solution]
        if not solved:
            return {}
        with self.clock("eval"):
            loss = solution_loss(self.policy, solved)
        return {f"{name}/loss": loss, "eval_loss": loss}

    def evaluator_numbers(self, step: int) -> dict[str, float]:
        """What your own evaluators return for these weights."""
        numbers: dict[str, float] = {}
        if not self.evaluators:
            return numbers
        with self.clock("eval"), self.policy.full_model() as model, torch.no_grad():
            for evaluator in self.evaluators if self.ranks.writes else ():
                returned, failure = evaluator(model, self.policy.tokenizer)
                numbers |= returned
                if failure:
                    why = one_line(failure, 300)
                    when = step_label("eval", step)
                    log.warning("evaluator %s %s: it %s", evaluator.name, when, why)
        return self.ranks.value_of_first(numbers)


def eval_metrics(name: str, groups: Sequence[Group]) -> dict[str, float]:
    """<name>/env/all/... of one evaluation; eval_acc, as in the book's CSV; eval_problems."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    metrics = {
        f"{name}/env/all/{part}": fmean(rollout.rewards.get(part, 0.0) for rollout in rollouts)
        for part in {part: None for rollout in rollouts for part in rollout.rewards}
    }
    turns = sum(rollout.turns for rollout in rollouts)
    metrics[f"{name}/env/all/ac_tokens_per_turn"] = sum(r.num_sampled for r in rollouts) / turns
    samples = len(groups[0].rollouts)
    # Your own verifier may also give partial rewards: only a full one counts as correct.
    correct = [sum(r.rewards["correct"] >= 1 for r in group.rollouts) for group in groups]
    for k in (k for k in (*range(1, 17), 32, 64) if k <= samples):
        metrics[f"{name}/pass@{k}"] = fmean(pass_at_k(samples, c, k) for c in correct)
    accuracy = sum(correct) / len(rollouts)
    return metrics | {"eval_acc": accuracy, "eval_problems": len(groups)}


def solution_loss(policy: LocalPolicy, problems: Sequence[Problem]) -> float:
    """The supervised loss on the problems' solutions, in nats per token."""
    rollouts = [worked_rollout(problem, policy.tokenizer) for problem in problems]
    return -float(torch.cat(policy.logprobs(rollouts)).double().mean())
