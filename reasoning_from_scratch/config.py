"""TrainConfig: one field, one line of help."""

import dataclasses
import difflib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from tyro.conf import arg
from tyro.constructors import PrimitiveConstructorSpec

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.saved_models import run_and_save
from reasoning_from_scratch.losses import CLIPPING
from reasoning_from_scratch.recipes import get_recipe, loss_fn_changes
from reasoning_from_scratch.run.config_checks import check_choices, check_kinds, check_sizes, fits
from reasoning_from_scratch.run.own_task import is_own
from reasoning_from_scratch.run.void_options import check_void
from reasoning_from_scratch.text import read_values

Advantage = Literal["zscore", "mean", "leave-one-out"]
Objective = Literal["reinforce", "importance_sampling", "ppo", "cispo", "dro", "gspo"]
Aggregate = Literal["sum", "constant", "sequence", "token"]
KL = Literal["none", "reward", "k2", "k3"]
Schedule = Literal["constant", "linear", "cosine"]
LossFn = Literal["importance_sampling", "ppo", "cispo", "dro"]


def parse_parts(words: list[str]) -> dict[str, float]:
    from reasoning_from_scratch.rewards import parse_weights  # late: it loads the grader

    return parse_weights(words)


# On the command line: --reward-parts correct=1 format=0.5
RewardParts = Annotated[
    dict[str, float],
    PrimitiveConstructorSpec(
        nargs="*",
        metavar="PART=WEIGHT",
        instance_from_str=parse_parts,
        is_instance=lambda value: isinstance(value, dict),
        str_from_instance=lambda parts: [f"{name}={weight:g}" for name, weight in parts.items()],
    ),
]

# What suits a model when a field is left at None. "tiny" is any of the shipped tiny models.
PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"problems": "tiny", "eval_problems": "tiny-test", "max_new_tokens": 128, "lr": 5e-5},
    "qwen3": {
        "problems": "math-train",
        "eval_problems": "math-500",
        "max_new_tokens": 512,
        "lr": 1e-6,
    },
}

LAG_WEIGHT = 2.0  # the cap on p_start / p_sampler where the sampler lags

# --smoke: at most this much of everything.
SMOKE = {
    "steps": 2,
    "problems_per_step": 2,
    "num_substeps": 1,
    "rollouts": 4,
    "max_new_tokens": 128,
    "epochs": 1,
    "eval_limit": 8,
    "problem_limit": 64,
}


