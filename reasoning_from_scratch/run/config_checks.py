"""What the values of a TrainConfig must be like, each violation told in one line."""

import math
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from reasoning_from_scratch.errors import UserError, unknown_name
from reasoning_from_scratch.run.own_task import is_own

# name -> smallest allowed value (None in the field is left alone)
SMALLEST = {
    "steps": 1,
    "problems_per_step": 1,
    "rollouts": 2,
    "max_new_tokens": 1,
    "top_k": 0,
    "sample_rows": 1,
    "epochs": 1,
    "num_substeps": 1,
    "lr": 0,
    "warmup_steps": 0,
    "weight_decay": 0,
    "grad_clip": 0,
    "micro_batch_tokens": 1,
    "eval_every": 0,
    "eval_limit": 1,
    "eval_samples": 1,
    "max_steps_off_policy": 0,
    "save_every": 0,
    "rolling_every": 0,
    "keep_last": 0,
    "report_every": 0,
    "clip_low": 0,
    "clip_high": 0,
    "kl_coef": 0,
    "dro_beta": 0,
    "num_groups_to_log": 0,
    "problem_limit": 1,
    "overlong_penalty": 0,
    "num_minibatches": 1,
    "lora_rank": 0,
    "lora_alpha": 0,
    "matrix_lr": 0,
    "embedding_lr": 0,
    "unembedding_lr": 0,
    "few_shot": 0,
    "num_samplers": 1,
    "truncate_importance": 0,
}

ABOVE_ZERO = ("temperature", "logprob_temperature", "length_constant", "sequence_mask_threshold")


def check_kinds(config) -> None:
    """In Python, a field can be given anything."""
    for name, kind in get_type_hints(type(config)).items():
        value = getattr(config, name)
        if fits(value, kind):
            continue
        if words := literals(kind):
            raise unknown_name(flag(name), value, words)
        raise UserError(f"{flag(name)} is {value!r}, which is no {kind_in_words(kind)}")


def check_sizes(config) -> None:
    for name, smallest in SMALLEST.items():
        value = getattr(config, name)
        if value is None:
            continue
        if not math.isfinite(value) or value < smallest:
            why = " (advantages compare rollouts of one problem)" if name == "rollouts" else ""
            raise UserError(f"{flag(name)} is {value}, but must be at least {smallest}{why}")
    for name in ABOVE_ZERO:
        value = getattr(config, name)
        if value is not None and not 0 < value < math.inf:
            raise UserError(f"{flag(name)} is {value}, but must be above 0")
    if not 0 < config.top_p <= 1:
        raise UserError(f"--top-p is {config.top_p}, but must be above 0 and at most 1")
    for name in ("beta1", "beta2"):
        if not 0 <= getattr(config, name) < 1:
            raise UserError(
                f"{flag(name)} is {getattr(config, name)}, but must be at least 0 and below 1"
            )
    if not config.clip_low <= 1 <= config.clip_high:
        raise UserError(
            f"--clip-low {config.clip_low} and --clip-high {config.clip_high} are "
            "bounds of the ratio, with 1 between them: a paper's epsilon 0.2 is 0.8 "
            "and 1.2"
        )
    if config.max_new_tokens is not None and config.overlong_penalty > config.max_new_tokens:
        raise UserError(
            f"--overlong-penalty {config.overlong_penalty} is about the last of "
            f"--max-new-tokens {config.max_new_tokens}; make it smaller"
        )
    check_parts(config.reward_parts)


def check_parts(weights: dict[str, float]) -> None:
    from reasoning_from_scratch.rewards import PARTS  # late: it loads the grader

    for name, weight in weights.items():
        if name not in PARTS:
            raise unknown_name("reward part", name, PARTS)
        if not math.isfinite(weight):
            raise UserError(f"--reward-parts {name} has the weight {weight}; give it a number")
    if not any(weights.values()):
        raise UserError("--reward-parts rewards nothing: give a part a weight, e.g. correct=1")


