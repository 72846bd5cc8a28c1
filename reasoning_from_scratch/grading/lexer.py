"""Text to tokens, in one pass from left to right."""

import re

from .characters import to_ascii
from .commands import (
    BLANKS,
    CONSTANTS,
    CURRENCY,
    FONTS,
    FUNCTIONS,
    GREEK,
    IGNORED,
    INFINITY,
    OPERATORS,
    STRUCTURES,
    SYMBOLS,
    TEXT_COMMANDS,
    WITH_ARGUMENT,
)
from .extract import closing_brace
from .limits import MAX_CHARS, MAX_DEPTH, TooBig, Unparsed
from .numerals import Numerals, Token
from .words import AFTER_VALUES, ORDINAL_ENDINGS, looks_like_word

HALF_OF_DAY = re.compile(r"([ap])\.?\s?m\b\.?", re.IGNORECASE)
ROW_SPACE = re.compile(r"\s*\[-?[0-9.]{1,6}\s?[a-z]{2}\]")
COMMAND = re.compile(r"\\([A-Za-z]+|[^A-Za-z])\*?", re.DOTALL)
LETTERS = re.compile(r"[A-Za-z]+")
DEGREE = re.compile(r"\^\s*(?:\\(?:circ|degree)(?![A-Za-z])|\{\s*\\(?:circ|degree)\s*\})")
PRIMES = re.compile(r"\^\s*(?:\\prime(?![A-Za-z])|\{\s*(?:\\prime\s*)+\})")
TIMES_TEN = re.compile(r"x(?=\s*10\s*\^)")
TWO_SIGNS = {"<=": "≤", ">=": "≥", "=<": "≤", "=>": "⇒", "**": "^", "==": "=", "->": "⇒", ":=": "="}
ONE_SIGN = set("+-*/^_()[]{}|,;:!=<>'&%")
WORD_OR_SIGN = re.compile(r"[A-Za-z][A-Za-z'’.-]*|[^A-Za-z\s]")


