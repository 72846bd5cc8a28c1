"""RunConfig: what the loop reads (TrainConfig), and what, where, how often, by whom.

Commands use the same parts. run/options.py fills in what a recipe, a model or the command line
sets, and run/option_checks.py refuses what cannot work. None of them needs torch, so a mistyped
option is refused immediately.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from reasoning_from_scratch.config import (
    SAMPLED,
    Loss,
    Memory,
    Optim,
    Rewards,
    Sampling,
    Steps,
    TrainConfig,
    Updates,
    fields_marked,
)
from reasoning_from_scratch.errors import UserError, unknown_name
from reasoning_from_scratch.facts import AS_TRAINED, FIXED, AtLeast, Mark, Needs
from reasoning_from_scratch.problems import check_prompt_kind, is_file_function
from reasoning_from_scratch.stops import stop_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

AnyConfig = TypeVar("AnyConfig", bound="DataclassInstance")
PLACE = Mark("where a run is and how it is started, which does not change what it computes")
EVALUATES = Needs("eval_every")

# The layers that set fields; recipes, losses and games are layers, too (run/options.py).
YOU = "you"  # on a command line or in Python
EARLIER = "you, when the run began"
DERIVED = "other settings"


@dataclass
class Run:
    """What is trained, and where the run is stored."""

    model: Annotated[str, FIXED] = "tiny-base"
    """Start from this model: tiny-base, smollm2, qwen-0.5b, OWNER/NAME, a folder, a file, a run
    (its best save) or RUN@SAVE. A LoRA folder, such as a run's adapter/, is loaded on top of its
    base model."""
    load_checkpoint_path: Annotated[str | None, FIXED] = None
    """Load these weights into that model, and nothing else: a folder, a file, a run (its best save)
    or RUN@SAVE."""
    kl_reference: Annotated[str | None, Needs("kl"), FIXED] = None
    """Compare with this model in the KL penalty (default: the trained model at its start)."""
    recipe: str = "grpo"
    """Train with this row of `rfs recipes`, or your own, FILE.py:NAME; flags override the row."""
    smoke: bool = False
    """Run only two small steps, to see within two minutes that everything works here."""
    preflight: Annotated[bool, PLACE] = True
    """Before the first step, check briefly whether this model can learn from these problems."""
    log_path: Annotated[str | None, PLACE] = None
    """Write the run into this folder (default: runs/RECIPE-MODEL-TIME)."""
    resume: Annotated[str | None, PLACE] = None
    """Continue the run in this folder, with its model, LoRA and optimizer."""
    overwrite: Annotated[bool, PLACE] = False
    """Delete a run that is already in the folder, once the new one is sure to start."""


@dataclass
class PromptChoice:
    """How a problem is presented to the model, and where its answer ends."""

    prompt: Annotated[str | None, AS_TRAINED] = None
    """Ask a problem this way: book, question, chat, plain, nanochat, or as in a FILE that has
    {problem} in it, alone (plain:FILE) or in the chat template, chat:FILE (default: by the set)."""
    stop: Annotated[str | None, AS_TRAINED] = None
    """Also end an answer at this text, such as "\\n\\n" or "Question:" for a base model."""

    def check_prompt_choice(self) -> None:
        """Refuses a prompt or a stop text that cannot work, before a model is loaded."""
        if self.prompt is not None:
            check_prompt_kind(self.prompt)
        if self.stop is not None:
            stop_text(self.stop)


@dataclass
class Problems(PromptChoice):
    """Which problems, and how they are presented."""

    problems: str | None = None
    """Train on this problem set (default: tiny, or math-train), your own FILE.jsonl or
    FILE.py:FUNCTION, hf:OWNER/NAME, or gym:TASK."""
    data_path: str | None = None
    """Read the training problems from this file, instead of a download."""
    problem_limit: Annotated[int | None, AtLeast(1)] = None
    """Use only the first N training problems (default: all)."""
    few_shot: Annotated[int, AtLeast(0)] = 0
    """Show the first N problems of the set, solved, before each question."""


@dataclass
class Scale:
    """How many processes share the work, and how far sampling may run ahead of training."""

    shard: Literal["none", "fsdp"] = "none"
    """Under torchrun, fsdp keeps a slice of weights, gradients and optimizer on each rank."""
    num_minibatches: Annotated[int, AtLeast(1), SAMPLED] = 1
    """Stream a substep in this many parts: each is trained on while the others are sampled."""
    max_steps_off_policy: Annotated[int, AtLeast(0), SAMPLED] = 0
    """Let a parallel sampler lag this many steps behind; 0 takes turns, with bit-identical
    repeats."""
    sampler: Annotated[Literal["local", "ray"], SAMPLED] = "local"
    """Sample in this process, or with actors of Ray, here or on many machines (extra: ray)."""
    num_samplers: Annotated[int, AtLeast(1), Needs("sampler", "ray")] = 2
    """Start this many Ray actors; each holds the model and samples a part of every step."""
    ray_address: Annotated[str | None, Needs("sampler", "ray")] = None
    """Use the running Ray cluster at HOST:PORT (default: start Ray on this machine)."""


@dataclass
class Records:
    """What is evaluated, saved and reported."""

    eval_every: Annotated[int | None, AtLeast(0)] = None
    """Evaluate after every N steps; 0 never does (default: at both ends if --eval-... is given)."""
    eval_problems: Annotated[Sequence[str] | None, EVALUATES] = None
    """Evaluate on these problem sets, the main one first (default: those of --problems)."""
    eval_limit: Annotated[int, AtLeast(1), EVALUATES] = 100
    """Evaluate on this many problems of each set."""
    eval_samples: Annotated[int, AtLeast(1), EVALUATES] = 1
    """Draw this many answers per problem at evaluation: 1 uses greedy decoding, more are sampled
    for pass@k."""
    evaluators: Annotated[Sequence[str] | None, EVALUATES] = None
    """Also run your FILE.py:FUNCTION(model, tokenizer) -> {name: number} at each evaluation."""
    save_every: Annotated[int, AtLeast(0)] = 0
    """Save weights and optimizer after every N steps; the last step is always saved."""
    rolling_every: Annotated[int, AtLeast(0)] = 0
    """Save after every N steps, and keep only the newest of these saves."""
    keep_last: Annotated[int, AtLeast(0), Needs("save_every")] = 0
    """Keep only the last N of the --save-every saves; 0 keeps all."""
    report_every: Annotated[int, AtLeast(0)] = 10
    """Answer the probe problems and write a new report.html after every N steps; 0 does so only at
    the end."""
    num_groups_to_log: Annotated[int, AtLeast(0)] = 4
    """Write N groups in full to each step's page, mixed ones first; 0 writes no pages."""
    iteration_folders: bool = False
    """Give each step's files a second name, in iteration_NNNNNN/, as Tinker's viewers expect."""
    compute_post_kl: Annotated[bool, SAMPLED] = False
    """Measure the gap from the sampler's record to the policy after a step (kl_pre_post_v1, v2)."""
    wandb: str | None = None
    """Also log to this Weights & Biases project (extra: wandb)."""
    trackio: str | None = None
    """Also log to this Trackio project, which `trackio show` opens (extra: trackio)."""
    tensorboard: bool = False
    """Also write the data for TensorBoard, to the run's folder tensorboard (extra: tensorboard)."""

    def __post_init__(self) -> None:
        """One name is a list of one."""
        for name in ("eval_problems", "evaluators"):
            if isinstance(value := getattr(self, name), str):
                setattr(self, name, [value])


