"""How a run starts, fresh or resumed: everything that a configuration names is loaded here."""

import copy
import logging
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from reasoning_from_scratch.config import Optim
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.fast.compiled import CompiledPass
from reasoning_from_scratch.fast.decoding import RecordingCache, library_for_int8
from reasoning_from_scratch.fast.device import dtype_by_name, trusted_device
from reasoning_from_scratch.fast.memory import checkpoint_blocks, fitting_micro_batch
from reasoning_from_scratch.fast.packed import packed_logprobs
from reasoning_from_scratch.files.model_names import is_model_name
from reasoning_from_scratch.files.weights import load_weights
from reasoning_from_scratch.losses import policy_loss
from reasoning_from_scratch.optim.adamw import AdamW, Trainable
from reasoning_from_scratch.optim.lora import add_lora, load_lora
from reasoning_from_scratch.optim.muon import OPTIMIZERS
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.rollouts import Group, Judge
from reasoning_from_scratch.sampling import NotFinite, Rollout
from reasoning_from_scratch.tokenizer import ModelTokenizer, model_stop_ids
from reasoning_from_scratch.trainer import on_policy_rollouts, training_loop, worked_solutions
from rfs.config import RunConfig, replaced
from rfs.engine import FAST
from rfs.evaluation.group_signal import Outlook
from rfs.files.models import load_model_and_tokenizer
from rfs.report.clock import Clock, TimedFunction
from rfs.report.progress import show_log
from rfs.report.run_pages import Pages
from rfs.report.tracker import (
    import_tensorboard,
    import_trackio,
    import_wandb,
)
from rfs.run.checkpoints import load_trainer_state
from rfs.run.chosen_problems import load_sets, prepare_problems
from rfs.run.evaluations import Evaluations
from rfs.run.folder import (
    USED_ADVICE,
    RunFolder,
    disk_errors_explained,
    log,
    new_folder,
    torchrun_job,
)
from rfs.run.memory import check_memory
from rfs.run.options import resolved
from rfs.run.origin import (
    Start,
    find_start,
    weights_record,
    with_absolute_files,
    with_whole_paths,
)
from rfs.run.saves import Saves
from rfs.run.training_run import TrainingRun
from rfs.run.will_it_work import will_it_work
from rfs.scale.lag import async_rollouts
from rfs.scale.ranks import Ranks
from rfs.scale.ray_rollouts import ray_rollouts
from rfs.scale.ray_start import connect
from rfs.scale.streaming import streaming_loop
from rfs.scale.torchrun import join_ranks, policy_of_ranks
from rfs.tasks.environments.conversation import Conversation, environment_factory
from rfs.tasks.environments.tools import ToolEnvironmentFactory
from rfs.tasks.judge import judge_of, missing_part_failure
from rfs.tasks.own_task import Evaluator, forget_changed_files, function_from_file

# Of Qwen, SmolLM and Llama: they end a text, a turn or a message.
USUAL_STOP_TOKENS = {
    "<|endoftext|>", "<|im_end|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "</s>",
}  # fmt: skip


@dataclass
class RunInputs:
    """The models, tokenizer and problems that a configuration names, loaded."""

    model: Qwen3Model
    reference: Qwen3Model | None  # for the KL penalty
    tokenizer: ModelTokenizer
    problems: Sequence[Problem]
    held_out: dict[str, Sequence[Problem]]


@dataclass
class TrainResult:
    """A run after its last step, or after it was stopped."""

    model: Qwen3Model
    tokenizer: ModelTokenizer
    folder: Path
    rows: list[dict]  # the lines of metrics.jsonl
    stopped: str = ""  # why the run ended before its last step; "" if it did not
    writes: bool = True  # whether this rank is the one that prints and writes files
    outlook: Outlook | None = None  # of the preflight before the first step, if there was one

    @property
    def interrupted(self) -> bool:
        return self.stopped.startswith("interrupted")

    def require_finished(self) -> "TrainResult":
        """Returns itself, or raises an error if the run was stopped before its last step."""
        if self.interrupted:
            raise KeyboardInterrupt
        if self.stopped:
            raise UserError(f"{self.folder}: {self.stopped}")
        return self


