"""Brackets of all kinds: groups, points and intervals, sets, absolute values, matrices.

What stands in them is again an expression or a statement; both come from the cursor's rules,
because expressions.py and statements.py stand above this file.
"""

from ..limits import Unparsed
from .tokens import Cursor
from .trees import Braces, Brackets, Builder, Call, Const, Div, Matrix, Node, Several, Unknown

MATRICES = set("matrix pmatrix bmatrix Bmatrix smallmatrix array vmatrix".split())
SYSTEMS = set("aligned align align* gathered cases split equation equation* gather".split())
CONDITION_WORDS = ("if", "for", "when")
RELATION_SIGNS = set("=<>≤≥")


def arguments(c: Cursor, closing: str) -> tuple[Node, ...]:
    """Expressions between commas, up to the closing bracket."""
    values = [c.rules.expression(c)]
    while c.accept(","):
        values.append(c.rules.expression(c))
    c.expect(closing)
    return tuple(values)


def bracket_expression(c: Cursor, opening: str) -> Node:
    """The expression that begins with this bracket, which the cursor has just passed."""
    if opening == "{":
        c.position -= 1
        return braces(c)
    if opening in ("(", "[", "⟨"):
        return round_or_square(c, opening)
    if opening in BRACKET_RULES:
        return BRACKET_RULES[opening](c)
    raise Unparsed


def enclosed(c: Cursor, closing: str) -> Node:
    inner = c.rules.expression(c)
    c.expect(closing)
    return inner


def absolute_value(c: Cursor, closing: str) -> Node:
    c.bars += 1
    inner = c.rules.expression(c)
    c.bars -= 1
    c.expect(closing)
    return Call("abs", (inner,))


def braces(c: Cursor) -> Node:
    """A group. With a comma inside it is a set whose backslashes were forgotten."""
    c.expect("{")
    c.enter()
    bars, c.bars = c.bars, 0
    items = [over_or_choose(c, c.rules.statement(c))]  # which refuses {}
    while c.accept(","):
        items.append(c.rules.statement(c))
    c.expect("}")
    c.bars = bars
    c.leave()
    return items[0] if len(items) == 1 else Braces(tuple(items))


def over_or_choose(c: Cursor, value: Node) -> Node:
    """{a \\over b} and {n \\choose k}."""
    if c.accept("over"):
        return Div(value, c.rules.expression(c))
    if c.accept("choose"):
        return Call("binom", (value, c.rules.expression(c)))
    return value


def round_or_square(c: Cursor, opening: str) -> Node:
    c.enter()
    bars, c.bars = c.bars, 0
    items = [over_or_choose(c, c.rules.statement(c))]
    while c.accept(",", ";"):
        items.append(c.rules.statement(c))
    closing = c.accept(")", "]", "⟩")
    if closing is None:
        raise Unparsed
    c.bars = bars
    c.leave()
    if len(items) == 1 and (opening, closing) in (("(", ")"), ("[", "]")):
        row_of_matrix = opening == "[" and isinstance(items[0], Brackets)
        return Brackets("[", "]", tuple(items)) if row_of_matrix else items[0]
    return Brackets(opening, closing, tuple(items))


def set_braces(c: Cursor) -> Node:
    if c.accept(r"\}"):
        return Const("empty")
    if c.token.kind == "begin":  # \left\{ before an array of equations
        name = c.take().value
        value = matrix(c, name)
        c.accept(r"\}")
        return value
    c.enter()
    # A bar or a colon ends the first element: {x | x > 0}.
    c.bars += 1
    colon_ends, c.colon_ends = c.colon_ends, True
    items = [c.rules.statement(c)]
    c.bars -= 1
    c.colon_ends = colon_ends
    by_condition = bool(c.accept("mid", "|", ":"))
    if by_condition:
        items = [c.rules.statement(c)]
    while c.accept(",", ";"):
        items.append(c.rules.statement(c))
    c.expect(r"\}")
    c.leave()
    return Builder(tuple(items)) if by_condition else Braces(tuple(items))


# ---- matrices and systems of equations


def matrix(c: Cursor, name: str) -> Node:
    """The tree between \\begin{name} and \\end{name}."""
    if name in SYSTEMS or (name == "array" and has_relations(c)):
        return system(c, name)
    if name not in MATRICES:
        raise Unparsed
    c.enter()
    rows: list[tuple[Node, ...]] = []
    row: list[Node] = []
    while c.token.kind != "end":
        if c.accept(r"\\"):
            rows, row = [*rows, tuple(row)], []
        elif not c.accept("&"):
            row.append(c.rules.expression(c))
    if c.take().value != name:
        raise Unparsed
    c.leave()
    rows = [*rows, tuple(row)] if row else rows
    if not rows or len({len(r) for r in rows}) != 1 or not rows[0]:
        raise Unparsed
    tree = Matrix(tuple(rows))
    return Call("det", (tree,)) if name == "vmatrix" else tree


def has_relations(c: Cursor) -> bool:
    """Whether an array is one of equations."""
    end = next((i for i in range(c.position, len(c.tokens)) if c.tokens[i].kind == "end"), 0)
    return any(t.kind == "op" and t.value in RELATION_SIGNS for t in c.tokens[c.position : end])


def system(c: Cursor, name: str) -> Node:
    """Lines of equations; in cases, pairs of a value and its condition."""
    c.enter()
    rows: list[list[Node]] = []
    row: list[Node] = []
    while c.token.kind not in ("end", ""):
        if c.accept(r"\\"):
            rows, row = [*rows, row], []
        elif c.token.kind == "text" and c.token.value.lower() in CONDITION_WORDS:
            c.take()
        elif not c.accept("&", ","):
            row.append(c.rules.statement(c))
    if c.take().value != name:
        raise Unparsed
    c.leave()
    lines = [r[0] if len(r) == 1 else Brackets("(", ")", tuple(r)) for r in [*rows, row] if r]
    if not lines:
        raise Unparsed
    return lines[0] if len(lines) == 1 else Several("list", tuple(lines))


BRACKET_RULES = {
    "|": lambda c: absolute_value(c, "|"),
    "|(": lambda c: absolute_value(c, "|)"),
    "||": lambda c: Unknown("norm", (enclosed(c, "||"),)),
    "⌊": lambda c: Call("floor", (enclosed(c, "⌋"),)),
    "⌈": lambda c: Call("ceil", (enclosed(c, "⌉"),)),
    r"\{": set_braces,
}
