"""Text to tokens, in one pass from left to right."""

import re

from ..limits import MAX_CHARS, MAX_DEPTH, TooBig, Unparsed
from .boxes import closing_brace
from .characters import to_ascii
from .latex_commands import (
    BLANKS,
    CONSTANTS,
    CURRENCY,
    FONTS,
    FUNCTIONS,
    GREEK,
    IGNORED,
    INFINITY,
    INVISIBLE,
    OPERATORS,
    STRUCTURES,
    SYMBOLS,
    TEXT_COMMANDS,
    WITH_ARGUMENT,
)
from .numerals import base_digits, read_numeral
from .tokens import Token, Tokens
from .units import AFTER_VALUES
from .words import ORDINAL_ENDINGS, is_counted_noun, looks_like_word

HALF_OF_DAY = re.compile(r"([ap])\.?\s?m\b\.?", re.IGNORECASE)
ROW_SPACE = re.compile(r"\s*\[-?[0-9.]{1,6}\s?[a-z]{2}\]")
COMMAND = re.compile(r"\\([A-Za-z]+|[^A-Za-z])\*?", re.DOTALL)
LETTERS = re.compile(r"[A-Za-z]+")
DEGREE = re.compile(r"\^\s*(?:\\(?:circ|degree)(?![A-Za-z])|\{\s*\\(?:circ|degree)\s*\})")
PRIMES = re.compile(r"\^\s*(?:\\prime(?![A-Za-z])|\{\s*(?:\\prime\s*)+\})")
TIMES_TEN = re.compile(r"x(?=\s*10\s*\^)")
HIDDEN = re.compile(r"\s*(?:\\(?:[A-Za-z]+|.)|[^\\])", re.DOTALL)  # by \phantom
EQUALS = re.compile(r"\s*=")
NO_BRACKET = re.compile(r"\s*\.(?![0-9])")  # the dot of \left.
BAR = re.compile(r"\s*(?:\||\\[lr]?vert(?![A-Za-z]))")
UNITS_PER = re.compile(r"\s*[A-Za-z]+(?:/[A-Za-z]+)+\s*")
TWO_SIGNS = {
    "<=": "≤",
    ">=": "≥",
    "=<": "≤",
    "=>": "⇒",
    "**": "^",
    "==": "=",
    "->": "⇒",
    ":=": "=",
}
ONE_SIGN = set("+-*/^_()[]{}|,;:!=<>'&%")
WORD_OR_SIGN = re.compile(r"[A-Za-z][A-Za-z'’.-]*|[^A-Za-z\s]")
MATH_MODE = re.compile(r"(?<!\\)\$")
LONE_BACKSLASH = re.compile(r"(?<!\\)\\$")  # at the end
EMPTY_BASE = re.compile(r"(?<=\d)\{\s*\}(?=\s*\^)")  # of 5{}^\circ
SIGNS_IN_TEXT = set(",;:/()%=")
MATH_IN_TEXT = set("0123456789\\$^_=<>+*/{}|")
OPENING, CLOSING = ("(", "[", r"\{", "⟨"), (")", "]", r"\}", "⟩")
LINKING_WORDS = {"and", "And", "AND", "or", "Or", "OR"}
LONGEST_FIRST = sorted(FUNCTIONS, key=len, reverse=True)


