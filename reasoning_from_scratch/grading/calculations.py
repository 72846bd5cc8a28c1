"""A calculation with plain numbers: what it comes to, and which numbers stand in it.

For tasks whose answer is an expression and not its value, as in countdown. Only sums,
differences, products, quotients and brackets are calculations here: no power, no factorial, no
function could turn a few given numbers into any other.
"""

from fractions import Fraction

from .limits import TooBig, Undefined, Unparsed, Work
from .reading.statements import parse
from .reading.trees import Add, Div, Mul, Neg, Node, Num


def arithmetic(text: str) -> tuple[Fraction, list[int]] | None:
    """(value, the whole numbers in it, in order), or None if the text is no such calculation."""
    used: list[int] = []
    try:
        return value_of(parse(text).tree, used, Work()), used
    except (Unparsed, TooBig, Undefined, RecursionError):
        return None


def value_of(tree: Node, used: list[int], work: Work) -> Fraction:
    """The exact value of a tree; its numbers are appended to `used`."""
    match tree:
        case Num(value):
            if value.denominator != 1:
                raise Unparsed  # 2 1/2 is one number to the grammar, but three that were written
            used.append(int(value))
            return value
        case Neg(inner):
            return -value_of(inner, used, work)
        case Add(terms):
            total = value_of(terms[0], used, work)
            for term in terms[1:]:
                total = work.number(total + value_of(term, used, work))
            return total
        case Mul(factors):
            total = value_of(factors[0], used, work)
            for factor in factors[1:]:
                total = work.number(total * value_of(factor, used, work))
            return total
        case Div(top, bottom):
            dividend, divisor = value_of(top, used, work), value_of(bottom, used, work)
            if divisor == 0:
                raise Undefined
            return work.number(dividend / divisor)
    raise Unparsed
