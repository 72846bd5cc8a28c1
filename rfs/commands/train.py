"""`rfs train` and `rfs recipes`."""

import textwrap

from reasoning_from_scratch.recipes import RECIPES
from rfs.commands.ending import run_summary
from rfs.commands.smoke import seen_to_work
from rfs.commands.train_options import TrainOptions
from rfs.config import RunConfig, part_of


def train_command(options: TrainOptions) -> int:
    """Trains, and says how the run ended."""
    from rfs.run.start import train  # late: it imports torch

    config = part_of(options, RunConfig)
    result = train(config)
    if config.smoke and result.rows and result.writes and not result.stopped:
        print(seen_to_work(config, str(result.folder), result.rows, result.outlook))
    return say_end(result, run_summary(result.folder, result.rows))


def say_end(result, done: str) -> int:
    """Rank 0 prints how the run ended. Returns the exit code of the command."""
    if result.writes and not result.stopped:  # if it stopped, the log has said why
        print(done)
    if result.stopped:
        return 130 if result.interrupted else 1
    return 0


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
