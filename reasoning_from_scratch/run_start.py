"""How a run starts, fresh or resumed: everything that a configuration names is loaded here."""

import copy
import logging
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import torch
from torch import nn

from reasoning_from_scratch.checkpoints import Checkpoints, load_trainer_state
from reasoning_from_scratch.config import TrainConfig, replaced, resolved
from reasoning_from_scratch.device import default_dtype, trusted_device
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.lora import add_lora, load_lora, merged, save_peft
from reasoning_from_scratch.memory import checkpoint_blocks, fit_memory, parse_size
from reasoning_from_scratch.muon import MuonAdamW
from reasoning_from_scratch.optim import AdamW
from reasoning_from_scratch.own_task import own_verifier
from reasoning_from_scratch.preflight import preflight_summary
from reasoning_from_scratch.problems import Problem, load_problems
from reasoning_from_scratch.progress import Progress, show_log
from reasoning_from_scratch.prompts import render_prompt
from reasoning_from_scratch.recipes import get_recipe, loss_fn_changes
from reasoning_from_scratch.run_folder import RunFolder, log
from reasoning_from_scratch.tracker import Tracker, import_wandb
from reasoning_from_scratch.training_run import TrainingRun
from reasoning_from_scratch.weights import load_model_and_tokenizer, load_weights, save_hf_folder


def start_run(
    config: TrainConfig,
    model: nn.Module | None = None,
    tokenizer: object | None = None,
    problems: Sequence[Problem] | None = None,
    eval_problems: Sequence[Problem] | None = None,
    quiet: bool = False,
) -> TrainingRun:
    """Load what `config` names, unless it is given, and open its run folder."""
    if not quiet:
        show_log()
    config = with_folder(resolved(config))
    folder = RunFolder(config.log_path)
    if not config.resume:
        folder.refuse_used(config.overwrite)  # before minutes of loading
    if config.reward:
        own_verifier(config.reward)
    if config.memory_budget:
        parse_size(config.memory_budget)  # likewise
    if config.wandb:
        import_wandb()
    if model is None:
        device = trusted_device(config.device)
        dtype = default_dtype(device) if config.dtype == "auto" else getattr(torch, config.dtype)
        model, tokenizer = load_model_and_tokenizer(config.model, device, dtype=dtype)
    if config.load_checkpoint_path:
        load_weights(model, checkpoint_weights(config.load_checkpoint_path))
    if config.lora_rank:
        add_lora(model, config.lora_rank, config.lora_alpha, config.seed)
    problems = problems or load_problems(config.problems, config.data_path, config.problem_limit)
    if config.eval_every and not eval_problems:
        eval_problems = load_problems(config.eval_problems, limit=config.eval_limit)
    run = TrainingRun(
        config=config,
        model=model,
        tokenizer=tokenizer,
        problems=problems,
        eval_problems=eval_problems or [],
        optimizer=make_optimizer(model, config),
        reference=frozen_copy(model) if config.kl != "none" else None,
        folder=folder,
        checkpoints=Checkpoints(folder.path, lambda path: save_weights(run, path)),
    )
    open_folder(run)
    prepare_model(run)
    run.tracker = Tracker.start(config, folder)
    run.progress = Progress(config.steps, run.first_step, quiet=quiet)
    return run


def make_optimizer(model: nn.Module, config: TrainConfig) -> AdamW:
    names = ("beta1", "beta2", "weight_decay", "low_precision_updates", "seed")
    common = {name: getattr(config, name) for name in names}
    if config.optimizer == "adamw":
        return AdamW(model, **common)
    rates = (config.matrix_lr, config.embedding_lr, config.unembedding_lr)
    return MuonAdamW(model, *rates, **common)


def checkpoint_weights(path: str | Path) -> Path:
    """The weights at a path: a model's own folder or file, or the newest save of a run."""
    path = Path(path)
    if not (path / "checkpoints.jsonl").is_file():
        return path
    saves = Checkpoints(path, save_weights=lambda folder: None)
    if not saves.lines:
        raise UserError(f"{path} is a run that has saved nothing yet; there are no weights in it")
    return saves.place(saves.lines[-1])


