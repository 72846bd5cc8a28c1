"""Refuses values that cannot work, choices that contradict each other, and options that would have
no effect, each in one sentence."""

import math
from collections.abc import Callable
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from reasoning_from_scratch.config import CLIPPING
from reasoning_from_scratch.errors import UserError, unknown_name
from reasoning_from_scratch.problems import is_in_file
from reasoning_from_scratch.recipes import LOSS_FNS
from reasoning_from_scratch.rewards import PARTS
from rfs.config import RunConfig, fits
from rfs.tasks.own_task import evaluator_name
from rfs.tasks.problem_sets import source_of

# name -> smallest allowed value (None in the field is not checked)
SMALLEST = {
    "steps": 1,
    "problems_per_step": 1,
    "rollouts": 2,
    "train_rollouts": 0,
    "max_new_tokens": 1,
    "max_turns": 1,
    "max_turn_tokens": 0,
    "top_k": 0,
    "sample_rows": 1,
    "epochs": 1,
    "num_substeps": 1,
    "lr": 0,
    "lr_at_problems": 1,
    "warmup_steps": 0,
    "weight_decay": 0,
    "grad_clip": 0,
    "micro_batch_tokens": 1,
    "micro_batch_rows": 0,
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
    "matrix_lr": 0,
    "embedding_lr": 0,
    "unembedding_lr": 0,
    "few_shot": 0,
    "num_samplers": 1,
    "truncate_importance": 0,
    "mask_importance": 0,
    "divergence_limit": 0,
}

ABOVE_ZERO = (
    "temperature", "logprob_temperature", "length_constant", "lora_alpha",
    "sequence_mask_threshold",
)  # fmt: skip


def check(config: RunConfig) -> None:
    """Raise a UserError for the first value that cannot work, and the first contradiction."""
    check_sizes(config)
    check_choices(config)


def check_kinds(config: RunConfig) -> None:
    """Check the types: in Python a field can be set to anything."""
    for name, kind in get_type_hints(type(config)).items():
        value = getattr(config, name)
        if name == "given" or fits(value, kind):
            continue
        if words := literals(kind):
            raise unknown_name(flag(name), value, words)
        raise UserError(f"{flag(name)} is {value!r}, but must be {kind_in_words(kind)}")


def check_sizes(config: RunConfig) -> None:
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
    if not 0 <= config.kl_discount_factor <= 1:
        raise UserError(
            f"--kl-discount-factor is {config.kl_discount_factor}, but must be from 0 to 1"
        )
    for name in ("beta1", "beta2"):
        if not 0 <= getattr(config, name) < 1:
            raise UserError(
                f"{flag(name)} is {getattr(config, name)}, but must be at least 0 and below 1"
            )
    if not config.clip_low <= 1 <= config.clip_high:
        raise UserError(
            f"--clip-low {config.clip_low} and --clip-high {config.clip_high} must be "
            "bounds of the ratio, with 1 between them: a paper's epsilon 0.2 is 0.8 "
            "and 1.2"
        )
    if config.max_new_tokens is not None and config.overlong_penalty > config.max_new_tokens:
        raise UserError(
            f"--overlong-penalty {config.overlong_penalty} is for the last tokens of "
            f"--max-new-tokens {config.max_new_tokens}; make it smaller"
        )
    check_parts(config)


def check_parts(config: RunConfig) -> None:
    """An environment has its own parts, and with a teacher no part needs a weight."""
    for name, weight in config.reward_parts.items():
        if name not in PARTS and config.environment is None:
            raise unknown_name("reward part", name, PARTS)
        if not math.isfinite(weight):
            raise UserError(f"--reward-parts {name} has the weight {weight}; give it a number")
    taught = config.kl != "none" and (config.kl_reference or config.kl_solution)
    if not any(config.reward_parts.values()) and not taught:
        raise UserError(
            "--reward-parts rewards nothing: give a part a weight, e.g. correct=1, or name a "
            "teacher: --kl token --kl-coef 1 --kl-reference tiny-grpo"
        )
    pays = [*config.reward_parts.values(), -1 if config.overlong_penalty else 0]
    if config.advantage == "maxrl" and min(pays) < 0:
        raise UserError(
            "--advantage maxrl divides by the mean reward of a group, which must not be below 0: "
            "drop --overlong-penalty and parts with a negative weight"
        )


