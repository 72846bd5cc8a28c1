"""Refuses values that cannot work, choices that contradict each other, and options that would have
no effect, each in one sentence."""

import math
from collections.abc import Collection, Mapping
from dataclasses import fields
from types import MappingProxyType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from reasoning_from_scratch.config import Drawing, check_clip, check_numbers, field_facts
from reasoning_from_scratch.errors import UserError, unknown_name
from reasoning_from_scratch.facts import Needs
from reasoning_from_scratch.problems import is_file_function
from reasoning_from_scratch.recipes import LOSS_FNS
from reasoning_from_scratch.rewards import PARTS
from rfs.config import RunConfig, default_of, is_of_type
from rfs.tasks.own_task import evaluator_name
from rfs.tasks.problem_sets import source_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def check(config: RunConfig) -> None:
    """Raise a UserError for the first value that cannot work, and the first contradiction."""
    refuse_empty_texts(config)
    check_sizes(config)
    check_contradictions(config)


def refuse_empty_texts(config: RunConfig) -> None:
    """An empty text usually comes from a shell variable that is not set."""
    for item in fields(config):
        if getattr(config, item.name) == "":
            raise UserError(f"{flag(item.name)} is empty: give a value, or drop it")


def check_types(config: RunConfig) -> None:
    """Check the types: in Python a field can be set to anything."""
    for name, kind in get_type_hints(type(config)).items():
        value = getattr(config, name)
        if name == "set_by" or is_of_type(value, kind):
            continue
        if allowed := allowed_words(kind):
            raise unknown_name(flag(name), value, allowed)
        raise UserError(f"{flag(name)} is {value!r}, but must be {type_in_words(kind)}")


def check_sizes(config: RunConfig) -> None:
    check_numbers(config, spelled=flag)
    if config.rollouts == 1:
        raise UserError(
            "--rollouts is 1, but must be at least 2 (advantages compare rollouts of one problem)"
        )
    check_temperature(config)
    check_clip(config, flag)
    if config.max_new_tokens is not None and config.overlong_penalty > config.max_new_tokens:
        raise UserError(
            f"--overlong-penalty {config.overlong_penalty} is for the last tokens of "
            f"--max-new-tokens {config.max_new_tokens}; make it smaller"
        )
    check_parts(config)


def check_temperature(drawing: Drawing) -> None:
    """Refuse greedy decoding where the rollouts of a group are compared."""
    if drawing.temperature == 0:
        raise UserError(
            f"--temperature is {drawing.temperature}, but must be above 0 (else the rollouts of a "
            "group are equal)"
        )


def check_parts(config: RunConfig) -> None:
    """Refuse unknown parts (an environment has its own), and weights that reward nothing unless
    there is a teacher."""
    for name, weight in config.reward_parts.items():
        if name not in PARTS and config.environment is None:
            raise unknown_name("reward part", name, PARTS)
        if not math.isfinite(weight):
            raise UserError(f"--reward-parts {name} has the weight {weight}; give it a number")
    has_teacher = config.kl != "none" and (config.kl_reference or config.kl_solution)
    if not any(config.reward_parts.values()) and not has_teacher:
        raise UserError(
            "--reward-parts rewards nothing: give a part a weight, e.g. correct=1, or name a "
            "teacher: --kl token --kl-coef 1 --kl-reference tiny-grpo"
        )
    weights = [*config.reward_parts.values(), -1 if config.overlong_penalty else 0]
    if config.advantage == "maxrl" and min(weights) < 0:
        raise UserError(
            "--advantage maxrl divides by the mean reward of a group, which must not be below 0: "
            "drop --overlong-penalty and parts with a negative weight"
        )


def check_contradictions(config: RunConfig) -> None:
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
    if config.kl != "none" and config.kl_coef == 0:
        raise UserError(f"--kl {config.kl} without --kl-coef has no effect; set it, e.g. 0.01")
    if config.truncate_importance and config.mask_importance:
        raise UserError(
            "--truncate-importance caps the weight that --mask-importance would set to 0: drop one"
        )
    weight = "truncate" if config.truncate_importance else "mask" if config.mask_importance else ""
    if weight and config.objective in ("dro", "dppo"):
        term = "dro's penalty" if config.objective == "dro" else "dppo's limit"
        raise UserError(
            f"--{weight}-importance corrects for the gap between the sampler and the step's "
            f"start, and {term} covers that already: drop one"
        )
    if config.keep_sampling_mask and not config.cuts_tokens:
        raise UserError("--keep-sampling-mask needs --top-p below 1 or --top-k above 0")
    config.check_prompt_choice()
    if config.few_shot and config.prompt not in (None, "book"):
        raise UserError(
            f"--few-shot shows solved problems in the book's prompt, not in --prompt "
            f"{config.prompt}: drop one"
        )
    data_path_counts = config.data_path and not config.resume  # an older run may go on with both
    if data_path_counts and not source_of(config.problems).takes_data_path:
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
    """Refuse a number that leaves nothing to compare, or all, or cannot choose by the reward."""
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
    evaluators = [(name, evaluator_name(name)) for name in config.evaluators or []]
    owners: dict[str, str] = {}  # by the name in metrics
    for name, short in [*sets, *evaluators]:
        if short in owners:
            raise UserError(
                f"{owners[short]} and {name} would both be {short} in the metrics: drop one, or "
                "rename it"
            )
        owners[short] = name


