"""TrainConfig: every choice of a training run, in parts. One field, one line of help.

A TrainConfig inherits from all of its parts. A function that reads one part says so in its
signature, `config: Loss`; one that reads several takes the whole. Other commands use the same
parts. run/options.py fills in what a recipe, a model or the command line sets, and
run/option_checks.py refuses what cannot work. None of them needs torch, so a mistyped option is
refused immediately.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from reasoning_from_scratch.errors import UserError, unknown_name
from reasoning_from_scratch.problems import check_prompt, is_in_file
from reasoning_from_scratch.stops import stop_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Schedule = Literal["constant", "linear", "cosine"]
Advantage = Literal["zscore", "mean", "leave-one-out", "maxrl"]
Objective = Literal[
    "reinforce", "importance_sampling", "ppo", "cispo", "dro", "dppo", "gspo", "cross_entropy"
]
Aggregate = Literal["sum", "constant", "sequence", "token"]
KL = Literal["none", "reward", "token", "k2", "k3"]
OBJECTIVES, AGGREGATES = get_args(Objective), get_args(Aggregate)
# Objectives that bound how far the updates of one step may go; their ratio is p / p_start. The
# others use the ratio to the sampler's own probability, unless an importance weight corrects that.
CLIPPING = ("ppo", "cispo", "gspo")


@dataclass
class Run:
    """What is trained, and where the run is stored."""

    model: str = "tiny-base"
    """Model to start from: tiny-base, smollm2, qwen-0.5b, OWNER/NAME, folder, file, run, RUN@SAVE.
    A LoRA folder, such as a run's adapter/, is loaded on top of its base model."""
    load_checkpoint_path: str | None = None
    """Load the current weights of this checkpoint or run, and nothing else."""
    kl_reference: str | None = None
    """Model that the KL penalty compares with (default: the trained model at its start)."""
    kl_solution: bool = False
    """Show the reference model each problem's solution: even the same model can then teach."""
    kl_schedule: Schedule = "constant"
    """Shape of kl-coef over the run: constant, or falling to 0."""
    recipe: str = "grpo"
    """Row of `rfs recipes`, or your own, FILE.py:NAME; flags override the row."""
    smoke: bool = False
    """Run only two small steps, to see within two minutes that everything works here."""
    preflight: bool = True
    """Before the first step, check briefly whether this model can learn from these problems."""
    log_path: str | None = None
    """Run folder (default: runs/RECIPE-MODEL-TIME)."""
    resume: str | None = None
    """Continue the run in this folder, with its model, LoRA and optimizer."""
    overwrite: bool = False
    """Delete a run that is already in the folder, once the new one is sure to start."""


@dataclass
class Asking:
    """How a problem is presented to the model."""

    prompt: str | None = None
    """How a problem is asked: book, question, chat, plain, nanochat, or a FILE that has {problem}
    in it, alone (plain:FILE) or in the chat template, chat:FILE (default: by the set)."""
    stop: str | None = None
    """Also end an answer at this text, such as "\\n\\n" or "Question:" for a base model."""

    def check_asking(self) -> None:
        """Refuses what cannot be asked that way, before a model is loaded."""
        if self.prompt is not None:
            check_prompt(self.prompt)
        if self.stop is not None:
            stop_text(self.stop)


@dataclass
class Problems(Asking):
    """Which problems, how they are presented, and how many steps of them."""

    problems: str | None = None
    """Problem set (default: tiny, or math-train), your own FILE.jsonl or FILE.py:FUNCTION,
    hf:OWNER/NAME, or gym:TASK."""
    data_path: str | None = None
    """File to read the training problems from, instead of a download."""
    problem_limit: int | None = None
    """Use only the first N training problems (default: all)."""
    few_shot: int = 0
    """Show the first N problems of the set, solved, before each question."""
    steps: int = 100
    """Training steps."""
    problems_per_step: int = 8
    """Problems sampled at each step."""
    active_sampling: bool = False
    """Sample more problems until problems-per-step groups have correct and incorrect answers."""


@dataclass
class Drawing:
    """How the tokens of an answer are drawn."""

    max_new_tokens: int | None = None
    """Longest answer in tokens (default: 160 for the tiny model, else 512)."""
    temperature: float = 1.0
    """Sampling temperature; 1 samples the policy itself."""
    top_p: float = 1.0
    """Sample from the smallest set of tokens with this total probability; 1 keeps all."""
    top_k: int = 0
    """Sample from this many most likely tokens; 0 keeps all."""
    seed: int = 0
    """Seed of the problem order and of every answer."""

    @property
    def leaves_tokens_out(self) -> bool:
        """Whether top-p or top-k exclude tokens."""
        return self.top_p < 1 or self.top_k > 0


