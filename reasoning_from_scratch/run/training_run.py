"""TrainingRun: all that a run holds while it runs, and what is done beside the updates."""

import gc
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean

import torch

from reasoning_from_scratch.config import TrainConfig, replaced, to_json
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.evaluation.evaluate import pass_at_k
from reasoning_from_scratch.fast.cut import FAST
from reasoning_from_scratch.files.disk import write_whole
from reasoning_from_scratch.files.made_sets import verdict_of
from reasoning_from_scratch.files.own_task import Evaluator
from reasoning_from_scratch.files.saved_models import CARD_FILE, with_final
from reasoning_from_scratch.files.weights import save_hf_folder
from reasoning_from_scratch.optim.adamw import AdamW, learning_rate, share_left
from reasoning_from_scratch.optim.lora import lora_state, merged, save_peft
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.report import (
    grader,
    record_probes,
    write_iteration,
    write_run_report,
)
from reasoning_from_scratch.report.clock import Clock
from reasoning_from_scratch.report.health import failure_reports, new_alarms
from reasoning_from_scratch.report.iteration import when
from reasoning_from_scratch.report.metrics import (
    append_step,
    lag_metrics,
    rollout_metrics,
    with_short_names,
)
from reasoning_from_scratch.report.progress import Progress
from reasoning_from_scratch.report.tracker import Tracker
from reasoning_from_scratch.rollouts import Group, reward_groups, sample_groups
from reasoning_from_scratch.run.checkpoints import Checkpoints
from reasoning_from_scratch.run.folder import PLACES, RunFolder, log
from reasoning_from_scratch.run.interrupts import Interrupts
from reasoning_from_scratch.run.model_card import model_card
from reasoning_from_scratch.scale.ranks import Ranks, WholeWeights
from reasoning_from_scratch.scale.streaming import Stream
from reasoning_from_scratch.text import counted, finite, one_line, read_lines
from reasoning_from_scratch.tokenizer import ModelTokenizer
from reasoning_from_scratch.trainer import chosen_groups

PROBE_PROBLEMS = 4  # problems whose answers are followed through the whole run
SMOKE_PROBES = 1
PAGE_REST = 20  # so many times as long as report.html took to write, it is left alone
NONFINITE_LIMIT = 5  # so many steps in a row without a finite gradient end the run
FAILED_LIMIT = 3  # and so many in which a verifier of one's own failed on every answer


