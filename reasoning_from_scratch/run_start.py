"""How a run starts, fresh or resumed: everything that a configuration names is loaded here."""

import copy
import logging
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import torch
from torch import nn

from reasoning_from_scratch.async_rollouts import check_ranks
from reasoning_from_scratch.checkpoints import Checkpoints, load_trainer_state
from reasoning_from_scratch.config import TrainConfig, replaced, resolved
from reasoning_from_scratch.device import default_dtype, trusted_device
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.lora import add_lora, load_lora, merged, save_peft
from reasoning_from_scratch.memory import checkpoint_blocks, fit_memory, parse_size
from reasoning_from_scratch.muon import MuonAdamW
from reasoning_from_scratch.optim import AdamW
from reasoning_from_scratch.own_task import own_verifier
from reasoning_from_scratch.parallel import Ranks
from reasoning_from_scratch.preflight import preflight_summary
from reasoning_from_scratch.problem_checks import usable_problems
from reasoning_from_scratch.problems import Problem, load_problems
from reasoning_from_scratch.progress import Progress, show_log
from reasoning_from_scratch.prompts import problem_prompt, show_examples
from reasoning_from_scratch.provenance import job_name
from reasoning_from_scratch.ray_rollouts import check_learners
from reasoning_from_scratch.ray_start import connect
from reasoning_from_scratch.recipes import get_recipe, loss_fn_changes
from reasoning_from_scratch.run_folder import RunFolder, log, plainly
from reasoning_from_scratch.torchrun import (
    agreed_config,
    check_restartable,
    is_restart,
    start_ranks,
)
from reasoning_from_scratch.tracker import Tracker, import_wandb
from reasoning_from_scratch.training_run import TrainingRun
from reasoning_from_scratch.weights import (
    MODEL_NAMES,
    load_model_and_tokenizer,
    load_weights,
    save_hf_folder,
)


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
    check_restartable(config)
    config = with_folder(resolved(config))
    ranks, device = start_ranks(config)
    config = agreed_config(config, ranks)
    log.disabled = not ranks.writes
    folder = RunFolder(config.log_path)
    config = ranks.from_first(lambda: claimed(config, folder))  # before minutes of loading
    if not config.resume:
        config = with_whole_paths(config, given=model is not None)
    check_extras(config, ranks.size)
    try:
        ranks.from_first(folder.reserve)
        run, start = loaded_run(config, folder, ranks, device, model, tokenizer,
                                (problems, eval_problems))  # fmt: skip
        begin(run, start, config)
        run.tracker = Tracker.start(config, folder) if ranks.writes else Tracker()
    except BaseException:
        folder.close()
        raise
    run.progress = Progress(config.steps, run.first_step, quiet=quiet or not ranks.writes)
    return run


def loaded_run(
    config: TrainConfig,
    folder: RunFolder,
    ranks: Ranks,
    device: str,
    model: nn.Module | None,
    tokenizer: object | None,
    given_problems: tuple[Sequence[Problem] | None, Sequence[Problem] | None],
) -> tuple[TrainingRun, "Start"]:
    """All that can fail is tried here, before anything on the disk changes: a run that is
    refused leaves no trace, and neither a finished run nor one to be overwritten is touched."""
    checkpoints = Checkpoints(folder.path, lambda path: save_weights(run, path))
    given = model is not None
    start = ranks.from_first(lambda: found_start(config, folder, checkpoints, given))
    if not given:
        model, tokenizer = starting_model(start, config, device, ranks)
    if start.weights and start.weights != start.model and ranks.writes:
        load_weights(model, start.weights)
    ranks.same_as_first(model.state_dict())
    start.record |= ranks.from_first(lambda: weights_record(config, start, model))
    reference = frozen_copy(model) if config.kl != "none" else None
    if config.lora_rank:
        add_lora(model, config.lora_rank, config.lora_alpha, config.seed)
    problems, eval_problems = both_sets(config, *given_problems)
    if start.save is not None:
        ranks.from_first(lambda: load_saved(model, start.save, config))
        ranks.same_as_first(model.state_dict())
    run = TrainingRun(
        config=config,
        model=ranks.spread(model),
        tokenizer=tokenizer,
        problems=problems,
        eval_problems=eval_problems,
        optimizer=make_optimizer(ranks.trainable(model), config),
        reference=ranks.spread(reference),
        folder=folder,
        checkpoints=checkpoints,
        ranks=ranks,
        first_step=start.step,
        done=start.step,
    )
    ranks.advice = f"rfs train --resume {folder.path} goes on"
    if start.save is not None:
        tensors = load_trainer_state(start.save)[0] if ranks.writes else {}
        ranks.load_state(run.optimizer, tensors, start.updates)
    prepare_model(run)
    return run, start


