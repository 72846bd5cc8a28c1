"""Problems told in words: things, people, money, ways and times. Families as in tiny_numbers."""

from reasoning_from_scratch.tiny.numbers import (
    NAMES,
    THINGS,
    add,
    between,
    div,
    fraction_sums,
    listed,
    pick,
    sub,
    times,
)


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
    """One event of a story: how it is told, its line, and how many things there are after it."""
    if kind == "doubles":
        return "doubles them", times(2, total), 2 * total
    if kind == "halves":
        return "halves them", div(total, 2), total // 2
    if kind in ("buys", "finds", "gets"):
        n = between(rng, 3, 49)
        told = {"buys": f"buys {n} more", "finds": f"finds {n}", "gets": f"gets {n} from {friend}"}
        return told[kind], add(total, n), total + n
    n = between(rng, 3, min(49, total - 3))
    told = {"gives": f"gives {n} to {friend}", "loses": f"loses {n}", "sells": f"sells {n}"}
    return told[kind], sub(total, n), total - n


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
    people, together = rng.choice(
        {2: ((3, False), (2, True)), 3: ((4, False),), 4: ((3, True), (5, False))}[steps]
    )
    names, thing = pick(rng, NAMES, people), rng.choice(THINGS)
    counts = [between(rng, 6, 40)]
    parts, lines = [f"{names[0]} has {counts[0]} {thing}."], []
    for name, other in zip(names[1:], names[:-1], strict=True):
        told, line, count = compared(rng, counts[-1])
        parts.append(f"{name} has {told} {other}.")
        lines.append(f"{name}: {line}")
        counts.append(count)
    total = counts[0]
    for count in counts[1:] if together else ():
        lines.append(add(total, count))
        total += count
    asked = (
        f"How many {thing} do they have together?"
        if together
        else (f"How many {thing} does {names[-1]} have?")
    )
    return f"{' '.join(parts)} {asked}", lines, total if together else counts[-1]


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