@dataclass
class Turns:
    """What replies to the model while it answers."""

    calculator: bool = False
    """Compute `<<48/2=` for the model: the result goes into its answer and is not trained on."""
    environment: str | None = None
    """What answers the model: guess (with its problems and player), retry, or FILE.py:CLASS."""
    max_turns: int = 8
    """With an environment: the rollout ends after this many turns of the model."""
    max_turn_tokens: int = 0
    """With an environment: longest turn in tokens; 0 = as long as the answer may be."""

    @property
    def is_answered(self) -> bool:
        """Whether something replies to the model while it answers."""
        return self.calculator or self.environment is not None


@dataclass
class Sampling(Turns, Drawing):
    """How the answers of a group are drawn."""

    rollouts: int = 8
    """Rollouts per problem: the size of a group."""
    keep_sampling_mask: bool | None = None
    """Train on the distribution as top-p and top-k cut it (default: yes if they cut)."""
    sample_rows: int = 64
    """Rollouts sampled in parallel; lower it when sampling runs out of memory."""
    sampling_weights: Literal["same", "int8"] = "same"
    """Sample rollouts with the same weights that are trained, or with a copy in 8 bits: on a CPU
    faster, unless the model is small, and a little off; evaluations never do."""


@dataclass
class Rewards:
    """How an answer is rewarded."""

    reward_parts: dict[str, float] = field(default_factory=lambda: {"correct": 1.0})
    """Reward parts and their weights, e.g. correct=1 format=0.5."""
    conditional_format: bool = False
    """Count the format parts only if the answer is correct."""
    overlong_penalty: int = 0
    """Soft penalty, falling to -1 over the last N tokens before the length limit; 0 = none."""
    reward: str | None = None
    """Your own verifier, FILE.py:FUNCTION, replaces the grader; gsm8k: the number after ####."""


@dataclass
class Loss:
    """From rewards to the loss; a recipe is mostly a choice of these."""

    advantage: Advantage | str = "zscore"
    """How the rewards of a group become advantages; or your own, FILE.py:FUNCTION."""
    advantage_per_part: bool = False
    """Z-score each reward part on its own, then their sum over the whole step (gdpo)."""
    objective: Objective | str = "ppo"
    """The function of ratio and advantage to maximize; or your own, FILE.py:FUNCTION."""
    aggregate: Aggregate = "sequence"
    """How token terms are averaged: sum (not at all), constant (over length-constant tokens per
    rollout), sequence (in each rollout, then over rollouts), token (over all tokens)."""
    length_constant: float | None = None
    """Tokens per rollout in the denominator of aggregate=constant (default: max-new-tokens)."""
    clip_low: float = 0.8
    """Lower bound of the ratio p / p_start, where the objective has one (ppo, cispo, gspo)."""
    clip_high: float = 1.2
    """Upper bound of that ratio; p_start is the trainer's own probability when the step began."""
    dro_beta: float = 0.05
    """Strength of the squared log-ratio in the dro objective."""
    divergence_limit: float = 0.2
    """How far dppo lets the probability of a token move from the sampler's: |p - p_sampler|."""
    kl: KL = "none"
    """Where the KL penalty goes: the whole answer's reward, each token's, the loss (k2 or k3)."""
    kl_coef: float = 0.0
    """Weight of the KL penalty; with kl=reward it multiplies a sum over the answer's tokens."""
    kl_discount_factor: float = 0.0
    """With kl=token: a token also gets later tokens' penalties, discounted by this per token."""
    kl_importance_weighted: bool = False
    """Multiply the KL term by the ratio, for rollouts of an older policy."""
    truncate_importance: float | None = None
    """Cap on the weight p_start / p_sampler (default: 2 if the sampler lags and the loss clips, or
    if it samples in 8 bits and the loss clips or is reinforce)."""
    mask_importance: float | None = None
    """Instead of a cap: tokens whose weight p_start / p_sampler exceeds this get weight 0."""
    importance_level: Literal["token", "sequence"] = "token"
    """One weight p_start / p_sampler for each token, or their product for the whole rollout."""
    sequence_mask_threshold: float | None = None
    """Drop rollouts with negative advantage from which the policy has moved further than this."""
    drop_uniform_groups: bool = True
    """Skip the training pass of groups whose rewards are all equal (unless with KL or dro)."""

    @property
    def is_supervised(self) -> bool:
        """Whether the model learns the problems' solutions, and nothing is sampled."""
        return self.objective == "cross_entropy"