def check_choices(config: RunConfig) -> None:
    if config.problems_per_step % config.num_substeps:
        raise UserError(
            f"--problems-per-step {config.problems_per_step} does not divide into "
            f"--num-substeps {config.num_substeps} equal parts; change one of them"
        )
    check_train_rollouts(config)
    check_streaming(config)
    check_sharding(config)
    check_evaluation(config)
    check_environment(config)
    if config.ray_address and config.sampler != "ray":
        raise UserError("--ray-address is for --sampler ray; add that, or drop it")
    if config.kl != "none" and config.kl_coef == 0:
        raise UserError(f"--kl {config.kl} without --kl-coef has no effect; set it, e.g. 0.01")
    if config.truncate_importance and config.mask_importance:
        raise UserError(
            "--truncate-importance caps the weight that --mask-importance would set to 0: drop one"
        )
    weighs = "truncate" if config.truncate_importance else "mask" if config.mask_importance else ""
    if weighs and config.objective in ("dro", "dppo"):
        covers = "dro's penalty" if config.objective == "dro" else "dppo's limit"
        raise UserError(
            f"--{weighs}-importance corrects for the gap between the sampler and the step's "
            f"start, and {covers} covers that already: drop one"
        )
    if config.keep_sampling_mask and not config.leaves_tokens_out:
        raise UserError("--keep-sampling-mask needs --top-p below 1 or --top-k above 0")
    config.check_asking()
    if config.few_shot and config.prompt not in (None, "book"):
        raise UserError(
            f"--few-shot shows solved problems in the book's prompt, not in --prompt "
            f"{config.prompt}: drop one"
        )
    if config.data_path and not source_of(config.problems).takes_data_path:
        raise UserError(
            f"--data-path replaces a download, and --problems {config.problems} has its own "
            "problems: drop one"
        )
    if config.advantage_per_part and config.advantage != "zscore":
        raise UserError(
            "--advantage-per-part z-scores each part, so --advantage "
            f"{config.advantage} has no effect: drop one"
        )
    if config.active_sampling and not set(config.reward_parts) & {"correct", "wrong"}:
        raise UserError(
            "--active-sampling looks for correct and incorrect answers, which --reward-parts "
            "does not reward: add correct=1, or drop it"
        )
    if config.reward and not set(config.reward_parts) & {"correct", "wrong"}:
        raise UserError(
            "--reward sets the part `correct`, which --reward-parts does not reward: add correct=1"
        )


def check_train_rollouts(config: RunConfig) -> None:
    """Refuse a number that keeps nothing to compare, or keeps all, and keeping by equal rewards."""
    kept = config.train_rollouts
    if kept == 1:
        raise UserError(
            "--train-rollouts is 1, but must be at least 2 (advantages compare rollouts of one "
            "problem), or 0 for all"
        )
    if kept >= config.rollouts:
        raise UserError(
            f"--train-rollouts {kept} leaves out none of --rollouts {config.rollouts}: make it "
            "smaller, sample more, or drop it"
        )
    if kept and not any(config.reward_parts.values()) and not config.overlong_penalty:
        raise UserError(
            f"--train-rollouts {kept} keeps the rollouts whose rewards vary most, and "
            "--reward-parts rewards nothing: give a part a weight, or drop it and lower --rollouts"
        )


def check_environment(config: RunConfig) -> None:
    if config.environment and config.reward:
        raise UserError(
            "--environment sets the reward of a rollout, and so does --reward: drop one"
        )


def check_evaluation(config: RunConfig) -> None:
    """Each set and evaluator needs a different name in metrics and pages."""
    if config.eval_problems == []:
        raise UserError("--eval-problems names no set: name one or more, or drop it")
    sets = [(name, source_of(name).short_name) for name in config.eval_problems or []]
    known: dict[str, str] = {}
    for name, short in [*sets, *((name, evaluator_name(name)) for name in config.evaluators or [])]:
        if short in known:
            raise UserError(
                f"{known[short]} and {name} would both be {short} in the metrics: drop one, or "
                "rename it"
            )
        known[short] = name