@dataclass
class TrainConfig:
    """Every choice of a training run."""

    # -- what is trained, on what
    model: Annotated[str, arg(aliases=["--model-name"])] = "tiny-base"
    """Model to start from: tiny-base, base, reasoning, a folder, file, run or RUN@SAVE."""
    load_checkpoint_path: str | None = None
    """Take the weights of this checkpoint or run as they are now, and nothing else."""
    recipe: str = "grpo"
    """Row of `rfs recipes`; flags given beside it win over the row."""
    loss_fn: LossFn | None = None
    """Loss as Tinker documents it: objective, summed, with its bounds; wins over the recipe."""
    problems: str | None = None
    """Problem set to train on (default: tiny, or math-train), or FILE.py:FUNCTION of your own."""
    reward: str | None = None
    """Your own verifier, FILE.py:FUNCTION, in place of the grader."""
    data_path: str | None = None
    """File to read the training problems from, instead of a download."""
    problem_limit: int | None = None
    """Use only the first so many training problems (default: all)."""
    few_shot: int = 0
    """Show so many solved problems, the first of the set, before each question."""
    steps: int = 100
    """Training steps."""
    smoke: bool = False
    """Two small steps only, to see within two minutes that everything works here."""
    problems_per_step: Annotated[int, arg(aliases=["--groups-per-batch"])] = 8
    """Problems sampled at each step."""
    rollouts: Annotated[int, arg(aliases=["--group-size"])] = 8
    """Rollouts per problem: the size of a group."""
    seed: int = 0
    """Seed of the problem order and of every rollout."""

    # -- sampling
    max_new_tokens: Annotated[int | None, arg(aliases=["--max-tokens"])] = None
    """Longest answer in tokens (default: 128 for the tiny model, else 512)."""
    temperature: float = 1.0
    """Sampling temperature; 1 samples the policy itself."""
    logprob_temperature: float | None = None
    """Temperature of the log-probabilities that are trained (default: --temperature)."""
    top_p: float = 1.0
    """Sample from the smallest set of tokens with this much mass; 1 keeps all."""
    top_k: int = 0
    """Sample from this many most likely tokens; 0 keeps all."""
    sample_rows: int = 64
    """Rollouts sampled side by side; lower it when sampling runs out of memory."""

    # -- the algorithm; a recipe is a choice of these
    advantage: Advantage = "zscore"
    """How the rewards of a group become advantages."""
    advantage_per_part: bool = False
    """Z-score each reward part on its own, then their sum over the whole step (gdpo)."""
    objective: Objective = "ppo"
    """The function of ratio and advantage that is maximised."""
    aggregate: Aggregate = "sequence"
    """What token terms are summed to and divided by: 1, a constant, sequences or tokens."""
    length_constant: float | None = None
    """Tokens per rollout in the denominator of aggregate=constant (default: max-new-tokens)."""
    clip_low: float = 0.8
    """Lower bound of the ratio p / p_start, where the objective has one (ppo, cispo, gspo)."""
    clip_high: float = 1.2
    """Upper bound of that ratio; p_start is the trainer's own when the step began."""
    dro_beta: float = 0.05
    """Strength of the squared log-ratio in the dro objective."""
    kl: KL = "none"
    """Where a KL penalty towards the starting model goes: nowhere, reward, loss as k2 or k3."""
    kl_coef: Annotated[float, arg(aliases=["--kl-penalty-coef"])] = 0.0
    """Weight of the KL penalty."""
    kl_importance_weighted: bool = False
    """Multiply the KL term by the ratio, for rollouts of an older policy."""
    drop_uniform_groups: Annotated[bool, arg(aliases=["--remove-constant-reward-groups"])] = True
    """Groups whose rewards are all equal cost no training pass (unless with KL or dro)."""
    active_sampling: bool = False
    """Sample further problems until problems-per-step groups have right and wrong answers."""
    truncate_importance: float | None = None
    """Cap on the weight p_start / p_sampler (default: 2 if the sampler lags and the loss clips)."""
    sequence_mask_threshold: float | None = None
    """Leave out rollouts with negative advantage that drifted further than this from the policy."""
    keep_sampling_mask: bool | None = None
    """Train on the tokens that top-p and top-k kept, as was sampled (default: yes if they cut)."""
    reward_parts: RewardParts = field(default_factory=lambda: {"correct": 1.0})
    """Reward parts and their weights, e.g. correct=1 format=0.5."""
    conditional_format: bool = False
    """Count the parts about format only where the answer is correct."""
    overlong_penalty: int = 0
    """Soft penalty, down to -1, over so many last tokens before the length limit; 0 = none."""
    epochs: int = 1
    """Passes over the rollouts of a step."""
    num_substeps: int = 1
    """Optimizer steps per pass; each takes an equal share of the groups."""
    num_minibatches: int = 1
    """Stream in so many parts: each is trained on while the others are still sampled."""
    max_steps_off_policy: int = 0
    """Updates that a sampler beside the trainer may lag; 0 = take turns, repeatable to the bit."""
    sampler: Literal["local", "ray"] = "local"
    """Who samples: this process, or actors of Ray, here or on many machines (extra: ray)."""
    num_samplers: int = 2
    """Ray actors; each holds the model and samples a part of every step."""
    ray_address: str | None = None
    """HOST:PORT of a running Ray cluster (default: start a Ray on this machine)."""
    compute_post_kl: bool = False
    """Measure how far each update moved the policy (kl_pre_post_v1, v2): one more forward pass."""

    # -- the optimizer
    lr: Annotated[float | None, arg(aliases=["--learning-rate"])] = None
    """Learning rate (default: 5e-5 for the tiny model, else 1e-6; ten times that for LoRA)."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """muon: Muon for the matrices of the blocks, AdamW for the rest."""
    matrix_lr: float | None = None
    """With muon, lr times this is the rate of the blocks' matrices (default: by their shape)."""
    embedding_lr: float | None = None
    """With muon, lr times this is the rate of the embedding (default: 1)."""
    unembedding_lr: float | None = None
    """With muon, lr times this is the rate of the head and the norms (default: 1)."""
    lora_rank: int = 0
    """Train low-rank additions to the blocks' matrices instead of the weights; 0 = all weights."""
    lora_alpha: float = 32.0
    """The additions are scaled by lora-alpha / lora-rank."""
    lr_schedule: Schedule = "constant"
    """Shape of the learning rate after the warm-up."""
    warmup_steps: int = 0
    """Steps over which the learning rate rises to its value."""
    weight_decay: float = 0.0
    """Decoupled weight decay of AdamW, on matrices only."""
    beta1: float = 0.9
    """Decay of AdamW's mean of gradients."""
    beta2: float = 0.95
    """Decay of AdamW's mean of squared gradients."""
    grad_clip: float = 1.0
    """Largest norm of the gradient; 0 = no clipping."""
    low_precision_updates: Literal["master", "stochastic"] = "master"
    """For bfloat16 models: keep float32 master weights, or round updates stochastically."""

    # -- memory and speed
    micro_batch_tokens: int = 8192
    """Tokens of one forward and backward pass, each rollout's prompt included."""
    gradient_checkpointing: bool = False
    """Recompute each block in the backward pass: less memory, about a third more time."""
    memory_budget: str | None = None
    """E.g. 14GB, for all of the process: try the longest shape, then choose what fits."""
    shard: Literal["none", "fsdp"] = "none"
    """Under torchrun: fsdp keeps a slice of weights, gradients and optimizer on each rank."""
    compile: bool = False
    """Compile the training pass with torch.compile."""
    device: str = "auto"
    """cpu, cuda, mps, or auto."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Number format of the weights; auto: float32 on CPU and MPS, bfloat16 on CUDA."""

    # -- evaluation, saving, reports
    eval_every: int | None = None
    """Evaluate every so many steps; 0 = never (default: at both ends if --eval-... is given)."""
    eval_problems: str | None = None
    """Problem set to evaluate on (default: tiny-test, or math-500 for larger models)."""
    eval_limit: int = 100
    """Problems per evaluation."""
    eval_samples: int = 1
    """Answers per problem at evaluation: 1 is greedy, more are sampled and give pass@k."""
    save_every: int = 0
    """Save weights and optimizer after every so many steps; the last step is always saved."""
    rolling_every: int = 0
    """Save after every so many steps, keeping only the newest of these saves."""
    keep_last: int = 0
    """Keep only so many of the --save-every saves; 0 = all."""
    report_every: int = 10
    """Ask the probe problems and rewrite report.html every so many steps; 0 = only at the end."""
    num_groups_to_log: int = 4
    """Groups written in full to each step's page, mixed ones before others; 0 = no pages."""
    log_path: str | None = None
    """Run folder (default: runs/RECIPE-MODEL-TIME)."""
    resume: str | None = None
    """Continue the run in this folder, with its model, LoRA and optimizer."""
    overwrite: bool = False
    """Delete a run that is already in the folder, once the new one is known to start."""
    preflight: bool = True
    """Before the first step, look briefly whether these problems can teach this model."""
    stop_on_alarm: bool = False
    """End the run (after a save) when a health alarm goes off."""
    wandb: str | None = None
    """Also log to this Weights & Biases project (extra: wandb)."""

    @property
    def cuts(self) -> bool:
        """Whether top-p or top-k leave tokens out."""
        return self.top_p < 1 or self.top_k > 0

    def check(self) -> None:
        """Raise a UserError for the first value that cannot work."""
        check_sizes(self)
        check_choices(self)


