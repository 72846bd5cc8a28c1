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
from reasoning_from_scratch.optim.lora import add_lora, load_lora, lora_state, merged
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.problems import PLACE, asked_by
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.text import append, as_lines, json_line, one_line, read_values
from rfs.config import RunConfig, to_json
from rfs.engine import FAST
from rfs.files.models import load_model_and_tokenizer
from rfs.files.saved_models import which_weights
from rfs.run.checkpoints import Checkpoints, load_trainer_state
from rfs.serve.body import Checked, NoSuchThing, Notes, Strict, checked, quoted

log = logging.getLogger("reasoning_from_scratch")

TRAINING, SAMPLING, EXTERNAL = "weights", "sampler_weights", "external_weights"
KINDS = {TRAINING: "training", SAMPLING: "sampler", EXTERNAL: "external"}
MODEL_ID = re.compile(r"[\w.-]{1,100}:train:\d{1,9}", re.ASCII)
SAVED_ON_LEAVING = "last"
MAKE_ROOM = "make room, then save again"
FAR_FUTURE = 1e11  # as a time, in seconds
LOADED = 4  # saves whose weights are kept in memory, to be used again


@dataclass
class Base:
    """A model as it was loaded."""

    name: str
    where: str  # as given in --model
    policy: LocalPolicy

    @property
    def tokenizer(self):
        return self.policy.tokenizer

    @property
    def tokenizer_folder(self) -> str:
        """Where transformers finds this model's tokenizer; empty if the model is a bare file."""
        folder = model_folder(base_model_of(self.where) or which_weights(self.where)).absolute()
        return str(folder) if (folder / "tokenizer.json").is_file() else ""

    @property
    def context(self) -> int:
        return self.policy.model.cfg.get("context_length", 2**31)

    @property
    def vocabulary(self) -> int:
        return self.policy.model.cfg["vocab_size"]


class Lora(Checked):
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


class Adam(Strict):
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


class Saved(Checked):
    """A save, under the name that a client gave it; as checkpoints.jsonl has it."""

    kind: Annotated[str, AfterValidator(known_kind)]
    name: SaveName
    time: Time
    expires: Time | None = None
    metadata: Notes | None = None
    batch: int = 0


class Served(Checked):
    """What config.json says about a model that a client has trained."""

    id: str
    base: str
    lora: Lora
    time: Time
    metadata: Notes | None = None


class ServedConfig(Checked):
    """config.json, as far as it matters here."""

    served: Served | None = None  # None: no client has trained it
    micro_batch_tokens: Annotated[int | None, Field(ge=1, le=2**31)] = None


@dataclass
class Trained:
    """What a client trains. Only the worker's thread touches the policy."""

    id: str
    base: Base
    lora: Lora
    policy: LocalPolicy
    folder: Path
    metadata: dict | None = None
    moves: int = 0  # how often the weights changed: by a step, or by loading
    origin: Path | None = None  # of its weights, if they are those of a save
    steps: int = 0
    touched: float = field(default_factory=time.time)
    losses: dict[str, float] = field(default_factory=dict)  # since the last step, for metrics.jsonl

    @property
    def saves(self) -> Checkpoints:
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
        self.moves += 1
        self.origin = None
        metrics = {"grad_norm:mean": moved.grad_norm}
        if moved.update_ratio is not None:
            metrics["update_ratio:mean"] = moved.update_ratio
        self.note_step(adam.learning_rate, metrics)
        return {name: value for name, value in metrics.items() if math.isfinite(value)}

    def note_step(self, lr: float, metrics: Mapping[str, float]) -> None:
        named = {f"optim/{name.partition(':')[0]}": value for name, value in metrics.items()}
        row = {"step": self.steps, "progress/batch": self.steps, "optim/lr": lr}
        row |= named | self.losses
        row = {k: v if math.isfinite(v) else None for k, v in row.items()}
        self.steps, self.losses = self.steps + 1, {}
        with record_may_fail(f"the metrics of {self.id}"):
            append(self.folder / "metrics.jsonl", as_lines([row]))

    def load(self, place: Path, with_optimizer: bool) -> None:
        """Loads the weights of a save; with its optimizer too, training goes on as it was."""
        tensors, state = load_trainer_state(place)
        if self.lora.rank:
            load_lora(self.policy.model, tensors)
        else:
            load_weights(self.policy.model, place)
        self.policy.optimizer.zero_grad()  # of the weights that were here before
        self.policy.since_update = []
        self.policy.optimizer = AdamW(self.policy.model)
        if with_optimizer:
            self.policy.load_optimizer(tensors, state["updates"])
        self.moves += 1
        self.origin = place

    # -- its saves

    def find(self, kind: str, name: str) -> Saved | None:
        found = [s for s in self.saved() if (s.kind, s.name) == (kind, name)]
        return found[0] if found else None

    def saved(self) -> list[Saved]:
        return saved_in(self.folder)

    def save(self, kind: str, name: str, overwrite: bool = False, **about) -> Saved:
        """The current weights under a name: for sampling alone, or with what training needs."""
        old = self.find(kind, name)
        if old and not overwrite:
            raise UserError(f"{self.id} has a save {kind}/{name}: use another name, or overwrite")
        saved = Saved(kind=kind, name=name, time=time.time(), batch=self.moves, **about)
        state: dict[str, Tensor] | None = None
        if kind == TRAINING:
            state = self.policy.optimizer_state() | lora_state(self.policy.model)
        saves = self.saves
        known = saves.after(self.moves)
        others = known.saved_as if known else []
        names = [s for s in others if not is_named(s, kind, name)]
        about_training = {"batch": self.moves, "updates": self.policy.optimizer.updates}
        names.append(saved.model_dump())
        saves.save(self.moves, self.write_weights, state, about_training, saved_as=names)
        if old and old.batch != self.moves:
            forget(self.folder, old)
        if kind == TRAINING:
            self.origin = self.folder / "checkpoints" / f"{self.moves:06d}"
        return saved

    def write_weights(self, folder: Path) -> None:
        model = merged(self.policy.model) if self.lora.rank else self.policy.model
        save_hf_folder(model, self.policy.tokenizer, folder)

    def save_on_leaving(self) -> None:
        """Saves what was learned, because the client or the server goes, unless a save holds it
        already. One that was deleted, or that has a time to live, does not count. A client's own
        save is not replaced."""
        if self.moves and not (self.origin and stays(self.origin)):
            name = SAVED_ON_LEAVING
            while self.find(TRAINING, name):
                name += "_"
            self.save(TRAINING, name)


