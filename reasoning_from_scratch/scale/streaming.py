"""Streaming: the gradient of finished groups is computed while the others are still sampled.

A loop of its own beside trainer.training_loop, of the same pieces. The weights stay as they are
until the step's last group is in, so every rollout comes from the same policy and each update is
that of the plain step. Where a step has several updates, only the first is prepared in this way:
the gradient of the others needs the weights that it leaves behind.

In one process it saves no time. It does where samplers are elsewhere (scale/ray_rollouts.py).
"""

from collections.abc import Callable, Generator, Sequence
from functools import partial

import torch

from reasoning_from_scratch.config import Rollouts, TrainConfig
from reasoning_from_scratch.losses import LOSSES
from reasoning_from_scratch.policy import LocalPolicy, Sums
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.report.clock import Clock
from reasoning_from_scratch.rollouts import Group, Rollout, sample_groups, step_problems
from reasoning_from_scratch.trainer import (
    Numbers,
    RolloutEngine,
    StepRecord,
    Training,
    advantage_metrics,
    equal_shares,
    prepared_update,
    set_advantages,
    whole_denominator,
)

OnGroup = Callable[[Group], None]


def streaming_loop(run: Training, stream: "Stream") -> str:
    """trainer.training_loop, where `stream` has been handed each group as it came."""
    for step, groups in enumerate(run.rollouts, run.first_step):  # 1. to 6. of the first update
        run.before_update(step, groups)
        numbers = stream.finish_step(groups, run.lr(step))
        stopped = run.after_update(step, groups, numbers)
        if stopped:
            return stopped
    return ""


def streamed_rollouts(
    model: Qwen3Model,
    tokenizer,
    problems: Sequence[Problem],
    config: Rollouts,
    first_step: int,
    engine: RolloutEngine,
    on_group: OnGroup,
) -> Generator[list[Group]]:
    """trainer.on_policy_rollouts; `on_group` gets each group, rewarded, while others may still be
    sampled."""

    def came(group: Group) -> None:
        with engine.timed("reward"):
            engine.reward([group], config, tokenizer)
        on_group(group)

    for step in range(first_step, config.steps):
        chosen = dict(enumerate(step_problems(problems, config, step)))
        places = engine.own(list(chosen))
        asked = [chosen[place] for place in places]
        sample = partial(
            sample_groups, model, tokenizer, asked, config, step, places, came,
            engine=engine.sampling,
        )  # fmt: skip
        with engine.timed("sampling"):
            groups = engine.together(sample)
        yield groups


class Stream:
    """Groups as they come, trained on in parts of `size`; `finish_step` has the last part to do,
    and all groups whose problem is not among the first `streamed` of the step.

    By what an update's sum is divided, for instance its number of tokens, is known only at its
    end: until then the denominator is 1.
    """

    def __init__(
        self,
        size: int,
        streamed: int,
        policy: LocalPolicy,
        config: TrainConfig,
        reference: LocalPolicy | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.size, self.streamed, self.policy, self.config = size, streamed, policy, config
        self.reference, self.clock = reference, clock or Clock()
        self.waiting: list[Group] = []
        self.sums: list[Sums] = []
        self.rollouts: list[Rollout] = []  # for further epochs

    def add(self, group: Group) -> None:
        """Called from within sampling, which records no gradients."""
        if group.rollouts[0].place[0] >= self.streamed:
            return
        self.waiting.append(group)
        if len(self.waiting) == self.size:
            with self.clock("train"):
                self.flush()

    def flush(self) -> None:
        """These groups were sampled here, and their gradient is computed here."""
        groups, self.waiting = self.waiting, []
        if not groups:
            return
        here, reference = self.policy.alone(), self.reference and self.reference.alone()
        with torch.enable_grad():
            set_advantages(groups, self.config)
            rollouts, _ = prepared_update(here, reference, groups, self.config)
            self.sums += here.forward_backward(rollouts, self.config, denominator=1.0)
        self.rollouts += rollouts

    def finish_step(self, groups: Sequence[Group], lr: float) -> Numbers:
        """In place of trainer.train_step: the first gradient is there, but for its denominator."""
        self.flush()  # a last part that is not full
        policy, config, record = self.policy, self.config, StepRecord(lr)
        set_advantages(groups, config)
        first, *others = equal_shares(groups, config.num_substeps)
        denominator = whole_denominator(first, config)
        own, self.rollouts = self.rollouts, []
        updates = [prepared_update(policy, self.reference, share, config) for share in others]

        def update(sums: list[Sums]) -> None:
            if sums:
                record.add(sums, policy.optim_step(lr, config.grad_clip))

        for epoch in range(config.epochs):
            if epoch == 0:
                streamed = self.streamed_sums(denominator)
            else:
                streamed = policy.alone().forward_backward(own, config, denominator)
            update(policy.of_all_ranks(streamed))
            for rollouts, of_share in updates:
                update(policy.forward_backward(rollouts, config, of_share))
        return record.metrics() | advantage_metrics(groups)

    def streamed_sums(self, denominator: float) -> list[Sums]:
        """Those of the groups that came in one by one, and their gradient, as it should be."""
        streamed, self.sums = self.sums, []
        with torch.no_grad():
            for gradient in self.policy.optimizer.gradients():
                gradient /= denominator
        return [
            {name: value / denominator if name in LOSSES else value for name, value in sums.items()}
            for sums in streamed
        ]