def recipe_values(recipe: str, loss_fn: str | None = None) -> TrainConfig:
    """The defaults, then what the recipe changes, then loss_fn."""
    changes = get_recipe(recipe).changes | loss_fn_changes(loss_fn)
    return replaced(TrainConfig(recipe=recipe), **changes)


def preset(model: str) -> dict[str, Any]:
    """The values that suit `model`: a folder tells by its configuration, else by its name."""
    folder = run_and_save(model)[0] or Path(model).expanduser()
    tiny = Path(model).name.startswith("tiny")
    for path in (folder / "config.json", *folder.glob("checkpoints/*/config.json")):
        size = read_values(path).get("vocab_size")
        if isinstance(size, int):  # of a run: each of its saves says the same
            tiny = size < 10_000
            break
    return PRESETS["tiny" if tiny else "qwen3"]


def resolved(config: TrainConfig) -> TrainConfig:
    """A checked copy in which every value that was left to the model's preset is filled in."""
    check_kinds(config)
    values = preset(config.model)
    if is_own(config.problems):  # held-out problems of another task would measure nothing
        values = values | {"eval_problems": config.problems.rpartition(":")[0] + ":test_problems"}
    if config.lora_rank:
        from reasoning_from_scratch.optim.lora import lora_learning_rate

        values = values | {"lr": lora_learning_rate(values["lr"])}
    values = values | {"eval_every": config.steps if asks_for_evaluation(config) else 0}
    config = filled(config, values)
    before = filled(recipe_values(config.recipe, config.loss_fn), values)
    if config.overlong_penalty == before.overlong_penalty:  # a recipe knows no limits
        config = replaced(
            config, overlong_penalty=min(config.overlong_penalty, config.max_new_tokens)
        )
    config.check()
    if not config.resume:  # a resumed run's values were checked when it began
        check_given(config, before)
    if config.smoke:
        config = replaced(config, **{k: min(v, getattr(config, k) or v) for k, v in SMOKE.items()})
    if config.length_constant is None:
        config = replaced(config, length_constant=float(config.max_new_tokens))
    if config.keep_sampling_mask is None:
        config = replaced(config, keep_sampling_mask=config.cuts)
    if config.truncate_importance is None:
        lags = config.max_steps_off_policy > 0 and config.objective in CLIPPING
        config = replaced(config, truncate_importance=LAG_WEIGHT if lags else 0.0)
    return config


