"""What other programs, and earlier versions of this one, call our options.

A name that means the same as one of ours is accepted on every command line that has ours. One that
is only similar (an epsilon where we have a bound) is refused, with a hint.
"""

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any, get_args, get_origin, get_type_hints

from reasoning_from_scratch.errors import UserError, unknown_name

# What help calls a field, where that is another word: one thing has one name in all commands.
OPTION_NAMES = {"log_path": "out", "out_path": "out"}

# Their name, with underscores -> our names; of several, the first that the command has is meant.
SYNONYMS: dict[str, tuple[str, ...]] = {
    # Tinker's cookbook
    "model_name": ("model",),
    "kl_reference_config.base_model": ("kl_reference",),
    "kl_reference_config.load_checkpoint_path": ("kl_reference",),
    "groups_per_batch": ("problems_per_step",),
    "batch_size": ("problems_per_step", "sample_rows"),
    "group_size": ("rollouts", "samples"),
    "max_tokens": ("max_new_tokens",),
    "max_steps": ("steps",),
    "learning_rate": ("lr",),
    "kl_penalty_coef": ("kl_coef",),
    "test_problems": ("eval_problems",),
    "test_limit": ("eval_limit",),
    "remove_constant_reward_groups": ("drop_uniform_groups",),
    "clip_low_threshold": ("clip_low",),
    "clip_high_threshold": ("clip_high",),
    "beta": ("dro_beta",),
    "wandb_project": ("wandb",),
    # nanochat
    "source": ("model",),
    "device_type": ("device",),
    "examples_per_step": ("problems_per_step",),
    "num_samples": ("rollouts", "samples"),
    "eval_examples": ("eval_limit",),
    # the book's scripts, and earlier versions of ours
    "which_model": ("model",),
    "num_rollouts": ("rollouts",),
    "dataset_size": ("problem_limit", "limit"),
    "max_problems": ("problem_limit", "limit"),
    "checkpoint_every": ("save_every",),
    "checkpoint_dir": ("out",),
    "max_rows": ("sample_rows",),
    "save_as": ("out",),
    "out_dir": ("out",),
    "every": ("eval_every",),
    "kl": ("kl_coef",),
    "pay": ("reward",),
    "log_path": ("out",),
    "out_path": ("out",),
    "to": ("out",),
    "models": ("model",),
    "run": ("model",),
    # TRL and verl
    "model_name_or_path": ("model",),
    "output_dir": ("out",),
    "num_generations": ("rollouts", "samples"),
    "num_steps": ("steps",),
    "max_completion_length": ("max_new_tokens",),
    "resume_from_checkpoint": ("resume",),
    "save_steps": ("save_every",),
    "eval_steps": ("eval_every",),
}
# Similar, but not the same: another unit, another thing, or one of several.
SIMILAR: dict[str, tuple[str, ...]] = {
    "kl_coeff": ("kl_coef",),
    "clip_eps": ("clip_high",),
    "data_path": ("problems",),
    "problems": ("limit",),
    "dataset": ("problems",),
    "dataset_name": ("problems",),
    "checkpoint_path": ("model",),
    "model_tag": ("model",),
    "tuning_seeds": ("choosing",),
    "device_batch_size": ("micro_batch_rows", "sample_rows"),
    "per_device_train_batch_size": ("problems_per_step",),
}


def option_name(field_name: str) -> str:
    """The name of a field on a command line, with underscores."""
    return OPTION_NAMES.get(field_name, field_name)


def as_option(name: str) -> str:
    """As it is written on a command line."""
    return "--" + name.replace("_", "-")


def flags_of(kind: Any) -> dict[str, Any]:
    """The options of a dataclass, or of a function: name on the command line -> type."""
    hints = get_type_hints(kind)
    names = [item.name for item in fields(kind) if item.init] if is_dataclass(kind) else hints
    not_options = {"set_by", "return", *decided_by_command(kind)}
    return {option_name(name): hints[name] for name in names if name not in not_options}


def decided_by_command(kind: Any) -> Mapping[str, str]:
    """The fields that the command itself sets, so that they are no options, and for each what to do
    instead."""
    return getattr(kind, "DECIDES", {})


