"""Options of `rfs compare`."""

from dataclasses import dataclass
from typing import Annotated, Any

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.facts import AtLeast
from rfs.config import RunConfig
from rfs.files.models import check_model_name
from rfs.run.option_checks import flag
from rfs.run.options import recipe_row
from rfs.tasks.own_task import try_functions
from rfs.tasks.problem_sets import source_of


@dataclass
class CompareOptions:
    """Options of `rfs compare`; None means what the recipe says, or the default of `rfs train`."""

    recipes: tuple[str, ...] = ("grpo", "dr_grpo", "dapo")
    """Compare these rows of `rfs recipes`, or your own, FILE.py:NAME."""
    lrs: tuple[float, ...] | None = None
    """Try these learning rates with each recipe; the best one for each is shown."""
    seeds: Annotated[int, AtLeast(1)] = 3
    """Make this many runs per recipe and learning rate, with seeds 0, 1, ..."""
    baseline: str | None = None
    """Compare the others with this recipe (default: the first)."""
    model: str = "tiny-base"
    """Start all from this model: a name, a folder, a file, a run (its best save) or RUN@SAVE."""
    problems: str | None = None
    """Train on this problem set, hf:OWNER/NAME, a file of your own or FILE.py:FUNCTION; the
    evaluations use its held-out problems."""
    reward: str | None = None
    """Replace the grader by your own verifier, FILE.py:FUNCTION."""
    steps: Annotated[int, AtLeast(1)] = 60
    """Train each run for this many steps."""
    problems_per_step: Annotated[int, AtLeast(1)] = 8
    """Sample this many problems at each step."""
    rollouts: Annotated[int, AtLeast(2)] = 8
    """Sample this many rollouts per problem."""
    max_new_tokens: Annotated[int | None, AtLeast(1)] = None
    """End an answer after this many tokens."""
    eval_every: Annotated[int, AtLeast(1, "the table needs evaluations")] = 10
    """Evaluate after every N steps and at the end; a killed run continues from the last
    evaluation."""
    eval_limit: Annotated[int, AtLeast(1)] = 200
    """Evaluate on this many problems."""
    jobs: Annotated[int | None, AtLeast(1)] = None
    """Run this many in parallel, which share the cores (default: one per core for a tiny model,
    else 1)."""
    out: str = "runs/compare"
    """Write runs, tables and pictures into this folder. A run that is already there is not
    repeated; if its settings differ from these, the command refuses to start."""

    def check(self) -> str:
        """Refuses what cannot be compared, before torch is imported; returns the model's name."""
        check_model_name(self.model)
        if self.problems is not None:
            source_of(self.problems).check()
        try_functions(self.reward)
        if len(set(self.recipes)) < len(self.recipes) or not self.recipes:
            raise UserError("--recipes needs one or more names, each once")
        if self.lrs is not None and len(set(self.lrs)) != max(1, len(self.lrs)):
            raise UserError("--lrs needs one or more learning rates, each once")
        if self.baseline not in (None, *self.recipes):
            raise UserError(f"--baseline {self.baseline} is not in --recipes: add it there")
        shared = shared_settings(self)
        for recipe in self.recipes:
            changes = recipe_row(recipe).changes
            if changes.get("objective") == "cross_entropy":
                raise UserError(
                    f"--recipe {recipe} learns from worked solutions and samples nothing, so there "
                    "are no rollouts to compare: train it with rfs train"
                )
            for name in sorted(changes.keys() & shared.keys()):
                if changes[name] != shared[name]:
                    raise UserError(
                        f"{recipe} sets {name} to {changes[name]}, but in a comparison all recipes "
                        f"have the same: take it out of the recipe, and use {flag(name)}"
                    )
        return self.model


def shared_settings(options: CompareOptions) -> dict[str, Any]:
    """What all recipes have in common: the options that were given or have a default, and the
    problems in any case."""
    fields = vars(RunConfig()).keys() & vars(options).keys()
    values = {name: getattr(options, name) for name in fields}
    return {k: v for k, v in values.items() if v is not None or k == "problems"}
