"""`rfs train`: flags over recipe over defaults; or, resuming, flags over what the run had."""

import textwrap
from dataclasses import field, make_dataclass
from functools import partial
from typing import Annotated, Any, Literal, get_type_hints

from tyro.conf import OmitArgPrefixes, arg
from tyro.constructors import PrimitiveConstructorSpec

from reasoning_from_scratch.commands.cli import given_in, hint_at_other_words, parsed, say_loading
from reasoning_from_scratch.commands.smoke import seen_to_work
from reasoning_from_scratch.config import PARTS, Loss, Records, Rewards, TrainConfig
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.model_names import check_model_name
from reasoning_from_scratch.recipes import LOSS_FNS, RECIPES
from reasoning_from_scratch.rewards import parse_weights
from reasoning_from_scratch.run.option_checks import check_loss_fn, check_void
from reasoning_from_scratch.run.options import configure, resolved, resumed_config
from reasoning_from_scratch.tasks.problem_sets import AT_HELD_OUT, check_set

# The other names of flags: those of Tinker, and what people expect.
ALIASES = {
    "model": "--model-name",
    "problems_per_step": "--groups-per-batch",
    "rollouts": "--group-size",
    "max_new_tokens": "--max-tokens",
    "kl_coef": "--kl-penalty-coef",
    "drop_uniform_groups": "--remove-constant-reward-groups",
    "lr": "--learning-rate",
    "clip_low": "--clip-low-threshold",
    "clip_high": "--clip-high-threshold",
    "dro_beta": "--beta",
    "wandb": "--wandb-project",
}

FIRST = (
    "model problems recipe steps lr rollouts problems_per_step max_new_tokens eval_every log_path"
).split()
ABOUT = "Train a model with verifiable rewards. `rfs recipes` lists the recipes."

# On the command line: --reward-parts correct=1 format=0.5
RewardParts = Annotated[
    dict[str, float],
    PrimitiveConstructorSpec(
        nargs="*",
        metavar="PART=WEIGHT",
        instance_from_str=parse_weights,
        is_instance=lambda value: isinstance(value, dict),
        str_from_instance=lambda parts: [f"{name}={weight:g}" for name, weight in parts.items()],
    ),
]
LossFn: Any = Annotated[  # only tyro reads it
    Literal[tuple(LOSS_FNS)] | None,
    arg(
        help="Loss as Tinker documents it: objective, summed, with its bounds; wins over the "
        "recipe."
    ),
]


def flags_of(part: type, values: dict[str, Any]) -> type:
    """A part of the configuration as tyro shows it: a group of flags with a title. `values` are
    their defaults."""
    kinds = get_type_hints(part)
    for name in kinds.keys() & ALIASES.keys():
        kinds[name] = Annotated[kinds[name], arg(aliases=[ALIASES[name]])]
    if part is Rewards:
        kinds["reward_parts"] = RewardParts
    if part is Loss:
        kinds["loss_fn"] = LossFn
    if part is Records:
        kinds |= dict.fromkeys(("eval_problems", "evaluators"), list[str] | None)
    flags = [
        (name, kind, field(default_factory=partial(values.get, name)))
        for name, kind in kinds.items()
    ]
    group = make_dataclass(part.__name__, flags, bases=(part,), namespace={"__doc__": part.__doc__})
    return OmitArgPrefixes[group]  # type: ignore[misc, valid-type]  # made just now, for tyro


def train_command(argv: list[str]) -> int:
    """Reads the flags itself, because the defaults depend on --recipe and --resume."""
    config = parse_flags(argv)
    refuse_early(config)
    say_loading(config.model)
    from reasoning_from_scratch.run.start import train  # late: it imports torch

    result = train(config)
    if config.smoke and result.rows and result.writes and not result.stopped:
        print(seen_to_work(config, str(result.folder), result.rows))
    return say_end(result, f"done: {result.folder} holds the weights, metrics.csv and report.html")


def refuse_early(config: TrainConfig) -> None:
    """What can be seen to be wrong without torch, before anything is loaded."""
    checked = resolved(config)
    if config.resume:  # what a run began with need not be on the machine where it goes on
        return
    check_model_name(checked.model)
    sets = [checked.problems, *checked.eval_problems]
    for name in sets:
        if checked.data_path is None or name.removesuffix(AT_HELD_OUT) != checked.problems:
            check_set(name)


def say_end(result, done: str) -> int:
    """Rank 0 says how the run ended; the exit code of a command."""
    if result.writes:
        if not result.stopped:
            from reasoning_from_scratch.run.checkpoints import check_holdings

            check_holdings(result.folder)
        print(result.stopped or done)
    if result.stopped:
        return 130 if result.stopped.startswith("interrupted") else 1
    return 0


def parse_flags(argv: list[str]) -> TrainConfig:
    names = ("--resume", "--recipe", "--loss-fn")
    resume, recipe, loss_fn = (last_value(name, argv) for name in names)
    if resume and (recipe or loss_fn):
        given = "--recipe" if recipe else "--loss-fn"
        raise UserError(f"--resume keeps the run's recipe and loss; leave out {given}")
    if resume:
        default = resumed_config(resume)
    else:
        environment = last_value("--environment", argv)
        game = {"environment": environment} if environment else {}
        default = configure(recipe or TrainConfig.recipe, loss_fn, **game)
    values = vars(default) | {"loss_fn": loss_fn}
    groups = [(part.__name__.lower(), flags_of(part, values)) for part in PARTS]
    taken = [name.strip("-").replace("-", "_") for name in ALIASES.values()]
    hint_at_other_words(argv, {*values, *taken})
    flags: Any = parsed(
        default,
        FIRST,
        make_dataclass("Flags", groups),
        args=argv,
        prog="rfs train",
        description=ABOUT,
    )
    for name, _ in groups:
        values |= vars(getattr(flags, name))
    loss_fn = values.pop("loss_fn")
    other = {flag.strip("-").replace("-", "_"): name for name, flag in ALIASES.items()}
    named = {other.get(name, name) for name in given_in(argv)} & values.keys()
    config = TrainConfig(**values | {"given": frozenset(named)})
    check_loss_fn(loss_fn, config)
    if resume:
        check_void(config)
    return config


def last_value(name: str, argv: list[str]) -> str | None:
    """The value of a flag, written as --flag VALUE or --flag=VALUE."""
    value = None
    for word, following in zip(argv, [*argv, ""][1:], strict=True):
        flag, equals, given = word.partition("=")
        if flag.replace("_", "-") == name:
            value = given if equals else following
    return value


def recipes_command() -> None:
    """Prints what each recipe changes, and its paper."""
    print(recipe_table())


def recipe_table(width: int = 96) -> str:
    """All rows as text: name, what changes, the idea, the source."""
    lines = []
    for name, recipe in RECIPES.items():
        changes = "  ".join(f"{field}={_shown(value)}" for field, value in recipe.changes.items())
        lines.append(name)
        for text in (changes or "(nothing)", recipe.about, recipe.paper):
            lines += textwrap.wrap(
                text,
                width,
                initial_indent="    ",
                subsequent_indent="      ",
                break_long_words=False,
                break_on_hyphens=False,
            )
    return "\n".join(lines)


def _shown(value: object) -> str:
    if isinstance(value, dict):  # reward parts
        return ",".join(f"{part}={weight:g}" for part, weight in value.items())
    return str(value)