@dataclass
class Updates:
    """Which rollouts of a step are used, how often, and how many together."""

    train_rollouts: int = 0
    """Of each group, train only on the N rollouts whose rewards vary most; 0 = on all."""
    logprob_temperature: float | None = None
    """Temperature of the log-probabilities that are trained (default: --temperature)."""
    epochs: int = 1
    """Passes over the rollouts of a step."""
    num_substeps: int = 1
    """Optimizer steps per pass, each on a share of the groups; start with 2 to 4 and ppo."""
    micro_batch_tokens: int | None = None
    """Tokens of one forward and backward pass, without a long prompt that its rollouts share
    (default: 8192; on a CPU as many as fit into 1 GB or, if that is more, a 24th of what is
    free)."""
    micro_batch_rows: int = 0
    """Rollouts of one forward and backward pass; 0 = as many as micro-batch-tokens allows."""
    grad_clip: float = 1.0
    """Largest norm of the gradient; 0 = no clipping."""


@dataclass
class Optim:
    """How weights follow the gradient."""

    lr: float | None = None
    """Learning rate (default: 1e-4 for the tiny model, else 1e-6; sft: at least 1e-5;
    ten times that for LoRA)."""
    lr_at_problems: int | None = None
    """Problems per step that lr is meant for; for N times as many, lr is multiplied by sqrt(N)."""
    lr_schedule: Schedule = "constant"
    """Shape of the learning rate after the warm-up."""
    warmup_steps: int = 0
    """Steps over which the learning rate rises to its full value."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """adamw for all weights; muon: Muon for the matrices of the blocks, AdamW for the rest."""
    beta1: float = 0.9
    """Decay of AdamW's mean of gradients."""
    beta2: float = 0.95
    """Decay of AdamW's mean of squared gradients."""
    weight_decay: float = 0.0
    """Decoupled weight decay of AdamW, on matrices only."""
    matrix_lr: float | None = None
    """With muon, lr times this is the learning rate of the blocks' matrices (default: by shape)."""
    embedding_lr: float | None = None
    """With muon, lr times this is the learning rate of the embedding (default: 1)."""
    unembedding_lr: float | None = None
    """With muon, lr times this is the learning rate of the head and the norms (default: 1)."""
    low_precision_updates: Literal["master", "stochastic"] = "master"
    """For bfloat16 models: keep float32 master weights, or round updates stochastically."""
    lora_rank: int = 0
    """Train low-rank additions to the blocks' matrices instead of the weights; 0 = all weights."""
    lora_alpha: float = 32.0
    """The additions are scaled by lora-alpha / lora-rank."""


@dataclass
class Scale:
    """How many processes share the work, and how far sampling may run ahead of training."""

    shard: Literal["none", "fsdp"] = "none"
    """Under torchrun: fsdp keeps a slice of weights, gradients and optimizer on each rank."""
    num_minibatches: int = 1
    """Stream a substep in this many parts: each is trained on while the others are sampled."""
    max_steps_off_policy: int = 0
    """Steps that a parallel sampler may lag behind; 0 = take turns, with bit-identical repeats."""
    sampler: Literal["local", "ray"] = "local"
    """Who samples: this process, or actors of Ray, here or on many machines (extra: ray)."""
    num_samplers: int = 2
    """Ray actors; each holds the model and samples a part of every step."""
    ray_address: str | None = None
    """HOST:PORT of a running Ray cluster (default: start Ray on this machine)."""


@dataclass
class Device:
    """Where a model is stored, and in which number format."""

    device: str = "auto"
    """Where to compute: cpu, cuda, mps, or auto."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Number format of the weights; auto: bfloat16 on CUDA and, for models that are not small, on
    CPUs that multiply it faster; else float32."""


@dataclass
class Memory(Device):
    """How the model is stored and computed."""

    gradient_checkpointing: bool = False
    """Recompute each block in the backward pass: less memory, about a third more time."""
    compile: bool = False
    """Compile the training pass with torch.compile and, on a GPU, the decoding steps."""