class Lexer:
    """One text on its way to tokens. Each method reads what begins at `position`, adds its tokens
    and moves on."""

    def __init__(self, text: str):
        self.text = text
        self.position = 0
        self.tokens = Tokens()
        self.brackets = 0  # how many are open
        self.spliced = 0  # how many \text commands had mathematics in them

    def run(self) -> list[Token]:
        while self.position < len(self.text):
            self.read_next(self.text[self.position])
        return self.tokens.items

    def read_next(self, char: str) -> None:
        if char.isspace() or char == "~":
            self.tokens.gap = True
            self.position += 1
        elif char in "0123456789.":
            self.read_number()
        elif char in "ABCDEF" and base_digits(self.text, self.position):
            self.read_number()
        elif char == "\\":
            self.read_command()
        elif char.isascii() and char.isalpha():
            self.read_letters()
        else:
            self.read_sign(char)

    # numbers and signs

    def read_number(self) -> None:
        number = read_numeral(self.text, self.position, self.brackets > 0)
        if number is None:
            return self.read_dots()
        digits, self.position = number
        self.tokens.add("num", digits)

    def read_dots(self) -> None:
        if self.text.startswith("...", self.position):
            self.position += 3
            self.tokens.add("sym", "...")
        elif self.text[self.position + 1 :].strip(" .$\\)]}") == "" or self.tokens.last_is("text"):
            self.position += 1  # the full stop of a sentence
        else:
            raise Unparsed

    def read_sign(self, char: str) -> None:
        if char == "^" and self.read_mark():
            return
        pair = self.text[self.position : self.position + 2]
        if pair == "!=" and (self.tokens.gap or not self.tokens.items):
            self.position += 2
            self.tokens.add("op", "≠")
        elif pair in TWO_SIGNS:
            self.position += 2
            self.tokens.add("op", TWO_SIGNS[pair])
        elif self.text.startswith("{,}", self.position):
            self.position += 3
            self.tokens.add("op", ",")
        elif char == "$":
            self.position += 1
            self.tokens.add("cmd", "dollar")
        elif char in ONE_SIGN:
            self.position += 1
            self.add_operator(char)
        else:
            raise Unparsed

    def read_mark(self) -> bool:
        """^\\circ and ^\\prime."""
        for pattern, value in ((DEGREE, "°"), (PRIMES, "'")):
            if match := pattern.match(self.text, self.position):
                self.position = match.end()
                self.tokens.add("op", value)
                return True
        return False

    def add_operator(self, value: str) -> None:
        self.brackets += (value in OPENING) - (value in CLOSING)
        self.tokens.add("op", value)

    # plain letters

    def read_letters(self) -> None:
        after_number = self.tokens.last_is("num")
        if after_number and TIMES_TEN.match(self.text, self.position):
            self.position += 1
            return self.tokens.add("op", "*")
        half = HALF_OF_DAY.match(self.text, self.position)
        if half and after_number:
            self.position = half.end()
            return self.add_word(half[1].lower() + "m")
        run = LETTERS.match(self.text, self.position).group()
        self.position += len(run)
        self.add_letters(run)

    def add_letters(self, run: str) -> None:
        """A word, a name or a product: decided by what stands before it."""
        last_is = self.tokens.last_is
        if run in LINKING_WORDS and (run.islower() or self.tokens.items):
            self.tokens.add("op", run.lower())
        elif run in ORDINAL_ENDINGS and (last_is("num") or self.in_exponent()):
            self.tokens.add("text", run)
        elif (run in AFTER_VALUES and self.follows_value()) or run in ("USD", "EUR"):
            self.add_word(run)
        elif run in INFINITY and not last_is("text"):
            self.tokens.add("const", "inf")
        elif run in FUNCTIONS or run in CONSTANTS or run in GREEK or run == "sqrt":
            self.add_named(run)
        elif looks_like_word(run) or (last_is("text") and (len(run) > 1 or run == "a")):
            self.add_word(run)
        elif last_is("num") and self.tokens.gap and is_counted_noun(run):
            self.add_word(run)
        else:
            self.add_product(run)

    def follows_value(self) -> bool:
        last_is = self.tokens.last_is
        return (
            last_is("num")
            or last_is("const", "pi")
            or last_is("op", ")", "}", "°", r"\}")
            or last_is("text")
        )

    def in_exponent(self) -> bool:
        if self.tokens.last_is("op", "^"):
            return True
        tokens = self.tokens.items
        return self.tokens.last_is("op", "{") and len(tokens) > 1 and tokens[-2].value == "^"

    def add_named(self, run: str) -> None:
        if run in FUNCTIONS:
            self.tokens.add("fn", FUNCTIONS[run])
        elif run in CONSTANTS:
            self.tokens.add("const", CONSTANTS[run])
        elif run == "sqrt":
            self.tokens.add("cmd", "sqrt")
        else:
            self.tokens.add("sym", run)

    def add_product(self, run: str) -> None:
        """xy is x times y; xsinx is x times sin x."""
        for name in LONGEST_FIRST if len(run) > 2 else ():
            before, function, after = run.partition(name)
            if function and len(before) + len(after) <= 3:
                if before:
                    self.add_product(before)
                self.add_named(name)
                if after:
                    self.add_product(after)
                return
        for letter in run:
            self.tokens.add("const" if letter in "ie" else "sym", letter)

    def add_word(self, word: str) -> None:
        """Adjacent words are one token."""
        tokens = self.tokens.items
        if self.tokens.last_is("text") and tokens[-1].value not in ORDINAL_ENDINGS:
            tokens[-1] = tokens[-1]._replace(value=f"{tokens[-1].value} {word}")
        else:
            self.tokens.add("text", word)

    # commands

    def read_command(self) -> None:
        match = COMMAND.match(self.text, self.position)
        if match is None:
            raise Unparsed
        name, self.position = match.group(1), match.end()
        if match.group().endswith("*") and not name.isalpha():
            self.position -= 1
        if name == "not":
            self.read_negated_equals()
        elif name in IGNORED:
            self.read_ignored(name)
        elif name in TEXT_COMMANDS:
            self.read_text()
        elif name in FONTS:
            self.tokens.gap = True
        elif name in ("begin", "end"):
            self.read_environment(name)
        elif name in WITH_ARGUMENT:
            self.read_argument()
        elif name in INVISIBLE:
            self.skip_invisible()
        elif name in ("(", ")", "[", "]"):
            self.tokens.gap = True  # the marks of math mode
        else:
            self.add_command(name)

    def read_negated_equals(self) -> None:
        sign = EQUALS.match(self.text, self.position)
        if sign is None:
            raise Unparsed
        self.position = sign.end()
        self.tokens.add("op", "≠")

    def skip_invisible(self) -> None:
        """What \\phantom hides: the text between braces, a command or a character."""
        if self.text[self.position :].lstrip().startswith("{"):
            self.read_argument()
        else:
            hidden = HIDDEN.match(self.text, self.position)
            self.position = hidden.end() if hidden else len(self.text)

    def read_environment(self, mark: str) -> None:
        name = self.read_argument()
        self.tokens.add(mark, name)
        if mark == "begin" and name == "array":
            self.read_argument()  # how its columns are set

    def read_ignored(self, name: str) -> None:
        if name in BLANKS:
            self.tokens.gap = True
        if name in ("left", "right", "middle"):
            dot = NO_BRACKET.match(self.text, self.position)
            bar = BAR.match(self.text, self.position)
            if dot:
                self.position = dot.end()
            elif bar:
                self.position = bar.end()
                self.tokens.add("op", {"left": "|(", "right": "|)", "middle": "mid"}[name])

    def add_command(self, name: str) -> None:
        if name in OPERATORS:
            value = OPERATORS[name]
            space = ROW_SPACE.match(self.text, self.position) if value == r"\\" else None
            self.position = space.end() if space else self.position
            self.add_operator(value)
        elif name in CURRENCY:
            self.tokens.add("cmd", CURRENCY[name])
        elif name in CONSTANTS:
            self.tokens.add("const", CONSTANTS[name])
        elif name in FUNCTIONS:
            self.tokens.add("fn", FUNCTIONS[name])
        elif name in SYMBOLS:
            self.tokens.add("sym", SYMBOLS[name])
        elif name in STRUCTURES:
            self.tokens.add("cmd", STRUCTURES[name])
        else:
            raise Unparsed

    def read_argument(self) -> str:
        """The text between the braces that come next."""
        start = self.text.find("{", self.position)
        if start < 0 or self.text[self.position : start].strip():
            raise Unparsed
        end = closing_brace(self.text, start)
        if end < 0:
            raise Unparsed
        self.position = end + 1
        return self.text[start + 1 : end]

    # \text

    def read_text(self) -> None:
        if not self.text[self.position :].lstrip().startswith("{"):
            return  # \text 5
        content = self.read_argument()
        if is_mathematics(content):
            self.splice(content)
            return
        if content[:1].isspace():
            self.tokens.gap = True
        for piece in WORD_OR_SIGN.findall(content):
            self.add_text_piece(piece)

    def splice(self, content: str) -> None:
        """Mathematics inside \\text is read as if the command were not there."""
        self.spliced += 1
        if self.spliced > MAX_DEPTH:
            raise TooBig
        self.text = f" {content} {self.text[self.position :]}"
        self.position = 0

    def add_text_piece(self, piece: str) -> None:
        word = piece.strip(".'’-") if piece[:1].isalpha() else piece
        if word in LINKING_WORDS:
            self.tokens.add("op", word.lower())
        elif word.isalpha():
            self.add_word(word)
        elif word in SIGNS_IN_TEXT:
            self.add_operator(word)
        elif word == "?":
            raise Unparsed
        elif piece[:1].isalpha():
            self.add_word(word.replace(".", "").replace("-", " ").replace("'", ""))


def is_mathematics(content: str) -> bool:
    """Whether what stands in \\text{...} is no words: digits, signs, the name of a function."""
    name = content.strip()
    if name in FUNCTIONS or name in ("e", "i"):
        return True
    return not MATH_IN_TEXT.isdisjoint(content) and not UNITS_PER.fullmatch(content)


def tokenize(text: str) -> list[Token]:
    """The tokens of an answer; caps on its length come before any other work."""
    if len(text) > MAX_CHARS:
        raise TooBig
    text = to_ascii(text).replace("{:}", ":")
    if text.replace(r"\$", "").count("$") % 2 == 0:
        text = MATH_MODE.sub(" ", text)
    if len(text) > 2 * MAX_CHARS:
        raise TooBig
    text = text.strip()
    while len(text) > 2 and text[0] == text[-1] and text[0] in '*"`':
        text = text[1:-1].strip()
    text = LONE_BACKSLASH.sub("", text.strip())
    return Lexer(EMPTY_BASE.sub("", text)).run()