def train(
    config: RunConfig,
    quiet: bool = False,
    if_used: str = USED_ADVICE,
    on_evaluation: Callable[[dict], None] = lambda measured: None,
) -> TrainResult:
    """Run `config` to its end. `if_used` is the advice if its folder already holds a run;
    `on_evaluation` gets each evaluation's numbers."""
    if not quiet:
        show_log()
    run = start_run(config, quiet, if_used, on_evaluation)
    if run.first_step < run.config.steps and not run.config.is_supervised:
        sizes = run.config.problems_per_step, run.config.rollouts
        log.info("training; a step begins with sampling %d x %d answers", *sizes)
    with run.interrupts, run, closing(run.rollouts):
        loop = streaming_loop if run.config.num_minibatches > 1 else training_loop
        try:
            if run.first_step == run.config.steps:
                run.complete()
            why = loop(run.policy, run.rollouts, run.config, run, run.reference, run.first_step)
        except KeyboardInterrupt:
            why = run.save_interrupted()
        except NotFinite as error:
            why = run.stop_diverged(error)
        if why:
            log.warning("%s", why)
    return TrainResult(
        model=run.policy.model,
        tokenizer=run.policy.tokenizer,
        folder=run.folder.path,
        rows=run.folder.rows,
        stopped=why,
        writes=run.ranks.writes,
        outlook=run.outlook,
    )


def start_run(
    config: RunConfig, quiet: bool, if_used: str, on_evaluation: Callable[[dict], None]
) -> TrainingRun:
    """Everything before the loop's first step: folder, model, problems, policy, run.

    Whatever can fail is tried before anything on the disk changes: a run that is refused leaves
    no trace, and neither a finished run nor one to be overwritten is touched.
    """
    forget_changed_files()
    config = resolved(config)
    ranks = join_ranks(config) if "WORLD_SIZE" in os.environ else Ranks(device=config.device)
    log.disabled = not ranks.writes
    config = ranks.value_of_first(with_log_path(with_absolute_files(config)))
    folder = RunFolder(config.log_path)
    try:
        # One process looks at the disk, and tells the others.
        start = ranks.run_on_first(lambda: choose_start(config, folder, ranks.restarted, if_used))
        inputs = load_inputs(start, ranks)
        policy, reference_policy = build_policies(start, inputs, ranks)
        outlook = brief_preflight(start, policy, inputs.problems, ranks)
        run = build_run(start, policy, reference_policy, inputs, folder, ranks)
        run.outlook = outlook
        run.quiet, run.on_evaluation = quiet or not ranks.writes, on_evaluation
        write_first_files(run, start)
    except BaseException:
        folder.close()
        raise
    return run


def load_for_dry_run(config: RunConfig) -> tuple[RunConfig, RunInputs]:
    """What `train` would load before it samples the first answer. Nothing is written."""
    config = with_whole_paths(with_absolute_files(resolved(config)))
    check_extras(config)
    start = Start(config, config.model, config.load_checkpoint_path)
    inputs = load_inputs(start, Ranks(device=config.device))
    return start.config, inputs


def choose_start(config: RunConfig, folder: RunFolder, restarted: bool, if_used: str) -> Start:
    """What the run begins with or continues from. Whatever would fail after minutes of loading is
    refused here."""
    config = resume_or_refuse_used_folder(config, folder, restarted, if_used)
    check_extras(config)
    folder.reserve()
    if not config.resume:
        config = with_whole_paths(config)
    return find_start(config, folder)


def build_run(
    start: Start,
    policy: LocalPolicy,
    reference: LocalPolicy | None,
    inputs: RunInputs,
    folder: RunFolder,
    ranks: Ranks,
) -> TrainingRun:
    """Everything around the loop: who samples, who judges, and what is saved and reported."""
    config, clock, judge = start.config, Clock(), judge_of(start.config)
    problems, held_out = inputs.problems, inputs.held_out
    probe_problems = next(iter(held_out.values()), problems)
    ranks.advice = f"rfs train --resume {folder.quoted_path} continues"
    saves = Saves(config, policy, folder, ranks, clock)
    pages = Pages(
        config, policy, folder.path, ranks.writes, clock, judge, probe_problems, start.step
    )
    evaluators = [Evaluator(name) for name in config.evaluators or []]
    return TrainingRun(
        config=config,
        policy=policy,
        reference=reference,
        rollouts=groups_by_step(config, policy, problems, start.step, judge, ranks, clock),
        first_step=start.step,
        folder=folder,
        saves=saves,
        evaluations=Evaluations(config, policy, held_out, evaluators, pages, ranks, clock, judge),
        pages=pages,
        ranks=ranks,
        clock=clock,
    )


