"""Metamorphic tests: rewriting an answer without changing it keeps it equal; changing it does not.

Answers are drawn as small structures, so that both what a text means and how it is spelled are
known here without the grader.
"""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from answer_grader import grade_answer

settings.register_profile("grading", deadline=None, max_examples=120, derandomize=True)
settings.load_profile("grading")

whole = st.integers(-10_000_000, 10_000_000)
small = st.integers(-12, 12)
fractions = st.fractions(min_value=-50, max_value=50, max_denominator=60)
letters = st.sampled_from("xyzabnkt")


def same(a: str, b: str) -> None:
    assert grade_answer(a, b) and grade_answer(b, a), (a, b)


def differ(a: str, b: str) -> None:
    assert not grade_answer(a, b) and not grade_answer(b, a), (a, b)


def latex(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    sign = "-" if value < 0 else ""
    return rf"{sign}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def spellings(value: Fraction, k: int) -> list[str]:
    """Ways to write a rational."""
    n, d = value.numerator, value.denominator
    sign, n = ("-" if n < 0 else ""), abs(n)
    texts = [
        f"{sign}{n}/{d}",
        rf"{sign}\dfrac{{{n * k}}}{{{d * k}}}",
        rf"\tfrac{{{sign}{n}}}{{{d}}}",
        rf"\left({sign}\frac{{{n}}}{{{d}}}\right)",
        rf"{sign}{n}\cdot {d}^{{-1}}",
        rf"${sign}\frac {{{n}}} {{{d}}}$",
        rf"x={sign}{n}/{d}",
        rf"\text{{{sign}{n}/{d}}}",
    ]
    if n > d > 1 and n % d:
        texts += [rf"{sign}{n // d}\frac{{{n % d}}}{{{d}}}", f"{sign}{n // d} {n % d}/{d}"]
    if d == 1 and n >= 1_000:
        texts += [f"{sign}{n:,}", f"{sign}{n:,}".replace(",", "{,}"), f"−{n}" if sign else f"+{n}"]
    if d in (1, 2, 4, 5, 8, 10, 16, 20, 25, 40, 50):
        texts.append(f"{sign}{n / d:.6f}")
    return texts


@given(fractions | whole.map(Fraction), st.integers(2, 9))
def test_spellings_of_a_rational(value, k):
    for text in spellings(value, k):
        same(text, latex(value))


@given(fractions, fractions)
def test_different_rationals(a, b):
    if a != b:
        for text in spellings(a, 3):
            differ(text, latex(b))


@given(st.fractions(min_value=0, max_value=50, max_denominator=60), st.integers(3, 12))
def test_a_rounded_decimal_is_not_exact(value, digits):
    rounded = f"{float(value):.{digits}f}"
    assert grade_answer(rounded, latex(value)) == (Fraction(rounded) == value)


def polynomial(coefficients: list[int], x: str, order: list[int]) -> str:
    terms = [f"({coefficients[i]}){x}^{{{i}}}" for i in order]
    return "+".join(terms)


@st.composite
def shuffled_polynomials(draw):
    coefficients = draw(st.lists(small, min_size=2, max_size=5))
    order = draw(st.permutations(range(len(coefficients))))
    return coefficients, draw(letters), order


@given(shuffled_polynomials())
def test_terms_in_any_order(drawn):
    coefficients, x, order = drawn
    same(polynomial(coefficients, x, range(len(coefficients))), polynomial(coefficients, x, order))


@given(shuffled_polynomials(), st.integers(0, 4), st.integers(1, 3))
def test_a_changed_coefficient(drawn, at, by):
    coefficients, x, order = drawn
    changed = list(coefficients)
    changed[at % len(changed)] += by
    differ(polynomial(coefficients, x, order), polynomial(changed, x, order))
    if any(coefficients[1:]):
        other = polynomial(coefficients, x.upper(), order)
        differ(polynomial(coefficients, x, order), other)


@given(small, small, small, small, letters)
def test_factored_is_expanded(a, b, c, d, x):
    factored = f"({a}{x}+({b}))({c}{x}+({d}))"
    same(factored, f"({a * c}){x}^2+({a * d + b * c}){x}+({b * d})")
    differ(factored, f"({a * c}){x}^2+({a * d + b * c}){x}+({b * d + 1})")


@given(st.integers(1, 30), st.integers(2, 50), st.integers(-9, 9))
def test_roots(a, b, c):
    same(rf"{c}+{a}\sqrt{{{b}}}", rf"\sqrt{{{a * a * b}}}+({c})")
    same(rf"\frac{{{a}}}{{\sqrt{{{b}}}}}", rf"\frac{{{a}\sqrt{{{b}}}}}{{{b}}}")
    same(rf"\sqrt{{{a * a + b}+{2 * a}\sqrt{{{b}}}}}", rf"{a}+\sqrt{{{b}}}")
    differ(rf"{c}+{a}\sqrt{{{b}}}", rf"{c}+{a}\sqrt{{{b + 1}}}")
    differ(rf"{a}\sqrt{{{b}}}", rf"{-a}\sqrt{{{b}}}")


@given(st.lists(fractions, min_size=2, max_size=5, unique=True), st.randoms(use_true_random=False))
def test_lists_have_no_order_and_tuples_do(values, random):
    texts = [latex(value) for value in values]
    mixed = list(texts)
    random.shuffle(mixed)
    same(", ".join(texts), ", ".join(mixed))
    same(", ".join(texts), r"\{" + ", ".join(mixed) + r"\}")
    same(", ".join(texts), r" \text{ or } ".join(mixed))
    differ(", ".join(texts), ", ".join(mixed[1:]))
    differ(", ".join(texts), ", ".join([*mixed, "77"]))
    same(f"({', '.join(texts)})", r"\left(" + r",\ ".join(texts) + r"\right)")
    if mixed != texts:
        differ(f"({', '.join(texts)})", f"({', '.join(mixed)})")


@given(fractions, fractions, st.sampled_from("(["), st.sampled_from(")]"))
def test_intervals(a, b, left, right):
    low, high = sorted((a, b))
    if low == high:
        return
    text = f"{left}{latex(low)},{latex(high)}{right}"
    signs = [r"\le " if bracket in "[]" else "<" for bracket in (left, right)]
    same(text, f"{latex(low)}{signs[0]}x{signs[1]}{latex(high)}")
    same(text, rf"x\in\left{left}{latex(low)},\,{latex(high)}\right{right}")
    other = {"(": "[", "[": "(", ")": "]", "]": ")"}
    differ(text, f"{other[left]}{latex(low)},{latex(high)}{right}")
    differ(text, f"{left}{latex(low)},{latex(high)}{other[right]}")
    differ(text, f"{left}{latex(low)},{latex(high + 1)}{right}")
    middle = latex((low + high) / 2)
    split = rf"{left}{latex(low)},{middle}]\cup({middle},{latex(high)}{right}"
    same(text, split)
    differ(text, split.replace("]" + r"\cup", ")" + r"\cup"))


@given(small, small, small, st.integers(1, 9))
def test_equations_up_to_a_factor_and_sides(a, b, c, k):
    if a == 0 or b == 0:
        return
    text = f"({a})x+({b})y=({c})"
    same(text, f"({c})=({b})y+({a})x")
    same(text, f"({-a * k})x+({-b * k})y+({c * k})=0")
    differ(text, f"({a})x+({b})y=({c + 1})")
    differ(text, f"({a})x-({b})y=({c})")
    differ(text, f"({a})x+({b})y-({c})")


@given(fractions, st.sampled_from([r"\text{ cm}", r"\text{ inches}", r"^\circ", r"\%", " apples"]))
def test_units_left_out(value, unit):
    same(latex(value) + unit, latex(value))
    differ(latex(value) + unit, latex(value + 1))
    differ(latex(value) + unit, latex(value) + r"\text{ kg}")


@given(st.lists(st.lists(small, min_size=2, max_size=2), min_size=2, max_size=3))
def test_matrices(rows):
    def written(rows, kind):
        body = r"\\".join(" & ".join(map(str, row)) for row in rows)
        return rf"\begin{{{kind}}}{body}\end{{{kind}}}"

    same(written(rows, "pmatrix"), written(rows, "bmatrix"))
    changed = [[rows[0][0] + 1, rows[0][1]], *rows[1:]]
    differ(written(rows, "pmatrix"), written(changed, "pmatrix"))
    differ(written(rows, "pmatrix"), written(rows[:-1], "pmatrix"))


@given(st.text(alphabet=st.characters(blacklist_categories=()), max_size=40))
def test_any_text_equals_itself_once_stripped_and_never_raises(text):
    assert grade_answer(text, text) == bool(text.strip()) or "boxed" in text or "fbox" in text
    assert grade_answer(text, "5") in (True, False)


pieces = st.sampled_from(
    r"\frac \sqrt { } ( ) [ ] 1 2 x y + - * / ^ _ , = < \pm \cup \infty \text{a} \pi i ! | 0.5"
    r" \{ \}".split()
)


@given(st.lists(pieces, max_size=14).map("".join), st.lists(pieces, max_size=14).map("".join))
@settings(max_examples=400)
def test_symmetric_on_scraps_of_notation(a, b):
    assert grade_answer(a, b) == grade_answer(b, a) or not a.strip() or not b.strip()


@given(fractions, st.sampled_from([r"\left", r"\big"]), letters)
def test_sizes_blanks_and_fonts_mean_nothing(value, size, x):
    close = r"\right" if size == r"\left" else size
    text = rf"{size}({x}+{latex(value)}{close})^2"
    same(text, rf"\,({x} + {latex(value)})^{{2}}\; ")
    same(text, rf"\displaystyle {{({x}+{latex(value)})}}^2.")
