"""The book's policy, and what replies to it: a calculator, a game, tools."""

from typing import Any

from reasoning_from_scratch import own_policy
from rfs.engine import FAST
from rfs.files.saved_models import which_weights


class Policy(own_policy.Policy):
    """`Policy.load("tiny-player", configure(environment="guess"))` plays the game, and
    `Policy.load("runs/mine")` opens a run's best save."""

    sampling_engine = FAST

    @classmethod
    def load(cls, model: str, *args: Any, **kwargs: Any) -> own_policy.Policy:
        return super().load(which_weights(model), *args, **kwargs)