def load_inputs(start: Start, ranks: Ranks) -> RunInputs:
    """Loads problems and models, and tries the environment once."""
    sets = load_sets(start.config)  # before the model, which may take minutes to load
    model, reference, tokenizer = load_models(start, ranks)
    context = model.cfg["context_length"]
    problems, held_out = prepare_problems(start.config, sets, tokenizer, context)
    try_environment(start.config, tokenizer, problems[0], context)
    return RunInputs(model, reference, tokenizer, problems, held_out)


def load_models(start: Start, ranks: Ranks) -> tuple[Qwen3Model, Qwen3Model | None, ModelTokenizer]:
    """The model with its first weights, the KL penalty's reference model, and the tokenizer."""
    config, device = start.config, trusted_device(ranks.device)
    model, tokenizer = load_starting_model(start, device)
    if not has_usual_stops(tokenizer):
        log.info("answers end with %s", stop_tokens_text(tokenizer))
    if start.weights and start.weights != start.model and ranks.writes:
        load_weights(model, start.weights)
    ranks.copy_from_first(model.state_dict())
    reference = reference_model(model, config, ranks) if config.kl != "none" else None
    start.record |= ranks.run_on_first(lambda: weights_record(start, model, reference))
    if config.lora_rank:
        add_lora(model, config.lora_rank, config.lora_alpha, config.seed)
    if config.micro_batch_tokens is None:  # stored in config.json: a resumed run splits as before
        tokens = ranks.run_on_first(lambda: fitting_micro_batch(model, config, device, ranks.size))
        start.config = config = config.with_layer("free memory", micro_batch_tokens=tokens)
    slices = ranks.size if config.shard == "fsdp" else 1
    check_memory(model, reference, config, device, slices)
    return model, reference, tokenizer


def build_policies(
    start: Start, inputs: RunInputs, ranks: Ranks
) -> tuple[LocalPolicy, LocalPolicy | None]:
    """The policy, restored to where the run resumes, and the reference, for scoring only. One
    process or several ranks, compiled or not: that is chosen here."""
    config, model, reference = start.config, inputs.model, inputs.reference
    if start.save is not None:
        ranks.run_on_first(lambda: load_saved_weights(model, start.save, config))
        ranks.copy_from_first(model.state_dict())
    optimizer_of = partial(optimizer_with_state, config=config, seed=config.seed)
    if config.sampling_weights == "int8":
        library_for_int8(model)  # refuses before anything is written
    recordings = RecordingCache(config.compile)
    options: dict[str, Any] = {
        "config": config,
        "training_pass": CompiledPass(model) if config.compile else packed_logprobs,
        "tokenizer": inputs.tokenizer,
        "engine": replace(
            FAST,
            make_decoder=recordings.decoder,
            make_draw=recordings.draw,
            free_memory=recordings.free_memory,
        ),
    }
    if ranks.size == 1:
        if config.shard != "none":
            log.warning("--shard %s has no effect in one process: use torchrun", config.shard)
        policy = LocalPolicy(model, optimizer_of(model), **options)
        reference_policy = LocalPolicy(reference, **options) if reference else None
    else:
        policy = policy_of_ranks(ranks, config.shard, model, optimizer_of, **options)
        reference_policy = (
            policy_of_ranks(ranks, config.shard, reference, None, **options) if reference else None
        )
    if start.save is not None:
        tensors = load_trainer_state(start.save)[0] if ranks.writes else {}
        policy.load_optimizer(tensors, start.updates)
    if config.gradient_checkpointing:
        checkpoint_blocks(policy.model)
    return policy, reference_policy


def groups_by_step(
    config: RunConfig,
    policy: LocalPolicy,
    problems: Sequence[Problem],
    first_step: int,
    judge: Judge,
    ranks: Ranks,
    clock: Clock,
) -> Generator[Iterable[Group]]:
    """Yields the groups of each step. Who samples them is chosen here."""
    if config.sampler == "ray":
        return ray_rollouts(policy, problems, config, first_step, ranks, clock)
    if config.max_steps_off_policy:
        return async_rollouts(policy, problems, config, first_step, judge, ranks, clock)
    if config.num_minibatches > 1:
        log.info("--num-minibatches saves no time if one process both samples and trains")
    timed = TimedFunction(judge)
    source = worked_solutions if config.is_supervised else on_policy_rollouts
    rollouts = source(policy, problems, config, first_step, timed)
    return clock.time_sampling(
        broadcast_steps(rollouts, ranks) if config.is_supervised else rollouts, timed
    )


