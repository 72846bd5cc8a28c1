"""Options of `rfs compare`."""

from dataclasses import dataclass
from typing import Annotated, Any

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.facts import AtLeast
from rfs.commands.train_options import TrainOptions, check_names
from rfs.config import RunConfig
from rfs.run.option_checks import flag
from rfs.run.options import configure, recipe_row, resolved

# All recipes have the same values of these fields, and of every other field that is given.
SHARED_FIELDS = "model problems steps problems_per_step rollouts eval_every eval_limit".split()


@dataclass
class CompareOptions(TrainOptions):
    """Options of `rfs compare`: its own, and those of `rfs train`, which hold for all its runs."""

    FIRST = (
        "recipes seeds lrs baseline model problems reward steps eval_every jobs log_path".split()
    )
    DECIDES = {
        "recipe": "--recipes names those to compare",
        "loss_fn": "each recipe has its own loss, and --recipes FILE.py:NAME is one of yours",
        "seed": "--seeds N makes N runs with seeds 0, 1, ...",
        "lr": "--lrs tries one or more with each recipe",
        "load_checkpoint_path": "--model RUN@SAVE starts from the weights of a save",
        "smoke": "a quick look is --steps 2 --seeds 1",
        "preflight": "before a comparison, rfs preflight answers that once",
        "resume": "the same command, given again, continues",
        "overwrite": "choose another --out, or delete the folder",
        "rolling_every": "each evaluation is followed by a save, so it is --eval-every",
        "num_groups_to_log": "its runs write no pages of rollouts; rfs train does",
    }

    recipes: tuple[str, ...] = ("grpo", "dr_grpo", "dapo")
    """Compare these rows of `rfs recipes`, or your own, FILE.py:NAME."""
    lrs: tuple[float, ...] | None = None
    """Try these learning rates with each recipe; the best one for each is shown (default: only the
    recipe's, or what suits the model)."""
    seeds: Annotated[int, AtLeast(1)] = 3
    """Make this many runs per recipe and learning rate, with seeds 0, 1, ..."""
    baseline: str | None = None
    """Compare the others with this recipe (default: the first)."""
    jobs: Annotated[int | None, AtLeast(1)] = None
    """Run this many in parallel, which share the cores (default: one per core for a tiny model,
    else 1)."""
    steps: int = 60
    eval_every: Annotated[int, AtLeast(1, "the table needs evaluations")] = 10
    """Evaluate after every N steps and at the end; a killed run continues from the last
    evaluation."""
    eval_limit: int = 200
    log_path: str = "runs/compare"
    """Write runs, tables and pictures into this folder. A run that is already there is not
    repeated; if its settings differ from these, the command refuses to start."""

    @property
    def shared(self) -> dict[str, Any]:
        """What all recipes have in common."""
        names = ({*SHARED_FIELDS, *self.given} & vars(RunConfig()).keys()) - {"log_path"}
        values = {name: value for name, value in vars(self).items() if name in names}
        return {k: v for k, v in values.items() if v is not None or k == "problems"}

    def check(self) -> str:
        """Refuses what cannot be compared, before torch is imported; returns the model's name."""
        if len(set(self.recipes)) < len(self.recipes) or not self.recipes:
            raise UserError("--recipes needs one or more names, each once")
        if self.lrs is not None and len(set(self.lrs)) != max(1, len(self.lrs)):
            raise UserError("--lrs needs one or more learning rates, each once")
        if self.baseline not in (None, *self.recipes):
            raise UserError(f"--baseline {self.baseline} is not in --recipes: add it there")
        for recipe in self.recipes:
            self.check_recipe(recipe)
        return self.model

    def check_recipe(self, recipe: str) -> None:
        """Refuse a recipe that cannot train with what all have in common."""
        changes, shared = recipe_row(recipe).changes, self.shared
        for name in sorted(changes.keys() & shared.keys()):
            if changes[name] != shared[name]:
                other = f"or drop {flag(name)}" if name in self.given else f"and use {flag(name)}"
                raise UserError(
                    f"{recipe} sets {name} to {changes[name]}, but in a comparison all recipes "
                    f"have the same: take it out of the recipe, {other}"
                )
        config = configure(recipe, **shared)
        if config.is_supervised:
            raise UserError(
                f"--recipe {recipe} learns from worked solutions and samples nothing, so there "
                "are no rollouts to compare: train it with rfs train"
            )
        try:
            config = resolved(config)
        except UserError as error:
            raise UserError(f"{recipe}: {error}") from None
        check_names(config)