@contextmanager
def record_may_fail(what: str) -> Iterator[None]:
    """The disk may be full. What is recorded is for people to look at: the step has been made."""
    try:
        yield
    except OSError as error:
        log.warning("%s cannot be written: %s", what, error.strerror or error)


def saved_in(folder: Path) -> list[Saved]:
    """The saves in the folder of a trained model, without those that have expired."""
    now = time.time()
    saves = ever_saved_in(folder)
    return [saved for saved in saves if saved.expires is None or saved.expires > now]


def ever_saved_in(folder: Path) -> list[Saved]:
    """With those that have expired. What cannot be read is skipped, and told."""
    found = []
    for save in Checkpoints(folder).read().saves:
        for about in save.saved_as if isinstance(save.saved_as, list) else ():
            try:
                found.append(checked(Saved, about).model_copy(update={"batch": save.batch}))
            except UserError as error:
                warn_once(f"{folder}, save {save.name}: {error}; it is skipped")
    return found


def is_named(about: object, kind: str, name: str) -> bool:
    """Whether an entry in checkpoints.jsonl is the save of this kind and name."""
    return isinstance(about, dict) and (about.get("kind"), about.get("name")) == (kind, name)


def stays(place: Path) -> bool:
    """Whether the weights in this folder have a name under which training can go on from them, for
    as long as nobody deletes it."""
    return any(
        saved.kind == TRAINING and saved.batch == int(place.name) and saved.expires is None
        for saved in ever_saved_in(place.parents[1])
    )


@functools.lru_cache(maxsize=1000)
def warn_once(sentence: str) -> None:
    log.warning("rfs serve: %s", sentence)


def forget(folder: Path, saved: Saved) -> None:
    """Deletes a save; its weights stay if they have another name."""
    saves = Checkpoints(folder).read()
    save = saves.after(saved.batch)
    if save is None:
        return
    names = [about for about in save.saved_as if not is_named(about, saved.kind, saved.name)]
    if not names:
        saves.forget(save)
    else:
        others = [other for other in saves.saves if other != save]
        saves.write_index([*others, replace(save, saved_as=names)])


def forget_expired(folder: Path) -> None:
    now = time.time()
    for saved in ever_saved_in(folder):
        if saved.expires is not None and saved.expires <= now:
            forget(folder, saved)


@dataclass
class Sampler:
    """Weights that answer."""

    id: str
    base: Base
    number: int  # in its session; it chooses the random streams
    path: str | None = None  # of a save
    place: Path | None = None  # of its weights
    policy: LocalPolicy | None = None  # of a snapshot


