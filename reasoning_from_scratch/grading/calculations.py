"""A calculation with plain numbers: what it comes to, and which numbers stand in it.

For tasks whose answer is an expression and not its value, as in countdown. Only sums,
differences, products, quotients and brackets are calculations here: no power, no factorial, no
function could turn a few given numbers into any other.
"""

from fractions import Fraction

from .limits import TooBig, Undefined, Unparsed, Work
from .reading.statements import parse
from .reading.trees import Add, Div, Mul, Neg, Node, Num
from .values import Values


def arithmetic(text: str) -> tuple[Fraction, list[int]] | None:
    """(value, the whole numbers in it, in order), or None if the text is no such calculation."""
    try:
        tree = parse(text).tree
        return Values(Work()).of(tree), numbers_in(tree)
    except (Unparsed, TooBig, Undefined, RecursionError):
        return None


def numbers_in(tree: Node) -> list[int]:
    match tree:
        case Num(value) if value.denominator == 1:  # 2 1/2 is one number here, but three written
            return [int(value)]
        case Add() | Mul() | Div() | Neg():
            return [number for child in tree.children for number in numbers_in(child)]
    raise Unparsed
