"""TrainConfig: every choice of the loop, in parts. One field, one line of help.

A TrainConfig inherits from all of its parts. A function that reads one part says so in its
signature, `config: Loss`; one that reads several takes the whole. Beside a field's type stand its
bounds, and what it needs to have an effect (facts.py).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from inspect import get_annotations
from typing import Annotated, Any, Literal, get_args

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.facts import (
    AS_TRAINED,
    FIXED,
    Above,
    AtLeast,
    AtMost,
    Below,
    Bound,
    Mark,
    Needs,
)

Schedule = Literal["constant", "linear", "cosine"]
Advantage = Literal["zscore", "mean", "leave-one-out", "maxrl"]
Objective = Literal[
    "reinforce", "importance_sampling", "ppo", "cispo", "dro", "dppo", "gspo", "cross_entropy"
]
Aggregate = Literal["sum", "constant", "sequence", "token"]
KL = Literal["none", "reward", "token", "k2", "k3"]
Dtype = Literal["auto", "float32", "bfloat16"]
OBJECTIVES, AGGREGATES = get_args(Objective), get_args(Aggregate)
# Objectives that bound how far the updates of one step may go; their ratio is p / p_start. The
# others use the ratio to the sampler's own probability, unless an importance weight corrects that.
CLIPPING = ("ppo", "cispo", "gspo")
# Where the model learns worked solutions, these do nothing: it samples no answers.
SAMPLED = Needs("is_supervised", False)
DRIFT = Needs("drifts")
ADAMW = Needs("uses_adamw")


@dataclass
class Steps:
    """How many steps, and how many problems at each."""

    steps: Annotated[int, AtLeast(1)] = 100
    """Train for this many steps."""
    problems_per_step: Annotated[int, AtLeast(1)] = 8
    """Sample this many problems at each step."""
    active_sampling: Annotated[bool, SAMPLED] = False
    """Sample more problems until problems-per-step groups have correct and incorrect answers, at
    most four times as many."""


@dataclass
class Drawing:
    """How the tokens of an answer are drawn."""

    max_new_tokens: Annotated[int | None, AtLeast(1), AS_TRAINED] = None
    """End an answer after this many tokens (default: 160 for the tiny model, else 512)."""
    temperature: Annotated[float, AtLeast(0), Needs("draws")] = 1.0
    """Sample at this temperature; 1 samples the policy itself."""
    top_p: Annotated[float, Above(0), AtMost(1), Needs("draws")] = 1.0
    """Sample from the smallest set of tokens with this total probability; 1 keeps all."""
    top_k: Annotated[int, AtLeast(0), Needs("draws")] = 0
    """Sample from this many most likely tokens; 0 keeps all."""
    seed: int = 0
    """Order the problems, and draw every answer, by this seed."""

    @property
    def draws(self) -> bool:
        """Whether tokens are drawn; at temperature 0 the most probable one is taken."""
        return self.temperature > 0

    @property
    def cuts_tokens(self) -> bool:
        """Whether top-p or top-k exclude tokens."""
        return self.top_p < 1 or self.top_k > 0


@dataclass
class Turns:
    """What replies to the model while it answers."""

    calculator: Annotated[bool, SAMPLED, AS_TRAINED] = False
    """Compute `<<48/2=` for the model: the result goes into its answer and is not trained on."""
    environment: Annotated[str | None, SAMPLED, AS_TRAINED] = None
    """Let this answer the model: guess (with its problems and player), retry, or FILE.py:CLASS."""
    max_turns: Annotated[int, AtLeast(1), Needs("environment"), AS_TRAINED] = 8
    """With an environment, end the rollout after this many turns of the model."""
    max_turn_tokens: Annotated[int, AtLeast(0), Needs("environment"), AS_TRAINED] = 0
    """With an environment, end a turn after this many tokens; 0 allows as many as the answer may
    have."""

    @property
    def has_replies(self) -> bool:
        """Whether something replies to the model while it answers."""
        return self.calculator or self.environment is not None


@dataclass
class Sampling(Turns, Drawing):
    """How the answers of a group are drawn."""

    rollouts: Annotated[int, AtLeast(1), SAMPLED] = 8
    """Sample this many rollouts per problem: the size of a group."""
    keep_sampling_mask: Annotated[bool | None, SAMPLED] = None
    """Train on the distribution as top-p and top-k cut it (default: yes if they cut)."""
    sample_rows: Annotated[int, AtLeast(1)] = 64
    """Sample this many rollouts in parallel; lower it when sampling runs out of memory."""
    sampling_weights: Annotated[Literal["same", "int8"], SAMPLED] = "same"
    """Sample rollouts with the same weights that are trained, or with a copy in 8 bits: on a CPU
    faster, unless the model is small, and a little off; evaluations never do."""


@dataclass
class Rewards:
    """How an answer is rewarded."""

    reward_parts: Annotated[dict[str, float], SAMPLED] = field(
        default_factory=lambda: {"correct": 1.0}
    )
    """Add up these parts of the reward, each with its weight, e.g. correct=1 format=0.5."""
    conditional_format: Annotated[bool, Needs("rewards_format"), SAMPLED] = False
    """Count the format parts only if the answer is correct."""
    overlong_penalty: Annotated[int, AtLeast(0), SAMPLED] = 0
    """Subtract a penalty that grows to 1 over the last N tokens before the length limit; 0
    subtracts none."""
    reward: Annotated[str | None, AS_TRAINED] = None
    """Replace the grader by your own verifier, FILE.py:FUNCTION, or by gsm8k, which reads the
    number after ####."""

    @property
    def rewards_format(self) -> bool:
        """Whether something else than a correct answer is rewarded."""
        return bool(set(self.reward_parts) - {"correct", "wrong"})


