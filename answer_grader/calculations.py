"""A calculation with plain numbers: its value, and the numbers in it.

For tasks whose answer is an expression and not its value, as in countdown. Only sums,
differences, products, quotients and brackets are allowed here. Powers, factorials and functions
are not: they could turn a few given numbers into almost any other.
"""

from fractions import Fraction

from .limits import Budget, TooBig, Undefined, Unparsed
from .reading.statements import parse
from .reading.trees import Add, Div, Mul, Neg, Node, Num
from .values import Evaluator


def arithmetic(text: str) -> tuple[Fraction, list[int]] | None:
    """(value, the whole numbers in it, in order), or None if the text is no such calculation."""
    try:
        tree = parse(text).tree
        return Evaluator(Budget()).evaluate(tree), numbers_in(tree)
    except (Unparsed, TooBig, Undefined, RecursionError):
        return None


def numbers_in(tree: Node) -> list[int]:
    match tree:
        case Num(value) if value.denominator == 1:  # not 2 1/2: one number here, three as written
            return [int(value)]
        case Add() | Mul() | Div() | Neg():
            return [number for child in tree.children for number in numbers_in(child)]
    raise Unparsed
