"""Problems about bare numbers, and how one line of working is written.

A family is a function `(rng, steps) -> (text, lines, answer)`: the problem as it is asked, the
working as a pupil writes it (exactly `steps` lines, one small calculation each), and the answer.
Numbers stay so small that every line is easy; what is hard is to see the answer at once. Only
`rng.randrange` and `rng.choice` are used: they draw the same in every version of Python.
"""

from math import gcd

NAMES = (
    "Ana",
    "Ben",
    "Cleo",
    "Dan",
    "Eva",
    "Finn",
    "Gina",
    "Hugo",
    "Ida",
    "Jon",
    "Kim",
    "Leo",
    "Mia",
    "Noah",
    "Olga",
    "Paul",
    "Rosa",
    "Sam",
    "Tom",
    "Zoe",
)
THINGS = (
    "apples",
    "pens",
    "books",
    "coins",
    "cards",
    "stamps",
    "shells",
    "marbles",
    "stickers",
    "nuts",
    "eggs",
    "balls",
    "cups",
    "flowers",
    "plums",
    "keys",
)


def between(rng, low, high):
    """A whole number from low to high, both included."""
    return rng.randrange(low, high + 1)


def pick(rng, items, count):
    """`count` different items, in random order."""
    rest = list(items)
    return [rest.pop(rng.randrange(len(rest))) for _ in range(count)]


def times(a, b):
    """A product as a pupil writes it: a two-digit factor is split into tens and ones."""
    small, large = min(a, b), max(a, b)
    if large <= 12 or large % 10 == 0:
        return f"{a} * {b} = {a * b}"
    tens, ones = large - large % 10, large % 10
    return f"{a} * {b} = {small * tens} + {small * ones} = {a * b}"


def add(a, b):
    return f"{a} + {b} = {a + b}"


def sub(a, b):
    return f"{a} - {b} = {a - b}"


def div(a, b):
    return f"{a} / {b} = {a // b}"


def listed(parts):
    """'a, b and c'."""
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def products(rng, steps):
    """Products of two or three numbers, the last of them too large to see at once."""
    if steps == 1:
        a, b = between(rng, 3, 9), between(rng, 13, 99)
        a, b = rng.choice(((a, b), (b, a)))
        text = rng.choice((f"What is {a} * {b}?", f"Multiply {a} by {b}."))
        return text, [times(a, b)], a * b
    if steps == 2:
        a, b, c = between(rng, 2, 9), between(rng, 2, 9), between(rng, 2, 9)
        thing = rng.choice(THINGS)
        text = rng.choice(
            (
                f"What is {a} * {b} * {c}?",
                f"There are {a} rooms with {b} boxes each. Each box holds {c} {thing}. "
                f"How many {thing} are there?",
            )
        )
        return text, [times(a, b), times(a * b, c)], a * b * c
    a, b = between(rng, 13, 39), between(rng, 12, 39)
    tens, ones = b - b % 10, b % 10
    if ones < 2:
        b, ones = b + 3, ones + 3
    text = rng.choice((f"What is {a} * {b}?", f"Multiply {a} by {b}."))
    lines = [f"{a} * {tens} = {a * tens}", times(a, ones), add(a * tens, a * ones)]
    return text, lines, a * b


def equations(rng, steps):
    """Equations in x, and numbers to be found by undoing what was done to them."""
    if rng.randrange(2) or steps > 3:
        return think_of_a_number(rng, steps)
    a, x, b = between(rng, 2, 9), between(rng, 2, 15), between(rng, 2, 40)
    if steps == 2 and rng.randrange(2):
        b = between(rng, 2, 20)
        text = f"{a}(x + {b}) = {a * (x + b)}"
        lines = [f"x + {b} = {div(a * (x + b), a)}", f"x = {sub(x + b, b)}"]
    elif steps == 2:
        text = f"{a}x + {b} = {a * x + b}"
        lines = [f"{a}x = {sub(a * x + b, b)}", f"x = {div(a * x, a)}"]
    else:
        c = between(rng, 1, 6)
        text = f"{a + c}x + {b} = {c}x + {a * x + b}"
        lines = [sub(a + c, c), f"{a}x = {sub(a * x + b, b)}", f"x = {div(a * x, a)}"]
    return rng.choice((f"Solve for x: {text}", f"Find x if {text}.")), lines, x


def think_of_a_number(rng, steps):
    """Undo `steps` operations, the last one first."""
    number = value = between(rng, 2, 20)
    told, undone = [], []
    for _ in range(steps):
        kind = rng.choice(["add"] + ["subtract"] * (value > 9) + ["multiply"] * (value <= 30))
        n = (
            between(rng, 2, 4 if value > 12 else 9)
            if kind == "multiply"
            else between(rng, 2, min(30, value - 3) if kind == "subtract" else 30)
        )
        after = {"add": value + n, "subtract": value - n, "multiply": value * n}[kind]
        told.append(f"multiply by {n}" if kind == "multiply" else f"{kind} {n}")
        undone.insert(0, {"add": sub, "subtract": add, "multiply": div}[kind](after, n))
        value = after
    text = f"I think of a number, {listed(told)}. I get {value}. What is my number?"
    return text, undone, number