@dataclass
class Records:
    """What is evaluated, saved and reported."""

    eval_every: int | None = None
    """Steps between evaluations; 0 = never (default: at both ends if --eval-... is given)."""
    eval_problems: Sequence[str] | None = None
    """Problem sets to evaluate on, the main one first (default: those of --problems)."""
    eval_limit: int = 100
    """Problems per evaluation, of each set."""
    eval_samples: int = 1
    """Answers per problem at evaluation: 1 uses greedy decoding, more are sampled for pass@k."""
    evaluators: Sequence[str] | None = None
    """Also run your FILE.py:FUNCTION(model, tokenizer) -> {name: number} at each evaluation."""
    save_every: int = 0
    """Steps between saves of weights and optimizer; the last step is always saved."""
    rolling_every: int = 0
    """Steps between saves of which only the newest is kept."""
    keep_last: int = 0
    """Keep only the last N of the --save-every saves; 0 = all."""
    report_every: int = 10
    """Steps between answers to the probe problems and a new report.html; 0 = only at the end."""
    num_groups_to_log: int = 4
    """Groups written in full to each step's page, mixed ones first; 0 = no pages."""
    iteration_folders: bool = False
    """Give each step's files a second name, in iteration_NNNNNN/, as Tinker's viewers expect."""
    compute_post_kl: bool = False
    """Measure the gap from the sampler's record to the policy after a step (kl_pre_post_v1, v2)."""
    stop_on_alarm: bool = False
    """End the run, after a save, when a health alarm goes off."""
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
class TrainConfig(Records, Memory, Scale, Optim, Updates, Loss, Rewards, Sampling, Problems, Run):
    """Every choice of a training run."""

    # The fields that were named, on a command line or in `configure`; None: created directly.
    given: frozenset[str] | None = field(default=None, repr=False, compare=False)

    @property
    def train_temperature(self) -> float:
        """Temperature of sampling, or another if given; 1 for solutions, which are not sampled."""
        return self.logprob_temperature or (1.0 if self.is_supervised else self.temperature)

    def requested(self) -> set[str]:
        """The fields that were given a value other than their default. Giving a default requests
        nothing: it may only undo what a recipe sets."""
        default = TrainConfig()
        every = [item.name for item in dataclasses.fields(self) if item.name != "given"]
        named = every if self.given is None else self.given
        return {name for name in named if getattr(self, name) != getattr(default, name)}


PARTS = (Run, Problems, Sampling, Rewards, Loss, Updates, Optim, Scale, Memory, Records)
AnyConfig = TypeVar("AnyConfig", bound="DataclassInstance")

# Fields of earlier versions that only repeated what others say.
FORMER = {"loss_fn"}


def replaced(config: AnyConfig, **changes: Any) -> AnyConfig:
    """A copy with some fields changed; an unknown field is an error that names the nearest."""
    names = [item.name for item in dataclasses.fields(config)]
    for name in changes:
        if name not in names:
            raise unknown_name(f"field of {type(config).__name__}", name, names)
    if isinstance(config, TrainConfig) and config.given is not None:
        changes = {"given": config.given | changes.keys()} | changes
    return dataclasses.replace(config, **changes)


def part_of(config: object, part: type[AnyConfig], **changes: Any) -> AnyConfig:
    """The fields of `part` that `config` has, with some changed."""
    names = [item.name for item in dataclasses.fields(part) if hasattr(config, item.name)]
    return part(**{name: getattr(config, name) for name in names} | changes)


def to_json(config: TrainConfig) -> dict[str, Any]:
    values = dataclasses.asdict(config)
    del values["given"]
    return values


def from_json(values: dict[str, Any], origin: Path | str = "config.json") -> TrainConfig:
    """The configuration of a saved run; keys that are not fields (versions, ...) are ignored."""
    kinds = get_type_hints(TrainConfig)
    del kinds["given"]
    known = {key: value for key, value in values.items() if key in kinds}
    for key, value in known.items():
        if not fits(value, kinds[key]):
            raise UserError(
                f"{origin}: this version does not know {key} {value!r}; use the version "
                "that wrote it, or correct the value"
            )
    return TrainConfig(**known)


def fits(value: Any, kind: Any) -> bool:
    """Whether it is a value of that type, for the types that fields have."""
    if get_origin(kind) in (Union, UnionType):
        options = get_args(kind)
        words = any(get_origin(option) is Literal for option in options)
        if words and str in options and is_in_file(value):  # a word, or FILE.py:FUNCTION
            return True
        return any(fits(value, option) for option in options if not (words and option is str))
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind in (int, float):
        return type(value) in (int, kind)
    return isinstance(value, get_origin(kind) or kind)