def in_our_words(
    words: Sequence[str], known: Collection[str], decided: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """A command line with our names for its flags; `known` are the names that the command has,
    `decided` those that it sets itself."""
    names = {*known, *decided}
    translated = [translate(word, names) if word.startswith("--") else word for word in words]
    for word in translated:
        flag = word.partition("=")[0]
        name = flag.removeprefix("--").replace("-", "_").removeprefix("no_")
        if word.startswith("--") and name in decided:
            raise UserError(f"there is no option {flag} here: {decided[name]}")
    refuse_unknown(translated, known)
    return translated


def refuse_unknown(words: Sequence[str], known: Collection[str]) -> None:
    """Refuses an unknown option and names the nearest. A bare --, --help and --help-all pass."""
    for word in words:
        spelled = word.removeprefix("--").partition("=")[0]
        name = spelled.replace("-", "_")
        if not word.startswith("--") or spelled in ("", "help", "help-all"):
            continue
        if name in known or name.removeprefix("no_") in known:
            continue
        synonyms = {theirs: first_known(ours, known) for theirs, ours in SYNONYMS.items()}
        names = {theirs: ours for theirs, ours in synonyms.items() if ours}
        names |= {ours: ours for ours in known}
        completions = [ours for ours in known if ours.startswith(name)]
        near = completions or difflib.get_close_matches(name, names, n=1)
        hint = f": did you mean {as_option(names[near[0]])}?" if near else ""
        raise UserError(f"there is no option --{spelled}{hint or '; --help lists the options'}")


def translate(word: str, known: Collection[str]) -> str:
    spelled, equals, value = word.removeprefix("--").partition("=")
    name = spelled.replace("-", "_")
    no = "no-" if name.startswith("no_") and name not in known else ""
    name = name.removeprefix("no_") if no else name
    if name in known:
        return word
    if ours := first_known(SYNONYMS.get(name, ()), known):
        return f"{as_option(no + ours)}{equals}{value}"
    if near := first_known(SIMILAR.get(name, ()), known):
        raise UserError(f"there is no option --{spelled} here: did you mean {as_option(near)}?")
    return word


def first_known(names: Sequence[str], known: Collection[str]) -> str | None:
    return next((name for name in names if name in known), None)


def as_flags(words: Sequence[str], kinds: dict[str, type]) -> list[str]:
    """Flags with our names, from flags and from key=value pairs as Tinker's scripts take them. A
    key may begin with its part of the configuration, as in loss_fn_config.clip_low_threshold=0.9.
    `kinds` has the type of each option."""
    rest, flags = list(words), []
    while rest:
        word = rest.pop(0)
        if word.startswith("-"):
            flag = translate(word, kinds) if word.startswith("--") else word
            flags.append(flag)
            name = flag.removeprefix("--").replace("-", "_")
            if name in kinds and kinds[name] is not bool and rest:
                flags.append(rest.pop(0))  # its value
                while rest and takes_several(kinds[name]) and is_value(rest[0], kinds):
                    flags.append(rest.pop(0))
        elif "=" in word:
            flags += pair_as_flag(word, kinds)
        else:
            flags.append(word)
    refuse_unknown(flags, kinds)
    return flags


def takes_several(kind: Any) -> bool:
    """Whether an option of this type has several values, as --reward-parts correct=1 format=0.5."""
    origins = [get_origin(part) or part for part in (kind, *get_args(kind))]
    return any(origin in (dict, list, tuple, Mapping, Sequence) for origin in origins)


def is_value(word: str, kinds: dict[str, type]) -> bool:
    """Whether a word belongs to the option before it, and is no option itself."""
    return not word.startswith("-") and (
        "=" not in word or option_in_pair(word, kinds) not in kinds
    )


def option_in_pair(word: str, kinds: dict[str, type]) -> str:
    """Our name of the option in KEY=VALUE."""
    key = word.partition("=")[0]
    name = key if key in SYNONYMS else key.rpartition(".")[2]
    return translate(f"--{name}", kinds).removeprefix("--").replace("-", "_")


def pair_as_flag(word: str, kinds: dict[str, type]) -> list[str]:
    key, _, value = word.partition("=")
    name = option_in_pair(word, kinds)
    if name not in kinds:
        raise unknown_name("option", key, [*kinds, *SYNONYMS])
    if takes_several(kinds[name]) and "=" in value:
        return [as_option(name), *value.split(",")]
    if kinds[name] is not bool:
        return [f"{as_option(name)}={value}"]
    if value.lower() not in ("true", "false"):
        raise UserError(f"{key}={value} is neither True nor False")
    return [as_option(name if value.lower() == "true" else f"no_{name}")]
