"""What is served: base models, models that clients train, and the weights that answer.

Base      a model as it was loaded; LoRA training shares its weights
Trained   a client's model: LoRA on a base, or all weights; with an optimizer and a run folder
Sampler   weights that answer: a base's, a snapshot of a model in training, or a save's
"""

import copy
import functools
import logging
import math
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated
from weakref import WeakValueDictionary

from pydantic import AfterValidator, Field, model_validator
from torch import Tensor

from reasoning_from_scratch.config import Optim
from reasoning_from_scratch.errors import UserError, unknown_name
from reasoning_from_scratch.fast.device import dtype_by_name, trusted_device
from reasoning_from_scratch.fast.memory import fitting_micro_batch
from reasoning_from_scratch.fast.packed import packed_logprobs
from reasoning_from_scratch.files.disk import disk_errors_as, write_atomically
from reasoning_from_scratch.files.weights import (
    base_model_of,
    load_weights,
    model_folder,
    save_hf_folder,
)
from reasoning_from_scratch.optim.adamw import AdamW
from reasoning_from_scratch.optim.lora import add_lora, load_lora, lora_state, merge_lora
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.problems import PLACEHOLDER, prompt_format_of
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.text import append, json_line, json_lines, one_line, read_json_object
from rfs.config import RunConfig, to_json
from rfs.engine import FAST
from rfs.files.models import load_model_and_tokenizer
from rfs.files.saved_models import which_weights
from rfs.run.checkpoints import Checkpoints, load_trainer_state
from rfs.serve.body import BodyModel, Notes, NotFound, StrictModel, quoted, validate

log = logging.getLogger("reasoning_from_scratch")

TRAINING, SAMPLING, EXTERNAL = "weights", "sampler_weights", "external_weights"
KINDS = {TRAINING: "training", SAMPLING: "sampler", EXTERNAL: "external"}
MODEL_ID = re.compile(r"[\w.-]{1,100}:train:\d{1,9}", re.ASCII)
LAST_SAVE = "last"
MAKE_ROOM = "make room, then save again"
FAR_FUTURE = 1e11  # as a time, in seconds
MAX_RECENT = 4  # saves whose weights stay in memory although no sampler uses them


@dataclass
class Base:
    """A model as it was loaded."""

    name: str
    source: str  # as given in --model
    policy: LocalPolicy

    @property
    def tokenizer(self):
        return self.policy.tokenizer

    @property
    def tokenizer_folder(self) -> str:
        """Where transformers finds this model's tokenizer; empty if the model is a bare file."""
        folder = model_folder(base_model_of(self.source) or which_weights(self.source)).absolute()
        return str(folder) if (folder / "tokenizer.json").is_file() else ""

    @property
    def context(self) -> int:
        return self.policy.model.cfg.get("context_length", 2**31)

    @property
    def vocabulary(self) -> int:
        return self.policy.model.cfg["vocab_size"]


class Lora(BodyModel):
    """What is trained; rank 0: all weights."""

    rank: Annotated[int, Field(ge=0, le=1024)]
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    train_mlp: bool = True
    train_attn: bool = True

    @model_validator(mode="after")
    def trains_something(self) -> "Lora":
        if self.rank and not (self.train_mlp or self.train_attn):
            raise UserError("LoRA goes on attention, on the MLP or on both: neither was requested")
        return self

    @property
    def shape(self) -> str:
        """What is trained, in words."""
        if not self.rank:
            return "all weights"
        names = ["attention"] * self.train_attn + ["the MLP"] * self.train_mlp
        return f"LoRA of rank {self.rank} on {' and '.join(names)}"

    @property
    def places(self) -> list[str]:
        return ["att"] * self.train_attn + ["ff"] * self.train_mlp


class Adam(StrictModel):
    """How an optimizer steps. No number may be null, which is what clients make of NaN."""

    learning_rate: Annotated[float, Field(ge=0, le=100)] = 1e-4
    beta1: Annotated[float, Field(ge=0, le=0.999999)] = 0.9
    beta2: Annotated[float, Field(ge=0, le=0.999999999)] = 0.95
    eps: Annotated[float, Field(ge=1e-30, le=1)] = 1e-12  # 0 divides a gradient of 0 by 0
    weight_decay: Annotated[float, Field(ge=0, le=1000)] = 0.0
    grad_clip_norm: Annotated[float, Field(ge=-1, le=1e9)] = 0.0