def order_of_operations(rng, steps):
    """Sums of numbers, products and bracketed products: brackets, then products, then sums."""
    left = steps
    terms, brackets, multiplied = [], [], []
    while left > 0 or len(terms) < 2:
        width = between(rng, 0, min(2, left - (1 if terms else 0) - (not terms)))
        term, value, inner, outer = expression_term(rng, max(width, 0))
        left -= width + (1 if terms else 0)
        terms.append((term, value))
        brackets += inner
        multiplied += outer
    return written_sum(rng, terms, brackets + multiplied)


def expression_term(rng, width):
    """A term with `width` operations: its text, its value, its bracket line, its product line."""
    if width == 0:
        n = between(rng, 4, 60)
        return str(n), n, [], []
    a = between(rng, 2, 9)
    if width == 1:
        b = between(rng, 3, 12)
        return f"{a} * {b}", a * b, [], [times(a, b)]
    b, c = between(rng, 6, 15), between(rng, 2, 5)
    if rng.randrange(2):
        return f"{a} * ({b} + {c})", a * (b + c), [add(b, c)], [times(a, b + c)]
    return f"{a} * ({b} - {c})", a * (b - c), [sub(b, c)], [times(a, b - c)]


def written_sum(rng, terms, lines):
    text, total = terms[0]
    for term, value in terms[1:]:
        minus = value < total and rng.randrange(2)
        lines.append(sub(total, value) if minus else add(total, value))
        text += f" {'-' if minus else '+'} {term}"
        total += -value if minus else value
    return rng.choice((f"Compute {text}.", f"What is {text}?")), lines, total


def fraction_sums(rng, steps):
    """The sum or difference of two fractions, in lowest terms."""
    while True:
        b, d = pick(rng, (2, 3, 4, 5, 6, 8, 9, 10, 12), 2)
        a, c = between(rng, 1, b - 1), between(rng, 1, d - 1)
        bottom = b * d // gcd(b, d)
        top_1, top_2 = a * bottom // b, c * bottom // d
        plus = rng.randrange(2) or top_1 <= top_2
        top = top_1 + top_2 if plus else top_1 - top_2
        lines = [
            f"{n}/{m} = {t}/{bottom}" for n, m, t in ((a, b, top_1), (c, d, top_2)) if m != bottom
        ]
        lines.append((add if plus else sub)(top_1, top_2))
        common = gcd(top, bottom)
        if common > 1:
            lines.append(f"{top}/{bottom} = {top // common}/{bottom // common}")
        if gcd(a, b) == gcd(c, d) == 1 and len(lines) == steps and common < bottom and bottom < 61:
            break
    text = rng.choice(("Compute {}.", "What is {}?")).format(f"{a}/{b} {'+-'[not plus]} {c}/{d}")
    return text, lines, f"\\frac{{{top // common}}}{{{bottom // common}}}"


def sequences(rng, steps):
    """The next number, the n-th number, or a rule applied again and again."""
    if steps == 4 or (steps == 2 and rng.randrange(3) == 0):
        return rule_sequence(rng, steps)
    start, step = between(rng, 1, 60), between(rng, 3, 25)
    terms = [start + step * i for i in range(4)]
    if steps == 2 and rng.randrange(2):
        terms = [start + step * (4 - i) for i in range(4)]
        text = f"What is the next number: {', '.join(map(str, terms))}?"
        return text, [sub(terms[0], terms[1]), sub(terms[3], step)], terms[3] - step
    shown = ", ".join(map(str, terms))
    if steps == 2:
        text = f"What is the next number: {shown}?"
        return text, [sub(terms[1], start), add(terms[3], step)], terms[3] + step
    n = between(rng, 6, 10)
    text = f"What is the {n}th number of {shown}, ...?"
    lines = [sub(terms[1], start), times(n - 1, step), add(start, (n - 1) * step)]
    return text, lines, start + (n - 1) * step


def rule_sequence(rng, steps):
    value, factor, n = between(rng, 3, 15), between(rng, 2, 4), between(rng, 1, 19)
    plus = rng.randrange(2) or factor * value - n < value
    text = (
        f"A sequence starts with {value}. The next number is always {factor} times the last "
        f"{'plus' if plus else 'minus'} {n}. What is the {steps // 2 + 1}"
        f"{'nd' if steps == 2 else 'rd'} number?"
    )
    lines = []
    for _ in range(steps // 2):
        lines += [times(factor, value), (add if plus else sub)(factor * value, n)]
        value = factor * value + (n if plus else -n)
    return text, lines, value


def averages(rng, steps):
    """The mean of `steps` numbers."""
    mean = between(rng, 10, 40)
    numbers = [mean + between(rng, -9, 9) for _ in range(steps - 1)]
    numbers.append(mean * steps - sum(numbers))
    if not 1 <= numbers[-1] <= 60:
        return averages(rng, steps)
    lines, total = [], numbers[0]
    for n in numbers[1:]:
        lines.append(add(total, n))
        total += n
    shown = listed([str(n) for n in numbers])
    text = rng.choice((f"What is the mean of {shown}?", f"Find the average of {shown}."))
    return text, lines + [div(total, steps)], mean