@dataclass
class Loss:
    """From rewards to the loss; a recipe is mostly a choice of these."""

    advantage: Annotated[Advantage | str, SAMPLED] = "zscore"
    """Turn the rewards of a group into advantages this way, or by your own FILE.py:FUNCTION."""
    advantage_per_part: Annotated[bool, SAMPLED] = False
    """Z-score each reward part on its own, then their sum over the whole step (gdpo)."""
    objective: Objective | str = "ppo"
    """Maximize this function of ratio and advantage, or your own, FILE.py:FUNCTION."""
    aggregate: Aggregate = "sequence"
    """Average token terms this way: sum (not at all), constant (over length-constant tokens per
    rollout), sequence (in each rollout, then over rollouts), token (over all tokens)."""
    length_constant: Annotated[float | None, Above(0), Needs("aggregate", "constant")] = None
    """Divide by this many tokens per rollout with aggregate=constant (default: max-new-tokens)."""
    clip_low: Annotated[float, AtLeast(0), Needs("clips"), Needs("makes_several_updates")] = 0.8
    """Bound the ratio p / p_start from below, where the objective has such a bound (ppo, cispo,
    gspo)."""
    clip_high: Annotated[float, AtLeast(0), Needs("clips"), Needs("makes_several_updates")] = 1.2
    """Bound that ratio from above; p_start is the trainer's own probability when the step began."""
    dro_beta: Annotated[float, AtLeast(0), Needs("objective", "dro"), DRIFT] = 0.05
    """Multiply half the squared log-ratio in the dro objective by this."""
    divergence_limit: Annotated[float, AtLeast(0), Needs("objective", "dppo"), DRIFT] = 0.2
    """Let dppo move a token's probability at most this far from the sampler's: |p - p_sampler|."""
    kl: Annotated[KL, SAMPLED] = "none"
    """Put the KL penalty here: into the whole answer's reward, each token's, or the loss (k2 or
    k3)."""
    kl_coef: Annotated[float, AtLeast(0), Needs("kl"), SAMPLED] = 0.0
    """Multiply the KL penalty by this; with kl=reward, that is a sum over the answer's tokens."""
    kl_schedule: Annotated[Schedule, Needs("kl")] = "constant"
    """Keep kl-coef constant, or let it fall to 0 over the run."""
    kl_solution: Annotated[bool, Needs("kl")] = False
    """Show the reference model each problem's solution: even the same model can then teach."""
    kl_discount_factor: Annotated[float, AtLeast(0), AtMost(1), Needs("kl", "token")] = 0.0
    """With kl=token, give a token the later tokens' penalties too, discounted by this per token."""
    kl_importance_weighted: Annotated[bool, Needs("kl", "k2", "k3")] = False
    """Multiply the KL term by the ratio, for rollouts of an older policy."""
    truncate_importance: Annotated[float | None, AtLeast(0), SAMPLED] = None
    """Cap the weight p_start / p_sampler at this (default: 2 if the sampler lags and the loss
    clips, or if it samples in 8 bits and the loss clips or is reinforce)."""
    mask_importance: Annotated[float | None, AtLeast(0), SAMPLED] = None
    """Instead of a cap, give weight 0 to tokens whose weight p_start / p_sampler exceeds this."""
    importance_level: Annotated[Literal["token", "sequence"], Needs("weighs_importance")] = "token"
    """Weight each token by its own p_start / p_sampler, or all by their product over the
    rollout."""
    sequence_mask_threshold: Annotated[float | None, Above(0), DRIFT] = None
    """Drop rollouts with negative advantage that the policy has left: their mean log(p_sampler / p)
    is above this."""
    drop_uniform_groups: Annotated[bool, SAMPLED] = True
    """Skip the training pass of groups whose rewards are all equal (unless with KL or dro)."""

    @property
    def is_supervised(self) -> bool:
        """Whether the model learns the problems' solutions, and nothing is sampled."""
        return self.objective == "cross_entropy"

    @property
    def clips(self) -> bool:
        """Whether the objective bounds the ratio."""
        return self.objective in CLIPPING

    @property
    def weighs_importance(self) -> bool:
        """Whether the loss corrects for the gap between the sampler and the step's start."""
        return bool(self.truncate_importance or self.mask_importance)


