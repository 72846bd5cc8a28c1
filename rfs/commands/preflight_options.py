"""Options of `rfs preflight`."""

from dataclasses import dataclass
from typing import Annotated

from reasoning_from_scratch.facts import AtLeast
from rfs.commands.train_options import TrainOptions


@dataclass
class PreflightOptions(TrainOptions):
    """Options of `rfs preflight`: those of the run to come. Of what says how it is trained, saved
    and reported, only contradictions are noticed."""

    FIRST = (
        "model problems reward num_problems recipe rollouts problems_per_step max_new_tokens "
        "temperature prompt"
    ).split()
    DECIDES = {
        "resume": "--model RUN looks at the weights that a run has saved",
        "smoke": "--num-problems says how brief it is",
        "preflight": "this is it",
    }

    num_problems: Annotated[int, AtLeast(1)] = 16
    """Try this many problems, spread over the set; if it has several tasks, this many of each."""
