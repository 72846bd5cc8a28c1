"""Tokens to expressions, by recursive descent: sums, products, powers, functions, fractions.

Each function reads one rule of the grammar at the cursor and returns its tree:

    expression   term + term - term
    term         signs before a product
    product      factors side by side, with * or with /
    factor       a primary, what follows it (! ° '), and its power
    primary      a number, a letter, a function, a command, brackets (brackets.py)
"""

from fractions import Fraction

from ..limits import MAX_DEPTH, TooBig, Unparsed
from .brackets import arguments, braces, bracket_expression, matrix
from .latex_commands import CURRENCY
from .number_words import number_from_words
from .tokens import Cursor, Token
from .trees import (
    Add,
    BaseNumeral,
    Brackets,
    Call,
    Const,
    Degrees,
    Div,
    Matrix,
    MinusPlus,
    Mul,
    Neg,
    Node,
    Num,
    PlusMinus,
    Pow,
    Root,
    Sym,
    Unknown,
    is_whole_number,
)

CLOSING = {"(": ")", "{": "}"}
FACTOR_STARTS = {"(", "[", "{", r"\{", "⟨", "⌊", "⌈", "|(", "|", "||"}
SIGN_NODES = {"+": lambda term: term, "-": Neg, "±": PlusMinus, "∓": MinusPlus}
MODULI = {"pmod", "mod"}
UNIT_COMMANDS = MODULI | set(CURRENCY.values())
ACCENTS = set("bar dot vec hat widehat overrightarrow underline tilde overline".split())
INVERSE_FUNCTIONS = {name: f"arc{name}" for name in ("sin", "cos", "tan", "cot", "sec", "csc")}
NUMBER_SETS = {"R": "reals", "Z": "integers", "N": "naturals", "Q": "rationals", "C": "complexes"}
MAX_DIGITS = 1_500
TRANSPOSED = Sym("T")  # in an exponent


def decimal(digits: str) -> Num:
    """The exact value of a decimal number."""
    if len(digits) > MAX_DIGITS:
        raise TooBig
    mantissa, _, exponent = digits.partition("e")
    if len(exponent) > 4:
        raise TooBig
    if not mantissa.replace(".", "").isdigit():
        raise Unparsed
    value = Fraction(int(mantissa)) if mantissa.isdigit() else Fraction(mantissa.rstrip("."))
    return Num(value * Fraction(10) ** int(exponent) if exponent else value)


# ---- sums and products


def expression(c: Cursor) -> Node:
    c.enter()
    terms = [term(c)]
    while sign := c.accept("+", "-", "±", "∓"):
        terms.append(SIGN_NODES[sign](term(c)))
    c.leave()
    return terms[0] if len(terms) == 1 else Add(tuple(terms))


def term(c: Cursor) -> Node:
    signs = []
    while sign := c.accept("-", "+", "±", "∓"):
        signs.append(sign)
    value = product(c)
    if signs.count("-") % 2:
        value = Neg(value)
    if "±" in signs:
        return PlusMinus(value)
    return MinusPlus(value) if "∓" in signs else value


def product(c: Cursor) -> Node:
    factors = [mixed_number(c) or factor(c)]
    while True:
        if c.accept("*"):
            factors.append(signed_factor(c))
        elif c.accept("/"):
            factors = [Div(product_of(factors), signed_factor(c))]
        elif starts_factor(c):
            if starts_number(c) and isinstance(factors[-1], (Num, BaseNumeral)):
                raise Unparsed  # 3 4 is neither 12 nor 34, nor is 3 {4}
            if c.token.kind == "num" and c.token.gap and Num in map(type, factors):
                raise Unparsed  # 0 o 1 is no product
            factors.append(factor(c))
        else:
            return product_of(factors)


def product_of(factors: list[Node]) -> Node:
    return factors[0] if len(factors) == 1 else Mul(tuple(factors))


def take_signs(c: Cursor) -> bool:
    """Takes the signs that come next: whether they say minus."""
    negative = False
    while sign := c.accept("-", "+"):
        negative ^= sign == "-"
    return negative