@dataclass
class Updates:
    """Which rollouts of a step are used, how often, and how many together."""

    train_rollouts: Annotated[int, AtLeast(0), SAMPLED] = 0
    """Of each group, train only on the N rollouts whose rewards vary most; 0 trains on all."""
    logprob_temperature: Annotated[float | None, Above(0)] = None
    """Compute the trained log-probabilities at this temperature (default: --temperature)."""
    epochs: Annotated[int, AtLeast(1), SAMPLED] = 1
    """Pass over the rollouts of a step this many times."""
    num_substeps: Annotated[int, AtLeast(1), SAMPLED] = 1
    """Make this many optimizer steps per pass, each on a share of the groups; start with 2 to 4 and
    ppo."""
    micro_batch_tokens: Annotated[int | None, AtLeast(1)] = None
    """Compute this many tokens in one forward and backward pass, not counting a long prompt that
    its rollouts share (default: 8192; on a CPU as many as fit into 1 GB or, if that is more, a 24th
    of what is free)."""
    micro_batch_rows: Annotated[int, AtLeast(0)] = 0
    """Compute this many rollouts in one forward and backward pass; 0 takes as many as
    micro-batch-tokens allows."""
    grad_clip: Annotated[float, AtLeast(0)] = 1.0
    """Scale the gradient down to this norm if it is longer; 0 never does."""

    @property
    def makes_several_updates(self) -> bool:
        """Whether a step's rollouts meet a policy that has moved since the step began."""
        return self.epochs * self.num_substeps > 1


@dataclass
class Optim:
    """How weights follow the gradient."""

    lr: Annotated[float | None, AtLeast(0)] = None
    """Learn at this rate (default: 1e-4 for the tiny model, else 1e-6; sft: at least 1e-5; ten
    times that for LoRA)."""
    lr_at_problems: Annotated[int | None, AtLeast(1)] = None
    """Take lr as meant for this many problems per step; for N times as many it is multiplied by
    sqrt(N)."""
    lr_schedule: Schedule = "constant"
    """Let the learning rate take this shape after the warm-up."""
    warmup_steps: Annotated[int, AtLeast(0)] = 0
    """Raise the learning rate to its full value over this many steps."""
    optimizer: Annotated[Literal["adamw", "muon"], FIXED] = "adamw"
    """Move all weights by AdamW (adamw), or the matrices of the blocks by Muon and the rest by
    AdamW (muon)."""
    beta1: Annotated[float, AtLeast(0), Below(1), ADAMW] = 0.9
    """Let AdamW's mean of gradients decay by this."""
    beta2: Annotated[float, AtLeast(0), Below(1), ADAMW] = 0.95
    """Let AdamW's mean of squared gradients decay by this."""
    weight_decay: Annotated[float, AtLeast(0)] = 0.0
    """Shrink matrices, and only these, by this times the learning rate at each step."""
    matrix_lr: Annotated[float | None, AtLeast(0), Needs("optimizer", "muon")] = None
    """With muon, train the blocks' matrices at lr times this (default: by shape)."""
    embedding_lr: Annotated[
        float | None, AtLeast(0), Needs("optimizer", "muon"), Needs("uses_adamw")
    ] = None
    """With muon, train the embedding at lr times this (default: 1)."""
    unembedding_lr: Annotated[
        float | None, AtLeast(0), Needs("optimizer", "muon"), Needs("uses_adamw")
    ] = None
    """With muon, train the head and the norms at lr times this (default: 1)."""
    low_precision_updates: Annotated[Literal["master", "stochastic"], FIXED] = "master"
    """For bfloat16 models, keep float32 master weights, or round updates stochastically."""
    lora_rank: Annotated[int, AtLeast(0), FIXED] = 0
    """Train low-rank additions to the blocks' matrices instead of the weights; 0 trains all
    weights."""
    lora_alpha: Annotated[float, Above(0), Needs("lora_rank"), FIXED] = 32.0
    """Scale the additions by lora-alpha / lora-rank."""

    @property
    def uses_adamw(self) -> bool:
        """Whether AdamW trains anything: with LoRA all weights are matrices, which Muon takes."""
        return self.optimizer == "adamw" or self.lora_rank == 0


