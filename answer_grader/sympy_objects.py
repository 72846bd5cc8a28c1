"""A tree as a sympy object, for readers who want to go on calculating with an answer. The grader
itself does not use sympy; sympy never sees a string, only objects built here."""

from fractions import Fraction

from .limits import Budget, TooBig, Undefined, Unparsed
from .reading.statements import parse
from .reading.trees import (
    Add,
    Brackets,
    Call,
    Const,
    Degrees,
    Div,
    Mul,
    Neg,
    Node,
    Num,
    Pow,
    Root,
    Sym,
    symbol_names,
)
from .values import Evaluator

SYMPY_NAMES = {  # our name of a function -> sympy's
    "ln": "log",
    "abs": "Abs",
    "ceil": "ceiling",
    "fact": "factorial",
    "fact2": "factorial2",
    "binom": "binomial",
    "max": "Max",
    "min": "Min",
} | {name: name for name in "sin cos tan cot sec csc sinh cosh tanh exp floor".split()}
SYMPY_NAMES |= {f"arc{name}": f"a{name}" for name in "sin cos tan cot".split()}


def sympy_parser(expr: str):
    """The sympy object of a text; None if it is not a number, an expression or a tuple of them."""
    try:
        tree = parse(expr).tree
        check_size(tree)
        return to_sympy(tree)
    except (Unparsed, TooBig, Undefined, RecursionError, AttributeError, TypeError):
        return None


def check_size(tree: Node) -> None:
    """Refuses whatever values.py refuses, before sympy starts on it."""
    if isinstance(tree, Brackets):
        for item in tree.items:
            check_size(item)
    else:
        letters = {name: Fraction(3, 7) for name in symbol_names(tree)}
        Evaluator(Budget(), letters, real=False).evaluate(tree)


def to_sympy(tree: Node):
    import sympy

    parts = [to_sympy(child) for child in tree.children]
    match tree:
        case Num(value):
            return sympy.Rational(value.numerator, value.denominator)
        case Sym(name):
            return sympy.Symbol(name)
        case Const(name):
            return {"pi": sympy.pi, "e": sympy.E, "i": sympy.I}[name]
        case Brackets():
            return sympy.Tuple(*parts)
        case Add():
            return sympy.Add(*parts)
        case Mul():
            return sympy.Mul(*parts)
        case Div():
            return parts[0] / parts[1]
        case Neg():
            return -parts[0]
        case Degrees():
            return parts[0] * sympy.pi / 180
        case Pow():
            return parts[0] ** parts[1]
        case Root():
            return sympy.root(*parts)
        case Call("log"):
            return sympy.log(parts[0], parts[1] if len(parts) == 2 else 10)
        case Call(name) if name in SYMPY_NAMES:
            return getattr(sympy, SYMPY_NAMES[name])(*parts)
    raise Unparsed