class Lexer(Numerals):
    def run(self) -> list[Token]:
        while self.position < len(self.text):
            self.step(self.text[self.position])
        return self.tokens

    def step(self, char: str) -> None:
        if char.isspace() or char == "~":
            self.gap = True
            self.position += 1
        elif char in "0123456789." or (char in "ABCDEF" and self.base_digits()):
            self.number()
        elif char == "\\":
            self.command()
        elif char.isascii() and char.isalpha():
            self.letters()
        else:
            self.sign(char)

    def sign(self, char: str) -> None:
        for pattern, value in ((DEGREE, "°"), (PRIMES, "'")) if char == "^" else ():
            if match := pattern.match(self.text, self.position):
                self.position = match.end()
                return self.add("op", value)
        pair = self.text[self.position : self.position + 2]
        if pair == "!=" and (self.gap or not self.tokens):
            self.position += 2
            return self.add("op", "≠")
        if pair in TWO_SIGNS:
            self.position += 2
            return self.add("op", TWO_SIGNS[pair])
        if self.text.startswith("{,}", self.position):
            self.position += 3
            return self.add("op", ",")
        if char == "$":
            self.position += 1
            return self.add("cmd", "dollar")
        if char not in ONE_SIGN:
            raise Unparsed
        self.brackets += (char in "([") - (char in ")]")
        self.position += 1
        self.add("op", char)

    def letters(self) -> None:
        match = TIMES_TEN.match(self.text, self.position)
        if match and self.last("num"):
            self.position += 1
            return self.add("op", "*")
        half = HALF_OF_DAY.match(self.text, self.position)
        if half and self.last("num"):
            self.position = half.end()
            return self.word(half[1].lower() + "m")
        run = LETTERS.match(self.text, self.position).group()
        self.position += len(run)
        self.letter_run(run)

    def letter_run(self, run: str) -> None:
        after_value = (
            self.last("num")
            or self.last("const", "pi")
            or self.last("op", ")", "}", "°", "S}")
            or self.last("text")
        )
        in_exponent = self.last("op", "^") or (
            self.last("op", "{") and len(self.tokens) > 1 and self.tokens[-2].value == "^"
        )
        if run in ("and", "or"):
            self.add("op", run)
        elif run in ORDINAL_ENDINGS and (self.last("num") or in_exponent):
            self.add("text", run)
        elif (run in AFTER_VALUES and after_value) or run in ("USD", "EUR"):
            self.word(run)
        elif run in INFINITY and not self.last("text"):
            self.add("const", "inf")
        elif run in FUNCTIONS or run in CONSTANTS or run in GREEK or run == "sqrt":
            self.named(run)
        elif looks_like_word(run) or (self.last("text") and (len(run) > 1 or run == "a")):
            self.word(run)
        else:
            self.product(run)

    def named(self, run: str) -> None:
        if run in FUNCTIONS:
            self.add("fn", FUNCTIONS[run])
        elif run in CONSTANTS:
            self.add("const", CONSTANTS[run])
        elif run == "sqrt":
            self.add("cmd", "sqrt")
        else:
            self.add("sym", run)

    def product(self, run: str) -> None:
        """xy is x times y; xsinx is x times sin x."""
        for name in sorted(FUNCTIONS, key=len, reverse=True) if len(run) > 2 else ():
            at = run.find(name)
            if at >= 0 and len(run) - len(name) <= 3:
                if at:
                    self.product(run[:at])
                self.named(name)
                if run[at + len(name) :]:
                    self.product(run[at + len(name) :])
                return
        for letter in run:
            self.add("const" if letter in "ie" else "sym", letter)

    def word(self, word: str) -> None:
        """Adjacent words are one token."""
        if self.last("text") and self.tokens[-1].value not in ORDINAL_ENDINGS:
            self.tokens[-1] = Token("text", f"{self.tokens[-1].value} {word}", self.tokens[-1].gap)
        else:
            self.add("text", word)

    def command(self) -> None:
        match = COMMAND.match(self.text, self.position)
        if match is None:
            raise Unparsed
        name, self.position = match.group(1), match.end()
        if match.group().endswith("*") and not name.isalpha():
            self.position -= 1
        if name == "not":
            return self.negated()
        if name in IGNORED:
            self.ignored(name)
        elif name in TEXT_COMMANDS:
            self.text_command()
        elif name in FONTS:
            self.gap = True
        elif name in ("begin", "end"):
            self.add(name, self.argument())
            if name == "begin" and self.tokens[-1].value == "array":
                self.argument()
        elif name in WITH_ARGUMENT:
            self.argument()
        elif name in ("(", ")", "[", "]"):
            self.gap = True  # the marks of math mode
        else:
            self.plain_command(name)

    def negated(self) -> None:
        sign = re.compile(r"\s*=").match(self.text, self.position)
        if sign is None:
            raise Unparsed
        self.position = sign.end()
        self.add("op", "≠")

    def ignored(self, name: str) -> None:
        if name in BLANKS:
            self.gap = True
        if name in ("left", "right", "middle"):
            dot = re.compile(r"\s*\.(?![0-9])").match(self.text, self.position)
            bar = re.compile(r"\s*(?:\||\\[lr]?vert(?![A-Za-z]))").match(self.text, self.position)
            if dot:
                self.position = dot.end()
            elif bar:
                self.position = bar.end()
                self.add("op", {"left": "|(", "right": "|)", "middle": "mid"}[name])

    def plain_command(self, name: str) -> None:
        if name in OPERATORS:
            value = OPERATORS[name]
            space = ROW_SPACE.match(self.text, self.position) if value == "\\\\" else None
            self.position = space.end() if space else self.position
            self.brackets += (value in ("S{", "<(")) - (value in ("S}", ">)"))
            self.add("op", value)
        elif name in CURRENCY:
            self.add("cmd", CURRENCY[name])
        elif name in CONSTANTS:
            self.add("const", CONSTANTS[name])
        elif name in FUNCTIONS:
            self.add("fn", FUNCTIONS[name])
        elif name in SYMBOLS:
            self.add("sym", SYMBOLS[name])
        elif name in STRUCTURES:
            self.add("cmd", STRUCTURES[name])
        else:
            raise Unparsed

    def argument(self) -> str:
        """The text between the braces that come next."""
        start = self.text.find("{", self.position)
        if start < 0 or self.text[self.position : start].strip():
            raise Unparsed
        end = closing_brace(self.text, start)
        if end < 0:
            raise Unparsed
        self.position = end + 1
        return self.text[start + 1 : end]

    def text_command(self) -> None:
        if not self.text[self.position :].lstrip().startswith("{"):
            return  # \\text 5
        content = self.argument()
        if self.splices(content):
            self.spliced += 1
            if self.spliced > MAX_DEPTH:
                raise TooBig
            # mathematics inside \text: read on as if the command were not there
            self.text = f" {content} {self.text[self.position :]}"
            self.position = 0
            return
        if content[:1].isspace():
            self.gap = True
        for piece in WORD_OR_SIGN.findall(content):
            word = piece.strip(".'’-") if piece[:1].isalpha() else piece
            if word in ("and", "or"):
                self.add("op", word)
            elif word.isalpha():
                self.word(word)
            elif word in (",", ";", ":", "/", "(", ")", "%", "="):
                self.sign_in_text(word)
            elif piece[:1].isalpha():
                self.word(word.replace(".", "").replace("-", " ").replace("'", ""))

    def sign_in_text(self, sign: str) -> None:
        self.brackets += (sign == "(") - (sign == ")")
        self.add("op", sign)

    def splices(self, content: str) -> bool:
        name = content.strip()
        if name in FUNCTIONS or name in ("e", "i"):
            return True
        has_math = any(c in "0123456789\\$^_=<>+*/{}|" for c in content)
        return has_math and not re.fullmatch(r"\s*[A-Za-z]+(?:/[A-Za-z]+)+\s*", content)


def tokenize(text: str) -> list[Token]:
    """The tokens of an answer; caps on its length come before any other work."""
    if len(text) > MAX_CHARS:
        raise TooBig
    text = to_ascii(text).replace("{:}", ":")
    if text.replace(r"\$", "").count("$") % 2 == 0:
        text = re.sub(r"(?<!\\)\$", " ", text)
    if len(text) > 2 * MAX_CHARS:
        raise TooBig
    text = text.strip()
    while len(text) > 2 and text[0] == text[-1] and text[0] in '*"`':
        text = text[1:-1].strip()
    return Lexer(re.sub(r"(?<!\\)\\$", "", text.strip())).run()
