"""What each LaTeX command and plain name is to the lexer."""

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
    "cap": "∩", "setminus": "∖", "backslash": "∖", "in": "∈", "lbrace": r"\{", "rbrace": r"\}",
    "{": r"\{", "}": r"\}", "langle": "⟨", "rangle": "⟩", "lfloor": "⌊", "rfloor": "⌋",
    "lceil": "⌈", "rceil": "⌉", "le": "≤", "leq": "≤", "leqslant": "≤", "ge": "≥", "geq": "≥",
    "geqslant": "≥", "lt": "<", "gt": ">", "ne": "≠", "neq": "≠", "approx": "≈", "sim": "≈",
    "simeq": "≈", "cong": "≈", "doteq": "≈", "equiv": "≡", "mid": "mid", "vert": "|",
    "lvert": "|(", "rvert": "|)", "Vert": "||", "|": "||", "lVert": "||", "rVert": "||",
    "%": "%", "degree": "°", "prime": "'", "\\": "\\\\", "&": "&", "colon": ":", "over": "over",
    "choose": "choose", "land": "and", "lor": "or", "wedge": "and", "vee": "or", "iff": "⇒",
    "Rightarrow": "⇒", "implies": "⇒", "to": "⇒", "newline": "\\\\", "lbrack": "[", "rbrack": "]",
    "bullet": "*", "cr": "\\\\", "deg": "°",
}  # fmt: skip
STRUCTURES = {
    name: name
    for name in """frac sqrt binom overline bar dot vec hat angle triangle widehat pmod bmod mod
    underline overrightarrow mathbb tilde""".split()
} | {"dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "sfrac": "frac", "nicefrac": "frac",
     "dbinom": "binom", "tbinom": "binom",
     "measuredangle": "angle", "widetilde": "tilde"}  # fmt: skip
CURRENCY = {"$": "dollar", "euro": "euro", "pounds": "gbp", "yen": "yen", "rupee": "rupee"}
TEXT_COMMANDS = set(
    """text mbox textbf textrm textit texttt textsf hbox textnormal mathrm operatorname mathsf
    emph textup textsuperscript""".split()
)
FONTS = set(
    "mathbf mathit boldsymbol mathcal bm underline mathfrak mathscr pmb rm bf it boxed fbox".split()
)
IGNORED = set(
    """left right big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr displaystyle
    textstyle scriptstyle limits nolimits quad qquad hfill thinspace medspace thickspace enspace
    middle protect strut mathstrut normalsize large Large small""".split()
) | set(",!;: >/")
BLANKS = set(", ;:>") | {"quad", "qquad", "thinspace", "enspace"}
WITH_ARGUMENT = {
    "hspace",
    "vspace",
    "textcolor",
    "color",
    "mspace",
}
INVISIBLE = {"phantom", "hphantom", "vphantom"}  # take the room of what they hide
