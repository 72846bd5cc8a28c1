"""Text to tokens, in one pass from left to right."""

import re
from typing import NamedTuple

from .characters import to_ascii
from .extract import closing_brace
from .limits import MAX_CHARS, MAX_DEPTH, MAX_TOKENS, TooBig, Unparsed
from .words import AFTER_VALUES, ORDINAL_ENDINGS, looks_like_word


class Token(NamedTuple):
    kind: str  # num, sym, const, fn, text, cmd, op, begin, end
    value: str
    gap: bool = False  # a blank stands before it


FUNCTIONS = {
    name: name
    for name in """sin cos tan cot sec csc sinh cosh tanh arcsin arccos arctan ln log exp gcd lcm
    max min floor ceil abs det arccot arcsec arccsc""".split()
} | {"lg": "log", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "ceiling": "ceil",
     "cosec": "csc", "sign": "sgn", "sgn": "sgn"}  # fmt: skip
GREEK = set(
    """alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau
    upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega""".split()
)
INFINITY = {"oo", "inf", "infinity", "Infinity", "infty"}
SYMBOLS = {name: name for name in GREEK} | {
    "varphi": "phi", "varepsilon": "epsilon", "vartheta": "theta", "varrho": "rho",
    "varsigma": "sigma", "ell": "l", "jmath": "j", "ldots": "...", "dots": "...",
    "cdots": "...", "dotsc": "...", "dotsb": "...", "hbar": "hbar", "aleph": "aleph",
}  # fmt: skip
CONSTANTS = {"pi": "pi", "imath": "i", "infty": "inf", "emptyset": "empty", "varnothing": "empty"}
OPERATORS = {
    "cdot": "*", "times": "*", "ast": "*", "div": "/", "pm": "±", "mp": "∓", "cup": "∪",
    "cap": "∩", "setminus": "∖", "backslash": "∖", "in": "∈", "lbrace": "S{", "rbrace": "S}",
    "{": "S{", "}": "S}", "langle": "<(", "rangle": ">)", "lfloor": "⌊", "rfloor": "⌋",
    "lceil": "⌈", "rceil": "⌉", "le": "≤", "leq": "≤", "leqslant": "≤", "ge": "≥", "geq": "≥",
    "geqslant": "≥", "lt": "<", "gt": ">", "ne": "≠", "neq": "≠", "approx": "≈", "sim": "≈",
    "simeq": "≈", "cong": "≈", "doteq": "≈", "equiv": "≡", "mid": "mid", "vert": "|",
    "lvert": "|(", "rvert": "|)", "Vert": "||", "|": "||", "lVert": "||", "rVert": "||",
    "%": "%", "degree": "°", "prime": "'", "\\": "\\\\", "&": "&", "colon": ":", "over": "over",
    "choose": "choose", "land": "and", "lor": "or", "wedge": "and", "vee": "or", "iff": "⇒",
    "Rightarrow": "⇒", "implies": "⇒", "to": "⇒", "newline": "\\\\", "lbrack": "[", "rbrack": "]",
    "bullet": "*", "minus": "-", "plus": "+", "cr": "\\\\", "deg": "°",
}  # fmt: skip
STRUCTURES = {
    name: name
    for name in """frac sqrt binom overline bar dot vec hat angle triangle widehat pmod bmod mod
    underline overrightarrow stackrel underbrace mathbb tilde""".split()
} | {"dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "sfrac": "frac", "nicefrac": "frac", "dbinom": "binom", "tbinom": "binom",
     "measuredangle": "angle", "overparen": "overarc", "widetilde": "tilde",
     "root": "sqrt"}  # fmt: skip
CURRENCY = {"$": "dollar", "euro": "euro", "pounds": "gbp", "yen": "yen", "rupee": "rupee"}
TEXT_COMMANDS = set(
    """text mbox textbf textrm textit texttt textsf hbox textnormal mathrm operatorname mathsf
    emph textup textsuperscript""".split()
)
FONTS = set("mathbf mathit boldsymbol mathcal bm underline mathfrak mathscr pmb rm bf it boxed fbox".split())
IGNORED = set(
    """left right big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr displaystyle
    textstyle scriptstyle limits nolimits quad qquad hfill thinspace medspace thickspace enspace
    middle protect strut mathstrut normalsize large Large small""".split()
) | set(",!;: >/")
BLANKS = set(", ;:>") | {"quad", "qquad", "thinspace", "enspace"}
WITH_ARGUMENT = {"hspace", "vspace", "phantom", "hphantom", "textcolor", "label", "tag", "color", "mspace"}