def save_weights(run: TrainingRun, path: Path) -> None:
    """Weights that anything loads: LoRA merged into them, and by itself in adapter/."""
    if run.config.lora_rank:
        save_peft(run.model, run.folder.path / "adapter", run.config.model)
        save_hf_folder(merged(run.model), run.tokenizer, path)
    else:
        save_hf_folder(run.model, run.tokenizer, path)


def with_folder(config: TrainConfig) -> TrainConfig:
    """Where the run goes: the folder that is resumed, the one that was named, or a new one."""
    if config.resume:
        return replaced(config, log_path=config.resume)
    if config.log_path:
        return config
    stamp = datetime.now().strftime("%Y-%m-%d-%H%M%S")
    return replaced(config, log_path=f"runs/{config.recipe}-{Path(config.model).name}-{stamp}")


def open_folder(run: TrainingRun) -> None:
    """A fresh run folder; or, resuming, everything as it was after the newest whole save."""
    config = run.config
    if not config.resume:
        run.folder.create(config)
        return
    run.folder.open_log()
    line = run.checkpoints.newest_whole()
    if line is not None:
        place = run.checkpoints.place(line)
        tensors, state = load_trainer_state(place)
        if config.lora_rank:  # the weights themselves never changed
            load_lora(run.model, tensors)
        else:
            load_weights(run.model, place)
        run.optimizer.load_state_dict(tensors, state["updates"])
        run.first_step = run.done = line["batch"]
    if run.first_step >= config.steps:
        run.folder.read_metrics(config.steps)
        log.info("%s has run its %d steps; a larger --steps goes on", config.resume, config.steps)
        return
    run.folder.note_resume(config, run.first_step)
    run.folder.rewind(run.first_step, config.steps)
    run.checkpoints.rewind(run.first_step)
    log.info("resuming %s at step %d of %d", config.resume, run.first_step, config.steps)


def prepare_model(run: TrainingRun) -> None:
    """Preflight, memory budget, checkpointing, compilation: what happens before step 1."""
    config, model = run.config, run.model
    # The preflight judges answers with the grader; a verifier of one's own shows in step 1.
    if config.preflight and run.first_step == 0 and not config.reward:
        look_ahead(run)
    if config.memory_budget:
        prompts = (run.tokenizer.encode(render_prompt(p.problem)) for p in run.problems)
        longest = max(map(len, prompts)) + config.max_new_tokens
        run.config = config = fit_memory(model, run.optimizer, config, longest)
    if config.gradient_checkpointing:
        checkpoint_blocks(model)
    if config.compile:
        model.training_pass = torch.compile(model.hidden_states, dynamic=True)


def look_ahead(run: TrainingRun) -> None:
    """A brief preflight: say before the hours are spent if these problems cannot teach."""
    config = run.config
    found = preflight_summary(
        run.model, run.tokenizer, run.problems, num_problems=min(8, len(run.problems)),
        num_rollouts=config.rollouts, max_new_tokens=config.max_new_tokens,
        temperature=config.temperature, top_p=config.top_p, top_k=config.top_k, seed=config.seed,
        max_rows=config.sample_rows,
    )  # fmt: skip
    log.log(logging.INFO if found.can_work else logging.WARNING, "preflight: %s", found.verdict)


def configure(recipe: str = "grpo", **changes: object) -> TrainConfig:
    """The defaults, then what the recipe changes, then loss_fn, then what you change."""
    loss = loss_fn_changes(changes.get("loss_fn"))
    return replaced(TrainConfig(recipe=recipe), **{**get_recipe(recipe).changes, **loss, **changes})


def resumed_config(path: str | Path, **changes: object) -> TrainConfig:
    """The configuration with which `train` continues the run in `path`."""
    saved = RunFolder(path).read_config()
    return replaced(saved, resume=str(path), overwrite=False, **changes)


def frozen_copy(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model).requires_grad_(False).eval()
