"""Where an answer ends: at the model's stop tokens, and at a text of the user's choice."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from reasoning_from_scratch.errors import UserError


@dataclass
class Stops:
    """What ends an answer: one of these tokens, or the token that completes one of these texts.
    Tokens split a text in many ways, so the text of the last few is looked at."""

    ids: frozenset[int] = frozenset()
    texts: tuple[str, ...] = ()
    tokenizer: Any = None

    def __post_init__(self) -> None:
        # Each token has at least one byte, so a text that ends in the newest one is in these.
        self.window = max((len(text.encode()) for text in self.texts), default=0) + 1

    @classmethod
    def of(cls, ends: "Stops | Collection[int]") -> "Stops":
        """From stop tokens alone, or from Stops."""
        return ends if isinstance(ends, Stops) else cls(frozenset(ends))

    def reached(self, ids: Sequence[int]) -> bool:
        """Whether the last of these tokens ends the answer."""
        if ids[-1] in self.ids:
            return True
        return bool(self.texts) and self.find_stop_text(ids[-self.window :]) is not None

    def find_stop_text(self, ids: Sequence[int]) -> int | None:
        """Where, in the text of these tokens, a stop text begins that ends in the last of them.
        The same text earlier on was written by a calculator or an environment."""
        text, text_before = self.tokenizer.decode(ids), self.tokenizer.decode(ids[:-1])
        # A character that the last token completes decodes as \ufffd without it.
        complete = len(text_before.rstrip("\ufffd"))
        starts = [text.find(stop, max(0, complete - len(stop) + 1)) for stop in self.texts]
        return min((start for start in starts if start >= 0), default=None)


def stop_text(text: str) -> str:
    r"""The text that ends an answer, as in --stop; shells pass a newline as the characters `\n`."""
    if not text:
        raise UserError(r"--stop is empty: give the text at which an answer ends, such as \n\n")
    return "\t" if text == r"\t" else text.replace(r"\n", "\n")