@dataclass
class TrainingRun:
    """The parts of a run. Used as a context: leaving it closes the bar and the log file."""

    config: TrainConfig
    model: Qwen3Model
    tokenizer: ModelTokenizer
    problems: Sequence[Problem]
    eval_sets: dict[str, Sequence[Problem]]  # by name; the first one is what eval_acc is about
    policy: LocalPolicy
    reference: LocalPolicy | None
    folder: RunFolder
    checkpoints: Checkpoints
    ranks: Ranks
    weights: WholeWeights
    evaluators: Sequence[Evaluator]
    # What the loop is handed; start.py chooses.
    rollouts: Generator[list[Group]]
    stream: Stream | None  # trains on a step while it is sampled
    clock: Clock
    first_step: int
    on_evaluation: Callable[[dict], None]  # gets each evaluation's numbers, on the rank that writes
    quiet: bool
    tracker: Tracker = field(default_factory=Tracker)

    def __post_init__(self) -> None:
        self.verdict = verdict_of(self.config)
        self.done = self.first_step  # steps whose update is in the weights
        self.settled = self.optimizer.updates  # optimizer steps in the finished training steps
        self.finishing = False  # a step is between its update and its last save
        self.update_began = 0.0  # by time.perf_counter()
        self.measured: dict[str, float] = {}  # of the step, before its update
        # Of the last evaluation: after how many steps, and per set its accuracy and its size.
        self.scores: tuple[int, dict[str, tuple[float, int]]] = (-1, {})
        self.told: set[str] = set()  # how the verifier failed, as far as it was said
        self.page_end = self.page_seconds = 0.0  # when report.html was written, how long that took
        several = self.ranks.size > 1
        self.interrupts = Interrupts(several, not self.ranks.writes, self.may_stop)
        self.ranks.interruptible = self.interrupts.open
        self.progress = Progress(0, quiet=True)

    @property
    def optimizer(self) -> AdamW:
        assert isinstance(self.policy.optimizer, AdamW)
        return self.policy.optimizer

    def __enter__(self) -> "TrainingRun":
        self.progress = Progress(self.config.steps, self.first_step, quiet=self.quiet)
        gc.freeze()  # what is loaded stays: no need to look for garbage in it every other step
        if self.done == self.config.steps:
            self.complete()
        return self

    def may_stop(self) -> bool:
        """True until the step that runs now has changed the weights: it can still be given up."""
        return not self.finishing and self.optimizer.updates == self.settled

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        gc.unfreeze()
        self.progress.close()
        self.tracker.finish()
        if isinstance(error, UserError):
            log.error("%s", error)
        self.folder.close()
        if isinstance(error, OSError):
            why = f"{error.strerror or error}; what was saved is whole"
            raise UserError(f"{self.folder.path}: {why}: --resume {self.folder.path}") from error

    # -- what the loop calls

    def before_update(self, step: int, groups: Sequence[Group]) -> None:
        """Measure the weights that sampled these groups."""
        self.measured = rollout_metrics(groups) | lag_metrics(groups, step, self.config)
        self.measured |= self.evaluate_if_due(step)
        self.refresh_report_if_due(step)
        self.update_began = time.perf_counter()

    def lr(self, step: int) -> float:
        return learning_rate(self.config, step, self.config.steps, self.config.problems_per_step)

    def config_at(self, step: int) -> TrainConfig:
        if self.config.kl_schedule == "constant":
            return self.config
        left = share_left(self.config.kl_schedule, step / self.config.steps)
        return replace(self.config, kl_coef=self.config.kl_coef * left)

    def after_update(
        self, step: int, groups: Sequence[Group], numbers: dict[str, float | None]
    ) -> str:
        """The step's page, metrics, saves, alarms. Why the run must end now; "" if it goes on."""
        self.finishing = True
        self.clock.since("train", self.update_began)
        self.report_rollouts("train", step, groups)
        if numbers["optim/nonfinite"]:
            self.report_nonfinite(step, groups)
        if numbers["optim/kl_sample_train_v1"] is None:  # no group had a signal: no weight moved
            numbers |= self.gap(groups, "optim/kl_sample_train")
        if self.config.compute_post_kl:
            live = [group for group in chosen_groups(groups, self.config) if group.live]
            numbers |= self.gap(live, "kl_pre_post")
        stopped = self.finish_step(step, self.measured | numbers)
        self.settled, self.finishing = self.optimizer.updates, False
        # A signal that came since the update has waited. (Several ranks agree, while they sample.)
        if self.interrupts.received and self.ranks.size == 1:
            raise KeyboardInterrupt
        return stopped

    def gap(self, groups: Sequence[Group], name: str) -> dict[str, float]:
        """How far the policy is now from the sampler's record of these rollouts: v1 and v2."""
        means = gap_to_sampler(self.policy, groups)
        return {f"{name}_v{number}": mean for number, mean in enumerate(means, 1)}

    # -- evaluation

    def evaluate_if_due(self, step: int) -> dict[str, float]:
        """Held-out accuracy of the weights before update `step`, every eval_every steps."""
        every = self.config.eval_every
        return self.evaluate(step) if every and step % every == 0 else {}

    def evaluate(self, step: int) -> dict[str, float]:
        """Answer the held-out problems; keep the weights if they are the best so far."""
        metrics: dict[str, float] = {}
        scores: dict[str, tuple[float, int]] = {}
        for name, problems in self.eval_sets.items():
            with self.clock("eval"):
                with self.weights.whole(self.model) as model:
                    groups = self.ranks.together(partial(self.answered, model, problems))
            self.report_rollouts(f"eval/{name}", step, groups)
            metrics = eval_metrics(name, groups) | metrics  # eval_acc is that of the first set
            scores[name] = metrics[f"{name}/env/all/correct"], len(groups)
        self.scores = step, scores
        metrics |= {"eval_step": step} | self.own_numbers(step)
        best = self.checkpoints.best()
        if self.ranks.agreed(best is None or metrics["eval_acc"] > best["eval_acc"]):
            self.save(step, best=True, eval_acc=metrics["eval_acc"], with_state=False)
        if self.ranks.writes:
            if saved := self.checkpoints.line_of(step):
                self.write_card(self.checkpoints.place(saved))
            self.on_evaluation(metrics)
        return metrics

    def own_numbers(self, step: int) -> dict[str, float]:
        """What evaluators of one's own return of these weights."""
        numbers: dict[str, float] = {}
        if not self.evaluators:
            return numbers
        with self.clock("eval"), self.weights.whole(self.model) as model, torch.no_grad():
            for evaluator in self.evaluators if self.ranks.writes else ():
                found, failure = evaluator(model, self.tokenizer)
                numbers |= found
                if failure:
                    words = one_line(failure, 300)
                    log.warning("evaluator %s %s: it %s", evaluator.name, when("eval", step), words)
        return self.ranks.agreed(numbers)

    def answered(self, model: Qwen3Model, all_problems: Sequence[Problem]) -> list[Group]:
        """This rank's share of some held-out problems, answered and graded."""
        config = self.config
        asked = replaced(config, rollouts=config.eval_samples, keep_sampling_mask=False)
        if config.eval_samples == 1:
            asked = replaced(asked, temperature=0.0)  # greedy
        places = self.ranks.own(range(len(all_problems)))
        problems = [all_problems[place] for place in places]
        groups = sample_groups(model, self.tokenizer, problems, asked, 0, places, engine=FAST)
        reward_groups(groups, self.config, self.tokenizer, self.verdict)
        return groups

    def report_rollouts(self, split: str, step: int, groups: Sequence[Group]) -> None:
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
                self.tokenizer,
                num_groups_to_log=self.config.num_groups_to_log,
                in_folders=self.config.iteration_folders,
            )

    def refresh_report_if_due(self, step: int) -> None:
        """report.html from the files, and what the model answers to the probe problems now."""
        every = self.config.report_every
        ends = step in (self.first_step, self.config.steps)
        if ends or (every and step % every == 0):
            self.refresh_report(step)

    def complete(self) -> None:
        """What a run lacks that has all its steps: it was killed after the last one, or told
        afterwards that this one is the last, or files were deleted."""
        line = self.ranks.agreed(self.checkpoints.line_of(self.done))
        if not line["final"]:
            if self.config.eval_every and self.folder.rows:
                self.folder.rows[-1] = with_final(self.folder.rows[-1], self.evaluate(self.done))
                if self.ranks.writes:
                    self.folder.write_rows()
            self.save(self.done, final=True)
        lost = bool(self.config.lora_rank) and not self.folder.has("adapter/adapter_config.json")
        if self.ranks.agreed(lost):
            self.save_weights_again()
        probed = [row.get("step") for row in read_lines(self.folder.path / "probes.jsonl")]
        if self.ranks.agreed(self.done not in probed):
            self.first_step = 0
            self.refresh_report(self.done)
        elif self.ranks.writes and not self.folder.has("report.html"):
            self.write_page(last=True)

    def refresh_report(self, step: int) -> None:
        with self.clock("report"), self.weights.whole(self.model) as model:
            if not self.ranks.writes:
                return
            asked = next(iter(self.eval_sets.values()), self.problems)
            probes = asked[: SMOKE_PROBES if self.config.smoke else PROBE_PROBLEMS]
            if step == self.first_step:
                log.info("answering %s that the report follows", counted(len(probes), "problem"))
            record_probes(
                self.folder.path,
                step,
                model,
                self.tokenizer,
                probes,
                self.config.max_new_tokens,
                self.worth,
                self.config,
            )
            if step > self.first_step:
                self.write_page(last=step == self.config.steps)

    def worth(self, text: str, problem: Problem) -> float:
        """What whoever judges says of an answer."""
        judged = self.verdict(text, problem)
        return judged[0] if judged else grader(text, problem)

    def write_page(self, last: bool) -> None:
        """report.html is read from all files so far: the longer that takes, the rarer it is."""
        before = time.monotonic()
        if last or before - self.page_end > PAGE_REST * self.page_seconds:
            write_run_report(self.folder.path)
            self.page_end = time.monotonic()
            self.page_seconds = self.page_end - before

    # -- the end of a step

    def finish_step(self, step: int, metrics: dict[str, float]) -> str:
        """Metrics, saves, alarms. The answer says why the run must end now; "" if it goes on."""
        config, self.done = self.config, step + 1
        last = self.done == config.steps
        if last and config.eval_every:
            metrics = with_final(metrics, self.evaluate(self.done))
        times, spans = self.clock.take()
        row = {
            "step": step,
            "progress/batch": step,
            "progress/done_frac": self.done / config.steps,
            **with_short_names(metrics),
        }
        self.record(row | times | self.speeds(row, times), spans)
        stopped = self.look_after()
        if self.ranks.size > 1:
            stopped = self.ranks.agreed(stopped)
        if last:
            self.save(self.done, final=True)
            self.refresh_report_if_due(self.done)
        elif config.save_every and self.done % config.save_every == 0:
            self.save(self.done)
        elif stopped or (config.rolling_every and self.done % config.rolling_every == 0):
            self.save(self.done, rolling=True)
        return stopped

    def record(self, row: dict, spans: list[dict]) -> None:
        clean, bad = finite(row)
        self.folder.rows.append(clean)  # alarms look at the steps so far, on every rank
        if not self.ranks.writes:
            return
        if bad:
            log.info("step %d: not finite, written as null: %s", row["step"] + 1, ", ".join(bad))
        append_step(self.folder.path, clean, spans, self.config.steps)
        self.progress.show(clean)
        self.tracker.log(clean)

    def speeds(self, row: dict, times: dict[str, float]) -> dict[str, float | None]:
        tokens = row["env/all/total_ac_tokens"]
        # With a sampler beside the trainer, time/sampling is only what the trainer waited.
        seconds = {"sample": times.get("time/sampler", times.get("time/sampling", 0))}
        # A step without an update took no time to train, which is no speed.
        seconds["train"] = times.get("time/train", 0) if row["optim/updates"] else 0
        return {
            f"perf/{name}_tokens_per_sec": tokens / t if t else None for name, t in seconds.items()
        }

    def report_nonfinite(self, step: int, groups: Sequence[Group]) -> None:
        if not self.ranks.writes:
            return
        path = self.folder.write_for_repro(step, groups)
        log.warning(
            "step %d: loss or gradient was not finite, so no update; its rollouts are in %s",
            step + 1,
            path,
        )

    def look_after(self) -> str:
        """Say what looks wrong; the reason to end the run now, or ""."""
        rows = self.folder.rows
        found = new_alarms(rows)
        for alarm in found:
            log.warning("step %d: %s", rows[-1]["step"] + 1, alarm)
        recent = rows[-NONFINITE_LIMIT:]
        if len(recent) == NONFINITE_LIMIT and all(row["optim/nonfinite"] for row in recent):
            return (
                f"loss or gradient was not finite in {NONFINITE_LIMIT} steps in a row; the "
                "weights are those of the last finite update. Lower --lr"
            )
        recent = rows[-FAILED_LIMIT:]  # fewer in a run of fewer steps
        tried = len(recent) == FAILED_LIMIT or self.done == self.config.steps
        if tried and all(row.get("env/all/reward_failed") == 1 for row in recent):
            named = self.config.reward or self.config.environment
            judge = named or f"the reward function of {self.config.problems}"
            steps = "the only step" if len(recent) == 1 else f"{len(recent)} steps in a row"
            return (
                f"{judge} failed on every answer of {steps}, so there was nothing to learn from; "
                "logs.log says how. Mend it and train again"
            )
        return f"{found[0]} (--stop-on-alarm)" if found and self.config.stop_on_alarm else ""

    # -- saving

    def save(
        self, batch: int, with_state: bool = True, prune: bool = True, **extras: object
    ) -> None:
        with self.clock("save"):
            model = self.weights.whole_model(self.model)
            optimizer = self.weights.whole_state(self.optimizer) if with_state else None
            if not self.ranks.writes:
                return
            if with_state:
                optimizer |= lora_state(model)
            config = {k: v for k, v in to_json(self.config).items() if k not in PLACES}
            state = {"batch": batch, "updates": self.optimizer.updates, "config": config}
            self.folder.sync()
            write = partial(self.write_weights, model)
            self.checkpoints.save(batch, write, optimizer, state, **extras)
            if prune:
                self.checkpoints.prune(self.config.keep_last)

    def save_weights_again(self) -> None:
        """Those of the last save, of which files were lost."""
        model = self.weights.whole_model(self.model)
        if self.ranks.writes:
            self.write_weights(model, self.checkpoints.place({"batch": self.done}))

    def write_weights(self, model: Qwen3Model, path: Path) -> None:
        """Weights that anything loads: LoRA merged into them, and by itself in adapter/."""
        self.write_card(path)
        if not self.config.lora_rank:
            save_hf_folder(model, self.tokenizer, path)
            return
        line = self.checkpoints.line_of(0) or {}
        kept = Path(line["sampler_path"]).absolute() if line.get("start") else self.config.model
        save_peft(model, self.folder.path / "adapter", str(kept))
        save_hf_folder(merged(model), self.tokenizer, path)

    def write_card(self, path: Path) -> None:
        batch, (measured, scores) = int(path.name), self.scores
        known = scores if measured == batch else {}
        card = model_card(self.config, self.folder.path.resolve().name, batch, known)
        write_whole(path / CARD_FILE, card)

    def save_interrupted(self) -> str:
        """After a signal: the weights after the last whole step. "" if that was the last one."""
        self.optimizer.zero_grad()  # of a step that was given up
        if self.done == self.config.steps:
            return ""
        self.save(self.done, rolling=True)
        sentence = (
            f"interrupted after {self.done} of {self.config.steps} steps; saved. "
            f"Continue with: rfs train --resume {self.folder.path}"
        )
        log.info(sentence)
        return sentence

    def stop_diverged(self, error: UserError) -> str:
        """The sampler met logits that are no numbers. A save beside the earlier ones: if the
        weights are to blame, resuming goes back to those."""
        if self.ranks.size > 1:  # a save needs all ranks, and the others are still sampling
            raise error
        self.optimizer.zero_grad()
        before = [line for line in self.checkpoints.lines if "state_path" in line]
        self.save(self.done, prune=False, rolling=True)
        sentence = (
            f"stopped after {self.done} of {self.config.steps} steps, saved: {error}. "
            f"Try --resume {self.folder.path} with a lower --lr"
        )
        if before:
            last = self.checkpoints.folder / f"{self.done:06d}"
            sentence += f"; if it stops here again, delete {last} to resume from the save before"
        log.error(sentence)
        return sentence


def gap_to_sampler(policy: LocalPolicy, groups: Sequence[Group]) -> list[float]:
    """Over all sampled tokens of these groups, the means of log q - log p and of its square, half.
    q is the sampler's record, p the policy as it is now. [] without a token."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    gaps = [  # of each rollout's sampled tokens
        (torch.tensor(rollout.logprobs) - logprobs)[rollout.sampled_mask().bool()].double()
        for rollout, logprobs in zip(rollouts, policy.logprobs(rollouts), strict=True)
    ]
    gap = torch.cat([torch.zeros(0), *gaps])  # (N,)
    if not gap.numel():
        return []
    return [float(gap.mean()), 0.5 * float(gap.square().mean())]


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