def check_loss_fn(loss_fn: str | None, config: RunConfig) -> None:
    if loss_fn and (config.objective, config.aggregate) != (loss_fn, "sum"):
        raise UserError(
            f"--loss-fn {loss_fn} means --objective {loss_fn} --aggregate sum, not "
            f"--objective {config.objective} --aggregate {config.aggregate}: drop one of them"
        )


def check_sharding(config: RunConfig) -> None:
    """Refuse what cannot work with slices of the weights, or with ranks that must stay in sync."""
    incompatible = {
        "--optimizer muon": config.optimizer == "muon",  # it needs whole matrices
        "--max-steps-off-policy": config.max_steps_off_policy > 0 and config.sampler == "local",
        "--compile": config.compile,
    }
    for option, used in incompatible.items():
        if config.shard == "fsdp" and used:
            raise UserError(f"--shard fsdp and {option} do not work together; drop one of them")


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
    if config.advantage_per_part or config.active_sampling or is_file_function(config.advantage):
        raise UserError(
            "--num-minibatches needs advantages that depend on one group only: drop "
            "--advantage-per-part, --active-sampling, or an --advantage of your own"
        )


def flag(name: str) -> str:
    """The command-line spelling of a field."""
    return "--" + name.replace("_", "-")


def allowed_words(kind: Any) -> list[str]:
    """The words that a field of that type allows; [] if its values are not words."""
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return [word for option in get_args(kind) for word in allowed_words(option)]


def type_in_words(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "yes or no", str: "text"}
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return " or ".join(
        names.get(kind, "a mapping of names to numbers") for kind in kinds if kind is not type(None)
    )


# --- options that do nothing by themselves: given without what they need, they are refused.
# What a recipe sets does not count as given: with `--recipe grpo_kl --kl none`, kl-coef may stay.

# What a field needs -> how the sentence "--kl-coef 0.1 does nothing ..." ends. For a need that is
# not listed, it ends like "without --optimizer muon".
UNMET_NEEDS = {
    "kl": "without a KL penalty: add --kl reward, token, k2 or k3, and --kl-coef",
    "kl k2 k3": "without a KL term in the loss: add --kl k2 or k3 with --kl-coef",
    "clips": "in an objective without a clip: it is for --objective ppo, cispo and gspo",
    "makes_several_updates": (
        "where each rollout is used for one update: all ratios p / p_start are 1; add --epochs or "
        "--num-substeps"
    ),
    "drifts": (
        "where each rollout is used for one update of the policy that sampled it, which has not "
        "drifted; add --epochs, --num-substeps or --max-steps-off-policy"
    ),
    "weighs_importance": "without a weight: add --truncate-importance or --mask-importance",
    "rewards_format": (
        "without a reward for format: add a part, e.g. --reward-parts correct=1 format=1"
    ),
    "uses_adamw": "where --lora-rank trains matrices only, and muon takes them all",
    "is_supervised False": (
        "where solutions are learned (--recipe sft): nothing is sampled for training, compared or "
        "rewarded; --steps says how often each is learned"
    ),
    "draws": "without --eval-samples",
}
# The same for commands that only sample, which may do so greedily.
UNMET_NEEDS_GREEDY = {
    "draws": (
        "at temperature 0, which takes the most probable token: add --temperature 1, or drop it"
    )
}


def refuse_ineffective(config: RunConfig) -> None:
    """Refuse options of a run that were given but have no effect."""
    check_needs(config, config.given, UNMET_NEEDS, LOSS_FNS.get(config.objective, {}))


def check_needs(
    options: "DataclassInstance",
    given: Collection[str],
    unmet: Mapping[str, str] = MappingProxyType({}),
    usual: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """Refuse those of the fields `given` that lack what they need; `unmet` says how the sentence
    ends. A field at its default needs nothing, as it may undo what a recipe sets; nor does one at
    its `usual` value."""
    facts = field_facts(type(options))
    for item in fields(options):
        name, value = item.name, getattr(options, item.name)
        if name not in given or value in (default_of(item), usual.get(name)):
            continue
        for need in facts[name]:
            if isinstance(need, Needs) and not need.holds(options):
                value_text = " ".join(value) if isinstance(value, list) else value
                other = " ".join([flag(need.name), " or ".join(map(str, need.values))]).rstrip()
                why = unmet.get(str(need), f"without {other}")
                raise UserError(f"{flag(name)} {value_text} does nothing {why}")