# A dataclass lists the fields of its last base first.
@dataclass
class RunConfig(Records, Scale, TrainConfig, Problems, Run):
    """Every choice of a training run."""

    # The layer that set each field; the others are at their defaults. If the object is created
    # directly, whatever is not at its default counts as set by you.
    set_by: dict[str, str] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.set_by is None:
            items = [item for item in dataclasses.fields(self) if item.name != "set_by"]
            changed = [item.name for item in items if getattr(self, item.name) != default_of(item)]
            self.set_by = dict.fromkeys(changed, YOU)

    @property
    def given(self) -> frozenset[str]:
        """The fields that you named."""
        return frozenset(name for name, layer in self.set_by.items() if layer == YOU)

    def with_layer(self, layer: str, **values: Any) -> "RunConfig":
        """A copy in which this layer has set these fields."""
        return replaced(self, **values, set_by=self.set_by | dict.fromkeys(values, layer))

    @property
    def draws(self) -> bool:
        """Whether tokens are drawn: where solutions are learned, only in evaluations."""
        return super().draws and not (self.is_supervised and self.eval_samples == 1)

    @property
    def drifts(self) -> bool:
        return super().drifts or self.max_steps_off_policy > 0

    @property
    def has_usual_cap(self) -> bool:
        """Whether the weight p_start / p_sampler is capped if nothing else is given: if sampler and
        trainer differ, and the loss itself has no ratio to the sampler."""
        int8 = self.sampling_weights == "int8"
        lags = self.max_steps_off_policy > 0
        return self.clips and (int8 or lags) or int8 and self.objective == "reinforce"

    @property
    def weighs_importance(self) -> bool:
        return super().weighs_importance or self.has_usual_cap