def begin(run: TrainingRun, start: "Start", config: TrainConfig) -> None:
    """The first change on the disk. `config` is what was asked for, before it was fitted to the
    memory of this machine."""
    with plainly(run.folder.path):
        run.folder.rows = run.ranks.from_first(
            lambda: open_folder(config, run.folder, run.checkpoints, start)
        )
        if start.weights_may_go and not config.resume:
            run.save(0, with_state=False, prune=False, start=True)


def both_sets(
    config: TrainConfig,
    problems: Sequence[Problem] | None,
    eval_problems: Sequence[Problem] | None,
) -> tuple[Sequence[Problem], Sequence[Problem]]:
    """To train on and to evaluate on: what is given, or what the configuration names."""
    problems = problems or load_problems(config.problems, config.data_path, config.problem_limit)
    if config.eval_every and not eval_problems:
        eval_problems = load_problems(config.eval_problems, limit=config.eval_limit)
    if config.few_shot:
        return show_examples(config.few_shot, problems, eval_problems or [])
    return problems, eval_problems or []


def claimed(config: TrainConfig, folder: RunFolder) -> TrainConfig:
    """Refuse a folder with a run in it, unless torchrun has restarted us and the run is ours."""
    if config.sampler == "ray":  # where it cannot be reached, nothing is begun
        connect(config.ray_address)
    if config.resume:
        return config
    if is_restart() and folder.used() and folder.config_values()["versions"]["job"] == job_name():
        return replaced(config, resume=config.log_path, overwrite=False)
    folder.refuse_used(config.overwrite)
    return config


def check_extras(config: TrainConfig, size: int) -> None:
    """What would otherwise fail after minutes of loading."""
    if config.reward:
        own_verifier(config.reward)
    if config.memory_budget:
        parse_size(config.memory_budget)
    if config.wandb:
        import_wandb()
    if config.sampler == "ray":
        check_learners(config, size)
    elif config.max_steps_off_policy:
        check_ranks(config, size)


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
    saves = Checkpoints(path, save_weights=lambda folder: None).read()
    if not saves.lines:
        raise UserError(f"{path} is a run that has saved nothing yet; there are no weights in it")
    return saves.place(saves.lines[-1])


def save_weights(run: TrainingRun, path: Path) -> None:
    """Weights that anything loads: LoRA merged into them, and by itself in adapter/."""
    if run.config.lora_rank:
        save_adapter(run)
        save_hf_folder(merged(run.whole_model), run.tokenizer, path)
    else:
        save_hf_folder(run.whole_model, run.tokenizer, path)


def save_adapter(run: TrainingRun) -> None:
    line = run.checkpoints.line_of(0) or {}
    kept = Path(line["sampler_path"]).absolute() if line.get("start") else run.config.model
    save_peft(run.whole_model, run.folder.path / "adapter", str(kept))


def with_folder(config: TrainConfig) -> TrainConfig:
    """Where the run goes: the folder that is resumed, the one that was named, or a new one."""
    if config.resume:
        return replaced(config, log_path=config.resume)
    if config.log_path:
        return config
    stamp = datetime.now().strftime("%Y-%m-%d-%H%M%S")
    return replaced(config, log_path=f"runs/{config.recipe}-{Path(config.model).name}-{stamp}")


def with_whole_paths(config: TrainConfig, given: bool) -> TrainConfig:
    """A run may be resumed from another folder, and its source may have saved more by then: what
    it begins with is written down from the root, and of a run it names the very save."""
    changes = {}
    if config.model not in MODEL_NAMES and not given:
        changes["model"] = Path(config.model).expanduser().absolute()
    if config.load_checkpoint_path:
        changes["load_checkpoint_path"] = checkpoint_weights(config.load_checkpoint_path).absolute()
    if config.data_path:
        changes["data_path"] = Path(config.data_path).expanduser().absolute()
    return replaced(config, **{name: str(path) for name, path in changes.items()})