def signed_factor(c: Cursor) -> Node:
    negative = take_signs(c)
    value = factor(c)
    return Neg(value) if negative else value


def starts_factor(c: Cursor) -> bool:
    token = c.token
    if token.kind in ("num", "const", "fn", "begin"):
        return True
    if token.kind == "sym":
        return not c.at_union_sign()
    if token.kind == "cmd":
        return not is_unit_command(c)
    if token.kind != "op" or (token.value == "|" and c.bars):
        return False
    if token.value == "(" and c.peek().kind == "text":
        return False  # a remark: 101 (base 2)
    return token.value in FACTOR_STARTS


def starts_number(c: Cursor) -> bool:
    return (c.peek() if c.sees("{") else c.token).kind == "num"


def is_unit_command(c: Cursor) -> bool:
    """Currency after the number, \\pmod{7}, \\frac{\\text{m}}{\\text{s}}."""
    name = c.token.value
    return name in UNIT_COMMANDS or (name == "frac" and c.peek(2).kind == "text")


def mixed_number(c: Cursor) -> Node | None:
    """1\\frac{4}{5} and 137 1/2: a whole number followed by a proper fraction."""
    if c.token.kind != "num" or not c.token.value.isdigit():
        return None
    start, following = c.position, c.peek()
    part = None
    if following.kind == "cmd" and following.value == "frac":
        c.position += 2
        part = proper_fraction(c)
    elif following.kind == "num" and following.gap and c.peek(2).value == "/":
        top, bottom = following.value, c.peek(3).value
        if top.isdigit() and bottom.isdigit() and c.peek(3).kind == "num":
            c.position += 4
            part = decimal(top).value / decimal(bottom).value if int(bottom) else None
    if part is None or c.sees("^", "!"):
        c.position = start
        return None
    return postfix(c, Num(decimal(c.tokens[start].value).value + part))


def proper_fraction(c: Cursor) -> Fraction | None:
    """The \\frac of two whole numbers, if it is less than 1."""
    top, bottom = short_argument(c), short_argument(c)
    if not (is_whole_number(top) and is_whole_number(bottom)):
        return None
    return top.value / bottom.value if 0 < top.value < bottom.value else None


# ---- powers and what follows a factor


def factor(c: Cursor) -> Node:
    c.enter()
    value = postfix(c, primary(c))
    if c.sees("^"):
        value = with_exponent(c, value)
    c.leave()
    return value


def with_exponent(c: Cursor, base: Node) -> Node:
    c.expect("^")
    value = base
    if not take_ordinal_ending(c):
        power = exponent(c)
        value = transpose(base) if power == TRANSPOSED else Pow(base, power)
    value = postfix(c, value)
    if c.sees("^"):
        raise Unparsed  # x^2^3 with braces round the 2: no reading is the usual one
    return value


def take_ordinal_ending(c: Cursor) -> bool:
    """Takes the "th" of n^{th}, which says nothing about the number."""
    braced = c.sees("{")
    if (c.peek() if braced else c.token).kind != "text":
        return False
    c.position += braced
    if c.take().value not in ("st", "nd", "rd", "th"):
        raise Unparsed
    if braced:
        c.expect("}")
    return True


def exponent(c: Cursor) -> Node:
    if c.sees("{"):
        return braces(c)
    negative = take_signs(c)
    c.enter()
    value = primary(c)
    if c.sees("^"):
        value = with_exponent(c, value)
    c.leave()
    return Neg(value) if negative else value


def transpose(value: Node) -> Node:
    """A row with an upper T is a column."""
    if isinstance(value, Matrix):
        return Matrix(tuple(zip(*value.rows, strict=True)))
    if isinstance(value, Brackets):
        return Matrix(tuple((item,) for item in value.items))
    return Pow(value, TRANSPOSED)