PARTS = (
    Run,
    Problems,
    Steps,
    Sampling,
    Rewards,
    Loss,
    Updates,
    Optim,
    Scale,
    Memory,
    Records,
)

PLACES = fields_marked(RunConfig, PLACE)

# Fields of earlier versions: one repeated what others say, the other nobody used.
FORMER_FIELDS = {"loss_fn", "stop_on_alarm"}


def default_of(item: dataclasses.Field) -> Any:
    return item.default_factory() if callable(item.default_factory) else item.default


def replaced(config: AnyConfig, **changes: Any) -> AnyConfig:
    """A copy with some fields changed; an unknown field is an error that names the nearest."""
    names = [item.name for item in dataclasses.fields(config)]
    for name in changes:
        if name not in names:
            raise unknown_name(f"field of {type(config).__name__}", name, names)
    if isinstance(config, RunConfig):  # set by you, unless `changes` names another layer
        changes = {"set_by": config.set_by | dict.fromkeys(changes, YOU)} | changes
    return dataclasses.replace(config, **changes)


def part_of(config: object, part: type[AnyConfig], **changes: Any) -> AnyConfig:
    """The fields of `part` that `config` has, with some changed."""
    names = [item.name for item in dataclasses.fields(part) if hasattr(config, item.name)]
    return part(**{name: getattr(config, name) for name in names} | changes)


def to_json(config: RunConfig) -> dict[str, Any]:
    values = dataclasses.asdict(config)
    del values["set_by"]
    return values


def from_json(values: dict[str, Any], origin: Path | str = "config.json") -> RunConfig:
    """The configuration of a saved run; keys that are not fields (versions, ...) are ignored."""
    kinds = get_type_hints(RunConfig)
    known = {key: value for key, value in values.items() if key in kinds}
    for key, value in known.items():
        if not is_of_type(value, kinds[key]):
            raise UserError(
                f"{origin}: this version does not know {key} {value!r}; use the version "
                "that wrote it, or correct the value"
            )
    layers = known.get("set_by") or {}
    set_by = {name: EARLIER if layer == YOU else layer for name, layer in layers.items()}
    return RunConfig(**(known | {"set_by": set_by}))


def is_of_type(value: Any, kind: Any) -> bool:
    """Whether a value is of that type, for the types that fields have."""
    if get_origin(kind) in (Union, UnionType):
        options = get_args(kind)
        has_words = any(get_origin(option) is Literal for option in options)
        if has_words and str in options and is_file_function(value):  # a word, or FILE.py:FUNCTION
            return True
        if has_words:
            options = tuple(option for option in options if option is not str)
        return any(is_of_type(value, option) for option in options)
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind in (int, float):
        return type(value) in (int, kind)
    return isinstance(value, get_origin(kind) or kind)
