"""From the tree of an answer to its kind, in a form in which two of a kind can be compared.

("value", tree, units) ("infinite", sign) ("items", braces, *things) ("assign", *(name, thing))
("tuple", open, close, *things) ("region", cuts) ("pieces", op, *things) ("named", name, thing)
("equation", a, b) ("inequality", op, a, b) ("matrix", *rows) ("base", digits, base)
("words", key) ("clock", hour, minute, half) ("ratio", *trees) ("set of", name) ("false",)
"""

from fractions import Fraction

from .limits import TooBig, Undefined, Unparsed
from .regions import LINE, MINUS, PLUS, Regions

MAX_SIGNS = 16  # ways of choosing the signs of one answer
FALSE = ("false",)
FLIPPED = {"<": ">", ">": "<", "≤": "≥", "≥": "≤", "≠": "≠"}
LISTS = ("list", "both", "either", "set")
SCALARS = set("num sym const add mul div neg pow root pm mp deg fn".split())
SETS = ("set", "tuple", "union")
AS_THEY_ARE = {"words", "clock", "base"}


def contains(tree: tuple, names: set[str], outside_functions: bool = False) -> bool:
    """Whether a node of one of these names is in the tree."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if node[0] in names:
            return True
        if not (outside_functions and node[0] == "fn"):
            stack += [part for part in node[1:] if isinstance(part, tuple)]
    return False


def symbols(tree: tuple) -> set[str]:
    found, stack = set(), [tree]
    while stack:
        node = stack.pop()
        if node[0] == "sym":
            found.add(node[1])
        stack += [part for part in node[1:] if isinstance(part, tuple) and part]
    return found


def without_degrees(tree: tuple) -> tuple:
    if tree[0] == "deg":
        return without_degrees(tree[1])
    if tree[0] == "fn" or not contains(tree, {"deg"}):
        return tree
    return (tree[0], *(without_degrees(p) if isinstance(p, tuple) else p for p in tree[1:]))


def with_signs(tree: tuple) -> list[tuple]:
    """The values of a tree with plus-minus signs. Each ± is free, unless there is a ∓, which
    ties all of them together."""
    if not contains(tree, {"pm", "mp"}):
        return [tree]
    if contains(tree, {"mp"}):
        return [tied(tree, 1), tied(tree, -1)]
    found = expanded(tree)
    if len(found) > MAX_SIGNS:
        raise TooBig
    return found


def tied(tree: tuple, sign: int) -> tuple:
    if tree[0] in ("pm", "mp"):
        inner = tied(tree[1], sign)
        return inner if (sign == 1) == (tree[0] == "pm") else ("neg", inner)
    return (tree[0], *(tied(p, sign) if isinstance(p, tuple) else p for p in tree[1:]))


def expanded(tree: tuple) -> list[tuple]:
    options: list[tuple] = [(tree[0],)]
    for part in tree[1:]:
        choices = expanded(part) if isinstance(part, tuple) else [part]
        options = [(*option, choice) for option in options for choice in choices]
        if len(options) > MAX_SIGNS:
            raise TooBig
    if tree[0] == "pm":
        return [sign for option in options for sign in (option[1], ("neg", option[1]))]
    return options


def name_of(tree: tuple) -> str | None:
    """What may stand left of "= 5" and be left out: x, f(x), x_1, AB, angle ABC, (x, y)."""
    if tree[0] == "sym":
        return tree[1]
    if tree[0] == "fn" and tree[1].startswith("@"):
        return f"{tree[1][1:]}({','.join(sorted(symbols(tree)))})"
    if tree[0] == "fn" and tree[1] == "abs" and len(name_of(tree[2]) or "") > 1:
        return name_of(tree[2])
    if tree[0] == "mul" and all(part[0] == "sym" for part in tree[1:]):
        parts = [part[1] for part in tree[1:]]
        if parts[0] == "m" and len(parts) == 2 and parts[1].startswith("angle"):
            return parts[1]
        return "".join(parts) if all(len(p) == 1 and p.isupper() for p in parts) else None
    if tree[0] == "div" and all(p[0] == "mul" and p[1] == ("sym", "d") for p in tree[1:]):
        return f"d{tree[1][2][1]}/d{tree[2][2][1]}"
    if tree[0] == "tuple" and all(item[0] == "sym" for item in tree[3:]):
        return "(" + ",".join(item[1] for item in tree[3:]) + ")"
    return None


class Kinds:
    """Settles trees. `values` does exact arithmetic; `equal(a, b)` compares two expressions."""

    def __init__(self, values, equal):
        self.values = values
        self.equal = equal
        self.regions = Regions(values)

    def settle(self, tree: tuple) -> tuple:
        self.values.work.spend(3)
        if tree[0] in AS_THEY_ARE:
            return tree
        if tree[0] in SCALARS or tree[0] == "qty":
            return self.scalar(tree)
        if tree[0] in LISTS:
            return self.items(tree)
        if tree[0] == "tuple":
            return self.bracketed(tree)
        if tree[0] == "rel":
            return self.relation(tree[1], tree[2:])
        if tree[0] == "matrix":
            return ("matrix", *(tuple(self.settle(cell) for cell in row) for row in tree[1:]))
        if tree[0] in ("union", "meet", "minus"):
            return self.combined(tree)
        if tree[0] == "builder":
            return self.built(tree[1:])
        if tree[0] == "ratio":
            return tree
        raise Unparsed

    # numbers and expressions

    def scalar(self, tree: tuple) -> tuple:
        tree, units = (tree[1], tree[2]) if tree[0] == "qty" else (tree, ())
        if tree[0] not in SCALARS:
            return self.settle(tree)  # (3, 4) cm
        if tree[0] == "const" and tree[1] in ("inf", "empty", "reals"):
            special = {"inf": ("infinite", 1), "empty": ("items", True), "reals": ("region", LINE)}
            return special[tree[1]]
        if tree == ("neg", ("const", "inf")):
            return ("infinite", -1)
        if tree[0] == "const" and tree[1] not in ("pi", "e", "i"):
            return ("set of", tree[1])
        if contains(tree, {"matrix"}):
            return self.scaled_matrix(tree)
        if tree[0] == "add" and len(tree) == 3 and tree[2][0] == "neg" and tree[2][1][0] in SETS:
            return self.combined(("minus", tree[1], tree[2][1]))
        if contains(tree, {"deg"}, outside_functions=True):
            tree, units = self.degrees(tree, units)
        signed = with_signs(tree)
        if len(signed) == 1:
            return ("value", signed[0], units)
        return self.unordered([("value", one, units) for one in signed], False)

    def degrees(self, tree: tuple, units: tuple) -> tuple[tuple, tuple]:
        if tree[0] == "mul" and tree[1][0] == "deg" and tree[2] in (("sym", "C"), ("sym", "F")):
            name = "celsius" if tree[2][1] == "C" else "fahrenheit"
            return tree[1][1], ((name, 1),)
        scale = dict(units)
        for letter, name in (("noun c", "celsius"), ("noun f", "fahrenheit")):
            if letter in scale:
                return without_degrees(tree), ((name, 1),)
        return without_degrees(tree), units or (("degree", 1),)

    def scaled_matrix(self, tree: tuple) -> tuple:
        """A number times a matrix."""
        if tree[0] == "neg":
            return self.scaled_matrix(("mul", ("num", Fraction(-1)), tree[1]))
        if tree[0] == "div":
            return self.scaled_matrix(("mul", ("div", ("num", Fraction(1)), tree[2]), tree[1]))
        if tree[0] == "matrix":
            return self.settle(tree)
        matrices = [part for part in tree[1:] if part[0] == "matrix"]
        if tree[0] != "mul" or len(matrices) != 1:
            raise Unparsed
        factors = tuple(part for part in tree[1:] if part[0] != "matrix")
        if any(contains(part, {"matrix"}) for part in factors):
            raise Unparsed
        rows = [tuple(("mul", *factors, cell) for cell in row) for row in matrices[0][1:]]
        return self.settle(("matrix", *rows))

    # lists, sets and brackets

    def items(self, tree: tuple) -> tuple:
        things = [self.settle(item) for item in tree[1:]]
        if tree[0] != "set":
            region = self.joined_regions(tree[0], things)
            if region is not None:
                return region
            if tree[0] == "either" and self.one_value(things):
                return things[0]
        return self.unordered(things, tree[0] == "set")

    def one_value(self, things: list[tuple]) -> bool:
        """3/5 or 0.6: the same value, said twice."""
        values = [thing[2] if thing[0] == "named" else thing for thing in things]
        if any(value[0] != "value" or value[2] for value in values):
            return False
        return all(self.equal(values[0][1], value[1]) for value in values[1:])

    def joined_regions(self, kind: str, things: list[tuple]) -> tuple | None:
        """x < 2 or x > 3; x > 1 and x < 3. A comma means "and" unless nothing is left of it."""
        names = {thing[1] for thing in things if thing[0] == "named"}
        cuts = [t[2][1] for t in things if t[0] == "named" and t[2][0] == "region"]
        if len(names) != 1 or len(cuts) != len(things):
            return None
        if kind == "either":
            joined = self.regions.union(*cuts)
        else:
            joined = self.regions.meet(*cuts)
            if not joined:
                joined = self.regions.union(*cuts)
        return ("named", names.pop(), ("region", joined))

    def unordered(self, things: list[tuple], braces: bool) -> tuple:
        flat = []
        for thing in things:
            if thing[0] == "named" and thing[2][0] == "items":
                flat += [("named", thing[1], one) for one in thing[2][2:]]
            elif thing[0] == "items" and not thing[1]:
                flat += thing[2:]
            else:
                flat.append(thing)
        names = [thing[1] for thing in flat if thing[0] == "named"]
        if len(flat) > 1 and len(set(names)) == len(flat):
            return ("assign", *((thing[1], thing[2]) for thing in flat))
        return flat[0] if len(flat) == 1 and not braces else ("items", braces, *flat)

    def bracketed(self, tree: tuple) -> tuple:
        _, opening, closing, *items = tree
        if opening == "[" and all(i[0] == "tuple" and i[1:3] == ("[", "]") for i in items):
            rows = [item[3:] for item in items]
            if len({len(row) for row in rows}) == 1:
                return self.settle(("matrix", *rows))
        if any(contains(item, {"pm", "mp"}) for item in items):
            return self.signed_tuple(tree)
        return ("tuple", opening, closing, *(self.settle(item) for item in items))

    def signed_tuple(self, tree: tuple) -> tuple:
        """(1, ±2) is two points."""
        rows = with_signs(("list", *tree[3:]))
        things = [("tuple", *tree[1:3], *map(self.settle, row[1:])) for row in rows]
        return ("items", False, *things)

    # sets of real numbers

    def region_of(self, thing: tuple) -> tuple | None:
        """The cuts of whatever can be read as a set of real numbers."""
        if thing[0] == "region":
            return thing[1]
        if thing[0] == "named":
            return self.region_of(thing[2])
        try:
            if thing[0] == "tuple" and len(thing) == 5 and thing[1] in "([" and thing[2] in ")]":
                low, high = (self.place(end) for end in thing[3:])
                return self.regions.interval(low, thing[1] == "[", high, thing[2] == "]")
            if thing[0] == "items" and thing[1]:
                points = [self.regions.point(self.place(one)) for one in thing[2:]]
                return self.regions.union(*points)
        except (Undefined, Unparsed):
            pass
        return None

    def place(self, thing: tuple):
        if thing[0] == "infinite":
            return PLUS if thing[1] == 1 else MINUS
        if thing[0] != "value":
            raise Undefined
        form = self.values.form(thing[1])
        if not all(self.values.is_constant(part) for part in form):
            raise Undefined
        return form

    def combined(self, tree: tuple) -> tuple:
        """Unions, intersections, differences; of intervals between letters, a bag of pieces."""
        parts = [self.settle(part) for part in tree[1:]]
        cuts = [self.region_of(part) for part in parts]
        if None in cuts:
            return self.pieces(tree[0], parts)
        if tree[0] == "union":
            return ("region", self.regions.union(*cuts))
        if tree[0] == "minus":
            cuts[1] = self.regions.complement(cuts[1])
        return ("region", self.regions.meet(*cuts))

    def pieces(self, op: str, parts: list[tuple]) -> tuple:
        if op != "minus":
            nested = [p[2:] if p[:2] == ("pieces", op) else (p,) for p in parts]
            parts = [piece for group in nested for piece in group]
        return ("pieces", op, *parts)

    def built(self, conditions: tuple) -> tuple:
        thing = self.items(("both", *conditions)) if len(conditions) > 1 else None
        thing = thing or self.settle(conditions[0])
        return thing[2] if thing[0] == "named" else thing

    # relations

    def relation(self, ops: tuple, sides: tuple) -> tuple:
        if ops[-1] == "≈" and len(ops) >= 1 and set(ops[:-1]) <= {"="}:
            if not self.near(sides[-2], sides[-1]):
                return FALSE
            ops, sides = self.without_approximation(ops, sides)
            if not ops:
                return self.settle(sides[0])
        if set(ops) <= {"=", "≡"}:
            return self.equalities(sides)
        if ops == ("∈",):
            return self.membership(*sides)
        if set(ops) <= set(FLIPPED):
            return self.inequalities(ops, sides)
        raise Unparsed

    def near(self, left: tuple, right: tuple) -> bool:
        """Whether one can be the other, rounded: closer than 1 in 20."""
        if name_of(left) is not None:
            return True
        distance = ("fn", "abs", ("add", self.plain(left), ("neg", self.plain(right))))
        limit = ("div", ("fn", "abs", self.plain(left)), ("num", Fraction(20)))
        top, bottom = self.values.form(("add", limit, ("neg", distance)))
        return (self.values.sign(top) or 0) * (self.values.sign(bottom) or 0) > 0

    def without_approximation(self, ops: tuple, sides: tuple) -> tuple[tuple, tuple]:
        """\\sqrt{2} ≈ 1.41 says \\sqrt{2}; x ≈ 1.41 says x = 1.41."""
        if name_of(sides[-2]) is not None and len(sides) == 2:
            return ("=",), sides
        return ops[:-1], sides[:-1]

    def membership(self, left: tuple, right: tuple) -> tuple:
        name = name_of(left)
        if name is None:
            raise Unparsed
        return ("named", name, self.settle(right))

    def equalities(self, sides: tuple) -> tuple:
        sides = list(sides)
        if len(sides) == 2 and name_of(sides[0]) is None and name_of(sides[1]) is not None:
            sides.reverse()
        name = name_of(sides[0])
        if name is not None and not any(self.occurs(name, side) for side in sides[1:]):
            if self.all_equal(sides[1:]):
                return ("named", name, self.settle(sides[1]))
            return FALSE
        if self.all_equal(sides):
            return self.settle(sides[0])
        if len(sides) != 2 or not (symbols(sides[0]) or symbols(sides[1])):
            return FALSE
        return ("equation", *(self.plain(side) for side in sides))

    def occurs(self, name: str, tree: tuple) -> bool:
        return name in symbols(tree) if len(name) == 1 or name[1:2] == "_" else False

    def plain(self, tree: tuple) -> tuple:
        """An expression without its units."""
        tree = tree[1] if tree[0] == "qty" else tree
        if tree[0] not in SCALARS:
            raise Unparsed
        return tree

    def all_equal(self, sides: list[tuple]) -> bool:
        if len(sides) == 1:
            return True
        if any(contains(side, {"pm", "mp"}) for side in sides):
            return False
        trees = [side[1] if side[0] == "qty" else side for side in sides]
        return all(tree[0] in SCALARS and self.equal(trees[0], tree) for tree in trees[1:])

    def inequalities(self, ops: tuple, sides: tuple) -> tuple:
        links = [
            self.inequality(op, self.plain(sides[i]), self.plain(sides[i + 1]))
            for i, op in enumerate(ops)
        ]
        if len(links) == 1:
            return links[0]
        return self.joined_regions("both", links) or ("items", False, *links)

    def inequality(self, op: str, left: tuple, right: tuple) -> tuple:
        """As a region where it is linear in one letter, else with < or ≤."""
        if op in (">", "≥"):
            op, left, right = FLIPPED[op], right, left
        names = symbols(left) | symbols(right)
        for size, limit in ((left, right), (right, left)):
            if size[:2] == ("fn", "abs") and len(names) == 1 and not symbols(limit) and op != "≠":
                return self.absolute(op, size[2], limit, size is left)
        infinite = contains(left, {"const"}) and (
            self.scalar(left)[0] == "infinite" or self.scalar(right)[0] == "infinite"
        )
        if len(names) == 1 and not infinite and self.scalar(right)[0] != "infinite":
            region = self.linear(op, left, right, names.copy().pop())
            if region is not None:
                return ("named", names.pop(), ("region", region))
        if len(names) == 1 and (infinite or self.scalar(right)[0] == "infinite"):
            return ("named", names.pop(), ("region", LINE))
        return ("inequality", op, left, right)

    def absolute(self, op: str, inner: tuple, limit: tuple, inside: bool) -> tuple:
        """|u| < c is -c < u < c; c < |u| is u < -c or c < u."""
        low, high = ("neg", limit), limit
        if inside:
            links = [self.inequality(op, low, inner), self.inequality(op, inner, high)]
        else:
            links = [self.inequality(op, inner, low), self.inequality(op, high, inner)]
        joined = self.joined_regions("both" if inside else "either", links)
        if joined is None:
            raise Unparsed
        return joined

    def linear(self, op: str, left: tuple, right: tuple, name: str) -> tuple | None:
        """The solutions of a x + b < 0."""
        values = self.values
        top, bottom = values.plus(values.form(left), values.negative(values.form(right)))
        if not values.is_constant(bottom):
            return None
        x = ((values.atom("sym", name), 1),)
        parts = values.by_symbols(top)
        if x not in parts or any(not values.is_constant({key: 1}) for key in parts if key != x):
            return None
        slope = parts.pop(x)
        rest = {(*key, *m): c for key, part in parts.items() for m, c in part.items()}
        sign = (values.sign(slope) or 0) * (values.sign(bottom) or 0)
        if not sign:
            return None
        place = values.negative(
            values.times((rest, values.constant(1)), values.reciprocal((slope, values.constant(1))))
        )
        if op == "≠":
            return self.regions.complement(self.regions.point(place))
        if sign > 0:
            return self.regions.interval(MINUS, False, place, op == "≤")
        return self.regions.interval(place, op == "≤", PLUS, False)