class Models:
    """All of these, and the folder with the clients' saves."""

    def __init__(
        self,
        named: Mapping[str, str],
        folder: Path,
        device: str = "auto",
        dtype: str = "auto",
        all_weights: bool = False,
        keep_samplers: int = 16,
    ) -> None:
        self.folder, self.all_weights, self.keep_samplers = folder, all_weights, keep_samplers
        self.device = trusted_device(device)
        self.dtype = partial(dtype_by_name, dtype, self.device)
        self.bases = {name: self.opened(name, where) for name, where in named.items()}
        self.trained: dict[str, Trained] = {}
        self.samplers: dict[str, Sampler] = {}
        # Weights of saves: all that are in use, and the most recently used of the others.
        self.loaded: WeakValueDictionary[str, LocalPolicy] = WeakValueDictionary()
        self.lately: dict[str, LocalPolicy] = {}

    def opened(self, name: str, where: str) -> Base:
        model, tokenizer = load_model_and_tokenizer(where, self.device, dtype=self.dtype)
        if asked := asked_by(tokenizer):
            begins = one_line(asked.read_by(tokenizer, PLACE), 60)
            log.info("%s: a single question is asked as in training: %r", name, begins)
        return Base(name, where, frozen(model, tokenizer))

    def base(self, name: str) -> Base:
        if name not in self.bases:
            raise NoSuchThing(str(unknown_name("model", name, self.bases)))
        return self.bases[name]

    # -- trained models

    def create(
        self,
        model_id: str,
        base: Base,
        lora: Lora,
        metadata: dict | None,
        micro_batch: int | None = None,
    ) -> Trained:
        """A new model to train. Its folder is a run folder. `micro_batch`: tokens of one pass, if
        the memory that is free is not to decide."""
        if self.all_weights:
            lora = Lora(rank=0)
        folder = self.folder_of(model_id)
        config = RunConfig(
            model=base.where,
            lora_rank=lora.rank,
            micro_batch_tokens=micro_batch,
            log_path=str(folder),
        )
        policy = learner(base, lora, config)
        config = replace(config, micro_batch_tokens=policy.config.micro_batch_tokens)
        served = Served(id=model_id, base=base.name, lora=lora, time=time.time(), metadata=metadata)
        text = json_line(to_json(config) | {"served": served.model_dump()}, indent=2)
        with disk_errors_as(f"cannot create {model_id} in {self.folder}", "make room there"):
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / "config.json", text + "\n")
            write_atomically(folder / "metrics.jsonl", "")
        self.trained[model_id] = Trained(model_id, base, lora, policy, folder, metadata)
        return self.trained[model_id]

    def folder_of(self, model_id: str) -> Path:
        if not MODEL_ID.fullmatch(model_id):
            raise NoSuchThing(f"there is no model {model_id!r}")
        return self.folder / model_id.replace(":", "-")

    def known_ids(self) -> list[str]:
        """The models that are or were trained here, the newest last."""
        return self.known()[0]

    def known(self) -> tuple[list[str], list[str]]:
        """Those, and what is wrong with folders that cannot be read."""
        found, wrong = [], []
        for path in self.folder.glob("*/config.json"):
            try:
                if served := config_in(path.parent).served:
                    found.append(served)
            except UserError as error:
                warn_once(f"{error}; the folder is skipped")
                wrong.append(str(error))
        return [served.id for served in sorted(found, key=lambda row: row.time)], wrong

    def about(self, model_id: str) -> Served:
        """What was recorded about a model when it was created."""
        served = config_in(self.folder_of(model_id)).served
        if not served:
            raise NoSuchThing(f"there is no model {model_id}")
        return served

    def release(self, model_id: str) -> Trained | None:
        """Ends its training; its saves stay. It is kept if what it learned cannot be saved."""
        trained = self.trained.get(model_id)
        if trained:
            trained.save_on_leaving()
            del self.trained[model_id]
        return trained

    # -- saves by their path

    def place_of(self, path: str) -> tuple[Served, Path]:
        """What is known about the save's model, and the folder with the weights."""
        model_id, kind, name = parsed_path(path)
        about, folder = self.about(model_id), self.folder_of(model_id)
        for saved in saved_in(folder):
            if (saved.kind, saved.name) == (kind, name):
                return about, folder / "checkpoints" / f"{saved.batch:06d}"
        raise NoSuchThing(
            f"there is no save {path}: it was never made, was deleted, or has expired"
        )

    def saves_of(self, model_id: str) -> list[Saved]:
        self.about(model_id)
        return saved_in(self.folder_of(model_id))

    def expire(self, path: str, when: float | None) -> None:
        """Sets when a save is to be deleted; None: never."""
        model_id, kind, name = parsed_path(path)
        self.place_of(path)
        saves = Checkpoints(self.folder_of(model_id)).read()
        for save in saves.saves:
            for about in save.saved_as:
                if is_named(about, kind, name):
                    about["expires"] = when
        saves.write_index(saves.saves)

    def forget_expired(self) -> None:
        for model_id in self.known_ids():
            forget_expired(self.folder_of(model_id))

    def delete(self, path: str) -> None:
        model_id, kind, name = parsed_path(path)
        self.place_of(path)
        for saved in saved_in(self.folder_of(model_id)):
            if (saved.kind, saved.name) == (kind, name):
                forget(self.folder_of(model_id), saved)

    def create_from(
        self, model_id: str, path: str, with_optimizer: bool, metadata: dict | None
    ) -> Trained:
        """A new model to train, which begins with the weights of a save."""
        about, place = self.place_of(path)
        before, self.all_weights = self.all_weights, False  # the save decides, not --all-weights
        try:
            # In parts as before: a sum over other parts has other last digits.
            split = config_in(place.parents[1]).micro_batch_tokens
            trained = self.create(model_id, self.base(about.base), about.lora, metadata, split)
        finally:
            self.all_weights = before
        try:
            trained.load(place, with_optimizer)
        except BaseException:  # nothing may train on from the base's weights instead
            del self.trained[model_id]
            raise
        return trained

    # -- samplers

    def snapshot(self, sampler_id: str, number: int, trained: Trained) -> list[LocalPolicy]:
        """The current weights, in memory. Each session's newest few are kept; returns the others,
        which are released for it."""
        policy = trained.policy.snapshot()
        self.samplers[sampler_id] = Sampler(sampler_id, trained.base, number, policy=policy)
        own = self.samplers_of(sampler_id.partition(":")[0])
        snapshots = [s for s in own if s.policy is not None and s.policy is not s.base.policy]
        gone = []
        for old in snapshots[: max(0, len(snapshots) - self.keep_samplers)]:
            gone.append(old.policy)
            old.policy = None
        return gone

    def samplers_of(self, session_id: str) -> list[Sampler]:
        """Those of a session. Called in the worker's thread, while the server's may add others:
        hence the list."""
        return [s for s in list(self.samplers.values()) if s.id.startswith(f"{session_id}:")]

    def sampler_of(self, sampler_id: str, number: int, base: str | None, path: str | None):
        """A sampler that answers with a save's weights, or with a base's."""
        if path:
            about, place = self.place_of(path)
            sampler = Sampler(sampler_id, self.base(about.base), number, path, place)
        else:
            found = self.base(base or "")
            sampler = Sampler(sampler_id, found, number, policy=found.policy)
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
        _, place = self.place_of(sampler.path)
        if place != sampler.place:
            raise UserError(
                f"{sampler.path} was saved anew after this sampling client was made, and the old "
                "weights are gone; make another sampling client, or give each save its own name"
            )
        return self.policy_at(place)

    def policy_at(self, place: Path) -> LocalPolicy:
        policy = self.loaded.get(str(place))
        if policy is None:
            model, tokenizer = load_model_and_tokenizer(place, self.device, dtype=self.dtype)
            policy = self.loaded[str(place)] = frozen(model, tokenizer)
        self.lately.pop(str(place), None)
        self.lately[str(place)] = policy
        while len(self.lately) > LOADED:
            del self.lately[next(iter(self.lately))]
        return policy


