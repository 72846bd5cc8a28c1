"""TrainingRun: all that a run holds while it runs, how it starts, resumes and ends."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import fmean

import torch
from torch import nn

from reasoning_from_scratch.checkpoints import Checkpoints, load_trainer_state
from reasoning_from_scratch.clock import Clock
from reasoning_from_scratch.config import TrainConfig, replaced, resolved
from reasoning_from_scratch.device import default_dtype, trusted_device
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.evaluation import pass_at_k
from reasoning_from_scratch.health import new_alarms
from reasoning_from_scratch.metrics import with_short_names
from reasoning_from_scratch.optim import AdamW
from reasoning_from_scratch.problems import Problem, load_problems
from reasoning_from_scratch.progress import Progress, show_log
from reasoning_from_scratch.report import write_iteration
from reasoning_from_scratch.rollouts import Group, reward_groups, sample_groups
from reasoning_from_scratch.run_folder import RunFolder, close_logs, log
from reasoning_from_scratch.weights import load_model_and_tokenizer, load_weights, save_hf_folder

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
    first_step: int
    progress: Progress
    clock: Clock = field(default_factory=Clock)
    done: int = 0  # steps whose update is in the weights

    def __enter__(self) -> "TrainingRun":
        return self

    def __exit__(self, *exception: object) -> None:
        self.progress.close()
        close_logs()

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
            reward_groups(groups, config)
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
        stopped = self.look_after()
        if last:
            self.save(self.done, final=True)
        elif config.save_every and self.done % config.save_every == 0:
            self.save(self.done)
        elif stopped or (config.rolling_every and self.done % config.rolling_every == 0):
            self.save(self.done, rolling=True)
        return stopped

    def speeds(self, row: dict, times: dict[str, float]) -> dict[str, float | None]:
        tokens = row["env/all/total_ac_tokens"]
        seconds = {"sample": times.get("time/sampling", 0), "train": times.get("time/train", 0)}
        return {
            f"perf/{name}_tokens_per_sec": tokens / t if t else None
            for name, t in seconds.items()
        }

    def look_after(self) -> str:
        """Say what looks wrong; the reason to end the run now, or ""."""
        rows = self.folder.rows
        found = new_alarms(rows)
        for alarm in found:
            log.warning("step %d: %s", rows[-1]["step"], alarm)
        if rows[-1]["optim/nonfinite"]:
            log.warning("step %d: loss or gradient was not finite; no update", rows[-1]["step"])
        recent = rows[-NONFINITE_LIMIT:]
        if len(recent) == NONFINITE_LIMIT and all(row["optim/nonfinite"] for row in recent):
            return (f"loss or gradient was not finite in {NONFINITE_LIMIT} steps in a row; the "
                    "weights are those of the last finite update. Lower --lr")  # fmt: skip
        return f"{found[0]} (--stop-on-alarm)" if found and self.config.stop_on_alarm else ""

    # -- saving

    def save(self, batch: int, with_state: bool = True, **extras: object) -> None:
        with self.clock("save"):
            optimizer = self.optimizer.state_dict() if with_state else None
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
    right = [sum(int(r.rewards["correct"]) for r in group.rollouts) for group in groups]
    for k in (k for k in (1, 2, 4, 8, 16, 32, 64) if k <= samples and samples > 1):
        metrics[f"{name}/pass@{k}"] = fmean(pass_at_k(samples, c, k) for c in right)
    return metrics | {"eval_acc": metrics[f"{name}/env/all/correct"]}


# ---- starting and resuming


def start_run(
    config: TrainConfig,
    model: nn.Module | None = None,
    tokenizer: object | None = None,
    problems: Sequence[Problem] | None = None,
    eval_problems: Sequence[Problem] | None = None,
    quiet: bool = False,
) -> TrainingRun:
    """Load what `config` names, unless it is given, and open its run folder."""
    config = resolved(config)
    if not quiet:
        show_log()
    if config.resume:
        config = replaced(config, log_path=config.resume)
    elif config.log_path is None:
        config = replaced(config, log_path=default_folder(config))
    folder = RunFolder(config.log_path)
    if not config.resume:
        folder.refuse_used(config.overwrite)  # before minutes of loading
    if model is None:
        device = trusted_device(config.device)
        dtype = default_dtype(device) if config.dtype == "auto" else getattr(torch, config.dtype)
        model, tokenizer = load_model_and_tokenizer(config.model, device, dtype=dtype)
    problems = problems or load_problems(config.problems, config.data_path, config.problem_limit)
    if config.eval_every and not eval_problems:
        eval_problems = load_problems(config.eval_problems, limit=config.eval_limit)
    run = TrainingRun(
        config=config,
        model=model,
        tokenizer=tokenizer,
        problems=problems,
        eval_problems=eval_problems or [],
        reference=frozen_copy(model) if config.kl != "none" else None,
        optimizer=AdamW(
            model, config.beta1, config.beta2, config.weight_decay,
            config.low_precision_updates, config.seed,
        ),
        folder=folder,
        checkpoints=Checkpoints(folder.path, lambda path: save_hf_folder(model, tokenizer, path)),
        first_step=0,
        progress=None,
    )  # fmt: skip
    open_folder(run)
    run.progress = Progress(config.steps, run.first_step, quiet=quiet)
    return run


def open_folder(run: TrainingRun) -> None:
    """A fresh run folder; or, resuming, everything as it was after the newest whole save."""
    config = run.config
    if not config.resume:
        run.folder.create(config)
        return
    run.folder.reopen()
    line = run.checkpoints.newest_whole()
    if line is not None:
        place = run.checkpoints.place(line)
        load_weights(run.model, place)
        tensors, state = load_trainer_state(place)
        run.optimizer.load_state_dict(tensors, state["updates"])
        run.first_step = run.done = line["batch"]
    if run.first_step >= config.steps:
        raise UserError(f"{config.resume} has already run its {config.steps} steps; to go on, "
                        "give a larger --steps")  # fmt: skip
    run.folder.note_resume(config, run.first_step)
    run.folder.rewind(run.first_step, config.steps)
    run.checkpoints.rewind(run.first_step)
    log.info("resuming %s at step %d of %d", config.resume, run.first_step, config.steps)


def resumed_config(path: str | Path, **changes: object) -> TrainConfig:
    """The configuration with which `train` continues the run in `path`."""
    saved = RunFolder(path).read_config()
    return replaced(saved, resume=str(path), overwrite=False, **changes)


def default_folder(config: TrainConfig) -> str:
    stamp = datetime.now().strftime("%Y-%m-%d-%H%M%S")
    return f"runs/{config.recipe}-{Path(config.model).name}-{stamp}"


def frozen_copy(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model).requires_grad_(False).eval()