def check_loss_fn(loss_fn: str | None, config: RunConfig) -> None:
    if loss_fn and (config.objective, config.aggregate) != (loss_fn, "sum"):
        raise UserError(
            f"--loss-fn {loss_fn} means --objective {loss_fn} --aggregate sum, not "
            f"--objective {config.objective} --aggregate {config.aggregate}: drop one of them"
        )


def check_sharding(config: RunConfig) -> None:
    """Refuse what cannot work with slices of the weights, or with ranks that must stay in sync."""
    refused = {
        "--optimizer muon": config.optimizer == "muon",  # it needs whole matrices
        "--max-steps-off-policy": config.max_steps_off_policy > 0 and config.sampler == "local",
        "--compile": config.compile,
    }
    for words, used in refused.items():
        if config.shard == "fsdp" and used:
            raise UserError(f"--shard fsdp and {words} do not work together; drop one of them")


def check_streaming(config: RunConfig) -> None:
    """Refuse what cannot work when a step is trained on while it is still being sampled."""
    parts = config.num_minibatches
    if parts == 1:
        return
    if config.problems_per_step // config.num_substeps % parts:
        each = f" in each of --num-substeps {config.num_substeps}" * (config.num_substeps > 1)
        raise UserError(
            f"--problems-per-step {config.problems_per_step} does not divide into "
            f"--num-minibatches {parts} equal parts{each}; change one of them"
        )
    if config.advantage_per_part or config.active_sampling or is_in_file(config.advantage):
        raise UserError(
            "--num-minibatches needs advantages that depend on one group only: drop "
            "--advantage-per-part, --active-sampling, or an --advantage of your own"
        )


def flag(name: str) -> str:
    """The command-line spelling of a field."""
    return "--" + name.replace("_", "-")


def literals(kind: Any) -> list[str]:
    """The words that a field of that type allows; [] if its values are not words."""
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return [word for option in get_args(kind) for word in literals(option)]


def kind_in_words(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "yes or no", str: "text"}
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return " or ".join(
        names.get(kind, "a mapping of names to numbers") for kind in kinds if kind is not type(None)
    )


# --- options that do nothing by themselves: given without what they need, they are refused.
# What a recipe sets does not count as given: with `--recipe grpo_kl --kl none`, kl-coef may stay.


def clips(config: RunConfig) -> bool:
    return config.objective in CLIPPING


def updates_again(config: RunConfig) -> bool:
    """Whether a step's rollouts meet a policy that has moved since the step began."""
    return config.epochs * config.num_substeps > 1


def off_policy(config: RunConfig) -> bool:
    """Whether they meet one that has moved since it sampled them, or never was quite the same."""
    apart = config.max_steps_off_policy > 0 or config.sampling_weights == "int8"
    return updates_again(config) or apart


def weighs_importance(config: RunConfig) -> bool:
    """Whether the loss corrects for the gap between the sampler and the step's start."""
    return bool(config.truncate_importance or config.mask_importance or has_usual_cap(config))


def has_usual_cap(config: RunConfig) -> bool:
    """Whether options.py caps the weight, if nothing is given: the sampler is not the trainer, and
    the loss has no ratio to the sampler of its own."""
    lags = config.max_steps_off_policy > 0 and clips(config)
    int8 = config.sampling_weights == "int8"
    return lags or (int8 and (clips(config) or config.objective == "reinforce"))


def pays_for_form(config: RunConfig) -> bool:
    return bool(set(config.reward_parts) - {"correct", "wrong"})


