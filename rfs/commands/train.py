"""`rfs train`: flags override the recipe, or a resumed run's settings; these override defaults."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tyro.conf import OmitArgPrefixes
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from reasoning_from_scratch.config import Loss, Memory, Optim, Rewards, Sampling, Steps, Updates
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.problems import is_in_file
from reasoning_from_scratch.recipes import RECIPES, LossFn
from reasoning_from_scratch.rewards import parse_weights
from rfs.commands.cli import given_in, say_loading
from rfs.commands.ending import run_summary
from rfs.commands.other_words import flags_of, in_our_words
from rfs.commands.reading import read
from rfs.commands.smoke import seen_to_work
from rfs.config import PARTS, Problems, Records, Run, RunConfig, Scale, part_of
from rfs.files.models import check_model_name
from rfs.run.option_checks import check_loss_fn, check_void
from rfs.run.options import configure, resolved, resumed_config
from rfs.tasks.own_task import try_functions
from rfs.tasks.problem_sets import source_of
from rfs.tasks.source import AT_HELD_OUT

FIRST = (
    "model problems reward recipe steps lr rollouts max_new_tokens eval_every log_path"
).split()
PART_NAMES = [part.__name__.lower() for part in PARTS]
ABOUT = "Train a model with verifiable rewards. `rfs recipes` lists the recipes."


@dataclass
class TrainFlags:
    """The flags of `rfs train`: a group for each part of a RunConfig."""

    run: Run
    problems: Problems
    steps: Steps
    sampling: Sampling
    rewards: Rewards
    loss: Loss
    updates: Updates
    optim: Optim
    scale: Scale
    memory: Memory
    records: Records
    loss_fn: LossFn | None = None
    """Loss as Tinker documents it: objective, summed, with its bounds; overrides the recipe."""


READING = ConstructorRegistry()


@READING.primitive_rule
def reward_parts_spec(kind: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """On the command line: --reward-parts correct=1 format=0.5"""
    if kind.type_origin is not dict:
        return None
    return PrimitiveConstructorSpec(
        nargs="*",
        metavar="PART=WEIGHT ...",
        instance_from_str=parse_weights,
        is_instance=lambda value: isinstance(value, dict),
        str_from_instance=lambda parts: [f"{name}={weight:g}" for name, weight in parts.items()],
    )


def train_command(argv: list[str]) -> int:
    """Reads the flags itself, because the defaults depend on --recipe and --resume."""
    config = parse_flags(argv)
    refuse_early(config)
    say_loading(config.model)
    from rfs.run.start import train  # late: it imports torch

    result = train(config)
    if config.smoke and result.rows and result.writes and not result.stopped:
        print(seen_to_work(config, str(result.folder), result.rows))
    return say_end(result, run_summary(result.folder, result.rows))


def refuse_early(config: RunConfig) -> None:
    """Refuses mistakes that can be recognized without torch, before anything is loaded."""
    checked = resolved(config)
    if config.resume:  # it may continue on a machine without its first model or problems
        return
    check_model_name(checked.model)
    source_of(checked.problems, checked.data_path).check()
    for name in checked.eval_problems:
        if name != checked.problems + AT_HELD_OUT:
            source_of(name).check()
    try_functions(checked.reward, *(checked.evaluators or []))
    if is_in_file(checked.environment):
        try_functions(checked.environment)


def say_end(result, done: str) -> int:
    """Rank 0 prints how the run ended. Returns the exit code of the command."""
    if result.writes and not result.stopped:  # if it stopped, the log has said why
        print(done)
    if result.stopped:
        return 130 if result.interrupted else 1
    return 0


def parse_flags(argv: list[str]) -> RunConfig:
    return config_and_flags(argv)[0]


def config_and_flags(
    argv: Sequence[str],
    kind: type[TrainFlags] = TrainFlags,
    first: Sequence[str] = FIRST,
    prog: str = "rfs train",
    about: str = ABOUT,
    **usual: Any,
) -> tuple[RunConfig, TrainFlags]:
    """The configuration that a command line describes, and its flags as they were read. `usual`: a
    script's own defaults."""
    argv = in_our_words(argv, flags_of(kind))
    names = ("--resume", "--recipe", "--loss-fn")
    resume, recipe, loss_fn = (last_value(name, argv) for name in names)
    if resume and (recipe or loss_fn):
        given = "--recipe" if recipe else "--loss-fn"
        raise UserError(f"--resume keeps the run's recipe and loss; drop {given}")
    if resume:
        default = resumed_config(resume)
    else:
        environment = last_value("--environment", argv)
        game = {"environment": environment} if environment else {}
        named = {"recipe": recipe} if recipe else {}
        default = configure(loss_fn=loss_fn, **(usual | named | game))
    parts: dict[str, Any] = {
        name: part_of(default, part) for name, part in zip(PART_NAMES, PARTS, strict=True)
    }
    looks = {"registry": READING, "config": (OmitArgPrefixes,), "default": kind(**parts)}
    flags = read(kind, argv, prog=prog, about=about, first=first, flat=default, **looks)
    values = {
        name: value for part in PART_NAMES for name, value in vars(getattr(flags, part)).items()
    }
    config = RunConfig(**values, given=frozenset(given_in(argv) & values.keys()))
    check_loss_fn(flags.loss_fn, config)
    if resume:
        check_void(config)
        moved = config.log_path and Path(config.log_path).resolve() != Path(resume).resolve()
        if config.overwrite or ("log_path" in config.given and moved):
            raise UserError(
                "--resume continues a run in its own folder: drop --overwrite and --out, or "
                f"begin another run with its weights: --model {resume} --out FOLDER"
            )
    return config, flags


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