# ---- where a run begins


@dataclass
class Start:
    """With which weights a run begins, and at which save it goes on."""

    model: str | None  # None: a model that was given, as an object
    weights: str | None = None  # other weights for that model
    step: int = 0
    updates: int = 0
    save: Path | None = None
    record: dict = field(default_factory=dict)  # what config.json notes of those weights

    @property
    def weights_may_go(self) -> bool:
        """Only names stand for the same weights for ever. Other weights the run keeps itself."""
        return self.weights is not None or self.model not in (None, *MODEL_NAMES)


def found_start(
    config: TrainConfig, folder: RunFolder, checkpoints: Checkpoints, given: bool
) -> Start:
    """Rank 0 looks at what there is."""
    start = Start(None if given else config.model, config.load_checkpoint_path)
    if not config.resume:
        start.record = {"given": True} if given else {}
        refuse_own_source(start, folder)
        return start
    refuse_changes(config, folder)
    line = checkpoints.newest_whole()
    start.record = folder.start_record()
    if line is not None:
        place = checkpoints.place(line)
        updates = load_trainer_state(place)[1]["updates"]
        start = replace(start, step=line["batch"], updates=updates, save=place)
    if start.step > config.steps:
        raise UserError(
            f"{config.resume} has run {start.step} steps, more than --steps {config.steps}: give a "
            f"larger number, or train from one of its saves in another folder: "
            f"--load-checkpoint-path {checkpoints.folder}/NNNNNN --log-path FOLDER"
        )
    kept = checkpoints.beginning() if start.weights_may_go else None
    if kept:
        return replace(start, model=start.model and str(kept), weights=str(kept))
    gone = missing_source(start)
    if gone is None:
        return start
    if start.save is None or needs_beginning(config):
        raise UserError(f"{config.resume} began with {gone}, and these weights are gone: put them "
                        "back, or begin anew with --overwrite")  # fmt: skip
    return replace(start, model=start.model and str(start.save), weights=None)


def missing_source(start: Start) -> str | None:
    """What a run began with, if it is not there any more."""
    if start.model and start.record.get("given"):
        return "a model that Python gave it"
    paths = [path for path in (start.model, start.weights) if path and path not in MODEL_NAMES]
    return next((path for path in paths if not Path(path).exists()), None)


def needs_beginning(config: TrainConfig) -> bool:
    """LoRA adds to the weights of the beginning, and the KL penalty compares with them."""
    return bool(config.lora_rank) or config.kl != "none"


# A resumed run keeps these: they are what its saves are made of.
KEPT = ("model", "load_checkpoint_path", "lora_rank", "lora_alpha", "optimizer",
        "low_precision_updates")  # fmt: skip


def refuse_changes(config: TrainConfig, folder: RunFolder) -> None:
    for name, value in folder.changes(config).items():
        if name in KEPT:
            words = "--" + name.replace("_", "-")
            raise UserError(
                f"{folder.path} cannot go on with another {words}, {value}: leave it out, or begin "
                f"a run with its weights: --load-checkpoint-path {folder.path} --log-path FOLDER"
            )


def refuse_own_source(start: Start, folder: RunFolder) -> None:
    """Were the new run to end early, the weights would be lost with the run they are in."""
    for source in filter(None, (start.model, start.weights)):
        path = Path(source).resolve()
        if folder.used() and folder.path.resolve() in (path, *path.parents):
            raise UserError(f"{source} is in {folder.path}, which --overwrite would delete: choose "
                            "another --log-path")  # fmt: skip


def starting_model(
    start: Start, config: TrainConfig, device: str, ranks: Ranks
) -> tuple[nn.Module, object]:
    place = trusted_device(device)
    known = start.record.get("dtype") if config.dtype == "auto" else config.dtype
    dtype = getattr(torch, known) if known else default_dtype(place)
    # On another machine the run folder may not be there. The weights come from rank 0 anyway.
    here = start.model in MODEL_NAMES or Path(start.model).exists()
    model = start.model if here else config.model
    return load_model_and_tokenizer(model, ranks.loading_device(place), dtype=dtype)