# Each of these ends a sentence that begins "--kl-coef 0.1 does nothing ..."
NO_KL = "without a place for the penalty: add --kl reward, token, k2 or k3"
NO_PENALTY = "without a KL penalty: add --kl with --kl-coef"
NO_CLIP = "in an objective without a clip: it is for --objective ppo, cispo and gspo"
ONE_UPDATE = (
    "where each rollout is used for one update: all ratios p / p_start are 1; add --epochs "
    "or --num-substeps"
)
ON_POLICY = (
    "where each rollout is used for one update of the policy that sampled it, which has not "
    "drifted; add --epochs, --num-substeps or --max-steps-off-policy"
)
SUPERVISED = (
    "where solutions are learned (--recipe sft): nothing is sampled for training, compared or "
    "rewarded"
)
OF_SAMPLED_ANSWERS = """
    rollouts train_rollouts active_sampling keep_sampling_mask calculator environment reward_parts
    conditional_format overlong_penalty advantage advantage_per_part kl kl_coef
    truncate_importance mask_importance drop_uniform_groups max_steps_off_policy sampler
    num_minibatches num_substeps compute_post_kl sampling_weights
"""
NO_MUON = "without --optimizer muon"
NO_LORA = "without --lora-rank"
LORA_MUON = "where --lora-rank trains matrices only, and muon takes them all"

# Fields, what must hold for them to do something, and what to say if it does not.
NEEDS: tuple[tuple[str, Callable[..., bool], str], ...] = (
    ("kl_coef", lambda c: c.kl != "none", NO_KL),
    ("kl_reference kl_solution kl_schedule", lambda c: c.kl != "none", NO_PENALTY),
    ("kl_discount_factor", lambda c: c.kl == "token", "without --kl token"),
    (
        "kl_importance_weighted",
        lambda c: c.kl in ("k2", "k3"),
        "without a KL term in the loss: add --kl k2 or k3 with --kl-coef",
    ),
    ("clip_low clip_high", clips, NO_CLIP),
    ("clip_low clip_high", updates_again, ONE_UPDATE),
    ("dro_beta", lambda c: c.objective == "dro", "without --objective dro"),
    ("divergence_limit", lambda c: c.objective == "dppo", "without --objective dppo"),
    ("dro_beta divergence_limit sequence_mask_threshold", off_policy, ON_POLICY),
    (
        "importance_level",
        weighs_importance,
        "without a weight: add --truncate-importance or --mask-importance",
    ),
    # A run's config.json has its default written out as this value, so the value is allowed.
    (
        "length_constant",
        lambda c: c.aggregate == "constant" or c.length_constant == c.max_new_tokens,
        "without --aggregate constant",
    ),
    (
        "conditional_format",
        pays_for_form,
        "without a reward for format: add a part, e.g. --reward-parts correct=1 format=1",
    ),
    ("num_samplers", lambda c: c.sampler == "ray", "without --sampler ray"),
    ("matrix_lr embedding_lr unembedding_lr", lambda c: c.optimizer == "muon", NO_MUON),
    ("lora_alpha", lambda c: c.lora_rank > 0, NO_LORA),
    (
        "embedding_lr unembedding_lr beta1 beta2 weight_decay",
        lambda c: c.optimizer != "muon" or c.lora_rank == 0,
        LORA_MUON,
    ),
    (
        "eval_problems eval_limit eval_samples evaluators",
        lambda c: c.eval_every != 0,
        "without --eval-every",
    ),
    ("keep_last", lambda c: c.save_every > 0, "without --save-every"),
    (OF_SAMPLED_ANSWERS, lambda c: not c.is_supervised, SUPERVISED),
    (
        "epochs",
        lambda c: not c.is_supervised,
        "where worked solutions are learned: --steps says how many, and so how often each one",
    ),
    (
        "temperature top_p top_k",
        lambda c: not c.is_supervised or c.eval_samples > 1,
        "without --eval-samples",
    ),
    ("max_turns max_turn_tokens", lambda c: c.environment, "without --environment"),
)


def check_void(config: RunConfig) -> None:
    """Refuse options that were given but have no effect."""
    requested, usual = config.requested(), LOSS_FNS.get(config.objective, {})
    for names, holds, why in NEEDS:
        for name in names.split():
            value = getattr(config, name)
            if name in requested and value != usual.get(name) and not holds(config):
                words = " ".join(value) if isinstance(value, list) else value
                raise UserError(f"{flag(name)} {words} does nothing {why}")
