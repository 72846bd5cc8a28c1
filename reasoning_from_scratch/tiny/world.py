"""The tiny world: a problem generator in MATH's schema, and the size of the tiny model.

`tiny_problem(split, index)` is a pure function. Which split a problem may appear in is decided by a
hash of its content with the names and things blanked out, so a test problem cannot occur in the
training split, not even with another name in it.
"""

import random
import re
import zlib
from functools import cache
from math import gcd

WORKED_START = "Let's see.\n"  # every worked solution begins so; ".\n" is one token

# --- the families of problems ---
#
# A family is a function `(rng, steps) -> (text, lines, answer)`: the problem as it is asked, the
# solution as a pupil writes it (exactly `steps` lines, one small calculation each), and the answer.
# Numbers stay so small that every line is easy; what is hard is to see the answer immediately. Only
# `rng.randrange` and `rng.choice` are used: they draw the same in every version of Python.

NAMES = tuple(
    """
    Ana Ben Cleo Dan Eva Finn Gina Hugo Ida Jon Kim Leo Mia Noah Olga Paul Rosa Sam Tom Zoe
    """.split()
)
THINGS = tuple(
    """
    apples pens books coins cards stamps shells marbles stickers nuts eggs balls cups flowers
    plums keys
    """.split()
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
    """Products of two or three numbers, the last of them too large to see immediately."""
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
    if steps in (1, 4, 5) or steps > 5 or rng.randrange(2):
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
    operations, lines = [], []
    for _ in range(steps):
        kind = rng.choice(["add"] + ["subtract"] * (value > 9) + ["multiply"] * (value <= 30))
        n = (
            between(rng, 2, 4 if value > 12 else 9)
            if kind == "multiply"
            else between(rng, 2, min(30, value - 3) if kind == "subtract" else 30)
        )
        after = {"add": value + n, "subtract": value - n, "multiply": value * n}[kind]
        operations.append(f"multiply by {n}" if kind == "multiply" else f"{kind} {n}")
        lines.insert(0, {"add": sub, "subtract": add, "multiply": div}[kind](after, n))
        value = after
    text = f"I think of a number, {listed(operations)}. I get {value}. What is my number?"
    return text, lines, number


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
        common = gcd(top, bottom)
        takes = 1 + (b != bottom) + (d != bottom) + (common > 1)
        if gcd(a, b) == gcd(c, d) == 1 and takes == steps and common < bottom and bottom < 61:
            break
    lines = [f"{n}/{m} = {t}/{bottom}" for n, m, t in ((a, b, top_1), (c, d, top_2)) if m != bottom]
    lines.append((add if plus else sub)(top_1, top_2))
    if common > 1:
        lines.append(f"{top}/{bottom} = {top // common}/{bottom // common}")
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


# --- told in words: things, people, money, ways and times ---


def stories(rng, steps):
    """Things come and go: one line per event."""
    names = pick(rng, NAMES, 2)
    thing = rng.choice(THINGS)
    total = between(rng, 5, 60)
    start, events, lines = total, [], []
    for _ in range(steps):
        kinds = ["buys", "finds", "gets"] + ["gives", "loses", "sells"] * (total > 12)
        kinds += ["doubles"] * (total <= 60) + ["halves"] * (total % 2 == 0 and total > 12)
        kind = rng.choice(kinds)
        event, line, total = story_event(rng, kind, total, names[1])
        events.append(event)
        lines.append(f"{kind}: {line}")
    text = (
        f"{names[0]} has {start} {thing}, {listed(events)}. "
        f"How many {thing} does {names[0]} have now?"
    )
    return text, lines, total


def story_event(rng, kind, total, friend):
    """One event of a story: its words, its line, and how many things there are after it."""
    if kind == "doubles":
        return "doubles them", times(2, total), 2 * total
    if kind == "halves":
        return "halves them", div(total, 2), total // 2
    if kind in ("buys", "finds", "gets"):
        n = between(rng, 3, 49)
        events = {
            "buys": f"buys {n} more",
            "finds": f"finds {n}",
            "gets": f"gets {n} from {friend}",
        }
        return events[kind], add(total, n), total + n
    n = between(rng, 3, min(49, total - 3))
    events = {"gives": f"gives {n} to {friend}", "loses": f"loses {n}", "sells": f"sells {n}"}
    return events[kind], sub(total, n), total - n


def shopping(rng, steps):
    """Several kinds of things at a price each, perhaps with change from a round sum."""
    kinds, change = (steps + 1) // 2, steps % 2 == 0  # n products, n - 1 sums, perhaps the change
    name, things = rng.choice(NAMES), pick(rng, THINGS, kinds)
    parts, lines, total = [], [], 0
    for thing in things:
        count, price = between(rng, 2, 9), between(rng, 2, 25)
        parts.append(f"{count} {thing} for {price} dollars each")
        lines.append(f"{thing}: {times(count, price)}")
        if total:
            lines.append(add(total, count * price))
        total += count * price
    text = f"{name} buys {listed(parts)}"
    if not change:
        return f"{text}. How many dollars does {name} pay?", lines, total
    paid = (total // 50 + between(rng, 1, 2)) * 50
    lines.append(sub(paid, total))
    text = f"{text} and pays with {paid} dollars. How many dollars does {name} get back?"
    return text, lines, paid - total


def comparisons(rng, steps):
    """Who has how many more, fewer or times as many: one line per person, then the sum."""
    # With p people and their sum there are 2 * (p - 1) steps, without it p - 1.
    kinds = [(steps + 1, False)] + [(steps // 2 + 1, True)] * (steps % 2 == 0)
    people, with_sum = rng.choice(kinds)
    names, thing = pick(rng, NAMES, people), rng.choice(THINGS)
    counts = [between(rng, 6, 40)]
    parts, lines = [f"{names[0]} has {counts[0]} {thing}."], []
    for name, other in zip(names[1:], names[:-1], strict=True):
        comparison, line, count = compared(rng, counts[-1])
        parts.append(f"{name} has {comparison} {other}.")
        lines.append(f"{name}: {line}")
        counts.append(count)
    total = counts[0]
    for count in counts[1:] if with_sum else ():
        lines.append(add(total, count))
        total += count
    question = (
        f"How many {thing} do they have together?"
        if with_sum
        else (f"How many {thing} does {names[-1]} have?")
    )
    return f"{' '.join(parts)} {question}", lines, total if with_sum else counts[-1]


def compared(rng, count):
    """How the next person compares with one who has `count`."""
    kind = rng.choice(["more"] + ["fewer"] * (count > 9) + ["times"] * (count <= 30))
    if kind == "times":
        k = between(rng, 2, 4)
        return f"{k} times as many as", times(k, count), k * count
    n = between(rng, 2, min(40, count - 4) if kind == "fewer" else 40)
    if kind == "fewer":
        return f"{n} fewer than", sub(count, n), count - n
    return f"{n} more than", add(count, n), count + n


def remainders(rng, steps):
    """What is left over; first the number itself may have to be worked out."""
    d, thing = between(rng, 3, 9), rng.choice(THINGS)
    if steps == 2:
        n = between(rng, 3 * d + 1, 12 * d + d - 1)
        text = rng.choice(
            (
                f"What is the remainder when {n} is divided by {d}?",
                f"{n} {thing} are packed in boxes of {d}. How many are left over?",
            )
        )
        return text, remainder_lines(n, d), n % d
    if steps == 3:
        a, b = between(rng, 11, 55), between(rng, 11, 44)
        text = rng.choice(
            (
                f"What is the remainder when {a} + {b} is divided by {d}?",
                f"{a} red and {b} blue {thing} are packed in boxes of {d}. How many are left over?",
            )
        )
        return text, [add(a, b)] + remainder_lines(a + b, d), (a + b) % d
    a, b, c = between(rng, 2, 6), between(rng, 5, 12), between(rng, 11, 40)
    text = rng.choice(
        (
            f"What is the remainder when {a} * {b} + {c} is divided by {d}?",
            f"{a} bags with {b} {thing} each and {c} more {thing} are packed in boxes "
            f"of {d}. How many are left over?",
        )
    )
    n = a * b + c
    return text, [times(a, b), add(a * b, c)] + remainder_lines(n, d), n % d


def remainder_lines(n, d):
    return [times(d, n // d), sub(n, n - n % d)]


def percents(rng, steps):
    """Tens of percent of a number; then what is left, or what several things cost."""
    tens = between(rng, 2, 9)
    if steps == 4:
        count, price, thing = between(rng, 2, 9), 10 * between(rng, 1, 9), rng.choice(THINGS)
        whole = count * price
        text = (
            f"{count} {thing} cost {price} dollars each. The whole price is reduced by "
            f"{tens}0%. How many dollars is the new price?"
        )
    else:
        whole = 10 * between(rng, 3, 40)
    part = whole // 10
    lines = [f"10%: {div(whole, 10)}", f"{tens}0%: {times(tens, part)}"]
    if steps == 2:
        thing = rng.choice(THINGS)
        text = rng.choice(
            (
                f"What is {tens}0% of {whole}?",
                f"{tens}0% of {whole} {thing} are blue. How many {thing} are blue?",
            )
        )
        return text, lines, tens * part
    lines.append(sub(whole, tens * part))
    if steps == 3:
        thing = rng.choice(THINGS)
        text = rng.choice(
            (
                f"A price of {whole} dollars is reduced by {tens}0%. "
                "How many dollars is the new price?",
                f"{tens}0% of {whole} {thing} are blue. How many are not blue?",
            )
        )
        return text, lines, whole - tens * part
    return text, [times(count, price)] + lines, whole - tens * part


def fractions(rng, steps):
    """A fraction of a number of things, or two fractions to add or subtract."""
    if steps == 4 or rng.randrange(2):
        return fraction_sums(rng, steps)
    d = between(rng, 3, 9)
    n, part, thing = between(rng, 2, d - 1), between(rng, 3, 15), rng.choice(THINGS)
    lines = [div(d * part, d), times(n, part)]
    if steps == 2:
        text = rng.choice(
            (
                f"What is {n}/{d} of {d * part}?",
                f"{n}/{d} of {d * part} {thing} are red. How many {thing} are red?",
            )
        )
        return text, lines, n * part
    lines.append(sub(d * part, n * part))
    text = f"{n}/{d} of {d * part} {thing} are red. How many {thing} are not red?"
    return text, lines, d * part - n * part


def measures(rng, steps):
    """Lengths, areas, times and speeds."""
    a, b = between(rng, 5, 40), between(rng, 3, 30)
    if steps == 2 and rng.randrange(2):
        hours, minutes = between(rng, 2, 9), between(rng, 5, 55)
        text = f"How many minutes are {hours} hours and {minutes} minutes?"
        return text, [times(hours, 60), add(hours * 60, minutes)], hours * 60 + minutes
    if steps == 2:
        text = f"A field is {a} m long and {b} m wide. How many m is it around the field?"
        return text, [add(a, b), times(2, a + b)], 2 * (a + b)
    if steps == 3 and rng.randrange(2):
        price, a, b = between(rng, 2, 5), between(rng, 5, 25), between(rng, 3, 20)
        text = (
            f"A field is {a} m long and {b} m wide. Each m of fence costs {price} dollars. "
            "How many dollars does a fence around the field cost?"
        )
        around = 2 * (a + b)
        return text, [add(a, b), times(2, a + b), times(price, around)], price * around
    speeds, hours = [5 * between(rng, 2, 16) for _ in "12"], [between(rng, 2, 6) for _ in "12"]
    first, second = (v * h for v, h in zip(speeds, hours, strict=True))
    text = (
        f"A train goes {speeds[0]} km each hour for {hours[0]} hours and then {speeds[1]} km "
        f"each hour for {hours[1]} hours."
    )
    lines = [times(hours[0], speeds[0]), times(hours[1], speeds[1]), add(first, second)]
    if steps == 3:
        return f"{text} How many km does it go?", lines, first + second
    whole = (first + second) // 50 * 50 + 50 * between(rng, 1, 2)
    lines.append(sub(whole, first + second))
    text = f"{text} The whole trip is {whole} km. How many km are left?"
    return text, lines, whole - first - second


# --- the problems, and the splits they belong to ---

# type -> (function, {steps: how often among this family's problems}).
FAMILIES = {
    "stories": (stories, {1: 1, 2: 3, 3: 3, 4: 3, 5: 3, 6: 3}),
    "shopping": (shopping, {1: 1, 2: 3, 3: 3, 4: 3, 5: 3, 6: 2}),
    "comparisons": (comparisons, {1: 1, 2: 3, 3: 3, 4: 3, 5: 3, 6: 2}),
    "products": (products, {1: 3, 2: 3, 3: 4}),
    "remainders": (remainders, {2: 4, 3: 4, 4: 2}),
    "equations": (equations, {1: 1, 2: 3, 3: 3, 4: 3, 5: 3, 6: 2}),
    "order of operations": (order_of_operations, {1: 1, 2: 3, 3: 3, 4: 3, 5: 3, 6: 2}),
    "fractions": (fractions, {2: 3, 3: 4, 4: 3}),
    "percents": (percents, {2: 4, 3: 4, 4: 2}),
    "sequences": (sequences, {2: 5, 3: 4, 4: 1}),
    "measures": (measures, {2: 4, 3: 4, 4: 2}),
    "averages": (averages, {2: 3, 3: 3, 4: 3, 5: 3, 6: 2}),
}
# Families that can be made longer than any solution that pre-training shows. (Averages cannot:
# nobody has shown the model how to divide by 7. Nor can equations: undoing eight operations from
# the last one back is more than it finds out by itself.)
LONGER_FAMILIES = ("stories", "shopping", "comparisons")
LONGEST_SHOWN = 6
# The splits of longer problems, and how many steps theirs take.
LONGER_STEPS = {"longer-train": (5, 6, 7, 8), "longer": (7, 8), "longest": (9, 10)}

SPLIT_SIZES = {"train": None, "test": 500, "longer-train": None, "longer": 500, "longest": 500}
_BLANKED = re.compile(r"\b(" + "|".join(NAMES + THINGS) + r")\b")


def content_key(problem: str) -> str:
    """The problem with its names and things blanked out, which decides its split."""
    return _BLANKED.sub("_", problem)


def is_held_out(problem: str) -> bool:
    """True for the tenth of all contents that only the held-out splits may use."""
    return zlib.crc32(content_key(problem).encode()) % 10 == 0


def is_tiny_problem(problem_id: str) -> bool:
    """Whether the problem with this id belongs to the tiny world."""
    return any(problem_id.startswith(f"tiny/{split}/") for split in SPLIT_SIZES)


def tiny_problem(split: str, index: int, steps: int | None = None) -> dict[str, str]:
    """Problem number `index` of a split: "train" or "longer-train" (unbounded), or "test",
    "longer" or "longest" (held out, 500 each). With `steps`, a problem of an unbounded split
    takes so many."""
    if split not in SPLIT_SIZES:
        raise ValueError(f"split is one of {', '.join(SPLIT_SIZES)}, not {split!r}")
    if index < 0 or index >= (SPLIT_SIZES[split] or index + 1):
        raise IndexError(f"split {split!r} has no problem {index}")
    if SPLIT_SIZES[split]:
        return dict(_fixed_split(split)[index])
    rng = random.Random(f"{split} {index}")
    while True:
        row = _draw(rng, split, index, steps)
        if not is_held_out(row["problem"]):
            return row


@cache
def _fixed_split(split: str) -> tuple[dict[str, str], ...]:
    """All problems of a held-out split; no two have the same content."""
    rng = random.Random(split)
    rows: dict[str, dict[str, str]] = {}
    while len(rows) < SPLIT_SIZES[split]:
        row = _draw(rng, split, len(rows))
        if is_held_out(row["problem"]):
            rows.setdefault(content_key(row["problem"]), row)
    return tuple(rows.values())


def _draw(rng: random.Random, split: str, index: int, steps: int | None = None) -> dict[str, str]:
    family, steps = _choose(rng, split, steps)
    text, lines, answer = FAMILIES[family][0](rng, steps)
    working = "\n".join(lines)
    solution = f"{WORKED_START}{working}\n\\boxed{{{answer}}}"
    return {
        "problem": text,
        "solution": solution,
        "answer": str(answer),
        "level": f"Level {steps}",
        "type": family,
        "unique_id": f"tiny/{split}/{index}",
    }


def _choose(rng: random.Random, split: str, steps: int | None) -> tuple[str, int]:
    """A family, all equally often, and how many steps the problem takes."""
    if split in LONGER_STEPS:
        return rng.choice(LONGER_FAMILIES), steps or rng.choice(LONGER_STEPS[split])
    if steps:
        return rng.choice([name for name, (_, often) in FAMILIES.items() if steps in often]), steps
    family = rng.choice(tuple(FAMILIES))
    weighted = [s for s, weight in FAMILIES[family][1].items() for _ in range(weight)]
    return family, rng.choice(weighted)


# --- what the models for this world can be asked ---

_WORDS = re.compile(r"(?<![^\W\d_])[a-z]+")  # names begin with a capital letter; any may be new
_PIECES = re.compile(r"\d+|[^\W\d_]+|[^\w\s]")  # numbers, words, and other signs one by one
PART = 5  # pieces; with fewer, "What is 6 * 7?" would look like the "6 * 7 * 2" that they have read
_READ = 20_000  # problems to collect parts from; one in 250 others has a part that is not in these


@cache
def known_words() -> frozenset[str]:
    """The words of all problems, from a few hundred that contain them all."""
    texts = (tiny_problem("train", index)["problem"] for index in range(500))
    return frozenset(word for text in texts for word in _WORDS.findall(text))


@cache
def opening_words() -> frozenset[str]:
    """The capitalized words that are not names: What, How, Each."""
    texts = (tiny_problem("train", index)["problem"] for index in range(500))
    capitalized = {word for text in texts for word in re.findall("[A-Z][a-z]*", text)}
    return frozenset(capitalized.difference(NAMES))


def parts(question: str) -> list[tuple[str, str]]:
    """All runs of five pieces of a question, each as its kind and its text. The kind ignores which
    name, thing or number it is, but not how many digits a number has:

        What is 6 * 7?    ^ What is 0 *     What is 6 *
                          What is 0 * 0     What is 6 * 7
                          is 0 * 0 ?        is 6 * 7?
                          0 * 0 ? $         6 * 7?
    """
    pieces = [("^", 0, 0)]
    for piece in _PIECES.finditer(question):
        text = piece[0]
        if text.isdecimal():
            kind = "0" * min(len(text), 4)
        elif text in THINGS:
            kind = "things"
        else:
            is_name = text[0].isupper() and text not in opening_words()
            kind = "Name" if is_name else text
        pieces.append((kind, *piece.span()))
    pieces.append(("$", len(question), len(question)))
    return [
        (" ".join(kind for kind, *_ in run), question[run[0][1] : run[-1][2]])
        for run in (pieces[at : at + PART] for at in range(max(len(pieces) - PART, 0) + 1))
    ]


@cache
def known_parts() -> frozenset[str]:
    """The kinds of parts that problems have; it takes a second to find them."""
    texts = (tiny_problem("train", index)["problem"] for index in range(_READ))
    return frozenset(kind for text in texts for kind, _ in parts(text))


def why_out_of_scope(question: str) -> str:
    """Why the tiny models cannot understand a question; "" if they may. The playground says the
    same (`beyond` in page.js)."""
    words = _WORDS.findall(question)
    unknown = list(dict.fromkeys(f'"{word}"' for word in words if word not in known_words()))
    if unknown:
        return f"it has not learned {', '.join(unknown[:3])}"
    if not re.search(r"\d", question):
        return "there is no number in it"
    if not re.search("[A-Za-z]", question):
        return "there are no words in it"
    unread = next((text for kind, text in parts(question) if kind not in known_parts()), "")
    return f'it has read nothing like "{unread.strip()}"' if unread else ""
