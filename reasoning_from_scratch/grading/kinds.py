"""From the tree of an answer to its kind, in a form in which two of a kind can be compared.

("value", tree, units) ("infinite", sign) ("items", braces, *things) ("assign", *(name, thing))
("tuple", open, close, *things) ("region", cuts) ("pieces", op, *things) ("named", name, thing)
("equation", a, b) ("inequality", op, a, b) ("matrix", *rows) ("base", digits, base)
("words", key) ("clock", hour, minute, half) ("ratio", *trees) ("set of", name) ("false",)
"""

from fractions import Fraction

from .limits import Undefined, Unparsed
from .regions import LINE, MINUS, PLUS
from .relations import SCALARS, Relations
from .trees import contains, with_signs, without_degrees

LISTS = ("list", "both", "either", "set")
SETS = ("set", "tuple", "union")
AS_THEY_ARE = {"words", "clock", "base"}


class Kinds(Relations):
    """Settles trees. `values` does exact arithmetic; `equal(a, b)` compares two expressions."""

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
