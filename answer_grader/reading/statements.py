"""The top of the grammar: statements between commas, "and" and "or"; relations; unions; words."""

import re
from fractions import Fraction
from typing import NamedTuple

from ..limits import MAX_CHARS, TooBig, Unparsed
from .expressions import expression
from .latex_commands import FONTS, TEXT_COMMANDS
from .lexer import tokenize
from .number_words import ORDINAL_WORDS, fraction_from_words, number_from_words
from .numerals import repeating_as_fractions
from .quantities import CURRENCY_WORDS, at_ratio_sign, quantity, ratio
from .tokens import END, Cursor, Rules, Token
from .trees import Const, Neg, Node, Num, Quantity, Relation, SetOperation, Several, Sym, Words
from .units import UnitList, check_label, split_number_prefix
from .words import AROUND_NUMBER_SETS, BEFORE_VALUES, NUMBER_SETS, OBJECTS, phrase_key

RELATIONS = ("=", "<", ">", "≤", "≥", "≠", "≈", "∈", "≡")
SEPARATORS = (",", ";", "and", "or", r"\\", "⇒")
AFTER_WORDS = (*SEPARATORS, ")", r"\}", "}", "⟩", "]")
# h(x)=, f'(2)=, f^{-1}(x)=, a_n(x)=, P_{10}(x,y)=
FUNCTION_NAME = re.compile(r"\w+(?:_\w|_\{\w+\})?'*(?:\^\{?-1\}?)?\(\w+(?:,\w+)*\)=")
NOT_IN_PHRASES = {*RELATIONS, *"±∓⇒|!*^_+∪∩", "||", "|(", "..."}
IN_PHRASES = ("text", "num", "sym", "const", "op")
LONGEST_NAME = 14  # tokens
STYLES = re.compile(rf"\\(?:{'|'.join(TEXT_COMMANDS | FONTS)})(?![A-Za-z])|\\[^A-Za-z]|[{{}}$]")
CHOICE_IN_WORDS = re.compile(r"(?:option|choice|answer) ([a-z])")
PUNCTUATION = set(" .,;:()-'")


class Answer(NamedTuple):
    tree: Node
    phrase: str | None  # the letters and digits of an answer that has nothing else


def parse(text: str) -> Answer:
    """The answer that a text gives. Raises Unparsed or TooBig."""
    if len(text) > MAX_CHARS:
        raise TooBig
    tokens = tokenize(repeating_as_fractions(text))
    if not tokens:
        raise Unparsed
    try:
        tree = answer_tree(tokens)
    except Unparsed:
        tree = phrase_tree(text, tokens)
    unstyled = STYLES.sub(" ", text)
    only_letters = all(c.isalnum() or c in PUNCTUATION for c in unstyled)
    return Answer(tree, phrase_of(text) if only_letters else None)


def answer_tree(tokens: list[Token]) -> Node:
    """The whole text: one statement, or several between commas, "and" and "or"."""
    c = Cursor(tokens, RULES)
    items, separators = [], set()
    while True:
        while c.sees(*SEPARATORS):
            separators.add(c.take().value)
        if c.token is END:
            break
        items.append(statement(c))
        if c.token is not END and not c.sees(*SEPARATORS):
            raise Unparsed
    if not items or "⇒" in separators:
        raise Unparsed
    if len(items) == 1:
        return items[0]
    link = "either" if "or" in separators else "both" if "and" in separators else "list"
    return Several(link, tuple(items))


def statement(c: Cursor) -> Node:
    """Words, or combinations with =, <, ... between them."""
    c.accept("=", "≈")
    if c.token.kind == "text":
        phrase = word_statement(c)
        if phrase is not None:
            return phrase
    sides, signs = [defined_name(c) or combination(c)], []
    while c.sees(*RELATIONS):
        signs.append(c.take().value)
        sides.append(combination(c))
    return Relation(tuple(signs), tuple(sides)) if signs else sides[0]