def postfix(c: Cursor, value: Node) -> Node:
    count = 0
    while c.token.kind == "op":
        count += 1
        if count > MAX_DEPTH:
            raise TooBig
        if c.sees("!"):
            value = factorial_of(c, value)
        elif c.accept("°"):
            value = Degrees(value)
        elif isinstance(value, Sym) and c.accept("'"):
            value = Sym(value.name + "'")
        elif c.sees("_"):
            value = subscript(c, value)
        else:
            break
    return value


def factorial_of(c: Cursor, value: Node) -> Node:
    marks = 0
    while c.accept("!"):
        marks += 1
    if marks > 2:
        raise Unparsed
    return Call("fact" if marks == 1 else "fact2", (value,))


def subscript(c: Cursor, value: Node) -> Node:
    """x_1 is a name; 101_2 is a number in a base."""
    c.expect("_")
    start = c.position
    if isinstance(value, Num):
        return base_numeral(digits_of_numeral(c, start - 2), base_of_numeral(c))
    if not isinstance(value, Sym):
        raise Unparsed
    if c.sees("{"):
        braces(c)
    else:
        primary(c)
    name = "".join(token.value for token in c.tokens[start : c.position] if token.value not in "{}")
    return Sym(f"{value.name}_{name.rstrip('.')}")


def base_numeral(digits: str, base: int) -> BaseNumeral:
    """101_2; no 4_3, whose digit is too large."""
    if any(c.isalnum() and int(c, 36) >= base for c in digits):
        raise Unparsed
    return BaseNumeral(digits, base)


def digits_of_numeral(c: Cursor, at: int) -> str:
    """101 of 101_2 and of (101)_2."""
    if c.tokens[at].value == ")" and c.tokens[at - 2].value == "(":
        at -= 1
    if c.tokens[at].kind != "num":
        raise Unparsed
    return c.tokens[at].value


def base_of_numeral(c: Cursor) -> int:
    """The base in 101_2, 101_{10}, 101_{(2)}, 101_{\\text{two}}."""
    open_brackets = [c.take().value for _ in range(2) if c.sees("{", "(")]
    token = c.take()
    digits = token.value.rstrip(".")  # a full stop may follow
    base = int(digits) if token.kind == "num" and digits.isdigit() else None
    if token.kind == "text" and token.value == "base" and c.token.kind == "num":
        base = int(decimal(c.take().value).value)
    elif token.kind == "text":
        base = number_from_words(token.value.removeprefix("base "))
    for bracket in reversed(open_brackets):
        c.expect(CLOSING[bracket])
    if base is None or not 2 <= base <= 60:
        raise Unparsed
    return base


# ---- what a factor begins with


def primary(c: Cursor) -> Node:
    c.enter()
    token = c.take()
    read = PRIMARIES.get(token.kind)
    if read is None:
        raise Unparsed
    value = read(c, token)
    c.leave()
    return value


def number(c: Cursor, token: Token) -> Node:
    # The digits of a base are only looked at when the base has been read: A3_{16}.
    in_base = c.sees("_") or (c.sees(")") and c.peek().value == "_")
    return Num(Fraction(0)) if in_base else decimal(token.value)


def symbol(c: Cursor, token: Token) -> Node:
    if token.value in ("f", "g") and c.sees("(") and not c.token.gap:
        c.take()
        return Unknown(token.value, arguments(c, ")"))
    return Sym(token.value)


def function(c: Cursor, token: Token) -> Node:
    """sin x, sin^2 x, sin(x)^2, sin^{-1} x, log_2 x."""
    name, base, power = token.value, None, None
    while c.sees("_", "^"):
        if c.accept("_"):
            base = braces(c) if c.sees("{") else short_argument(c)
        else:
            c.expect("^")
            power = exponent(c)
    args = function_arguments(c)
    if power == Neg(Num(Fraction(1))) and name in INVERSE_FUNCTIONS:
        name, power = INVERSE_FUNCTIONS[name], None
    value = Call(name, args if base is None else (*args, base))
    if power is None and c.accept("^"):
        power = exponent(c)
    return value if power is None else Pow(value, power)