def safe_name(name: str) -> str:
    if not re.fullmatch(r"[\w.-]{1,100}", name, re.ASCII):
        raise ValueError("a name of at most 100 letters, digits, . _ and -")
    return name


def known_kind(kind: str) -> str:
    if kind not in KINDS:
        raise ValueError(f"one of {', '.join(KINDS)}")
    return kind


SaveName = Annotated[str, AfterValidator(safe_name)]
Time = Annotated[float, Field(ge=0, le=FAR_FUTURE)]


class SaveRecord(BodyModel):
    """A save, under the name that a client gave it; as checkpoints.jsonl has it."""

    kind: Annotated[str, AfterValidator(known_kind)]
    name: SaveName
    time: Time
    expires: Time | None = None
    metadata: Notes | None = None
    batch: int = 0


class ModelRecord(BodyModel):
    """What config.json says about a model that a client has trained."""

    id: str
    base: str
    lora: Lora
    time: Time
    metadata: Notes | None = None


class ServedConfig(BodyModel):
    """config.json, as far as it matters here."""

    served: ModelRecord | None = None  # None: no client has trained it
    micro_batch_tokens: Annotated[int | None, Field(ge=1, le=2**31)] = None


@dataclass
class TrainedModel:
    """What a client trains. Only the worker's thread touches the policy."""

    id: str
    base: Base
    lora: Lora
    policy: LocalPolicy
    folder: Path
    metadata: dict | None = None
    weights_version: int = 0  # how often the weights changed: by a step, or by loading
    saved_in: Path | None = None  # the save that holds the current weights, if there is one
    steps: int = 0
    last_used: float = field(default_factory=time.time)
    losses: dict[str, float] = field(default_factory=dict)  # since the last step, for metrics.jsonl

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.folder, MAKE_ROOM).read()

    # -- the verbs that change it

    def optim_step(self, adam: Adam) -> dict[str, float]:
        optimizer = self.policy.optimizer
        assert isinstance(optimizer, AdamW)
        optimizer.betas = adam.beta1, adam.beta2
        optimizer.epsilon, optimizer.weight_decay = adam.eps, adam.weight_decay
        moved = self.policy.optim_step(adam.learning_rate, adam.grad_clip_norm)
        if not moved.finite:
            raise UserError("the gradient is not a finite number: it was dropped, no weight moved")
        self.weights_version += 1
        self.saved_in = None
        metrics = {"grad_norm:mean": moved.grad_norm}
        if moved.update_ratio is not None:
            metrics["update_ratio:mean"] = moved.update_ratio
        self.log_step(adam.learning_rate, metrics)
        return {name: value for name, value in metrics.items() if math.isfinite(value)}

    def log_step(self, lr: float, metrics: Mapping[str, float]) -> None:
        named = {f"optim/{name.partition(':')[0]}": value for name, value in metrics.items()}
        row = {"step": self.steps, "progress/batch": self.steps, "optim/lr": lr}
        row |= named | self.losses
        row = {k: v if math.isfinite(v) else None for k, v in row.items()}
        self.steps, self.losses = self.steps + 1, {}
        with log_disk_errors(f"the metrics of {self.id}"):
            append(self.folder / "metrics.jsonl", json_lines([row]))

    def load(self, weights_folder: Path, with_optimizer: bool) -> None:
        """Loads the weights of a save; with its optimizer too, training goes on as it was."""
        tensors, state = load_trainer_state(weights_folder)
        if self.lora.rank:
            load_lora(self.policy.model, tensors)
        else:
            load_weights(self.policy.model, weights_folder)
        self.policy.optimizer.zero_grad()  # of the weights that were here before
        self.policy.calls_since_update = []
        self.policy.optimizer = AdamW(self.policy.model)
        if with_optimizer:
            self.policy.load_optimizer(tensors, state["updates"])
        self.weights_version += 1
        self.saved_in = weights_folder

    # -- its saves

    def find_save(self, kind: str, name: str) -> SaveRecord | None:
        matches = [
            record for record in self.save_records() if (record.kind, record.name) == (kind, name)
        ]
        return matches[0] if matches else None

    def save_records(self) -> list[SaveRecord]:
        return current_saves(self.folder)

    def save(self, kind: str, name: str, overwrite: bool = False, **details) -> SaveRecord:
        """The current weights under a name: for sampling alone, or with what training needs."""
        old_save = self.find_save(kind, name)
        if old_save and not overwrite:
            raise UserError(f"{self.id} has a save {kind}/{name}: use another name, or overwrite")
        saved = SaveRecord(
            kind=kind, name=name, time=time.time(), batch=self.weights_version, **details
        )
        state: dict[str, Tensor] | None = None
        if kind == TRAINING:
            state = self.policy.optimizer_state() | lora_state(self.policy.model)
        checkpoints = self.checkpoints
        checkpoint = checkpoints.save_after(self.weights_version)
        earlier_records = checkpoint.saved_as if checkpoint else []
        records = [record for record in earlier_records if not is_save(record, kind, name)]
        about_training = {"batch": self.weights_version, "updates": self.policy.optimizer.updates}
        records.append(saved.model_dump())
        checkpoints.save(
            self.weights_version, self.write_weights, state, about_training, saved_as=records
        )
        if old_save and old_save.batch != self.weights_version:
            delete_save(self.folder, old_save)
        if kind == TRAINING:
            self.saved_in = self.folder / "checkpoints" / f"{self.weights_version:06d}"
        return saved

    def write_weights(self, folder: Path) -> None:
        model = merge_lora(self.policy.model) if self.lora.rank else self.policy.model
        save_hf_folder(model, self.policy.tokenizer, folder)

    def save_if_unsaved(self) -> None:
        """Saves the weights before the client or the server ends, unless a permanent save holds
        them. The client's saves are not replaced."""
        if self.weights_version and not (self.saved_in and is_permanent(self.saved_in)):
            name = LAST_SAVE
            while self.find_save(TRAINING, name):
                name += "_"
            self.save(TRAINING, name)