NUMBER = re.compile(r"[0-9]+(?:\.(?![.])[0-9]*)?|\.[0-9]+")
GROUP = re.compile(
    r"(?:(?P<sure>\{,\}\s*|,\\!\s*|\\[,;:!]\s*,\s*|\\[,:; ]|(?<=[0-9])\\!)"
    r"|(?P<maybe>,)|(?P<blank> ))"
    r"(?P<digits>[0-9]{3})(?![0-9])"
)
EXPONENT = re.compile(r"[eE]([+-]?[0-9]{1,6})(?![0-9A-Za-z.])")
HALF_OF_DAY = re.compile(r"([ap])\.?\s?m\b\.?", re.IGNORECASE)
BASE_BEGINS = re.compile(
    r"\)?\s?_\s?(?:\{\s?)?(?:\(?[0-9]|\\(?:text|mathrm|mbox)\{|(?:two|three|eight|twelve|sixteen)\b)"
)
ROW_SPACE = re.compile(r"\s*\[-?[0-9.]{1,6}\s?[a-z]{2}\]")
BASE_DIGITS = re.compile(r"[0-9A-Z]{1,60}")
COMMAND = re.compile(r"\\([A-Za-z]+|[^A-Za-z])\*?", re.DOTALL)
LETTERS = re.compile(r"[A-Za-z]+")
DEGREE = re.compile(r"\^\s*(?:\\(?:circ|degree)(?![A-Za-z])|\{\s*\\(?:circ|degree)\s*\})")
PRIMES = re.compile(r"\^\s*(?:\\prime(?![A-Za-z])|\{\s*(?:\\prime\s*)+\})")
TIMES_TEN = re.compile(r"x(?=\s*10\s*\^)")
TWO_SIGNS = {"<=": "≤", ">=": "≥", "=<": "≤", "=>": "⇒", "**": "^", "==": "=", "->": "⇒", ":=": "="}
ONE_SIGN = set("+-*/^_()[]{}|,;:!=<>'&%")
WORD_OR_SIGN = re.compile(r"[A-Za-z][A-Za-z'’.-]*|[^A-Za-z\s]")


class Lexer:
    def __init__(self, text: str):
        self.text = text
        self.position = 0
        self.tokens: list[Token] = []
        self.gap = False
        self.spliced = 0  # how many \\text commands had mathematics in them
        self.brackets = 0  # commas inside brackets never group digits

    def add(self, kind: str, value: str) -> None:
        if len(self.tokens) >= MAX_TOKENS:
            raise TooBig
        self.tokens.append(Token(kind, value, self.gap))
        self.gap = False

    def last(self, kind: str, *values: str) -> bool:
        """Whether the token before this place is of that kind (and value)."""
        if not self.tokens or self.tokens[-1].kind != kind:
            return False
        return not values or self.tokens[-1].value in values

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

    def base_digits(self) -> str | None:
        """A3 in A3_{16}: digits and capitals, up to a subscript that begins with a digit."""
        match = BASE_DIGITS.match(self.text, self.position)
        if match is None or not BASE_BEGINS.match(self.text, match.end()):
            return None
        return match.group() if any(c.isdigit() for c in match.group()) else None

    def number(self) -> None:
        base_digits = self.base_digits()
        match = NUMBER.match(self.text, self.position)
        if base_digits and (match is None or len(base_digits) > match.end() - self.position):
            self.position += len(base_digits)
            return self.add("num", base_digits)
        if match is None:
            return self.dots()
        digits, self.position = match.group(), match.end()
        if "." not in digits and len(digits) <= 3 and digits[0] != "0":
            digits += self.digit_groups()
            decimals = re.compile(r"\.[0-9]+").match(self.text, self.position)
            if decimals and "." not in digits:
                digits, self.position = digits + decimals.group(), decimals.end()
        exponent = EXPONENT.match(self.text, self.position)
        if exponent:
            digits, self.position = f"{digits}e{exponent.group(1)}", exponent.end()
        self.add("num", digits)

    def digit_groups(self) -> str:
        """The ,220 of 2,220 in any of its spellings; nothing unless every group has 3 digits."""
        digits, end = "", self.position
        while match := GROUP.match(self.text, end):
            if match["maybe"] and self.brackets:
                break
            digits, end = digits + match["digits"], match.end()
            if match["blank"] and (self.brackets or self.text[end : end + 1] in ("/", "\\")):
                return ""
        if re.compile(r",[0-9]").match(self.text, end):
            return ""  # 100,200,30 is a list
        self.position = end
        return digits

    def dots(self) -> None:
        if self.text.startswith("...", self.position):
            self.position += 3
            self.add("sym", "...")
        elif self.text[self.position + 1 :].strip(" .$\\)]}") == "" or self.last("text"):
            self.position += 1  # the full stop of a sentence
        else:
            raise Unparsed

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
        after_value = self.last("num") or self.last("const", "pi") or self.last("op", ")", "}", "°", "S}") or self.last("text")
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
    while len(text) > 2 and text[0] == text[-1] and text[0] in "*\"`":
        text = text[1:-1].strip()
    return Lexer(re.sub(r"(?<!\\)\\$", "", text.strip())).run()
