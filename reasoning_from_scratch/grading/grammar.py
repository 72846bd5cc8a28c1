"""Tokens to a tree: a recursive descent over expressions. statements.py builds lists, relations
and units from them.

A tree is a nested tuple whose first element names it:
  ("num", Fraction) ("sym", name) ("const", "pi" | "e" | "i" | "inf" | "empty")
  ("add", *terms) ("mul", *factors) ("div", a, b) ("neg", a) ("pow", a, b) ("root", a, n)
  ("pm", a) ("mp", a) ("deg", a) ("fn", name, *args) ("tuple", open, close, *items)
  ("set", *items) ("builder", condition) ("matrix", *rows) ("base", digits, base)
"""

from fractions import Fraction

from .lexer import CURRENCY, Token
from .limits import MAX_DEPTH, TooBig, Unparsed

END = Token("end", "")
ZERO, ONE = ("num", Fraction(0)), ("num", Fraction(1))
CLOSING = {"(": ")", "[": "]", "S{": "S}", "{": "}", "<(": ">)", "⌊": "⌋", "⌈": "⌉", "|(": "|)"}
STARTS = {"(", "[", "{", "S{", "<(", "⌊", "⌈", "|(", "|", "||"}
SIGNED = {
    "+": lambda term: term,
    "-": lambda term: ("neg", term),
    "±": lambda term: ("pm", term),
    "∓": lambda term: ("mp", term),
}
UNIT_COMMANDS = {"pmod", "mod", "bmod", *CURRENCY.values()}
ACCENTS = set("bar dot vec hat widehat overrightarrow underline tilde overline".split())


def number(digits: str) -> tuple:
    """The exact value of a decimal number."""
    if len(digits) > 1_500:
        raise TooBig
    mantissa, _, exponent = digits.partition("e")
    if not mantissa.replace(".", "").isdigit() or len(exponent) > 4:
        raise TooBig if len(exponent) > 4 else Unparsed
    value = Fraction(mantissa.rstrip("."))
    return ("num", value * Fraction(10) ** int(exponent) if exponent else value)