@dataclass
class Device:
    """Where a model is stored, and in which number format."""

    device: str = "auto"
    """Compute on this: cpu, cuda (or cuda:1, ...), mps, xpu, or auto, the best one here."""
    dtype: Dtype = "auto"
    """Store the weights in this number format. With auto it is bfloat16 on GPUs that compute in it
    (but not on mps) and, for models that are not small, on CPUs that multiply it faster, else
    float32."""


@dataclass
class Memory(Device):
    """How the model is stored and computed."""

    gradient_checkpointing: bool = False
    """Recompute each block in the backward pass, which takes less memory and a third more time."""
    compile: bool = False
    """Compile the training pass with torch.compile and, on a GPU, the decoding steps."""


# A dataclass lists the fields of its last base first.
@dataclass
class TrainConfig(Memory, Optim, Updates, Loss, Rewards, Sampling, Steps):
    """Every choice of the loop."""

    @property
    def train_temperature(self) -> float:
        """Temperature of sampling, or another if given; 1 for solutions, which are not sampled, and
        for greedy decoding, which records the model's own log-probabilities."""
        sampled = not self.is_supervised and self.draws
        return self.logprob_temperature or (self.temperature if sampled else 1.0)

    @property
    def drifts(self) -> bool:
        """Whether rollouts meet a policy that has moved since it sampled them, or never was quite
        the same."""
        return self.makes_several_updates or self.sampling_weights == "int8"


@cache
def field_facts(kind: type) -> dict[str, tuple]:
    """Field -> the facts beside its type. A class that repeats a field, with another default or
    another help text, adds to its facts."""
    facts: dict[str, tuple] = {}
    for part in reversed(kind.__mro__):
        for name, hint in get_annotations(part).items():
            facts[name] = facts.get(name, ()) + getattr(hint, "__metadata__", ())
    return facts


def fields_marked(kind: type, mark: Mark | Needs) -> list[str]:
    """The fields that have this mark, or this need."""
    return [name for name, facts in field_facts(kind).items() if mark in facts]


def check_clip(loss: Loss, spelled: Callable[[str], str] = str) -> None:
    """Refuses bounds of the ratio that do not contain 1: every good answer would be clipped."""
    if not loss.clip_low <= 1 <= loss.clip_high:
        raise UserError(
            f"{spelled('clip_low')} {loss.clip_low} and {spelled('clip_high')} {loss.clip_high} "
            "must be bounds of the ratio, with 1 between them: a paper's epsilon 0.2 is 0.8 and 1.2"
        )


def check_numbers(
    options: object, part: type | None = None, spelled: Callable[[str], str] = str
) -> None:
    """Refuses the first number that is out of its bounds, of all fields or those of a part; None is
    not a number yet."""
    for name, facts in field_facts(part or type(options)).items():
        value: Any = getattr(options, name)
        # Of two bounds of a kind, the later one is the class's own.
        bounds = {type(fact): fact for fact in facts if isinstance(fact, Bound)}.values()
        if value is None or not bounds:
            continue
        if math.isfinite(value) and all(bound.holds(value, bound.number) for bound in bounds):
            continue
        limits = " and ".join(f"{bound.words} {bound.number}" for bound in bounds)
        why = "".join(f" ({bound.why})" for bound in bounds if bound.why)
        raise UserError(f"{spelled(name)} is {value}, but must be {limits}{why}")