def function_arguments(c: Cursor) -> tuple[Node, ...]:
    """In brackets, or a product of letters: sin 2x, but not sin x 2."""
    for opening, closing in (("(", ")"), ("[", "]"), ("{", "}")):
        if c.accept(opening):
            return arguments(c, closing)
    factors = [factor(c)]
    while starts_factor(c) and c.token.kind in ("num", "sym", "const", "cmd"):
        if c.token.kind == "num":
            raise Unparsed
        factors.append(factor(c))
    return (product_of(factors),)


# ---- \frac, \sqrt and other commands with arguments


def command(c: Cursor, token: Token) -> Node:
    name = token.value
    if name in ACCENTS:
        return accented(c, name)
    if name in COMMANDS:
        return COMMANDS[name](c)
    raise Unparsed


def fraction(c: Cursor) -> Node:
    top = short_argument(c)
    return Div(top, short_argument(c))


def binomial_coefficient(c: Cursor) -> Node:
    n = short_argument(c)
    return Call("binom", (n, short_argument(c)))


def short_argument(c: Cursor) -> Node:
    """{...} or what LaTeX takes without braces: one digit, one letter, one command."""
    if c.sees("{"):
        return braces(c)
    token = c.token
    digits = token.value.rstrip(".")  # a full stop may follow
    if token.kind == "num" and len(digits) > 1 and digits.isdigit():
        first, rest = Token("num", digits[0]), Token("num", token.value[1:])
        c.tokens[c.position : c.position + 1] = [first, rest]
        return decimal(c.take().value)
    if token.kind == "op" and token.value not in ("(", "|(", "|", r"\{"):
        raise Unparsed
    return primary(c)


def radical(c: Cursor) -> Node:
    degree: Node = Num(Fraction(2))
    if c.accept("["):
        degree = expression(c)
        c.expect("]")
    return Root(braces(c) if c.sees("{") else primary(c), degree)


def angle(c: Cursor) -> Node:
    """ABC and CBA are one angle."""
    points = point_names(c)
    return Sym("angle" + min(points, points[::-1]))


def triangle(c: Cursor) -> Node:
    return Sym("triangle" + "".join(sorted(point_names(c))))


def point_names(c: Cursor) -> str:
    """The ABC of \\angle ABC."""
    start = c.position
    braced = c.accept("{")
    while c.token.kind in ("sym", "num") and c.position - start < 8:
        c.take()
    if braced:
        c.expect("}")
    return "".join(token.value for token in c.tokens[start : c.position])


def number_set(c: Cursor) -> Node:
    """\\mathbb{R}"""
    braced = c.accept("{")
    name = c.take().value
    if braced:
        c.expect("}")
    if name not in NUMBER_SETS:
        raise Unparsed
    return Const(NUMBER_SETS[name])


def accented(c: Cursor, name: str) -> Node:
    """\\overline{AB} is a segment, \\bar{z} a conjugate, \\vec{v} a name."""
    start = c.position
    inner = short_argument(c)
    tokens = [t for t in c.tokens[start : c.position] if t.value not in ("{", "}")]
    if len(tokens) == 1 and tokens[0].kind == "num" and name in ("overline", "bar", "dot"):
        raise Unparsed  # a repeating decimal is put together before parsing
    if len(tokens) > 1 and all(t.kind in ("sym", "const") for t in tokens):
        return inner  # the segment AB
    if name == "vec" and isinstance(inner, Sym):
        return inner
    return Unknown("bar" if name == "overline" else name, (inner,))


PRIMARIES = {
    "num": number,
    "sym": symbol,
    "const": lambda c, token: Const(token.value),
    "fn": function,
    "cmd": command,
    "begin": lambda c, token: matrix(c, token.value),
    "op": lambda c, token: bracket_expression(c, token.value),
}
COMMANDS = {
    "frac": fraction,
    "binom": binomial_coefficient,
    "sqrt": radical,
    "angle": angle,
    "triangle": triangle,
    "mathbb": number_set,
}