def filled(config: TrainConfig, values: dict[str, Any]) -> TrainConfig:
    """A copy with `values` where the configuration has None."""
    return replaced(config, **{k: v for k, v in values.items() if getattr(config, k) is None})


def check_given(config: TrainConfig, before: TrainConfig) -> None:
    """Refuse what is given and does nothing; `before` is the configuration without it."""
    check_void(config, before)
    row, default = get_recipe(config.recipe).changes, TrainConfig()
    if row and all(getattr(config, name) == getattr(default, name) for name in row):
        raise UserError(
            f"--recipe {config.recipe} is named, but none of its choices are left; in "
            f"Python they come from configure({config.recipe!r}, ...)"
        )


def asks_for_evaluation(config: TrainConfig) -> bool:
    """How to evaluate is said, but not when."""
    default = TrainConfig()
    names = ("eval_problems", "eval_limit", "eval_samples")
    return any(getattr(config, name) != getattr(default, name) for name in names)


def replaced(config: TrainConfig, **changes: Any) -> TrainConfig:
    """A copy with some fields changed; an unknown field is an error that names the nearest."""
    names = [f.name for f in dataclasses.fields(TrainConfig)]
    for name in changes:
        if name not in names:
            raise UserError(f"TrainConfig has no field {name!r}{did_you_mean(name, names)}")
    return dataclasses.replace(config, **changes)


def did_you_mean(word: str, known: list[str]) -> str:
    """A half sentence with the nearest known word, or all of them when none is near."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(known))}"


def to_json(config: TrainConfig) -> dict[str, Any]:
    return dataclasses.asdict(config)


def from_json(values: dict[str, Any], origin: Path | str = "config.json") -> TrainConfig:
    """The configuration of a saved run; keys that are not fields (versions, ...) are ignored."""
    kinds = get_type_hints(TrainConfig)
    known = {key: value for key, value in values.items() if key in kinds}
    for key, value in known.items():
        if not fits(value, kinds[key]):
            raise UserError(
                f"{origin}: this version knows no {key} {value!r}; use the version "
                "that wrote it, or put the value right"
            )
    return TrainConfig(**known)