class Parser:
    """What every part of the grammar needs: the place in the tokens and the depth so far."""

    def __init__(self, tokens: list[Token]):
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.bars = 0  # how many |...| are open

    @property
    def token(self) -> Token:
        return self.tokens[self.at] if self.at < len(self.tokens) else END

    def peek(self, ahead: int = 1) -> Token:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else END

    def take(self) -> Token:
        token = self.token
        self.at += 1
        return token

    def sees(self, *values: str) -> bool:
        return self.token.kind == "op" and self.token.value in values

    def accept(self, *values: str) -> str | None:
        return self.take().value if self.sees(*values) else None

    def expect(self, *values: str) -> None:
        if not self.accept(*values):
            raise Unparsed

    def enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooBig

    # sums and products

    def expression(self) -> tuple:
        self.enter()
        terms = [self.term()]
        while sign := self.accept("+", "-", "±", "∓"):
            terms.append(SIGNED[sign](self.term()))
        self.depth -= 1
        return terms[0] if len(terms) == 1 else ("add", *terms)

    def term(self) -> tuple:
        signs = []
        while sign := self.accept("-", "+", "±", "∓"):
            signs.append(sign)
        value = self.product()
        if signs.count("-") % 2:
            value = ("neg", value)
        if "±" in signs or "∓" in signs:
            value = ("pm" if "±" in signs else "mp", value)
        return value

    def product(self) -> tuple:
        value = self.mixed_number() or self.factor()
        factors = [value]
        while True:
            if self.accept("*"):
                factors.append(self.signed_factor())
            elif self.accept("/"):
                factors = [("div", self.joined(factors), self.signed_factor())]
            elif self.starts_factor():
                if self.token.kind == "num" and factors[-1][0] in ("num", "base"):
                    raise Unparsed  # 3 4 is neither 12 nor 34
                factors.append(self.factor())
            else:
                return self.joined(factors)

    def joined(self, factors: list[tuple]) -> tuple:
        return factors[0] if len(factors) == 1 else ("mul", *factors)

    def signed_factor(self) -> tuple:
        negative = False
        while sign := self.accept("-", "+"):
            negative ^= sign == "-"
        value = self.factor()
        return ("neg", value) if negative else value

    def starts_factor(self) -> bool:
        token = self.token
        if token.kind in ("num", "const", "fn", "begin"):
            return True
        if token.kind == "sym":
            return not self.union_sign()
        if token.kind == "cmd":
            return not self.unit_command()
        if token.kind != "op" or (token.value == "|" and self.bars):
            return False
        if token.value == "(" and self.peek().kind == "text":
            return False  # a remark: 101 (base 2)
        return token.value in STARTS

    def unit_command(self) -> bool:
        """Currency after the number, \\pmod{7}, \\frac{\\text{m}}{\\text{s}}."""
        name = self.token.value
        fraction_of_units = name == "frac" and self.peek(2).kind == "text"
        return name in UNIT_COMMANDS or fraction_of_units

    def union_sign(self) -> bool:
        """The U of (0,1)U(2,3): between two brackets that belong to intervals."""
        before = self.tokens[self.at - 1].value if self.at else ""
        after = self.peek().value
        is_u = self.token.kind == "sym" and self.token.value == "U"
        return is_u and before in (")", "]") and after in ("(", "[")

    def mixed_number(self) -> tuple | None:
        """1\\frac{4}{5} and 137 1/2: a whole number followed by a proper fraction."""
        if self.token.kind != "num" or not self.token.value.isdigit():
            return None
        start = self.at
        whole = number(self.take().value)[1]
        fraction = None
        if self.token.kind == "cmd" and self.token.value == "frac":
            fraction = self.plain_fraction()
        elif self.token.kind == "num" and self.token.gap and self.peek().value == "/":
            top, bottom = self.token.value, self.peek(2).value
            if top.isdigit() and bottom.isdigit() and self.peek(2).kind == "num":
                self.at += 3
                fraction = ("div", number(top), number(bottom))
        if fraction is None or self.sees("^", "!"):
            self.at = start
            return None
        return self.postfix(("num", whole + fraction[1][1] / fraction[2][1]))

    def plain_fraction(self) -> tuple | None:
        """A proper fraction of two whole numbers, or None."""
        fraction = self.structure(self.take().value)
        parts = fraction[1:]
        if len(parts) != 2 or any(p[0] != "num" or p[1].denominator != 1 for p in parts):
            return None
        return fraction if 0 < parts[0][1] < parts[1][1] else None

    # powers and what follows a factor

    def factor(self) -> tuple:
        self.enter()
        value = self.postfix(self.primary())
        if self.sees("^"):
            value = self.raised(value)
        self.depth -= 1
        return value

    def raised(self, value: tuple) -> tuple:
        self.expect("^")
        exponent = self.exponent()
        if exponent != "ordinal":
            value = ("pow", value, exponent) if exponent != ("sym", "T") else transpose(value)
        value = self.postfix(value)
        if self.sees("^"):
            raise Unparsed  # x^2^3 with braces round the 2: no reading is the usual one
        return value

    def exponent(self) -> tuple | str:
        if self.token.kind == "text" or (self.sees("{") and self.peek().kind == "text"):
            return self.ordinal_ending()
        if self.sees("{"):
            return self.braces()
        negative = False
        while sign := self.accept("-", "+"):
            negative ^= sign == "-"
        self.enter()
        value = self.primary()
        if self.sees("^"):
            value = self.raised(value)
        self.depth -= 1
        return ("neg", value) if negative else value

    def ordinal_ending(self) -> str:
        braced = self.accept("{")
        if self.take().value not in ("st", "nd", "rd", "th"):
            raise Unparsed
        if braced:
            self.expect("}")
        return "ordinal"

    def postfix(self, value: tuple) -> tuple:
        count = 0
        while self.token.kind == "op":
            count += 1
            if count > MAX_DEPTH:
                raise TooBig
            if self.sees("!"):
                value = self.factorial(value)
            elif self.accept("°"):
                value = ("deg", value)
            elif value[0] == "sym" and self.accept("'"):
                value = ("sym", value[1] + "'")
            elif self.sees("_"):
                value = self.subscript(value)
            else:
                break
        return value

    def factorial(self, value: tuple) -> tuple:
        marks = 0
        while self.accept("!"):
            marks += 1
        if marks > 2:
            raise Unparsed
        return ("fn", "fact" if marks == 1 else "fact2", value)

    def subscript(self, value: tuple) -> tuple:
        raise NotImplementedError

    # what a factor begins with

    def primary(self) -> tuple:
        self.enter()
        token = self.take()
        if token.kind == "num":
            # digits of a base are only looked at when the base has been read
            in_base = self.sees("_") or (self.sees(")") and self.peek().value == "_")
            value = ZERO if in_base else number(token.value)
        elif token.kind == "sym":
            value = self.symbol(token)
        elif token.kind == "const":
            value = ("const", token.value)
        elif token.kind == "fn":
            value = self.function(token.value)
        elif token.kind == "cmd":
            value = self.structure(token.value)
        elif token.kind == "begin":
            value = self.matrix(token.value)
        elif token.kind == "op":
            value = self.bracketed(token.value)
        else:
            raise Unparsed
        self.depth -= 1
        return value

    def symbol(self, token: Token) -> tuple:
        if token.value in ("f", "g") and self.sees("(") and not self.token.gap:
            self.take()
            return ("fn", "@" + token.value, *self.arguments(")"))
        return ("sym", token.value)

    # these four are in notation.py and statements.py

    def function(self, name: str) -> tuple:
        raise NotImplementedError

    def structure(self, name: str) -> tuple:
        raise NotImplementedError

    def matrix(self, name: str) -> tuple:
        raise NotImplementedError

    def bracketed(self, opening: str) -> tuple:
        raise NotImplementedError

    def braces(self) -> tuple:
        raise NotImplementedError

    def arguments(self, closing: str) -> list[tuple]:
        values = [self.expression()]
        while self.accept(","):
            values.append(self.expression())
        self.expect(closing)
        return values


def transpose(value: tuple) -> tuple:
    """A row with an upper T is a column."""
    if value[0] == "matrix":
        return ("matrix", *zip(*value[1:], strict=True))
    if value[0] == "tuple":
        return ("matrix", *((item,) for item in value[3:]))
    return ("pow", value, ("sym", "T"))