def broadcast_steps(steps: Iterator[list[Group]], ranks: Ranks) -> Generator[list[Group]]:
    """Of several ranks, rank 0 reads the steps and sends them. While the others wait, they also
    learn of a Ctrl-C; runs that sample answers learn of it during sampling."""
    while (groups := ranks.run_on_first(lambda: next(steps, None))) is not None:
        yield groups


def write_first_files(run: TrainingRun, start: Start) -> None:
    """The first change on the disk: the run's folder, its tracker, and a copy of the weights that
    may vanish elsewhere."""
    config = start.config
    run.ranks.run_on_first(lambda: run.tracker.start(config, run.folder.path))
    with disk_errors_explained(run.folder.path):
        prepare_folder = partial(create_or_rewind_folder, run.folder, start)
        run.folder.rows = run.ranks.run_on_first(prepare_folder)
        if run.ranks.writes:
            run.tracker.continue_run(config, run.folder.path, start.step)
        if start.weights_may_vanish and not config.resume:
            run.saves.save(0, with_state=False, prune=False, start=True)


def brief_preflight(
    start: Start, policy: LocalPolicy, problems: Sequence[Problem], ranks: Ranks
) -> Outlook | None:
    """Samples a few groups, and warns if the model cannot learn from them."""
    config, count = start.config, min(8, len(problems))
    if not config.preflight or start.step > 0:
        return None
    if not config.is_supervised:
        log.info(
            "sampling %d x %d answers to see whether the model can learn from them",
            count,
            config.rollouts,
        )
    with policy.full_model() as model:
        if not ranks.writes:
            return None
        try:
            outlook = will_it_work(config, model, policy.tokenizer, problems, count)
        except torch.OutOfMemoryError:
            log.warning("preflight: this GPU's memory has run out; training samples fewer at once")
            return None
    level = logging.INFO if outlook.can_work else logging.WARNING
    log.log(level, "preflight: %s", outlook.verdict)
    return outlook


def resume_or_refuse_used_folder(
    config: RunConfig, folder: RunFolder, restarted: bool, if_used: str
) -> RunConfig:
    """Refuse a folder with a run in it, unless it is the run of this torchrun job, which restarts
    its ranks after a failure: then resume it."""
    if config.resume:
        return config
    if restarted and folder.used() and folder.config_values()["versions"]["job"] == torchrun_job():
        return replaced(config, resume=config.log_path, overwrite=False)
    folder.refuse_used(config.overwrite, if_used)
    return config


def check_extras(config: RunConfig) -> None:
    """Refuse a Ray cluster, function, environment or tracker that does not exist or work."""
    if config.sampler == "ray":
        connect(config.ray_address)
    for name in filter(None, (config.reward, *(config.evaluators or []))):
        function_from_file(name)
    if config.environment:
        environment_factory(config.environment)
    try_loss(config)
    if config.wandb:
        import_wandb()
    if config.trackio:
        import_trackio()
    if config.tensorboard:
        import_tensorboard()


def try_environment(config: RunConfig, tokenizer, problem: Problem, context: int) -> None:
    """Try the environment once, with an empty turn, before the model samples a token: does it
    return the parts of the reward, and can the model's chat template take its replies?"""
    if config.environment is None:
        return
    environment, rollout = environment_factory(config.environment), Rollout()
    conversation = Conversation(environment, problem, tokenizer, config)
    if isinstance(environment, ToolEnvironmentFactory):
        conversation.begin([], context - 1)
        tokenizer.results_turn([("tool", "")])
        if failure := conversation.failure:
            raise UserError(f"--environment {config.environment} {failure} ({problem.where})")
    else:
        tokenizer.reply_turn("")
    conversation.answer("", stopped=True)
    conversation.leave(rollout)
    missing = missing_part_failure(config.reward_parts, rollout.outcome)
    if missing and not rollout.failure:  # the first step reports how it fails
        raise UserError(f"--environment {config.environment} {missing}")


def try_loss(config: RunConfig) -> None:
    """Try a custom advantage or objective once, on dummy numbers."""
    if callable(config.advantage):
        config.advantage(rewards=torch.tensor([[0.0, 1.0], [1.0, 1.0]]))
    if callable(config.objective):
        logprobs = torch.full((2, 3), -1.0)
        policy_loss(
            logprobs.requires_grad_(),
            logprobs.detach(),
            torch.tensor([1.0, -1.0]),
            torch.ones(2, 3),
            config,
            denominator=1,
            ref_logprobs=logprobs.detach(),
        )


