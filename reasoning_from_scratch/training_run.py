"""TrainingRun: all that a run holds while it runs, and what is done beside the updates."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from torch import nn

from reasoning_from_scratch.checkpoints import Checkpoints
from reasoning_from_scratch.clock import Clock
from reasoning_from_scratch.config import TrainConfig, replaced
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.evaluation import pass_at_k
from reasoning_from_scratch.health import new_alarms
from reasoning_from_scratch.lora import lora_state
from reasoning_from_scratch.metrics import with_short_names
from reasoning_from_scratch.optim import AdamW
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.progress import Progress
from reasoning_from_scratch.report import record_probes, write_iteration, write_run_report
from reasoning_from_scratch.rollouts import Group, reward_groups, sample_groups
from reasoning_from_scratch.run_folder import RunFolder, close_logs, log
from reasoning_from_scratch.tracker import Tracker

PROBE_PROBLEMS = 4  # problems whose answers are followed through the whole run
NONFINITE_LIMIT = 5  # so many steps in a row without a finite gradient end the run


@dataclass
class TrainingRun:
    """The parts of a run. Used as a context: leaving it closes the bar and the log file."""

    config: TrainConfig
    model: nn.Module
    tokenizer: object
    problems: Sequence[Problem]
    eval_problems: Sequence[Problem]
    optimizer: AdamW
    reference: nn.Module | None
    folder: RunFolder
    checkpoints: Checkpoints
    first_step: int = 0
    progress: Progress = field(default_factory=lambda: Progress(0, quiet=True))
    tracker: Tracker = field(default_factory=Tracker)
    clock: Clock = field(default_factory=Clock)
    done: int = 0  # steps whose update is in the weights

    def __enter__(self) -> "TrainingRun":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.progress.close()
        self.tracker.finish()
        if isinstance(error, UserError):
            log.error("%s", error)
        close_logs()
        if isinstance(error, OSError):
            why = f"{error.strerror or error}; what was saved is whole"
            raise UserError(f"{self.folder.path}: {why}: --resume {self.folder.path}") from error

    # -- evaluation

    def evaluate_if_due(self, step: int) -> dict[str, float]:
        """Held-out accuracy of the weights before update `step`, every eval_every steps."""
        every = self.config.eval_every
        return self.evaluate(step) if every and step % every == 0 else {}

    def evaluate(self, step: int) -> dict[str, float]:
        """Answer the held-out problems; keep the weights if they are the best so far."""
        config = self.config
        with self.clock("eval"):
            asked = replaced(config, rollouts=config.eval_samples, keep_sampling_mask=False)
            if config.eval_samples == 1:
                asked = replaced(asked, temperature=0.0)  # greedy
            groups = sample_groups(self.model, self.tokenizer, self.eval_problems, asked, 0)
            reward_groups(groups, config, self.tokenizer)
        self.report_rollouts(f"eval/{config.eval_problems}", step, groups)
        metrics = eval_metrics(config.eval_problems, groups)
        best = self.checkpoints.best()
        if best is None or metrics["eval_acc"] > best["eval_acc"]:
            self.save(step, best=True, eval_acc=metrics["eval_acc"], with_state=False)
        return metrics

    def report_rollouts(self, split: str, step: int, groups: Sequence[Group]) -> None:
        """All rollouts of a step for people and machines, before any group is dropped."""
        with self.clock("report"):
            write_iteration(
                self.folder.path, split, step, groups, self.tokenizer,
                num_groups_to_log=self.config.num_groups_to_log,
            )  # fmt: skip

    def refresh_report_if_due(self, step: int) -> None:
        """report.html from the files, and what the model answers to the probe problems now."""
        every = self.config.report_every
        ends = step in (self.first_step, self.config.steps)
        if not ends and not (every and step % every == 0):
            return
        with self.clock("report"):
            probes = (self.eval_problems or self.problems)[:PROBE_PROBLEMS]
            record_probes(self.folder.path, step, self.model, self.tokenizer, probes,
                          self.config.max_new_tokens)  # fmt: skip
            if step > self.first_step:
                write_run_report(self.folder.path)

    # -- the end of a step

    def finish_step(self, step: int, metrics: dict[str, float]) -> str:
        """Metrics, saves, alarms. The answer says why the run must end now; "" if it goes on."""
        config, self.done = self.config, step + 1
        last = self.done == config.steps
        if last and config.eval_every:
            metrics |= self.evaluate(self.done)
        times, spans = self.clock.take()
        row = {
            "step": step,
            "progress/batch": step,
            "progress/done_frac": self.done / config.steps,
            **with_short_names(metrics),
        }
        self.folder.write_metrics(row | times | self.speeds(row, times), spans)
        self.progress.show(self.folder.rows[-1])
        self.tracker.log(self.folder.rows[-1])
        stopped = self.look_after()
        if last:
            self.save(self.done, final=True)
            self.refresh_report_if_due(self.done)
        elif config.save_every and self.done % config.save_every == 0:
            self.save(self.done)
        elif stopped or (config.rolling_every and self.done % config.rolling_every == 0):
            self.save(self.done, rolling=True)
        return stopped

    def speeds(self, row: dict, times: dict[str, float]) -> dict[str, float | None]:
        tokens = row["env/all/total_ac_tokens"]
        seconds = {"sample": times.get("time/sampling", 0)}
        # A step without an update took no time to train, which is no speed.
        seconds["train"] = times.get("time/train", 0) if row["optim/updates"] else 0
        return {
            f"perf/{name}_tokens_per_sec": tokens / t if t else None
            for name, t in seconds.items()
        }

    def report_nonfinite(self, step: int, groups: Sequence[Group]) -> None:
        path = self.folder.write_for_repro(step, groups)
        log.warning("step %d: loss or gradient was not finite, so no update; its rollouts are in "
                    "%s", step, path)  # fmt: skip

    def look_after(self) -> str:
        """Say what looks wrong; the reason to end the run now, or ""."""
        rows = self.folder.rows
        found = new_alarms(rows)
        for alarm in found:
            log.warning("step %d: %s", rows[-1]["step"], alarm)
        recent = rows[-NONFINITE_LIMIT:]
        if len(recent) == NONFINITE_LIMIT and all(row["optim/nonfinite"] for row in recent):
            return (f"loss or gradient was not finite in {NONFINITE_LIMIT} steps in a row; the "
                    "weights are those of the last finite update. Lower --lr")  # fmt: skip
        return f"{found[0]} (--stop-on-alarm)" if found and self.config.stop_on_alarm else ""

    # -- saving

    def save(self, batch: int, with_state: bool = True, **extras: object) -> None:
        with self.clock("save"):
            optimizer = self.optimizer.state_dict() | lora_state(self.model) if with_state else None
            state = {"batch": batch, "updates": self.optimizer.updates}
            self.folder.sync()
            self.checkpoints.save(batch, optimizer, state, **extras)
            self.checkpoints.prune(self.config.keep_last)

    def save_interrupted(self) -> str:
        """After Ctrl-C: the weights after the last whole step."""
        self.save(self.done, rolling=True)
        sentence = (f"interrupted after {self.done} of {self.config.steps} steps; saved. "
                    f"Continue with: rfs train --resume {self.folder.path}")  # fmt: skip
        log.info(sentence)
        return sentence


def eval_metrics(name: str, groups: Sequence[Group]) -> dict[str, float]:
    """<name>/env/all/... of one evaluation, and eval_acc, the column of the book's CSV."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    metrics = {f"{name}/env/all/{part}": fmean(rollout.rewards[part] for rollout in rollouts)
               for part in rollouts[0].rewards}  # fmt: skip
    metrics[f"{name}/env/all/ac_tokens_per_turn"] = fmean(len(r.response_ids) for r in rollouts)
    samples = len(groups[0].rollouts)
    # A verifier of your own may also pay in part: right is what earns everything.
    right = [sum(r.rewards["correct"] >= 1 for r in group.rollouts) for group in groups]
    for k in (k for k in (*range(1, 17), 32, 64) if k <= samples and samples > 1):
        metrics[f"{name}/pass@{k}"] = fmean(pass_at_k(samples, c, k) for c in right)
    return metrics | {"eval_acc": metrics[f"{name}/env/all/correct"]}