def defined_name(c: Cursor) -> Node | None:
    """h(x) of h(x) = ..., which elsewhere is a product; \\text{Area} of \\text{Area} = ..."""
    if c.token.kind == "text" and c.peek().value in RELATIONS:
        return Sym(f'"{phrase_key(c.take().value)}"')
    if c.token.kind != "sym":
        return None
    values = []
    for token in c.tokens[c.position : c.position + LONGEST_NAME]:
        values.append(token.value)
        if token.value == "=":
            break
    if FUNCTION_NAME.fullmatch("".join(values)) is None:
        return None
    c.position += len(values) - 1
    return Sym("".join(values[:-1]))


def combination(c: Cursor) -> Node:
    """Quantities joined by ∪, ∩ and ∖, and ratios of them."""
    value = quantity(c)
    while True:
        if sign := c.accept("∪", "∩", "∖"):
            value = SetOperation(sign, value, quantity(c))
        elif c.at_union_sign():
            c.take()
            value = SetOperation("∪", value, quantity(c))
        elif at_ratio_sign(c):
            value = ratio(c, value)
        else:
            return value


# ---- words


def word_statement(c: Cursor) -> Node | None:
    """A word answer, a number in words, or a label that is dropped (then None)."""
    following = c.peek()
    if c.token.value in CURRENCY_WORDS and following.kind == "num":
        return None
    if following.kind == "op" and following.value in RELATIONS:
        return None  # \text{Area} = 5 names what is equal
    if c.token.value.lower() in ("minus", "negative") and following.kind == "num":
        c.tokens[c.position] = Token("op", "-")
        return None
    text = c.take().value
    if c.token is END or c.sees(*AFTER_WORDS):
        return tree_of_words(text)
    if c.token.kind == "text" or c.sees("%", "/", "^"):
        raise Unparsed
    if c.sees("-") and text.split()[-1].lower() not in BEFORE_VALUES:
        raise Unparsed
    value, rest = split_number_prefix(text)
    if value is not None:
        raise Unparsed
    check_label(rest, bool(c.accept(":")))
    return None


def tree_of_words(text: str) -> Node:
    """An answer in words: a mathematical object, a number, else the words themselves."""
    key = phrase_key(text)
    if not key:
        raise Unparsed
    mathematical = named_object(key)
    if mathematical is not None:
        return mathematical
    choice = CHOICE_IN_WORDS.fullmatch(key)
    if choice:
        return Words(choice[1])
    value, rest = split_number_prefix(text)
    if value is None:
        return Words(key)
    units = UnitList()
    units.read(rest)
    tree = Num(Fraction(value * units.scale))
    return Quantity(tree, units.as_tuple()) if units else tree


def named_object(key: str) -> Node | None:
    """Infinity, the empty set, all real numbers, minus three quarters, third."""
    sign, _, rest = key.partition(" ")
    if rest and sign in ("minus", "negative", "positive"):
        inner = named_object(rest)
        return inner if inner is None or sign == "positive" else Neg(inner)
    if key in OBJECTS:
        return Const(OBJECTS[key])
    words = key.split()
    left = [word for word in words if word not in AROUND_NUMBER_SETS]
    if len(left) == 1 and left[0] in NUMBER_SETS:
        if len(words) > 1 or left[0].endswith("s"):
            return Const(NUMBER_SETS[left[0]])
    number: Fraction | int | None = fraction_from_words(key)
    if number is None:
        number = number_from_words(key)
    if number is None:
        number = ORDINAL_WORDS.get(key)
    return None if number is None else Num(Fraction(number))


def phrase_of(text: str) -> str | None:
    """The words of a text without its commands, if it has letters at all."""
    key = phrase_key(STYLES.sub(" ", text))
    return key if any(c.isalpha() for c in key) else None


def phrase_tree(text: str, tokens: list[Token]) -> Node:
    """What the grammar cannot read is a phrase, if it has a word in it."""
    key = phrase_of(text)
    if key is None or not any(t.kind == "text" and len(t.value) > 1 for t in tokens):
        raise Unparsed
    if not all(t.kind in IN_PHRASES and t.value not in NOT_IN_PHRASES for t in tokens):
        raise Unparsed
    return Words(key) if any(c.isdigit() for c in key) else tree_of_words(key)


RULES = Rules(expression, statement)