def check_choices(config) -> None:
    if config.problems_per_step % config.num_substeps:
        raise UserError(
            f"--problems-per-step {config.problems_per_step} does not divide into "
            f"--num-substeps {config.num_substeps} equal parts; change one of them"
        )
    check_streaming(config)
    check_sharding(config)
    if config.memory_budget and config.max_steps_off_policy and config.sampler == "local":
        raise UserError(
            "--memory-budget tries sampling and training one at a time, and with "
            "--max-steps-off-policy both happen at once: leave one out"
        )
    if config.ray_address and config.sampler != "ray":
        raise UserError("--ray-address is where --sampler ray samples; add that, or leave it out")
    if config.loss_fn and config.aggregate != "sum":
        raise UserError(
            f"--loss-fn {config.loss_fn} sums over tokens; with --aggregate "
            f"{config.aggregate} say --objective {config.loss_fn}"
        )
    if config.loss_fn and config.loss_fn != config.objective:
        raise UserError(
            f"--loss-fn {config.loss_fn} is {config.loss_fn} summed, but the objective is "
            f"{config.objective}; leave one of them out (in Python: configure(..., loss_fn=...))"
        )
    if config.kl != "none" and config.kl_coef == 0:
        raise UserError(f"--kl {config.kl} without --kl-coef has no effect; set it, e.g. 0.01")
    if config.truncate_importance and config.objective == "dro":
        raise UserError(
            "--truncate-importance weighs what lies between the sampler and the step's "
            "start, and dro's penalty covers that already: leave one out"
        )
    if config.keep_sampling_mask and not config.cuts:
        raise UserError("--keep-sampling-mask needs --top-p below 1 or --top-k above 0")
    if config.data_path and is_own(config.problems):
        raise UserError(
            f"--data-path takes the place of a download, and --problems "
            f"{config.problems} yields problems of its own: leave one out"
        )
    if config.advantage_per_part and config.advantage != "zscore":
        raise UserError(
            "--advantage-per-part z-scores each part, so --advantage "
            f"{config.advantage} has no say: leave one out"
        )
    if config.active_sampling and not set(config.reward_parts) & {"correct", "wrong"}:
        raise UserError(
            "--active-sampling looks for right and wrong answers, which --reward-parts "
            "does not pay for: add correct=1, or leave it out"
        )
    if config.reward and not set(config.reward_parts) & {"correct", "wrong"}:
        raise UserError(
            "--reward is the part `correct`, which --reward-parts does not pay for: add correct=1"
        )


def check_sharding(config) -> None:
    """What cannot be done with slices of the weights, or by ranks that must keep in step."""
    refused = {
        "--optimizer muon": config.optimizer == "muon",  # it needs whole matrices
        "--num-minibatches": config.num_minibatches > 1,
        "--max-steps-off-policy": config.max_steps_off_policy > 0 and config.sampler == "local",
        "--memory-budget": config.memory_budget,
        "--compile": config.compile,
    }
    for words, used in refused.items():
        if config.shard == "fsdp" and used:
            raise UserError(f"--shard fsdp and {words} do not go together; leave one of them out")


def check_streaming(config) -> None:
    """What a step that is trained on while it is sampled cannot be."""
    parts = config.num_minibatches
    if parts == 1:
        return
    if config.problems_per_step % parts:
        raise UserError(
            f"--problems-per-step {config.problems_per_step} does not divide into "
            f"--num-minibatches {parts} equal parts; change one of them"
        )
    if config.num_substeps > 1 or config.epochs > 1:
        raise UserError(
            "--num-minibatches updates once per step, when all rollouts are in: leave "
            "--num-substeps and --epochs at 1"
        )
    if config.advantage_per_part or config.active_sampling:
        raise UserError(
            "--num-minibatches needs advantages that a group has by itself: leave out "
            "--advantage-per-part and --active-sampling"
        )
    if config.max_steps_off_policy:
        raise UserError(
            "--num-minibatches trains on a step while it is sampled, and "
            "--max-steps-off-policy samples later ones: leave one out"
        )


def flag(name: str) -> str:
    """The command-line spelling of a field."""
    return "--" + name.replace("_", "-")


def fits(value: Any, kind: Any) -> bool:
    """Is it a value of that type? For the types that fields have."""
    if get_origin(kind) in (Union, UnionType):
        return any(fits(value, option) for option in get_args(kind))
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind in (int, float):
        return type(value) in (int, kind)
    return isinstance(value, get_origin(kind) or kind)


def literals(kind: Any) -> list[str]:
    """The words that a field of that type may be, if it is of words."""
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return [word for option in get_args(kind) for word in literals(option)]


def kind_in_words(kind: Any) -> str:
    names = {int: "whole number", float: "number", bool: "yes or no", str: "text"}
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return " or ".join(
        names.get(kind, "mapping of names to numbers") for kind in kinds if kind is not type(None)
    )
