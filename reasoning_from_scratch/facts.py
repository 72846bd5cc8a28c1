"""Facts about a field of a configuration, beside its type: its bounds, and what it needs.

    epochs: Annotated[int, AtLeast(1)] = 1
    clip_low: Annotated[float, AtLeast(0), Needs("clips"), Needs("makes_several_updates")] = 0.8

config.py reads these. Options from a command line and from Python are checked by the same facts;
a resumed run and an evaluation look up which fields they must take from the trained run.
"""

import operator
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Bound:
    """A limit of a number; the error message of a number beyond it says `why`."""

    number: float
    why: str = ""
    words: ClassVar[str]
    holds: ClassVar[Any]  # (value, number) -> bool


class AtLeast(Bound):
    words, holds = "at least", operator.ge


class Above(Bound):
    words, holds = "above", operator.gt


class AtMost(Bound):
    words, holds = "at most", operator.le


class Below(Bound):
    words, holds = "below", operator.lt


class Needs:
    """Without this the field has no effect: another field, or a property, that is not off, or that
    is one of `values`."""

    def __init__(self, name: str, *values: object) -> None:
        self.name, self.values = name, values

    def __str__(self) -> str:
        return " ".join(map(str, (self.name, *self.values)))

    def holds(self, config: object) -> bool:
        if not hasattr(config, self.name):  # a command that only samples has no objective, say
            return True
        value = getattr(config, self.name)
        return value in self.values if self.values else value not in (None, False, 0, "none")


@dataclass(frozen=True)
class Mark:
    """A property of a field that other code looks up; `about` says it in words."""

    about: str


FIXED = Mark("a resumed run keeps it, because its saves depend on it")
AS_TRAINED = Mark("the answers depend on it, or the verdicts: a run is evaluated with its own")
