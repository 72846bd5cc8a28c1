"""Which weights a run begins with, and how it finds exactly these again when it is resumed.

By then the folder or run that they came from may be trained further, moved or deleted. So a run
notes the whole path of its source and, if that is a run, the exact save. Unless the source is a
published model, the run also keeps the weights themselves as its first save, checkpoints/000000.
LoRA and a KL penalty need these weights to the bit: for them, the CRC of all weights is noted, too,
and compared.
"""

import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from reasoning_from_scratch.config import marked
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.facts import FIXED
from reasoning_from_scratch.files.model_names import is_model_name
from reasoning_from_scratch.problems import PROMPTS, is_in_file, kind_and_file
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.text import expanded
from rfs.config import RunConfig
from rfs.files.saved_models import which_weights
from rfs.run.checkpoints import load_trainer_state
from rfs.run.folder import RunFolder, log
from rfs.tasks.own_task import FunctionFromFile
from rfs.tasks.problem_sets import source_of


@dataclass
class Start:
    """What a run begins with, and the save that it continues from. One process finds out, and tells
    the others."""

    config: RunConfig
    model: str
    weights: str | None = None  # other weights for that model
    step: int = 0
    updates: int = 0
    save: Path | None = None
    record: dict = field(default_factory=dict)  # what config.json notes about those weights

    @property
    def weights_may_go(self) -> bool:
        """Whether the weights may vanish: those of a name never do. A run saves all others."""
        return self.weights is not None or not is_model_name(self.model)


def found_start(config: RunConfig, folder: RunFolder) -> Start:
    """Finds on the disk what the run begins with, or continues from."""
    start = Start(config, config.model, config.load_checkpoint_path)
    if not config.resume:
        refuse_own_source(start, folder)
        return start
    refuse_changes(config, folder)
    save = folder.checkpoints.newest_complete()
    start.record = folder.start_record()
    if save is not None:
        place = folder.checkpoints.place(save)
        updates = load_trainer_state(place)[1]["updates"]
        start = replace(start, step=save.batch, updates=updates, save=place)
    if start.step > config.steps:
        raise UserError(
            f"{config.resume} has run {start.step} steps, more than --steps {config.steps}: give a "
            f"larger number, or train from one of its saves in another folder: "
            f"--load-checkpoint-path {folder.path}/checkpoints/NNNNNN --out FOLDER"
        )
    kept = folder.checkpoints.beginning() if start.weights_may_go else None
    if kept:
        return replace(start, model=str(kept), weights=str(kept))
    gone = missing_source(start)
    if gone is None:
        return start
    if start.save is None or needs_beginning(config):
        raise UserError(
            f"{config.resume} began with {gone}, and these weights are gone: put them "
            "back, or start over with --overwrite"
        )
    return replace(start, model=str(start.save), weights=None)


def missing_source(start: Start) -> str | None:
    """What a run began with, if that no longer exists."""
    paths = [path for path in (start.model, start.weights) if path and not is_model_name(path)]
    return next((path for path in paths if not Path(path).exists()), None)


def needs_beginning(config: RunConfig) -> bool:
    """LoRA adds to the first weights, and the KL penalty compares with them unless it has its own
    reference."""
    return bool(config.lora_rank) or (config.kl != "none" and not config.kl_reference)


def refuse_changes(config: RunConfig, folder: RunFolder) -> None:
    """A resumed run keeps what its saves depend on."""
    for name, value in folder.changes(config).items():
        if name in marked(RunConfig, FIXED):
            words = "--" + name.replace("_", "-")
            raise UserError(
                f"{folder.path} cannot continue with another {words}, {value}: drop it, or start a "
                f"new run from its weights: --load-checkpoint-path {folder.path} --out FOLDER"
            )


def refuse_own_source(start: Start, folder: RunFolder) -> None:
    """Refuse weights that --overwrite would delete: if the new run fails early, they are lost."""
    sources = (start.model, start.weights, start.config.kl_reference)
    for source in (source for source in sources if source and not is_model_name(source)):
        path = Path(source).resolve()
        if folder.used() and folder.path.resolve() in (path, *path.parents):
            raise UserError(
                f"{source} is in {folder.path}, which --overwrite would delete: choose "
                "another --out"
            )


