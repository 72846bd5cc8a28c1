"""`rfs train`: flags over recipe over defaults; or, resuming, flags over what the run had."""

import tyro

from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.run.checkpoints import check_holdings
from reasoning_from_scratch.run.start import configure, resumed_config
from reasoning_from_scratch.run.void_options import check_void


def train_command(argv: list[str]) -> int:
    """Reads the flags itself, because the defaults depend on --recipe and --resume."""
    config = parse_flags(argv)
    from reasoning_from_scratch.run.training import train  # late: --help needs no torch

    result = train(config)
    return told_end(result, f"done: {result.folder} holds the weights, metrics.csv and report.html")


def told_end(result, done: str) -> int:
    """Rank 0 says how the run ended; the exit code of a command."""
    if result.writes:
        if not result.stopped:
            check_holdings(result.folder)
        print(result.stopped or done)
    if result.stopped:
        return 130 if result.stopped.startswith("interrupted") else 1
    return 0


def parse_flags(argv: list[str]) -> TrainConfig:
    resume, recipe = last_value("--resume", argv), last_value("--recipe", argv)
    loss_fn = last_value("--loss-fn", argv)
    if resume and recipe:
        raise UserError("--resume keeps the run's recipe; leave out --recipe")
    if resume:
        default = resumed_config(resume)
    else:
        default = configure(recipe or TrainConfig.recipe, loss_fn=loss_fn)
    about = "Train a model with verifiable rewards. `rfs recipes` lists the recipes."
    config = tyro.cli(TrainConfig, args=argv, default=default, prog="rfs train", description=about)
    if resume:
        check_void(config, default)
    return config


def last_value(name: str, argv: list[str]) -> str | None:
    """The value of a flag, written as --flag VALUE or --flag=VALUE."""
    value = None
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        if word == name:
            value = following
        elif word.startswith(f"{name}="):
            value = word.removeprefix(f"{name}=")
    return value


def recipes_command() -> None:
    """Prints what each recipe changes, and its paper."""
    from reasoning_from_scratch.recipes import recipe_table

    print(recipe_table())
