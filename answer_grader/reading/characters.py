"""Unicode to the ASCII notation the lexer knows. Whatever is not in these tables stays, and is
refused there."""

import re

SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱˣʸ", "0123456789+-=()nixy", strict=True))
SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₓₙᵢⱼₖₘ", "0123456789+-=()aexnijkm", strict=True))
VULGAR = {
    "½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5), "⅖": (2, 5),
    "⅗": (3, 5), "⅘": (4, 5), "⅙": (1, 6), "⅚": (5, 6), "⅛": (1, 8), "⅜": (3, 8), "⅝": (5, 8),
    "⅞": (7, 8), "⅐": (1, 7), "⅑": (1, 9), "⅒": (1, 10),
}  # fmt: skip
GREEK = (
    "α alpha β beta γ gamma δ delta ε epsilon ϵ epsilon ζ zeta η eta θ theta ϑ theta ι iota "
    "κ kappa λ lambda μ mu µ mu ν nu ξ xi π pi ρ rho σ sigma τ tau υ upsilon φ phi ϕ phi χ chi "
    "ψ psi ω omega Γ Gamma Δ Delta Θ Theta Λ Lambda Ξ Xi Π Pi Σ Sigma Φ Phi Ψ Psi Ω Omega"
).split()
SIGNS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "﹣": "-", "➖": "-",
    "×": r"\times ", "⋅": r"\cdot ", "·": r"\cdot ", "∙": r"\cdot ", "•": r"\cdot ", "∗": "*",
    "÷": r"\div ", "∕": "/", "⁄": "/", "√": r"\sqrt ", "∛": r"\sqrt[3]", "∜": r"\sqrt[4]",
    "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ", "⩾": r"\ge ", "≠": r"\ne ",
    "≈": r"\approx ", "≅": r"\approx ", "≡": r"\equiv ", "±": r"\pm ", "∓": r"\mp ",
    "°": r"^\circ ", "º": r"^\circ ", "∪": r"\cup ", "∩": r"\cap ", "∅": r"\emptyset ",
    "⌀": r"\emptyset ", "ø": r"\emptyset ", "Ø": r"\emptyset ", "∈": r"\in ", "∖": r"\setminus ",
    "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}",
    "ℂ": r"\mathbb{C}", "∠": r"\angle ", "△": r"\triangle ", "…": r"\ldots ", "⋯": r"\cdots ",
    "′": "'", "’": "'", "‘": "'", "⟨": r"\langle ", "⟩": r"\rangle ", "〈": r"\langle ",
    "〉": r"\rangle ", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ",
    "€": r"\euro ", "£": r"\pounds ", "¥": r"\yen ", "₹": r"\rupee ", "¢": r"\text{cents}",
    "∣": "|", "‖": r"\|", "“": " ", "”": " ", "、": ", ", "。": ".", "∧": r"\text{ and }",
    "∨": r"\text{ or }", "\u2009": r"\,", "\u202f": r"\,", "\u2007": r"\,", "\u2008": r"\,",
    "\u00a0": " ", "\u2003": " ", "\u2002": " ", "\u2004": " ", "\u2005": " ", "\u200a": " ",
    "\u3000": " ", "\u00ad": "",
}  # fmt: skip
INVISIBLE = {c: "" for c in "\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\ufeff"}
FULL_WIDTH = {chr(c): chr(c - 0xFEE0) for c in range(0xFF01, 0xFF5F)}
TABLE = str.maketrans(
    SIGNS
    | INVISIBLE
    | FULL_WIDTH
    | {c: rf"\frac{{{n}}}{{{d}}}" for c, (n, d) in VULGAR.items()}
    | {c: f"\\{name} " for c, name in zip(GREEK[::2], GREEK[1::2], strict=True)}
)
SUPERSCRIPT_RUN = re.compile(f"[{''.join(SUPERSCRIPTS)}]+")
SUBSCRIPT_RUN = re.compile(f"[{''.join(SUBSCRIPTS)}]+")


def to_ascii(text: str) -> str:
    """The same answer in ASCII and LaTeX commands, as far as the tables know its characters."""
    if text.isascii():
        return text
    text = SUPERSCRIPT_RUN.sub(lambda m: "^{" + "".join(map(SUPERSCRIPTS.get, m[0])) + "}", text)
    text = SUBSCRIPT_RUN.sub(lambda m: "_{" + "".join(map(SUBSCRIPTS.get, m[0])) + "}", text)
    return text.translate(TABLE)
