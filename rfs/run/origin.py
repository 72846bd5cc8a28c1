"""Which weights a run begins with, and how it finds exactly these again when it is resumed.

By then the folder or run that they came from may be trained further, moved or deleted. So a run
records the absolute path of its source and, if that is a run, the exact save. Unless the source is
a published model, the run also copies the weights into its first save, checkpoints/000000. LoRA and
a KL penalty need exactly these weights, so a checksum of them is recorded, too, and compared.
"""

import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from reasoning_from_scratch.config import fields_marked
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.facts import FIXED
from reasoning_from_scratch.files.model_names import is_model_name
from reasoning_from_scratch.problems import PROMPTS, is_file_function, split_prompt_name
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.text import expand_home
from rfs.config import RunConfig
from rfs.files.saved_models import which_weights
from rfs.run.checkpoints import load_trainer_state
from rfs.run.folder import RunFolder, log
from rfs.tasks.own_task import FunctionFromFile
from rfs.tasks.problem_sets import source_of


@dataclass
class Start:
    """What a run begins with, and the save that it continues from. One process finds out, and
    sends it to the others."""

    config: RunConfig
    model: str
    weights: str | None = None  # other weights for that model
    step: int = 0
    updates: int = 0
    save: Path | None = None
    record: dict = field(default_factory=dict)  # what config.json says about those weights

    @property
    def weights_may_vanish(self) -> bool:
        """Whether the weights are in a folder, which may be changed or deleted: a run copies those.
        A published model can always be downloaded again."""
        return self.weights is not None or not is_model_name(self.model)


def find_start(config: RunConfig, folder: RunFolder) -> Start:
    """Looks on the disk for what the run begins with, or continues from."""
    start = Start(config, config.model, config.load_checkpoint_path)
    if not config.resume:
        refuse_overwriting_source(start, folder)
        return start
    refuse_changes(config, folder)
    save = folder.checkpoints.newest_complete()
    start.record = folder.first_weights_record()
    if save is not None:
        save_folder = folder.checkpoints.weights_folder(save)
        updates = load_trainer_state(save_folder)[1]["updates"]
        start = replace(start, step=save.batch, updates=updates, save=save_folder)
    if start.step > config.steps:
        raise UserError(
            f"{config.resume} has run {start.step} steps, more than --steps {config.steps}: give a "
            f"larger number, or train from one of its saves in another folder: "
            f"--load-checkpoint-path {folder.path}/checkpoints/NNNNNN --out FOLDER"
        )
    first_weights = folder.checkpoints.first_weights() if start.weights_may_vanish else None
    if first_weights:
        return replace(start, model=str(first_weights), weights=str(first_weights))
    missing = missing_source(start)
    if missing is None:
        return start
    if start.save is None or needs_first_weights(config):
        raise UserError(
            f"{config.resume} began with {missing}, and these weights are gone: put them "
            "back, or start over with --overwrite"
        )
    return replace(start, model=str(start.save), weights=None)


def missing_source(start: Start) -> str | None:
    """The path of the weights that a run began with, if they no longer exist."""
    paths = [path for path in (start.model, start.weights) if path and not is_model_name(path)]
    return next((path for path in paths if not Path(path).exists()), None)


def needs_first_weights(config: RunConfig) -> bool:
    """LoRA adds to the first weights, and the KL penalty compares with them unless it has its own
    reference."""
    return bool(config.lora_rank) or (config.kl != "none" and not config.kl_reference)


def refuse_changes(config: RunConfig, folder: RunFolder) -> None:
    """Refuse other values for what the saves of a run depend on."""
    for name, value in folder.changes(config).items():
        if name in fields_marked(RunConfig, FIXED):
            flag = "--" + name.replace("_", "-")
            raise UserError(
                f"{folder.path} cannot continue with another {flag}, {value}: drop it, or start a "
                f"new run from its weights: --load-checkpoint-path {folder.path} --out FOLDER"
            )