def optimizer_with_state(model: Trainable, config: Optim, seed: int = 0) -> AdamW:
    """An optimizer with its state allocated, so that sampling finds the same free memory in the
    first step as in all later ones."""
    optimizer = OPTIMIZERS[config.optimizer].from_config(model, config, seed)
    optimizer.state = optimizer.new_state()
    return optimizer


def with_log_path(config: RunConfig) -> RunConfig:
    """The run's folder is the one that is resumed, the one that was named, or a new one."""
    if config.resume:
        return replaced(config, log_path=config.resume)
    if config.log_path:
        return config
    recipe = Path(config.recipe).name.replace(".py:", "-")
    return replaced(config, log_path=new_folder(f"{recipe}-{Path(config.model).name}"))


def load_starting_model(start: Start, device: torch.device) -> tuple[Qwen3Model, ModelTokenizer]:
    config = start.config
    dtype_name = start.record.get("dtype") if config.dtype == "auto" else config.dtype
    dtype = partial(dtype_by_name, dtype_name or "auto", device)
    # On another machine the run folder may not be there. The weights come from rank 0 anyway.
    exists = is_model_name(start.model) or Path(start.model).exists()
    model = start.model if exists else config.model
    # From the CPU each block moves to its GPU by itself, and only a slice of it stays there.
    load_device = torch.device("cpu") if config.shard == "fsdp" else device
    return load_model_and_tokenizer(model, load_device, dtype=dtype)


def has_usual_stops(tokenizer: ModelTokenizer) -> bool:
    """Whether answers end as those of the known families do; if so, the log need not say how."""
    return USUAL_STOP_TOKENS.issuperset(map(tokenizer._tok.id_to_token, model_stop_ids(tokenizer)))


def stop_tokens_text(tokenizer: ModelTokenizer) -> str:
    """The tokens that end an answer, and the file that says so."""
    stops = [f"{tokenizer.decode([stop])} ({stop})" for stop in sorted(model_stop_ids(tokenizer))]
    source = getattr(tokenizer, "stops_from", "")
    return " or ".join(stops) + (f", as {source} says" if source else "")


def load_saved_weights(model: Qwen3Model, save_folder: Path, config: RunConfig) -> None:
    if config.lora_rank:  # the weights themselves never changed
        load_lora(model, load_trainer_state(save_folder)[0])
    else:
        load_weights(model, save_folder)


def create_or_rewind_folder(folder: RunFolder, start: Start) -> list[dict]:
    """Create a fresh run folder; or, when resuming, rewind the folder to its newest complete save.
    Returns the metrics lines so far."""
    config = start.config
    with disk_errors_explained(folder.path):
        if not config.resume:
            folder.create(config, start.record)
            return []
        folder.reopen()
        finished, changes = start.step == config.steps, folder.changes(config)
        if finished:
            log.info(
                "%s has run all %d steps; a larger --steps adds more", config.resume, config.steps
            )
        if not finished or "steps" in changes or not folder.has("config.json"):
            if {"eval_problems", "eval_limit", "eval_samples"} & changes.keys():
                folder.checkpoints.clear_scores()
            folder.note_resume(config, start.step)
        folder.rewind(start.step, config.steps)
        if finished:
            folder.checkpoints.finish_pruning(config.keep_last)
        else:
            folder.checkpoints.rewind(start.step)
            log.info("resuming %s after %d of %d steps", config.resume, start.step, config.steps)
        return folder.rows


def reference_model(model: Qwen3Model, config: RunConfig, ranks: Ranks) -> Qwen3Model:
    """The KL penalty's reference: a copy of the first weights, or the model in --kl-reference."""
    if not config.kl_reference:
        return copy.deepcopy(model).requires_grad_(False).eval()
    weight = next(model.parameters())
    reference, _ = load_model_and_tokenizer(config.kl_reference, weight.device, dtype=weight.dtype)
    ours, theirs = model.cfg["vocab_size"], reference.cfg["vocab_size"]
    if theirs != ours:
        raise UserError(
            f"--kl-reference {config.kl_reference} knows {theirs} tokens and the trained model "
            f"knows {ours}, so they cannot be compared: choose one with the same tokenizer"
        )
    ranks.copy_from_first(reference.state_dict())
    return reference.requires_grad_(False).eval()
