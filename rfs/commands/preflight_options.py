"""Options of `rfs preflight`."""

from dataclasses import dataclass
from typing import Annotated

from reasoning_from_scratch.config import Device, Drawing, Turns
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.facts import AtLeast
from rfs.config import Asking
from rfs.files.models import check_model_name
from rfs.run.option_checks import check_needs, check_temperature
from rfs.tasks.own_task import try_functions
from rfs.tasks.problem_sets import source_of


@dataclass
class PreflightOptions(Device, Turns, Drawing, Asking):
    """Options of `rfs preflight`; use the values that training will use."""

    model: str = "tiny"
    """Start from this model: tiny, base, reasoning, a folder, a file, a run or RUN@SAVE."""
    problems: str | None = None
    """Try this problem set, hf:OWNER/NAME, a .json or .jsonl file, or FILE.py:FUNCTION (default: as
    in `rfs train`)."""
    reward: str | None = None
    """Use your own verifier, FILE.py:FUNCTION (default: the grader compares the boxed answer)."""
    num_problems: Annotated[int, AtLeast(1)] = 16
    """Try this many problems, spread over the set; if it has several tasks, this many of each."""
    rollouts: Annotated[int, AtLeast(2)] = 8
    """Sample this many rollouts per problem."""
    problems_per_step: Annotated[int, AtLeast(1)] = 8
    """Estimate the time of a training step with this many problems."""
    sample_rows: Annotated[int, AtLeast(1)] = 64
    """Sample this many rollouts in parallel."""

    def check(self) -> str:
        """Refuses what cannot be loaded, before torch is imported; returns the model's name."""
        check_model_name(self.model)
        check_temperature(self)
        check_needs(self, vars(self))
        if self.problems is not None:
            source_of(self.problems).check()
        try_functions(self.reward)
        self.check_asking()
        if self.environment and self.reward:
            raise UserError(
                "--environment sets the reward of a rollout, and so does --reward: drop one"
            )
        return self.model