@contextmanager
def log_disk_errors(what: str) -> Iterator[None]:
    """Logs an error of the disk instead of raising it: the record is for people to look at, and the
    step itself has been made."""
    try:
        yield
    except OSError as error:
        log.warning("%s cannot be written: %s", what, error.strerror or error)


def current_saves(folder: Path) -> list[SaveRecord]:
    """The saves in the folder of a trained model, without those that have expired."""
    now = time.time()
    saves = all_saves(folder)
    return [saved for saved in saves if saved.expires is None or saved.expires > now]


def all_saves(folder: Path) -> list[SaveRecord]:
    """The saves, expired ones included. What cannot be read is skipped with a warning."""
    records = []
    for save in Checkpoints(folder).read().saves:
        for record in save.saved_as if isinstance(save.saved_as, list) else ():
            try:
                records.append(
                    validate(SaveRecord, record).model_copy(update={"batch": save.batch})
                )
            except UserError as error:
                warn_once(f"{folder}, save {save.name}: {error}; it is skipped")
    return records


def is_save(record: object, kind: str, name: str) -> bool:
    """Whether an entry in checkpoints.jsonl is the save of this kind and name."""
    return isinstance(record, dict) and (record.get("kind"), record.get("name")) == (kind, name)


def is_permanent(weights_folder: Path) -> bool:
    """Whether these weights have a save for training that never expires."""
    return any(
        saved.kind == TRAINING and saved.batch == int(weights_folder.name) and saved.expires is None
        for saved in all_saves(weights_folder.parents[1])
    )


@functools.lru_cache(maxsize=1000)
def warn_once(sentence: str) -> None:
    log.warning("rfs serve: %s", sentence)


