"""TrainingRun: what a run does besides its updates; the loop calls it."""

import gc
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.rollouts import Group
from reasoning_from_scratch.text import read_lines, replace_nonfinite
from reasoning_from_scratch.trainer import StepMetrics, groups_with_gradient, select_training_groups
from rfs.config import RunConfig
from rfs.evaluation.group_signal import Outlook
from rfs.files.saved_models import with_final_evaluation
from rfs.report.clock import Clock
from rfs.report.health import new_alarms
from rfs.report.metrics import (
    append_step,
    lag_metrics,
    rollout_metrics,
    with_short_names,
)
from rfs.report.progress import Progress
from rfs.report.run_pages import Pages
from rfs.report.tracker import Tracker
from rfs.run.evaluations import Evaluations
from rfs.run.folder import RunFolder, log
from rfs.run.interrupts import Interrupts
from rfs.run.saves import Saves
from rfs.scale.ranks import Ranks

NONFINITE_LIMIT = 5  # the run ends after this many steps in a row without a finite gradient
VERIFIER_FAILURE_LIMIT = 3  # or after this many in which your own verifier failed on every answer


@dataclass
class TrainingRun:
    """The parts of a run. A context manager: leaving it closes the bar and the log file."""

    config: RunConfig
    policy: LocalPolicy
    reference: LocalPolicy | None  # for the KL penalty
    rollouts: Generator[Iterable[Group]]  # the groups of each step
    first_step: int
    folder: RunFolder
    saves: Saves
    evaluations: Evaluations
    pages: Pages
    ranks: Ranks
    clock: Clock
    # Gets each evaluation's numbers, on the rank that writes.
    on_evaluation: Callable[[dict], None] = lambda measured: None
    quiet: bool = False
    outlook: Outlook | None = None  # of the preflight before the first step
    tracker: Tracker = field(default_factory=Tracker)

    def __post_init__(self) -> None:
        self.steps_done = self.first_step  # steps whose update is in the weights
        self.updates_done = self.policy.optimizer.updates  # optimizer steps in the finished steps
        self.signals_wait = False  # from an update to its last save, and during a report
        self.update_began = 0.0  # by time.perf_counter()
        self.metrics_before_update: dict[str, float] = {}
        several_ranks = self.ranks.size > 1
        self.interrupts = Interrupts(several_ranks, not self.ranks.writes, self.may_stop)
        self.ranks.interruptible = self.interrupts.interruptible
        self.progress = Progress(0, quiet=True)

    def __enter__(self) -> "TrainingRun":
        self.progress = Progress(self.config.steps, self.first_step, quiet=self.quiet)
        gc.freeze()  # what is loaded stays: no need to look for garbage in it every other step
        return self

    def may_stop(self) -> bool:
        """True until the current step has changed the weights: until then it can be abandoned."""
        return not self.signals_wait and self.policy.optimizer.updates == self.updates_done

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        gc.unfreeze()
        self.progress.close()
        self.tracker.finish()
        if isinstance(error, UserError):
            log.error("%s", error)
        self.folder.close()
        if isinstance(error, OSError):
            why = f"{error.strerror or error}; what was saved is intact"
            raise UserError(
                f"{self.folder.path}: {why}: --resume {self.folder.quoted_path}"
            ) from error

    # -- what the loop calls

    def before_update(self, step: int, groups: Sequence[Group]) -> None:
        """Measure these groups, and evaluate the weights before their update."""
        self.metrics_before_update = rollout_metrics(groups)
        self.metrics_before_update |= lag_metrics(groups, step, self.config)
        every = self.config.eval_every
        if every and step % every == 0:
            self.metrics_before_update |= self.evaluate(step)
        with self.signals_deferred():
            self.pages.report_if_due(step)
        self.update_began = time.perf_counter()

    @contextmanager
    def signals_deferred(self) -> Iterator[None]:
        """A signal waits until this is done: the rest of a step that has changed the weights, or a
        report, in whose C code KeyboardInterrupt becomes some other error. (Several ranks agree on
        a signal, while they sample.)"""
        self.signals_wait = True
        yield
        self.signals_wait = False
        if self.interrupts.received and self.ranks.size == 1:
            raise KeyboardInterrupt

    def after_update(self, step: int, groups: Sequence[Group], metrics: StepMetrics) -> str:
        """Write the step's page, metrics and saves, and look for alarms. Returns why the run must
        end now; "" if it continues."""
        with self.signals_deferred():
            # With minibatches the first passes came before, between the waits for groups.
            streams = self.config.num_minibatches > 1
            self.clock.add_span("train", self.clock.wall_start if streams else self.update_began)
            self.pages.write_rollouts("train", step, groups)
            if metrics["optim/nonfinite"]:
                self.report_nonfinite(step, groups)
            # No group had a signal: no weight moved.
            if metrics["optim/kl_sample_train_v1"] is None:
                metrics |= self.gap_metrics(groups, "optim/kl_sample_train")
            if self.config.compute_post_kl:
                trained = groups_with_gradient(
                    select_training_groups(groups, self.config), self.config
                )
                metrics |= self.gap_metrics(trained, "kl_pre_post")
            stop_reason = self.finish_step(step, self.metrics_before_update | metrics)
            self.updates_done = self.policy.optimizer.updates
        return stop_reason

    def gap_metrics(self, groups: Sequence[Group], name: str) -> dict[str, float]:
        """How far the policy is now from the sampler's record of these rollouts: v1 and v2."""
        means = gap_to_sampler(self.policy, groups)
        return {f"{name}_v{number}": mean for number, mean in enumerate(means, 1)}

    def evaluate(self, step: int) -> dict[str, float]:
        """Held-out accuracy of the weights before update `step`, and what else is measured."""
        numbers, scores = self.evaluations.measure(step)
        self.saves.save_if_best(step, numbers["eval_acc"], scores)
        if self.ranks.writes:
            self.on_evaluation(numbers)
        return numbers

    def with_final_evaluation(self, row: dict[str, float]) -> dict[str, float]:
        """The last line, with an evaluation of the final weights."""
        evaluators = [evaluator.name for evaluator in self.evaluations.evaluators]
        return with_final_evaluation(row, self.evaluate(self.steps_done), evaluators)

    def complete(self) -> None:
        """Make what is missing from a run whose steps are all done: it was killed after its last
        step, or --steps was lowered to this step afterwards, or files were deleted."""
        last_save = self.ranks.value_of_first(self.folder.checkpoints.save_after(self.steps_done))
        if not last_save.final:
            if self.config.eval_every and self.folder.rows:
                self.folder.rows[-1] = self.with_final_evaluation(self.folder.rows[-1])
                if self.ranks.writes:
                    self.folder.write_rows()
            self.saves.save(self.steps_done, final=True)
        has_adapter = self.folder.has("adapter/adapter_config.json")
        if self.ranks.value_of_first(bool(self.config.lora_rank) and not has_adapter):
            self.saves.rewrite_weights(self.steps_done)
        probed_steps = [row.get("step") for row in read_lines(self.folder.path / "probes.jsonl")]
        with self.signals_deferred():
            if self.ranks.value_of_first(self.steps_done not in probed_steps):
                self.pages.report_step(self.steps_done)
            elif self.ranks.writes and not self.folder.has("report.html"):
                self.pages.write_report(is_last=True)

    # -- the end of a step

    def finish_step(self, step: int, metrics: dict[str, float]) -> str:
        """Metrics, saves, alarms. Returns why the run must end now; "" if it continues."""
        config, self.steps_done = self.config, step + 1
        is_last = self.steps_done == config.steps
        if is_last and config.eval_every:
            metrics = self.with_final_evaluation(metrics)
        times, spans = self.clock.collect()
        row = {
            "step": step,
            "progress/batch": step,
            "progress/done_frac": self.steps_done / config.steps,
            **with_short_names(metrics),
        }
        self.record(row | times | self.speeds(row, times), spans)
        stop_reason = self.check_health()
        if self.ranks.size > 1:
            stop_reason = self.ranks.value_of_first(stop_reason)
        if is_last:
            self.saves.save(self.steps_done, final=True)
            self.pages.report_if_due(self.steps_done)
        elif config.save_every and self.steps_done % config.save_every == 0:
            self.saves.save(self.steps_done)
        elif stop_reason or (config.rolling_every and self.steps_done % config.rolling_every == 0):
            self.saves.save(self.steps_done, rolling=True)
        return stop_reason

    def record(self, row: dict, spans: list[dict]) -> None:
        finite_row, nonfinite = replace_nonfinite(row)
        self.folder.rows.append(finite_row)  # alarms look at the steps so far, on every rank
        if not self.ranks.writes:
            return
        if nonfinite:
            names = ", ".join(nonfinite)
            log.info("step %d: not finite, written as null: %s", row["step"] + 1, names)
        append_step(self.folder.path, finite_row, spans, self.config.steps)
        self.progress.show(finite_row)
        self.tracker.log(finite_row)

    def speeds(self, row: dict, times: dict[str, float]) -> dict[str, float | None]:
        tokens = row["env/all/total_ac_tokens"]
        # With a sampler beside the trainer, time/sampling is only what the trainer waited.
        seconds = {"sample": times.get("time/sampler", times.get("time/sampling", 0))}
        if self.config.objective == "cross_entropy":  # nothing is sampled
            seconds = {}
        # A step without an update took no time to train, so it has no speed.
        seconds["train"] = times.get("time/train", 0) if row["optim/updates"] else 0
        return {
            f"perf/{name}_tokens_per_sec": tokens / t if t else None for name, t in seconds.items()
        }

    def report_nonfinite(self, step: int, groups: Sequence[Group]) -> None:
        if not self.ranks.writes:
            return
        path = self.folder.write_nonfinite_rollouts(step, groups)
        log.warning(
            "step %d: loss or gradient was not finite, so no update; its rollouts are in %s",
            step + 1,
            path,
        )

    def check_health(self) -> str:
        """Warn of what looks wrong. Returns the reason to end the run now, or ""."""
        rows = self.folder.rows
        for alarm in new_alarms(rows):
            log.warning("step %d: %s", rows[-1]["step"] + 1, alarm)
        recent = rows[-NONFINITE_LIMIT:]
        if len(recent) == NONFINITE_LIMIT and all(row["optim/nonfinite"] for row in recent):
            return (
                f"loss or gradient was not finite in {NONFINITE_LIMIT} steps in a row; the "
                "weights are those of the last finite update. Lower --lr"
            )
        recent = rows[-VERIFIER_FAILURE_LIMIT:]  # fewer in a run of fewer steps
        enough = len(recent) == VERIFIER_FAILURE_LIMIT or self.steps_done == self.config.steps
        if enough and all(row.get("env/all/reward_failed") == 1 for row in recent):
            verifier = self.config.reward or self.config.environment
            verifier = verifier or f"the reward function of {self.config.problems}"
            steps = "the only step" if len(recent) == 1 else f"{len(recent)} steps in a row"
            return (
                f"{verifier} failed on every answer of {steps}, so there was nothing to learn "
                "from; logs.log says why. Fix it and train again"
            )
        return ""

    # -- an early end

    def save_interrupted(self) -> str:
        """After a signal: save the weights of the last complete step. "" if that ended the run."""
        self.policy.optimizer.zero_grad()  # of the abandoned step
        if self.steps_done == self.config.steps:
            return ""
        self.saves.save(self.steps_done, rolling=True)
        return (
            f"interrupted after {self.steps_done} of {self.config.steps} steps; saved. "
            f"Continue with: rfs train --resume {self.folder.quoted_path}"
        )

    def stop_diverged(self, error: UserError) -> str:
        """The sampler met logits that are not finite. Save, and keep the earlier saves, too: if the
        weights are to blame, the run can be resumed from those."""
        if self.ranks.size > 1:  # a save needs all ranks, and the others are still sampling
            raise error
        self.policy.optimizer.zero_grad()
        earlier_saves = [save for save in self.folder.checkpoints.saves if save.state_path]
        self.saves.save(self.steps_done, prune=False, rolling=True)
        sentence = (
            f"stopped after {self.steps_done} of {self.config.steps} steps, saved: {error}. "
            f"Try --resume {self.folder.quoted_path} with a lower --lr"
        )
        if earlier_saves:
            last = self.folder.checkpoints.folder / f"{self.steps_done:06d}"
            sentence += f"; if it stops here again, delete {last} to resume from the save before"
        return sentence


def gap_to_sampler(policy: LocalPolicy, groups: Sequence[Group]) -> list[float]:
    """Over all sampled tokens of these groups, the mean of log q - log p and half the mean of its
    square. q is the sampler's record, p the policy as it is now. [] without a token."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    gaps = [  # of each rollout's sampled tokens
        (torch.tensor(rollout.logprobs) - logprobs)[rollout.sampled_mask().bool()].double()
        for rollout, logprobs in zip(rollouts, policy.logprobs(rollouts), strict=True)
    ]
    gap = torch.cat([torch.zeros(0), *gaps])  # (N,)
    if not gap.numel():
        return []
    return [float(gap.mean()), 0.5 * float(gap.square().mean())]
