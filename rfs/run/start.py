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
from rfs.report.clock import Clock, Timed
from rfs.report.progress import show_log
from rfs.report.run_pages import Pages
from rfs.report.tracker import (
    import_tensorboard,
    import_trackio,
    import_wandb,
)
from rfs.run.checkpoints import load_trainer_state
from rfs.run.chosen_problems import all_sets, open_problems
from rfs.run.evaluations import Evaluations
from rfs.run.folder import (
    USED,
    RunFolder,
    disk_errors_name,
    job_name,
    log,
    new_folder,
)
from rfs.run.memory import check_memory
from rfs.run.options import resolved
from rfs.run.origin import (
    Start,
    found_start,
    weights_record,
    with_whole_files,
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
from rfs.tasks.environments.conversation import Conversation, environment_of
from rfs.tasks.environments.tools import ToolUsers
from rfs.tasks.judge import judge_of, missing_part
from rfs.tasks.own_task import Evaluator, forget_changed_files, function_from_file

# Of Qwen, SmolLM and Llama: the end of a text, a turn, a message.
USUAL_ENDS = {
    "<|endoftext|>", "<|im_end|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "</s>",
}  # fmt: skip


@dataclass
class Opened:
    """What a configuration names, loaded: all that it takes to sample the first answer."""

    model: Qwen3Model
    reference: Qwen3Model | None  # what a KL penalty compares the model with
    tokenizer: ModelTokenizer
    problems: Sequence[Problem]
    held_out: dict[str, Sequence[Problem]]


@dataclass
class TrainResult:
    """What a run leaves behind."""

    model: Qwen3Model
    tokenizer: ModelTokenizer
    folder: Path
    rows: list[dict]  # the lines of metrics.jsonl
    stopped: str = ""  # why the run ended before its last step; "" if it did not
    writes: bool = True  # whether this rank is the one that talks to people
    outlook: Outlook | None = None  # what was seen before the first step, if the run looked

    @property
    def interrupted(self) -> bool:
        return self.stopped.startswith("interrupted")

    def finished(self) -> "TrainResult":
        """Itself, for whoever can only use the whole run: Ctrl-C ends that work, too."""
        if self.interrupted:
            raise KeyboardInterrupt
        if self.stopped:
            raise UserError(f"{self.folder}: {self.stopped}")
        return self


def train(
    config: RunConfig,
    quiet: bool = False,
    if_used: str = USED,
    on_evaluation: Callable[[dict], None] = lambda measured: None,
) -> TrainResult:
    """Run `config` to its end. `if_used` is the advice if its folder already holds a run;
    `on_evaluation` gets each evaluation's numbers."""
    if not quiet:
        show_log()
    run = start_run(config, quiet, if_used, on_evaluation)
    if run.first_step < run.config.steps:
        sizes = run.config.problems_per_step, run.config.rollouts
        if not run.config.is_supervised:
            log.info("training; a step begins with sampling %d x %d answers", *sizes)
    with run.interrupts, run, closing(run.rollouts):
        loop = streaming_loop if run.config.num_minibatches > 1 else training_loop
        try:
            if run.first_step == run.config.steps:
                run.complete()
            stopped = loop(run.policy, run.rollouts, run.config, run, run.reference, run.first_step)
        except KeyboardInterrupt:
            stopped = run.save_interrupted()
        except NotFinite as error:
            stopped = run.stop_diverged(error)
        if stopped:
            log.warning("%s", stopped)
    policy, folder = run.policy, run.folder
    return TrainResult(
        policy.model,
        policy.tokenizer,
        folder.path,
        folder.rows,
        stopped,
        run.ranks.writes,
        run.outlook,
    )


def start_run(
    config: RunConfig, quiet: bool, if_used: str, on_evaluation: Callable[[dict], None]
) -> TrainingRun:
    """Everything before the loop's first step: folder, model, problems, policy, run.

    All that can fail is tried before anything on the disk changes: a run that is refused leaves
    no trace, and neither a finished run nor one to be overwritten is touched.
    """
    forget_changed_files()
    config = resolved(config)
    ranks = join_ranks(config) if "WORLD_SIZE" in os.environ else Ranks(device=config.device)
    log.disabled = not ranks.writes
    config = ranks.agreed(with_folder(with_whole_files(config)))
    folder = RunFolder(config.log_path)
    try:
        # One process looks at the disk, and tells the others.
        start = ranks.from_first(lambda: described(config, folder, ranks.restarted, if_used))
        opened = open_all(start, ranks)
        policy, compared = open_policy(start, opened, ranks)
        outlook = look_ahead(start, policy, opened.problems, ranks)
        run = open_run(start, policy, compared, opened, folder, ranks)
        run.outlook = outlook
        run.quiet, run.on_evaluation = quiet or not ranks.writes, on_evaluation
        begin(run, start)
    except BaseException:
        folder.close()
        raise
    return run


def before_a_run(config: RunConfig) -> tuple[RunConfig, Opened]:
    """What `train` would do before it samples the first answer. Nothing is written."""
    config = with_whole_paths(with_whole_files(resolved(config)))
    check_extras(config)
    start = Start(config, config.model, config.load_checkpoint_path)
    opened = open_all(start, Ranks(device=config.device))
    return start.config, opened


def described(config: RunConfig, folder: RunFolder, restarted: bool, if_used: str) -> Start:
    """What the run begins with or continues from. Refuses what would otherwise fail after minutes
    of loading."""
    config = claimed(config, folder, restarted, if_used)
    check_extras(config)
    folder.reserve()
    if not config.resume:
        config = with_whole_paths(config)
    return found_start(config, folder)


def open_run(
    start: Start,
    policy: LocalPolicy,
    reference: LocalPolicy | None,
    opened: Opened,
    folder: RunFolder,
    ranks: Ranks,
) -> TrainingRun:
    """Everything around the loop: who samples, who judges, and what is saved and shown."""
    config, clock, judge = start.config, Clock(), judge_of(start.config)
    problems, held_out = opened.problems, opened.held_out
    probes = next(iter(held_out.values()), problems)
    ranks.advice = f"rfs train --resume {folder.in_a_shell} continues"
    saves = Saves(config, policy, folder, ranks, clock)
    pages = Pages(config, policy, folder.path, ranks.writes, clock, judge, probes, start.step)
    evaluators = [Evaluator(name) for name in config.evaluators or []]
    return TrainingRun(
        config=config,
        policy=policy,
        reference=reference,
        rollouts=rollouts_of(config, policy, problems, start.step, judge, ranks, clock),
        first_step=start.step,
        folder=folder,
        saves=saves,
        evaluations=Evaluations(config, policy, held_out, evaluators, pages, ranks, clock, judge),
        pages=pages,
        ranks=ranks,
        clock=clock,
    )


def open_all(start: Start, ranks: Ranks) -> Opened:
    """Loads the problems and the model, and tries what will answer it."""
    sets = all_sets(start.config)  # before the model, which may take minutes to load
    model, reference, tokenizer = open_model(start, ranks)
    context = model.cfg["context_length"]
    problems, held_out = open_problems(start.config, sets, tokenizer, context)
    try_environment(start.config, tokenizer, problems[0], context)
    return Opened(model, reference, tokenizer, problems, held_out)


def open_model(start: Start, ranks: Ranks) -> tuple[Qwen3Model, Qwen3Model | None, ModelTokenizer]:
    """The model with its first weights, what a KL penalty compares it with, and its tokenizer."""
    config, device = start.config, trusted_device(ranks.device)
    model, tokenizer = starting_model(start, device)
    if not end_as_usual(tokenizer):
        log.info("answers end with %s", spoken_stops(tokenizer))
    if start.weights and start.weights != start.model and ranks.writes:
        load_weights(model, start.weights)
    ranks.same_as_first(model.state_dict())
    reference = reference_of(model, config, ranks) if config.kl != "none" else None
    start.record |= ranks.from_first(lambda: weights_record(start, model, reference))
    if config.lora_rank:
        add_lora(model, config.lora_rank, config.lora_alpha, config.seed)
    if config.micro_batch_tokens is None:  # noted in config.json: a resumed run splits as before
        tokens = ranks.from_first(lambda: fitting_micro_batch(model, config, device, ranks.size))
        start.config = config = config.with_layer("free memory", micro_batch_tokens=tokens)
    slices = ranks.size if config.shard == "fsdp" else 1
    check_memory(model, reference, config, device, slices)
    return model, reference, tokenizer


def open_policy(
    start: Start, opened: Opened, ranks: Ranks
) -> tuple[LocalPolicy, LocalPolicy | None]:
    """The policy, restored to where the run resumes, and the reference, for scoring only.
    Who computes, and how, is chosen here."""
    config, model, reference = start.config, opened.model, opened.reference
    if start.save is not None:
        ranks.from_first(lambda: load_saved(model, start.save, config))
        ranks.same_as_first(model.state_dict())
    optimizer_of = partial(with_state, config=config, seed=config.seed)
    if config.sampling_weights == "int8":
        library_for_int8(model)  # refuses before anything is written
    kept = RecordingCache(config.compile)
    how: dict[str, Any] = {
        "config": config,
        "training_pass": CompiledPass(model) if config.compile else packed_logprobs,
        "tokenizer": opened.tokenizer,
        "engine": replace(FAST, decoder=kept.decoder, draw=kept.draw, let_go=kept.let_go),
    }
    if ranks.size == 1:
        if config.shard != "none":
            log.warning("--shard %s has no effect in one process: use torchrun", config.shard)
        policy = LocalPolicy(model, optimizer_of(model), **how)
        compared = LocalPolicy(reference, **how) if reference else None
    else:
        policy = policy_of_ranks(ranks, config.shard, model, optimizer_of, **how)
        compared = (
            policy_of_ranks(ranks, config.shard, reference, None, **how) if reference else None
        )
    if start.save is not None:
        tensors = load_trainer_state(start.save)[0] if ranks.writes else {}
        policy.load_optimizer(tensors, start.updates)
    if config.gradient_checkpointing:
        checkpoint_blocks(policy.model)
    return policy, compared


def rollouts_of(
    config: RunConfig,
    policy: LocalPolicy,
    problems: Sequence[Problem],
    first_step: int,
    judge: Judge,
    ranks: Ranks,
    clock: Clock,
) -> Generator[Iterable[Group]]:
    """The groups of one step after another; who samples is chosen here."""
    if config.sampler == "ray":
        return ray_rollouts(policy, problems, config, first_step, ranks, clock)
    if config.max_steps_off_policy:
        return async_rollouts(policy, problems, config, first_step, judge, ranks, clock)
    if config.num_minibatches > 1:
        log.info("--num-minibatches saves no time if one process both samples and trains")
    timed = Timed(judge)
    source = worked_solutions if config.is_supervised else on_policy_rollouts
    rollouts = source(policy, problems, config, first_step, timed)
    return clock.sampling(
        sent_by_first(rollouts, ranks) if config.is_supervised else rollouts, timed
    )


def sent_by_first(steps: Iterator[list[Group]], ranks: Ranks) -> Generator[list[Group]]:
    """Of several ranks, rank 0 reads the steps and sends them. While the others wait, they also
    learn of a Ctrl-C; in runs that sample answers, they learn of it during sampling."""
    while (groups := ranks.from_first(lambda: next(steps, None))) is not None:
        yield groups


# --- the pieces ---


def begin(run: TrainingRun, start: Start) -> None:
    """Makes the first change on the disk."""
    config = start.config
    run.ranks.from_first(lambda: run.tracker.start(config, run.folder.path))
    with disk_errors_name(run.folder.path):
        opened = partial(open_folder, run.folder, start)
        run.folder.rows = run.ranks.from_first(opened)
        if run.ranks.writes:
            run.tracker.go_on(config, run.folder.path, start.step)
        if start.weights_may_go and not config.resume:
            run.saves.save(0, with_state=False, prune=False, start=True)


def look_ahead(
    start: Start, policy: LocalPolicy, problems: Sequence[Problem], ranks: Ranks
) -> Outlook | None:
    """A brief preflight on a few problems: warn early if the model cannot learn from these."""
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


def claimed(config: RunConfig, folder: RunFolder, restarted: bool, if_used: str) -> RunConfig:
    """Refuse a folder with a run in it, unless torchrun has restarted us and the run is ours."""
    if config.resume:
        return config
    ours = restarted and folder.used() and folder.config_values()["versions"]["job"] == job_name()
    if ours:
        return replaced(config, resume=config.log_path, overwrite=False)
    folder.refuse_used(config.overwrite, if_used)
    return config


def check_extras(config: RunConfig) -> None:
    """Does everything exist that the configuration names besides model and problems?"""
    if config.sampler == "ray":
        connect(config.ray_address)
    for name in filter(None, (config.reward, *(config.evaluators or []))):
        function_from_file(name)
    if config.environment:
        environment_of(config.environment)
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
    kind, rollout = environment_of(config.environment), Rollout()
    talk = Conversation(kind, problem, tokenizer, config)
    if isinstance(kind, ToolUsers):
        talk.begin([], context - 1)
        tokenizer.results_turn([("tool", "")])
        if talk.failure:
            raise UserError(f"--environment {config.environment} {talk.failure} ({problem.where})")
    else:
        tokenizer.reply_turn("")
    talk.answer("", stopped=True)
    talk.leave(rollout)
    missing = missing_part(config.reward_parts, rollout.outcome)
    if missing and not rollout.failure:  # the first step reports how it fails
        raise UserError(f"--environment {config.environment} {missing}")


def try_loss(config: RunConfig) -> None:
    """A custom advantage or objective is tried once, on dummy numbers."""
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


def with_state(model: Trainable, config: Optim, seed: int = 0) -> AdamW:
    """The optimizer, with its state: so the first answers find the memory of all later ones."""
    optimizer = OPTIMIZERS[config.optimizer].of(model, config, seed)
    optimizer.state = optimizer.new_state()
    return optimizer


def with_folder(config: RunConfig) -> RunConfig:
    """Where the run goes: the folder that is resumed, the one that was named, or a new one."""
    if config.resume:
        return replaced(config, log_path=config.resume)
    if config.log_path:
        return config
    recipe = Path(config.recipe).name.replace(".py:", "-")
    return replaced(config, log_path=new_folder(f"{recipe}-{Path(config.model).name}"))


def starting_model(start: Start, device: torch.device) -> tuple[Qwen3Model, ModelTokenizer]:
    config = start.config
    known = start.record.get("dtype") if config.dtype == "auto" else config.dtype
    dtype = partial(dtype_by_name, known or "auto", device)
    # On another machine the run folder may not be there. The weights come from rank 0 anyway.
    here = is_model_name(start.model) or Path(start.model).exists()
    model = start.model if here else config.model
    # From the CPU each block moves to its GPU by itself, and only a slice of it stays there.
    loaded = torch.device("cpu") if config.shard == "fsdp" else device
    return load_model_and_tokenizer(model, loaded, dtype=dtype)


def end_as_usual(tokenizer: ModelTokenizer) -> bool:
    """Whether answers end as those of the known families do, which is not worth a line."""
    return USUAL_ENDS.issuperset(map(tokenizer._tok.id_to_token, model_stop_ids(tokenizer)))


def spoken_stops(tokenizer: ModelTokenizer) -> str:
    """The tokens that end an answer, and the file that says so."""
    stops = [f"{tokenizer.decode([stop])} ({stop})" for stop in sorted(model_stop_ids(tokenizer))]
    source = getattr(tokenizer, "stops_from", "")
    return " or ".join(stops) + (f", as {source} says" if source else "")


def load_saved(model: Qwen3Model, place: Path, config: RunConfig) -> None:
    if config.lora_rank:  # the weights themselves never changed
        load_lora(model, load_trainer_state(place)[0])
    else:
        load_weights(model, place)


def open_folder(folder: RunFolder, start: Start) -> list[dict]:
    """Create a fresh run folder; or, when resuming, rewind the folder to its newest complete save.
    Returns the metrics lines so far."""
    config = start.config
    with disk_errors_name(folder.path):
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
                folder.checkpoints.forget_scores()
            folder.note_resume(config, start.step)
        folder.rewind(start.step, config.steps)
        if finished:
            folder.checkpoints.settle(config.keep_last)
        else:
            folder.checkpoints.rewind(start.step)
            log.info("resuming %s after %d of %d steps", config.resume, start.step, config.steps)
        return folder.rows


def reference_of(model: Qwen3Model, config: RunConfig, ranks: Ranks) -> Qwen3Model:
    """What the KL penalty compares with: the model as it begins, or the one in --kl-reference."""
    if not config.kl_reference:
        return copy.deepcopy(model).requires_grad_(False).eval()
    weight = next(model.parameters())
    reference, _ = load_model_and_tokenizer(config.kl_reference, weight.device, dtype=weight.dtype)
    tokens = [one.cfg["vocab_size"] for one in (reference, model)]
    if tokens[0] != tokens[1]:
        raise UserError(
            f"--kl-reference {config.kl_reference} knows {tokens[0]} tokens and the trained model "
            f"knows {tokens[1]}, so they cannot be compared: choose one with the same tokenizer"
        )
    ranks.same_as_first(reference.state_dict())
    return reference.requires_grad_(False).eval()