def refuse_overwriting_source(start: Start, folder: RunFolder) -> None:
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
    """What config.json says about the weights that a run begins with, and about a reference with
    other weights. A resumed run is refused if they are not the recorded ones."""
    config = start.config
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    record: dict[str, str | list[int]] = {"dtype": dtype}
    if needs_first_weights(config) or (start.step == 0 and start.weights_may_vanish):
        record["mark"] = weights_checksum(model)
    if config.kl_reference and reference is not None:
        record["reference_mark"] = weights_checksum(reference)
    if not config.resume:
        return record
    recorded = record | start.record
    if recorded["dtype"] != record["dtype"]:
        raise UserError(
            f"{config.resume} is trained in {recorded['dtype']} and cannot continue in "
            f"{record['dtype']}: drop --dtype"
        )
    if "mark" in record and recorded["mark"] != record["mark"]:
        raise UserError(
            f"{config.resume} began with other weights than {start.model} has now, and cannot "
            "continue without them: put them back, or start over with --overwrite"
        )
    if "reference_mark" in record and recorded["reference_mark"] != record["reference_mark"]:
        raise UserError(
            f"{config.resume} began with other weights in --kl-reference {config.kl_reference}, "
            "and cannot continue without them: put them back, or start over with --overwrite"
        )
    return record


def weights_checksum(model: Qwen3Model) -> list[int]:
    """[number of weights, CRC-32 of their bytes].

    -0.0 counts as 0.0: 4-bit files are full of it, and a save adds LoRA's zeros to it."""
    count = crc = 0
    for tensor in model.state_dict().values():
        count += tensor.numel()
        values = tensor.detach().cpu() + 0.0
        crc = zlib.crc32(values.contiguous().view(torch.uint8).numpy(), crc)
    return [count, crc]


# The fields that may name a file: problem sets, other files, and your own formulas.
SET_FIELDS = ("problems", "eval_problems")
FILE_FIELDS = ("data_path", "recipe", "prompt", "reward", "environment", "evaluators")
FORMULA_FIELDS = ("advantage", "objective")


def with_absolute_files(config: RunConfig) -> RunConfig:
    """Makes the paths of files absolute, those of problems, verifiers, environments, evaluators and
    your own recipes: a run may be resumed from another folder, and samplers may work in one."""

    def absolute_set(name: str) -> str:
        return source_of(name).absolute_name()

    def absolute_file(name: str) -> str:
        kind, path = split_prompt_name(name)
        is_file = is_file_function(path) or (path not in PROMPTS and Path(path).is_file())
        return f"{kind}{expand_home(path).resolve()}" if is_file else name

    absolute = dict.fromkeys(SET_FIELDS, absolute_set) | dict.fromkeys(FILE_FIELDS, absolute_file)
    changes: dict[str, Any] = {}
    for field_name, make_absolute in absolute.items():
        value = getattr(config, field_name)
        if isinstance(value, list):
            changes[field_name] = list(map(make_absolute, value))
        elif value:
            changes[field_name] = make_absolute(value)
    for field_name in FORMULA_FIELDS:
        if is_file_function(value := getattr(config, field_name)):
            changes[field_name] = FunctionFromFile(absolute_file(value))
    return replace(config, **changes)


def with_whole_paths(config: RunConfig) -> RunConfig:
    """Makes the paths of models absolute, and replaces a run by one of its saves: the new run may
    be resumed from another folder, and its source may have saved more by then."""
    paths = {}
    if not is_model_name(config.model):
        paths["model"] = which_weights(config.model, log.info)
    if config.load_checkpoint_path:
        paths["load_checkpoint_path"] = which_weights(config.load_checkpoint_path, log.info)
    if config.kl_reference and not is_model_name(config.kl_reference):
        paths["kl_reference"] = which_weights(config.kl_reference, log.info)
    absolute: dict[str, Any] = {
        name: str(expand_home(path).resolve()) for name, path in paths.items()
    }
    return replace(config, **absolute)