def weights_record(config: TrainConfig, start: Start, model: nn.Module) -> dict:
    """What config.json notes of the weights that a run begins with. Resumed, they are compared."""
    found = {"dtype": str(next(model.parameters()).dtype).removeprefix("torch.")}
    if needs_beginning(config):
        found["mark"] = weights_mark(model)
    if not config.resume:
        return found
    before = found | start.record
    if before["dtype"] != found["dtype"]:
        raise UserError(f"{config.resume} is trained in {before['dtype']} and cannot go on in "
                        f"{found['dtype']}: leave out --dtype")  # fmt: skip
    if "mark" in found and before["mark"] != found["mark"]:
        here = start.model or "the model that is given"
        raise UserError(f"{config.resume} began with other weights than those of {here}, and its "
                        "LoRA or KL needs the very same: put them back, or begin anew with "
                        "--overwrite")  # fmt: skip
    return found


def weights_mark(model: nn.Module) -> list[int]:
    """[number of weights, CRC-32 of their bytes]."""
    count = crc = 0
    for tensor in model.state_dict().values():
        count += tensor.numel()
        crc = zlib.crc32(tensor.detach().cpu().contiguous().view(torch.uint8).numpy(), crc)
    return [count, crc]


def load_saved(model: nn.Module, place: Path, config: TrainConfig) -> None:
    if config.lora_rank:  # the weights themselves never changed
        load_lora(model, load_trainer_state(place)[0])
    else:
        load_weights(model, place)


def open_folder(
    config: TrainConfig, folder: RunFolder, checkpoints: Checkpoints, start: Start
) -> list[dict]:
    """A fresh run folder; or, resuming, the folder as after the newest whole save. The metrics
    lines so far."""
    with plainly(folder.path):
        if not config.resume:
            folder.create(config, start.record)
            return []
        folder.reopen()
        finished = start.step == config.steps
        if finished:
            log.info("%s has run its %d steps; a larger --steps goes on",
                     config.resume, config.steps)  # fmt: skip
        if not finished or "steps" in folder.changes(config) or not folder.has("config.json"):
            folder.note_resume(config, start.step)
        folder.rewind(start.step, config.steps)
        if finished:
            checkpoints.settle(config.keep_last)
        else:
            checkpoints.rewind(start.step)
            log.info("resuming %s at step %d of %d", config.resume, start.step, config.steps)
        return folder.rows


def prepare_model(run: TrainingRun) -> None:
    """Preflight, memory budget, checkpointing, compilation: what happens before step 1."""
    config, model = run.config, run.model
    check = {"tokenizer": run.tokenizer, "context_length": model.cfg["context_length"],
             "graded": not config.reward}  # fmt: skip
    run.problems = usable_problems(run.problems, **check)
    if run.eval_problems:
        run.eval_problems = usable_problems(run.eval_problems, **check)
    if config.preflight and run.first_step == 0:
        with run.ranks.whole(model):
            if run.ranks.writes:
                look_ahead(run)
    if config.memory_budget:
        prompts = (run.tokenizer.encode(problem_prompt(p)) for p in run.problems)
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
        verifier=own_verifier(config.reward) if config.reward else None,
    )  # fmt: skip
    log.log(logging.INFO if found.can_work else logging.WARNING, "preflight: %s", found.verdict)


def configure(recipe: str = "grpo", **changes: object) -> TrainConfig:
    """The defaults, then what the recipe changes, then loss_fn, then what you change."""
    loss = loss_fn_changes(changes.get("loss_fn"))
    return replaced(TrainConfig(recipe=recipe), **{**get_recipe(recipe).changes, **loss, **changes})


def resumed_config(path: str | Path, **changes: object) -> TrainConfig:
    """The configuration with which `train` continues the run in `path`."""
    saved = RunFolder(path).read_config()
    return replaced(saved, **{"resume": str(path), "overwrite": False, "smoke": False} | changes)


def frozen_copy(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model).requires_grad_(False).eval()