def weights_record(start: Start, model: Qwen3Model, reference: Qwen3Model | None = None) -> dict:
    """What config.json notes about the weights that a run begins with, and about a reference with
    other weights. They are compared when the run is resumed."""
    config = start.config
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    found: dict[str, str | list[int]] = {"dtype": dtype}
    again = needs_beginning(config) or not start.step  # nothing but these weights will do
    if again and (needs_beginning(config) or start.weights_may_go):
        found["mark"] = weights_mark(model)
    if config.kl_reference and reference is not None:
        found["reference_mark"] = weights_mark(reference)
    if not config.resume:
        return found
    before = found | start.record
    if before["dtype"] != found["dtype"]:
        raise UserError(
            f"{config.resume} is trained in {before['dtype']} and cannot continue in "
            f"{found['dtype']}: drop --dtype"
        )
    if "mark" in found and before["mark"] != found["mark"]:
        raise UserError(
            f"{config.resume} began with other weights than {start.model} has now, and cannot "
            "continue without them: put them back, or start over with --overwrite"
        )
    if "reference_mark" in found and before["reference_mark"] != found["reference_mark"]:
        raise UserError(
            f"{config.resume} began with other weights in --kl-reference {config.kl_reference}, "
            "and cannot continue without them: put them back, or start over with --overwrite"
        )
    return found


def weights_mark(model: Qwen3Model) -> list[int]:
    """[number of weights, CRC-32 of their bytes].

    -0.0 counts as 0.0: 4-bit files are full of it, and a save adds LoRA's zeros to it."""
    count = crc = 0
    for tensor in model.state_dict().values():
        count += tensor.numel()
        values = tensor.detach().cpu() + 0.0
        crc = zlib.crc32(values.contiguous().view(torch.uint8).numpy(), crc)
    return [count, crc]


# The fields that may name a file: sets of problems, other files, and formulas of one's own.
SETS = ("problems", "eval_problems")
FILES = ("data_path", "recipe", "prompt", "reward", "environment", "evaluators")
FORMULAS = ("advantage", "objective")


def with_whole_files(config: RunConfig) -> RunConfig:
    """Makes the paths of files absolute, those of problems, verifiers, environments, evaluators and
    your own recipes: a run may be resumed from another folder, and samplers may work in one."""

    def located(name: str) -> str:
        return source_of(name).located()

    def absolute(name: str) -> str:
        kind, path = kind_and_file(name)
        is_file = is_in_file(path) or (path not in PROMPTS and Path(path).is_file())
        return f"{kind}{expanded(path).resolve()}" if is_file else name

    full_name = dict.fromkeys(SETS, located) | dict.fromkeys(FILES, absolute)
    given = {name: value for name in full_name if (value := getattr(config, name))}
    own = {name: getattr(config, name) for name in FORMULAS}
    whole: dict[str, Any] = {
        name: list(map(full_name[name], value))
        if isinstance(value, list)
        else full_name[name](value)
        for name, value in given.items()
    }
    for name, value in own.items():
        if is_in_file(value):
            whole[name] = FunctionFromFile(absolute(value))
    return replace(config, **whole)


def with_whole_paths(config: RunConfig) -> RunConfig:
    """Makes the paths of models absolute, and replaces a run by one of its saves: the new run may
    be resumed from another folder, and its source may have saved more by then."""
    changes = {}
    if not is_model_name(config.model):
        changes["model"] = which_weights(config.model, log.info)
    if config.load_checkpoint_path:
        changes["load_checkpoint_path"] = which_weights(config.load_checkpoint_path, log.info)
    if config.kl_reference and not is_model_name(config.kl_reference):
        changes["kl_reference"] = which_weights(config.kl_reference, log.info)
    whole: dict[str, Any] = {k: str(expanded(path).resolve()) for k, path in changes.items()}
    return replace(config, **whole)
