"""A calculator that a model calls while it answers, as in nanochat's engine.

    the model writes        He has <<48/2=
    the calculator goes on  24.0>>
    the model goes on       of them.

GSM8K's solutions mark their sums like this. Models in nanochat's chat format call in other words:
<|python_start|>48/2<|python_end|>, and are answered <|output_start|>24.0<|output_end|>. What the
calculator writes was not drawn by the model: its mask is 0, so it is in no loss, no length and no
speed. The result is what Python prints, 24.0 and not 24, because nanochat asks Python. Whatever
is not plain arithmetic is left alone, and the model goes on as if there were no calculator.
"""

import ast
import operator
import re
from collections.abc import Callable
from functools import lru_cache

from reasoning_from_scratch.sampling import Partner, Rollout

MAX_CHARACTERS = 100  # of a calculation: its value is then small enough to compute and print
CALCULATION = re.compile(rf"[0-9+\-*/.() ]{{1,{MAX_CHARACTERS}}}")
OPERATORS: dict[type, Callable] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}

# A call that has just been completed, and what is written before and after its result.
CALLS = (
    (re.compile(r"<<([^<>=]+)=$"), "", ">>"),
    (
        re.compile(r"<\|python_start\|>([^<>]+)<\|python_end\|>$"),
        "<|output_start|>",
        "<|output_end|>",
    ),
)
CALL_ENDS = ("=", "<|python_end|>")


def calculate(text: str) -> str | None:
    """What Python prints for a calculation; None if the text is none. Commas separate thousands."""
    text = text.replace(",", "").strip()
    if not CALCULATION.fullmatch(text) or "**" in text:
        return None
    try:
        return str(evaluate_tree(ast.parse(text, mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError):
        return None


def evaluate_tree(tree: ast.expr) -> int | float:
    """The value of a syntax tree of numbers and the four operations; nothing else is computed."""
    match tree:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.BinOp(left, op, right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](evaluate_tree(left), evaluate_tree(right))
        case ast.UnaryOp(op, operand) if type(op) in OPERATORS:
            return OPERATORS[type(op)](evaluate_tree(operand))
    raise ValueError("no arithmetic")


class Calculator(Partner):
    """A Partner that needs only the answer so far."""

    def __init__(self, tokenizer) -> None:
        self.tokenizer = tokenizer
        self.may_end_call = call_end_test(tokenizer)

    def hear(self, response_ids: list[int], stopped: bool) -> list[int]:
        """The tokens of the result, if the last token has completed a call."""
        if stopped or not self.may_end_call(response_ids[-1]):
            return []
        # A token has at least one character. The call's words are tokens, too.
        text = self.tokenizer.decode(response_ids[-(MAX_CHARACTERS + len("<<=") + 8) :])
        for call, before, after in CALLS:
            match = call.search(text)
            result = calculate(match[1]) if match else None
            if result is not None:
                answer = f"{before}{result}{after}"
                return self.tokenizer.encode(answer, chat_wrapped=False)
        return []

    def leave(self, rollout: Rollout) -> None:
        """It gives no reward."""


@lru_cache(maxsize=4)
def call_end_test(tokenizer) -> Callable[[int], bool]:
    """A function: may this token complete a call? Each token of a tokenizer is decoded once."""
    return lru_cache(maxsize=None)(lambda token: tokenizer.decode([token]).endswith(CALL_ENDS))
