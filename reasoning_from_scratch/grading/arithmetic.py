"""A calculation with plain numbers: what it comes to, and which numbers stand in it.

For tasks whose answer is an expression and not its value, as in countdown. Only sums,
differences, products, quotients and brackets are calculations here: no power, no factorial, no
function could turn a few given numbers into any other.
"""

from fractions import Fraction
from functools import reduce
from operator import add, mul, truediv

from .limits import TooBig, Undefined, Unparsed, Work
from .statements import parse


def arithmetic(text: str) -> tuple[Fraction, list[int]] | None:
    """(value, the whole numbers in it, in order), or None if the text is no such calculation."""
    used: list[int] = []
    try:
        return value_of(parse(text).tree, used, Work()), used
    except (Unparsed, TooBig, Undefined, RecursionError):
        return None


def value_of(tree: tuple, used: list[int], work: Work) -> Fraction:
    """The exact value of a tree; its numbers are appended to `used`."""
    kind, *parts = tree
    if kind == "num":
        (value,) = parts
        if value.denominator != 1:
            raise Unparsed  # 2 1/2 is one number to the grammar, but three that were written
        used.append(int(value))
        return value
    if kind not in ("add", "mul", "div", "neg"):
        raise Unparsed
    values = [value_of(part, used, work) for part in parts]
    if kind == "neg":
        return -values[0]
    if kind == "div" and values[1] == 0:
        raise Undefined
    operation = {"add": add, "mul": mul, "div": truediv}[kind]
    return reduce(lambda a, b: work.number(operation(a, b)), values)