def delete_save(folder: Path, record: SaveRecord) -> None:
    """Deletes a save; its weights stay if they have another name."""
    checkpoints = Checkpoints(folder).read()
    save = checkpoints.save_after(record.batch)
    if save is None:
        return
    remaining = [entry for entry in save.saved_as if not is_save(entry, record.kind, record.name)]
    if not remaining:
        checkpoints.delete(save)
    else:
        others = [other for other in checkpoints.saves if other != save]
        checkpoints.write_index([*others, replace(save, saved_as=remaining)])


def delete_expired(folder: Path) -> None:
    now = time.time()
    for saved in all_saves(folder):
        if saved.expires is not None and saved.expires <= now:
            delete_save(folder, saved)


@dataclass
class Sampler:
    """Weights that clients can sample from."""

    id: str
    base: Base
    number: int  # in its session; it chooses the random streams
    path: str | None = None  # of a save
    weights_folder: Path | None = None  # of its weights
    policy: LocalPolicy | None = None  # of a snapshot


class Models:
    """All base models, trained models and samplers, and the folder with the clients' saves."""

    def __init__(
        self,
        sources: Mapping[str, str],
        folder: Path,
        device: str = "auto",
        dtype: str = "auto",
        all_weights: bool = False,
        keep_samplers: int = 16,
    ) -> None:
        self.folder, self.all_weights, self.keep_samplers = folder, all_weights, keep_samplers
        self.device = trusted_device(device)
        self.dtype = partial(dtype_by_name, dtype, self.device)
        self.bases = {name: self.load_base(name, source) for name, source in sources.items()}
        self.trained: dict[str, TrainedModel] = {}
        self.samplers: dict[str, Sampler] = {}
        # Weights of saves: all that are in use, and the most recently used of the others.
        self.loaded: WeakValueDictionary[str, LocalPolicy] = WeakValueDictionary()
        self.recent: dict[str, LocalPolicy] = {}

    def load_base(self, name: str, source: str) -> Base:
        model, tokenizer = load_model_and_tokenizer(source, self.device, dtype=self.dtype)
        if prompt_format := prompt_format_of(tokenizer):
            question_start = one_line(prompt_format.render(tokenizer, PLACEHOLDER), 60)
            log.info("%s: a single question is asked as in training: %r", name, question_start)
        return Base(name, source, frozen_policy(model, tokenizer))

    def base(self, name: str) -> Base:
        if name not in self.bases:
            raise NotFound(str(unknown_name("model", name, self.bases)))
        return self.bases[name]

    # -- trained models

    def create(
        self,
        model_id: str,
        base: Base,
        lora: Lora,
        metadata: dict | None,
        micro_batch: int | None = None,
    ) -> TrainedModel:
        """A new model to train. Its folder is a run folder. `micro_batch`: tokens of one pass, if
        the memory that is free is not to decide."""
        if self.all_weights:
            lora = Lora(rank=0)
        folder = self.folder_of(model_id)
        config = RunConfig(
            model=base.source,
            lora_rank=lora.rank,
            micro_batch_tokens=micro_batch,
            log_path=str(folder),
        )
        policy = trainable_policy(base, lora, config)
        config = replace(config, micro_batch_tokens=policy.config.micro_batch_tokens)
        served = ModelRecord(
            id=model_id, base=base.name, lora=lora, time=time.time(), metadata=metadata
        )
        text = json_line(to_json(config) | {"served": served.model_dump()}, indent=2)
        with disk_errors_as(f"cannot create {model_id} in {self.folder}", "make room there"):
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / "config.json", text + "\n")
            write_atomically(folder / "metrics.jsonl", "")
        self.trained[model_id] = TrainedModel(model_id, base, lora, policy, folder, metadata)
        return self.trained[model_id]

    def folder_of(self, model_id: str) -> Path:
        if not MODEL_ID.fullmatch(model_id):
            raise NotFound(f"there is no model {model_id!r}")
        return self.folder / model_id.replace(":", "-")

    def list_models(self) -> tuple[list[str], list[str]]:
        """The ids of the models that are or were trained here, the newest last, and the errors of
        folders that cannot be read."""
        records, unreadable = [], []
        for path in self.folder.glob("*/config.json"):
            try:
                if record := read_served_config(path.parent).served:
                    records.append(record)
            except UserError as error:
                warn_once(f"{error}; the folder is skipped")
                unreadable.append(str(error))
        return [record.id for record in sorted(records, key=lambda record: record.time)], unreadable

    def record_of(self, model_id: str) -> ModelRecord:
        """What was recorded about a model when it was created."""
        served = read_served_config(self.folder_of(model_id)).served
        if not served:
            raise NotFound(f"there is no model {model_id}")
        return served

    def release(self, model_id: str) -> TrainedModel | None:
        """Ends its training; its saves stay. It is kept if what it learned cannot be saved."""
        trained = self.trained.get(model_id)
        if trained:
            trained.save_if_unsaved()
            del self.trained[model_id]
        return trained

    # -- saves by their path

    def locate_save(self, path: str) -> tuple[ModelRecord, Path]:
        """The record of the save's model, and the folder with the weights."""
        model_id, kind, name = parse_path(path)
        record, folder = self.record_of(model_id), self.folder_of(model_id)
        for saved in current_saves(folder):
            if (saved.kind, saved.name) == (kind, name):
                return record, folder / "checkpoints" / f"{saved.batch:06d}"
        raise NotFound(f"there is no save {path}: it was never made, was deleted, or has expired")

    def saves_of(self, model_id: str) -> list[SaveRecord]:
        self.record_of(model_id)
        return current_saves(self.folder_of(model_id))

    def expire(self, path: str, when: float | None) -> None:
        """Sets when a save is to be deleted; None: never."""
        model_id, kind, name = parse_path(path)
        self.locate_save(path)
        checkpoints = Checkpoints(self.folder_of(model_id)).read()
        for save in checkpoints.saves:
            for entry in save.saved_as:
                if is_save(entry, kind, name):
                    entry["expires"] = when
        checkpoints.write_index(checkpoints.saves)

    def delete_expired(self) -> None:
        ids, _ = self.list_models()
        for model_id in ids:
            delete_expired(self.folder_of(model_id))

    def delete(self, path: str) -> None:
        model_id, kind, name = parse_path(path)
        self.locate_save(path)
        for saved in current_saves(self.folder_of(model_id)):
            if (saved.kind, saved.name) == (kind, name):
                delete_save(self.folder_of(model_id), saved)

    def create_from(
        self, model_id: str, path: str, with_optimizer: bool, metadata: dict | None
    ) -> TrainedModel:
        """A new model to train, which begins with the weights of a save."""
        record, weights_folder = self.locate_save(path)
        all_weights = self.all_weights
        self.all_weights = False  # the save decides, not --all-weights
        try:
            # In parts as before: a sum over other parts has other last digits.
            micro_batch = read_served_config(weights_folder.parents[1]).micro_batch_tokens
            trained = self.create(
                model_id, self.base(record.base), record.lora, metadata, micro_batch
            )
        finally:
            self.all_weights = all_weights
        try:
            trained.load(weights_folder, with_optimizer)
        except BaseException:  # nothing may train on from the base's weights instead
            del self.trained[model_id]
            raise
        return trained

    # -- samplers

    def snapshot(self, sampler_id: str, number: int, trained: TrainedModel) -> list[LocalPolicy]:
        """Keeps the current weights in memory, as a sampler. Each session has a limited number of
        snapshots; returns those that were dropped to make room."""
        policy = trained.policy.snapshot()
        self.samplers[sampler_id] = Sampler(sampler_id, trained.base, number, policy=policy)
        session_samplers = self.samplers_of(sampler_id.partition(":")[0])
        snapshots = [
            sampler
            for sampler in session_samplers
            if sampler.policy is not None and sampler.policy is not sampler.base.policy
        ]
        released = []
        for old in snapshots[: max(0, len(snapshots) - self.keep_samplers)]:
            released.append(old.policy)
            old.policy = None
        return released

    def samplers_of(self, session_id: str) -> list[Sampler]:
        """The samplers of a session. A copy of the dictionary's values: the server's thread may add
        samplers while the worker's calls this."""
        return [
            sampler
            for sampler in list(self.samplers.values())
            if sampler.id.startswith(f"{session_id}:")
        ]

    def add_sampler(self, sampler_id: str, number: int, base: str | None, path: str | None):
        """A sampler that answers with a save's weights, or with a base's."""
        if path:
            record, weights_folder = self.locate_save(path)
            sampler = Sampler(sampler_id, self.base(record.base), number, path, weights_folder)
        else:
            base_model = self.base(base or "")
            sampler = Sampler(sampler_id, base_model, number, policy=base_model.policy)
        self.samplers[sampler_id] = sampler
        return sampler

    def policy_of(self, sampler: Sampler) -> LocalPolicy:
        """Called in the worker's thread: loading may take a while."""
        if sampler.policy is not None:
            return sampler.policy
        if sampler.path is None:
            raise UserError(
                f"the weights of {sampler.id} were released: the newest {self.keep_samplers} "
                "snapshots of a session are kept (--keep-samplers); save_weights_for_sampler with "
                "a name keeps them permanently"
            )
        _, weights_folder = self.locate_save(sampler.path)
        if weights_folder != sampler.weights_folder:
            raise UserError(
                f"{sampler.path} was saved anew after this sampling client was made, and the old "
                "weights are gone; make another sampling client, or give each save its own name"
            )
        return self.load_policy(weights_folder)

    def load_policy(self, weights_folder: Path) -> LocalPolicy:
        policy = self.loaded.get(str(weights_folder))
        if policy is None:
            model, tokenizer = load_model_and_tokenizer(
                weights_folder, self.device, dtype=self.dtype
            )
            policy = self.loaded[str(weights_folder)] = frozen_policy(model, tokenizer)
        self.recent.pop(str(weights_folder), None)
        self.recent[str(weights_folder)] = policy
        while len(self.recent) > MAX_RECENT:
            del self.recent[next(iter(self.recent))]
        return policy


