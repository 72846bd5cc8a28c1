"""A tree as a sympy object, for readers who want to go on calculating with an answer. The grader
itself does not use sympy; sympy never sees a string, only objects built here."""

from .limits import TooBig, Undefined, Unparsed, Work
from .statements import parse
from .values import Values

FUNCTIONS = {
    "sin": "sin", "cos": "cos", "tan": "tan", "cot": "cot", "sec": "sec", "csc": "csc",
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arccot": "acot", "sinh": "sinh",
    "cosh": "cosh", "tanh": "tanh", "exp": "exp", "ln": "log", "abs": "Abs", "floor": "floor",
    "ceil": "ceiling", "fact": "factorial", "fact2": "factorial2", "binom": "binomial",
    "max": "Max", "min": "Min",
}  # fmt: skip


def sympy_parser(expr: str):
    """The sympy object of a text, or None where it is no number, expression or tuple of these."""
    try:
        tree = parse(expr).tree
        check_size(tree)
        return to_sympy(tree)
    except (Unparsed, TooBig, Undefined, RecursionError, AttributeError, TypeError):
        return None


def check_size(tree: tuple) -> None:
    """Refuses whatever exact arithmetic refuses, before sympy begins on it."""
    if tree[0] == "tuple":
        for item in tree[3:]:
            check_size(item)
    else:
        Values(Work()).form(tree)


def to_sympy(tree: tuple):
    import sympy

    kind, parts = tree[0], tree[1:]
    if kind == "num":
        return sympy.Rational(parts[0].numerator, parts[0].denominator)
    if kind == "sym":
        return sympy.Symbol(parts[0])
    if kind == "const":
        return {"pi": sympy.pi, "e": sympy.E, "i": sympy.I}[parts[0]]
    if kind == "tuple":
        return sympy.Tuple(*map(to_sympy, parts[2:]))
    if kind == "fn":
        return applied(sympy, parts[0], [to_sympy(arg) for arg in parts[1:]])
    return operation(sympy, kind, [to_sympy(part) for part in parts])


def applied(sympy, name: str, args: list):
    if name == "log":
        return sympy.log(args[0], args[1] if len(args) == 2 else 10)
    if name not in FUNCTIONS:
        raise Unparsed
    return getattr(sympy, FUNCTIONS[name])(*args)


def operation(sympy, kind: str, args: list):
    if kind == "add":
        return sympy.Add(*args)
    if kind == "mul":
        return sympy.Mul(*args)
    if kind == "div":
        return args[0] / args[1]
    if kind == "neg":
        return -args[0]
    if kind == "deg":
        return args[0] * sympy.pi / 180
    if kind == "pow":
        return args[0] ** args[1]
    if kind == "root":
        return sympy.root(*args)
    raise Unparsed
