"""The grammar's second half: functions, fractions, roots, brackets, matrices."""

from fractions import Fraction

from .grammar import ACCENTS, CLOSING, ONE, Parser, number
from .lexer import Token
from .limits import Unparsed
from .words import number_from_words

INVERSE = {"sin": "arcsin", "cos": "arccos", "tan": "arctan", "cot": "arccot", "sec": "arcsec",
           "csc": "arccsc"}  # fmt: skip
MATRICES = set("matrix pmatrix bmatrix Bmatrix smallmatrix array vmatrix".split())
SYSTEMS = set("aligned align align* gathered cases split equation equation* gather".split())
NUMBER_SETS = {"R": "reals", "Z": "integers", "N": "naturals", "Q": "rationals", "C": "complexes"}


class Notation(Parser):
    # subscripts

    def subscript(self, value: tuple) -> tuple:
        self.expect("_")
        start = self.at
        if value[0] == "num":
            return ("base", self.digits_before(start - 2), self.base())
        if value[0] != "sym":
            raise Unparsed
        self.braces() if self.sees("{") else self.primary()
        name = "".join(t.value for t in self.tokens[start : self.at] if t.value not in "{}")
        return ("sym", f"{value[1]}_{name}")

    def digits_before(self, at: int) -> str:
        """101 of 101_2 and of (101)_2."""
        if self.tokens[at].value == ")" and self.tokens[at - 2].value == "(":
            at -= 1
        if self.tokens[at].kind != "num":
            raise Unparsed
        return self.tokens[at].value

    def base(self) -> int:
        """The base in 101_2, 101_{10}, 101_{(2)}, 101_{\\text{two}}."""
        opened = [self.take().value for _ in range(2) if self.sees("{", "(")]
        token = self.take()
        value = int(token.value) if token.kind == "num" and token.value.isdigit() else None
        if token.kind == "text" and token.value == "base" and self.token.kind == "num":
            value = int(number(self.take().value)[1])
        elif token.kind == "text":
            value = number_from_words(token.value.removeprefix("base "))
        for bracket in reversed(opened):
            self.expect(CLOSING[bracket])
        if value is None or not 2 <= value <= 60:
            raise Unparsed
        return value

    # functions

    def function(self, name: str) -> tuple:
        base, power = None, None
        while self.sees("_", "^"):
            if self.accept("_"):
                base = self.braces() if self.sees("{") else self.short_argument()
            else:
                self.expect("^")
                power = self.exponent()
        args = self.function_arguments()
        if power == ("neg", ONE) and name in INVERSE:
            name, power = INVERSE[name], None
        value = ("fn", name, *args) if base is None else ("fn", name, *args, base)
        if power is None and self.sees("^") and args:
            power = self.exponent() if self.accept("^") else None
        return value if power is None else ("pow", value, power)

    def function_arguments(self) -> list[tuple]:
        if self.sees("("):
            self.take()
            return self.arguments(")")
        if self.accept("["):
            return self.arguments("]")
        if self.accept("{"):
            return self.arguments("}")
        factors = [self.factor()]
        while self.starts_factor() and self.token.kind in ("num", "sym", "const", "cmd"):
            if self.token.kind == "num":
                raise Unparsed
            factors.append(self.factor())
        return [self.joined(factors)]

    # \frac, \sqrt and other commands with arguments

    def structure(self, name: str) -> tuple:
        if name == "frac":
            return ("div", self.short_argument(), self.short_argument())
        if name == "binom":
            return ("fn", "binom", self.short_argument(), self.short_argument())
        if name == "sqrt":
            return self.root()
        if name in ("angle", "triangle"):
            points = self.point_names()
            if name == "triangle":
                return ("sym", name + "".join(sorted(points)))
            return ("sym", name + min(points, points[::-1]))
        if name == "mathbb":
            return self.number_set()
        if name in ACCENTS:
            return self.accented(name)
        raise Unparsed

    def short_argument(self) -> tuple:
        """{...} or what LaTeX takes without braces: one digit, one letter, one command."""
        if self.sees("{"):
            return self.braces()
        token = self.token
        if token.kind == "num" and len(token.value) > 1 and token.value.isdigit():
            first, rest = Token("num", token.value[0]), Token("num", token.value[1:])
            self.tokens[self.at : self.at + 1] = [first, rest]
            return number(self.take().value)
        if token.kind == "op" and token.value not in ("(", "|(", "|", "S{"):
            raise Unparsed
        return self.primary()

    def root(self) -> tuple:
        degree = ("num", Fraction(2))
        if self.accept("["):
            degree = self.expression()
            self.expect("]")
        if self.sees("{"):
            return ("root", self.braces(), degree)
        return ("root", self.primary(), degree)

    def point_names(self) -> str:
        """The ABC of \\angle ABC."""
        start = self.at
        braced = self.accept("{")
        while self.token.kind in ("sym", "num") and self.at - start < 8:
            self.take()
        if braced:
            self.expect("}")
        return "".join(token.value for token in self.tokens[start : self.at])

    def number_set(self) -> tuple:
        braced = self.accept("{")
        name = self.take().value
        if braced:
            self.expect("}")
        if name not in NUMBER_SETS:
            raise Unparsed
        return ("const", NUMBER_SETS[name])

    def accented(self, name: str) -> tuple:
        """\\overline{AB} is a segment, 0.\\overline{3} a number, \\bar{z} a conjugate."""
        start = self.at
        inner = self.short_argument()
        tokens = [t for t in self.tokens[start : self.at] if t.value not in ("{", "}")]
        if len(tokens) == 1 and tokens[0].kind == "num" and name in ("overline", "bar", "dot"):
            raise Unparsed  # a repeating decimal is put together before parsing
        if len(tokens) > 1 and all(t.kind in ("sym", "const") for t in tokens):
            return inner  # the segment AB
        if name == "vec" and inner[0] == "sym":
            return inner
        return ("fn", "@" + ("bar" if name == "overline" else name), inner)

    # brackets

    def bracketed(self, opening: str) -> tuple:
        if opening in ("|", "|("):
            return self.absolute(opening)
        if opening == "||":
            inner = self.expression()
            self.expect("||")
            return ("fn", "@norm", inner)
        if opening in ("⌊", "⌈"):
            inner = self.expression()
            self.expect(CLOSING[opening])
            return ("fn", "floor" if opening == "⌊" else "ceil", inner)
        if opening == "S{":
            return self.set_braces()
        if opening == "{":
            self.at -= 1
            return self.braces()
        if opening in ("(", "[", "<("):
            return self.round_or_square(opening)
        raise Unparsed

    def absolute(self, opening: str) -> tuple:
        self.bars += 1
        inner = self.expression()
        self.bars -= 1
        self.expect("|)" if opening == "|(" else "|")
        return ("fn", "abs", inner)

    def braces(self) -> tuple:
        """A group. With a comma inside it is a set whose backslashes were forgotten."""
        self.expect("{")
        self.enter()
        bars, self.bars = self.bars, 0
        if self.accept("}"):
            value = ONE  # {}^2 and the like
        else:
            value = self.over(self.element())
            items = [value]
            while self.accept(","):
                items.append(self.element())
            self.expect("}")
            value = value if len(items) == 1 else ("set", *items)
        self.bars = bars
        self.depth -= 1
        return value

    def over(self, value: tuple) -> tuple:
        if self.accept("over"):
            return ("div", value, self.expression())
        if self.accept("choose"):
            return ("fn", "binom", value, self.expression())
        return value

    def round_or_square(self, opening: str) -> tuple:
        self.enter()
        bars, self.bars = self.bars, 0
        items = [self.over(self.element())]
        while self.accept(",", ";"):
            items.append(self.element())
        if self.token.value not in (")", "]", ">)"):
            raise Unparsed
        closing = self.take().value
        self.bars = bars
        self.depth -= 1
        if len(items) == 1 and (opening, closing) in (("(", ")"), ("[", "]")):
            nested = opening == "[" and items[0][0] == "tuple"
            return ("tuple", "[", "]", *items) if nested else items[0]
        return ("tuple", opening, closing, *items)

    def element(self) -> tuple:
        """What may stand between commas in brackets; statements.py allows more than this."""
        return self.expression()

    def set_braces(self) -> tuple:
        raise NotImplementedError

    # matrices

    def is_system(self) -> bool:
        """An array with relations in it."""
        end = next((i for i in range(self.at, len(self.tokens)) if self.tokens[i].kind == "end"), 0)
        return any(t.kind == "op" and t.value in "=<>≤≥" for t in self.tokens[self.at : end])

    def system(self, name: str) -> tuple:
        """Lines of equations; in cases, pairs of a value and its condition."""
        self.enter()
        rows, row = [], []
        while self.token.kind not in ("end", ""):
            if self.accept("\\\\"):
                rows, row = [*rows, row], []
            elif self.token.kind == "text" and self.token.value.lower() in ("if", "for", "when"):
                self.take()
            elif not self.accept("&", ","):
                row.append(self.element())
        if self.take().value != name:
            raise Unparsed
        self.depth -= 1
        trees = [r[0] if len(r) == 1 else ("tuple", "(", ")", *r) for r in [*rows, row] if r]
        if not trees:
            raise Unparsed
        return trees[0] if len(trees) == 1 else ("list", *trees)

    def matrix(self, name: str) -> tuple:
        if name in SYSTEMS or (name == "array" and self.is_system()):
            return self.system(name)
        if name not in MATRICES:
            raise Unparsed
        self.enter()
        rows, row = [], []
        while self.token.kind != "end":
            if self.accept("\\\\"):
                rows, row = [*rows, tuple(row)], []
            elif not self.accept("&"):
                row.append(self.expression())
        if self.take().value != name:
            raise Unparsed
        self.depth -= 1
        rows = [*rows, tuple(row)] if row else rows
        if not rows or len({len(r) for r in rows}) != 1 or not rows[0]:
            raise Unparsed
        return ("matrix", *rows) if name != "vmatrix" else ("fn", "det", ("matrix", *rows))