def parse_path(path: str) -> tuple[str, str, str]:
    """Model, kind and name of tinker://MODEL/KIND/NAME."""
    parts = path.removeprefix("tinker://").split("/")
    if not path.startswith("tinker://") or len(parts) != 3 or parts[1] not in KINDS:
        raise UserError(f"{path!r} is not the path of a save, tinker://MODEL/KIND/NAME")
    return parts[0], parts[1], parts[2]


def read_served_config(folder: Path) -> ServedConfig:
    """What config.json says about the model that was trained in this folder."""
    path = folder / "config.json"
    config = validate(ServedConfig, read_json_object(path), f"{path}: ")
    model_id = config.served.id if config.served else None
    if model_id is not None and not (
        MODEL_ID.fullmatch(model_id) and model_id.replace(":", "-") == folder.name
    ):
        raise UserError(
            f"{path}: served.id is {quoted(model_id)}, but must be that of {folder.name}"
        )
    return config


def frozen_policy(model: Qwen3Model, tokenizer) -> LocalPolicy:
    model.requires_grad_(False)
    return LocalPolicy(model, None, None, packed_logprobs, tokenizer, FAST)


def trainable_policy(base: Base, lora: Lora, config: RunConfig) -> LocalPolicy:
    """A policy that can be trained. With LoRA the base's weights are shared, else copied. Its
    config notes how many tokens it computes at a time."""
    model = base.policy.model
    if lora.rank:
        model = copy.deepcopy(model, {id(weight): weight for weight in model.parameters()})
        add_lora(model, lora.rank, Optim().lora_alpha, lora.seed, lora.places)
    else:
        model = copy.deepcopy(model).requires_grad_(True)
    if config.micro_batch_tokens is None:
        tokens = fitting_micro_batch(model, config, model.tok_emb.weight.device)
        config = replace(config, micro_batch_tokens=tokens)
    return LocalPolicy(model, AdamW(model), config, packed_logprobs, base.tokenizer, FAST)


def folder_size(folder: Path) -> int:
    """Bytes of its files; 0 if it is gone."""
    return sum(path.stat().st_size for path in folder.glob("*") if path.is_file())