def parsed_path(path: str) -> tuple[str, str, str]:
    """Model, kind and name of tinker://MODEL/KIND/NAME."""
    parts = path.removeprefix("tinker://").split("/")
    if not path.startswith("tinker://") or len(parts) != 3 or parts[1] not in KINDS:
        raise UserError(f"{path!r} is not the path of a save, tinker://MODEL/KIND/NAME")
    return parts[0], parts[1], parts[2]


def config_in(folder: Path) -> ServedConfig:
    """What config.json says about the model that was trained in this folder."""
    path = folder / "config.json"
    config = checked(ServedConfig, read_values(path), f"{path}: ")
    id = config.served.id if config.served else None
    if id is not None and not (MODEL_ID.fullmatch(id) and id.replace(":", "-") == folder.name):
        raise UserError(f"{path}: served.id is {quoted(id)}, but must be that of {folder.name}")
    return config


def frozen(model: Qwen3Model, tokenizer) -> LocalPolicy:
    model.requires_grad_(False)
    return LocalPolicy(model, None, None, packed_logprobs, tokenizer, FAST)


def learner(base: Base, lora: Lora, config: RunConfig) -> LocalPolicy:
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


def total_size(folder: Path) -> int:
    """Bytes of its files; 0 if it is gone."""
    return sum(path.stat().st_size for path in folder.glob("*") if path.is_file())
