"""Word problems of two to five steps, each with a solution that a program writes.

    Omar has 7 apples. He picks 4 more on the way home. The next day he keeps only half ...

A problem follows one quantity through some events. Its family (an orchard, a bus, a family's
ages) has the words: a few sentences for each kind of event. The solution repeats the part in
brackets, a line for each sentence:

    the problem     [Omar has {a} apples]. Then [he picks {b} more] on the way home.
    the solution    Omar has 7 apples.
                    He picks 4 more: 7 + 4 = 11 apples.

No number is larger than 20. A model of 135 million weights can learn such arithmetic; the hard
part is to read the events in order, and to continue from the number before.

Whole families are held out, so their sentences are never trained on. Their problems have only
sequences of equations that no problem of the other families has.
"""

import random
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from reasoning_from_scratch.problems import Problem

WORKED_STEPS = (2, 3)  # of the solutions that the warm start is shown
TRAINED_STEPS = (2, 3, 4)  # of the problems that reinforcement learning trains on
LARGEST = 20  # no total is larger

WOMEN = "Mia Ana Zoe Lena Ruth Nora Ivy Tess Priya Wendy Clara Amina".split()
MEN = "Omar Ben Leo Finn Hugo Sam Ravi Jack Theo Noah Karl Diego".split()
TIMES = {2: "twice", 3: "three times", 4: "four times", 5: "five times"}
PARTS = {2: "half", 3: "a third", 4: "a quarter", 5: "a fifth"}


@dataclass(frozen=True)
class Family:
    """Sentences for each kind of event. {name}, {she} and {her} are the person of the story. Where
    a family compares people, {new} is the next of them and {last} the one before."""

    unit: str
    start: Sequence[str]  # {a}: how many there are
    groups: Sequence[str]  # {n} groups of {m}
    add: Sequence[str]  # {b} more
    sub: Sequence[str]  # {b} fewer
    times: Sequence[str]  # {times} as many
    share: Sequence[str]  # {part} of them is left
    ask: Sequence[str]


TRAINED = {
    "orchard": Family(
        "apples",
        [
            "[{name} has {a} apples].",
            "{name} carries [a basket with {a} apples].",
            "[There are {a} apples] in {name}'s basket.",
        ],
        [
            "{name} fills [{n} bags with {m} apples in each].",
            "[{name} picks {m} apples from each of {n} trees].",
        ],
        [
            "Then [{she} picks {b} more] on the way home.",
            "[A neighbor gives {her} {b} apples].",
            "Behind the barn [{she} finds {b} more apples].",
        ],
        [
            "[{She} eats {b} of them].",
            "At lunch [{she} hands out {b} apples] to friends.",
            "[{b} of the apples are rotten], so {she} throws them away.",
        ],
        [
            "The next day [{she} has {times} as many].",
            "After a week of picking, [the basket holds {times} as many apples].",
        ],
        [
            "[{She} keeps only {part} of them] and sells the rest.",
            "Birds come, and [only {part} of the apples are left].",
        ],
        ["How many apples does {name} have now?", "How many apples are there in the end?"],
    ),
    "shopping": Family(
        "dollars",
        [
            "{name} buys [a shirt for {a} dollars].",
            "At the market {name} takes [a lamp that costs {a} dollars].",
        ],
        [
            "{name} buys [{n} pens at {m} dollars each].",
            "At the shop {name} takes [{n} boxes of tea, each for {m} dollars].",
        ],
        [
            "{She} also takes [a notebook for {b} dollars].",
            "[Wrapping adds {b} dollars] to the bill.",
            "[Delivery costs another {b} dollars].",
        ],
        [
            "With a coupon [{she} pays {b} dollars less].",
            "[The seller takes {b} dollars off] the price.",
            "[{She} returns something worth {b} dollars].",
        ],
        [
            "{name} likes it so much that [{she} orders {times} as much].",
            "{She} buys the same for the whole team, so [the bill is {times} as high].",
        ],
        [
            "There is a sale, and [{she} has to pay only {part} of that].",
            "[{Her} aunt lets {her} pay just {part} of the bill].",
        ],
        ["How many dollars does {name} pay?", "What does {name} pay in dollars?"],
    ),
    "ages": Family(
        "years",
        ["[{name} is {a} years old].", "[{name} has just turned {a}]."],
        ["[{name} has lived in {n} towns, {m} years in each], and that is {her} whole life."],
        [
            "[{new} is {b} years older than {last}].",
            "[{new} was born {b} years before {last}].",
        ],
        [
            "[{new} is {b} years younger than {last}].",
            "[{new} was born {b} years after {last}].",
        ],
        ["[{new} is {times} as old as {last}].", "[{new}'s age is {times} that of {last}]."],
        ["[{new}'s age is {part} of {last}'s].", "[{new} has lived {part} as long as {last}]."],
        ["How old is {last}?", "What is {last}'s age in years?"],
    ),
    "bakery": Family(
        "cookies",
        [
            "[{name} bakes {a} cookies].",
            "[There are {a} cookies] in {name}'s jar.",
            "[{name} takes {a} cookies] out of the oven.",
        ],
        [
            "{name} bakes [{n} trays with {m} cookies on each].",
            "{name} puts [{m} cookies on each of {n} plates].",
        ],
        [
            "[{Her} sister bakes {b} more].",
            "Then [{she} makes another {b} cookies].",
            "[{She} adds {b} cookies from a shop].",
        ],
        [
            "[The dog steals {b} cookies].",
            "[{b} of them are burnt] and go into the bin.",
            "In the afternoon [the children eat {b} of them].",
        ],
        [
            "For a party [{she} needs {times} as many].",
            "With a larger recipe [{she} gets {times} as many cookies].",
        ],
        [
            "[{She} takes {part} of the cookies to school] and counts only those.",
            "By evening [only {part} of the cookies are left].",
        ],
        ["How many cookies are there now?", "How many cookies does that make in the end?"],
    ),
    "library": Family(
        "books",
        [
            "[A shelf holds {a} books].",
            "[{name} owns {a} books].",
            "[{name} has {a} books] at home.",
        ],
        [
            "{name} has [{n} shelves with {m} books on each].",
            "{name} unpacks [{n} boxes, each with {m} books].",
        ],
        [
            "[{She} buys {b} new books].",
            "For {her} birthday [{she} gets {b} books].",
            "[{her} uncle brings {b} more books].",
        ],
        [
            "[{She} lends {b} books to a friend].",
            "[{She} sells {b} of them] at a flea market.",
            "[{b} books get wet] and have to go.",
        ],
        [
            "A year later [there are {times} as many books].",
            "After {she} inherits a collection, [{she} owns {times} as many].",
        ],
        [
            "[{She} gives some away and keeps {part} of the books].",
            "{She} moves house and [takes only {part} of them along].",
        ],
        ["How many books does that leave {name} with?", "How many books are there now?"],
    ),
    "aquarium": Family(
        "fish",
        ["[There are {a} fish] in {name}'s tank.", "[{name} keeps {a} fish]."],
        [
            "{name} has [{n} bowls with {m} fish in each].",
            "{name} buys [{n} bags of fish, {m} in every bag], for an empty tank.",
        ],
        [
            "[{b} young fish hatch].",
            "[{She} buys {b} more fish] for the tank.",
            "[A friend brings {b} fish] along.",
        ],
        [
            "[{She} gives {b} fish away].",
            "A heron comes and [catches {b} of them].",
            "[{b} fish move to another tank].",
        ],
        [
            "In spring [there are {times} as many fish].",
            "The fish breed until [the tank has {times} as many].",
        ],
        [
            "[{She} sells some and keeps {part} of the fish].",
            "After a cold night [only {part} of the fish are alive].",
        ],
        ["How many fish are in the tank now?", "How many fish does {name} have?"],
    ),
    "savings": Family(
        "dollars",
        ["[{name} has saved {a} dollars].", "[{name} has {a} dollars] in a piggy bank."],
        [
            "{name} works for [{n} hours and earns {m} dollars an hour].",
            "{name} saves [{m} dollars a week for {n} weeks].",
        ],
        [
            "Then [{she} earns {b} dollars] by washing a car.",
            "[{Her} grandmother gives {her} {b} dollars].",
            "[{She} finds {b} dollars] in an old coat.",
        ],
        [
            "[{She} spends {b} dollars] on a book.",
            "[A ticket costs {her} {b} dollars].",
            "[{She} pays back {b} dollars] to {her} brother.",
        ],
        [
            "By winter [{she} has {times} as much].",
            "{Her} parents add money until [{she} has {times} the amount].",
        ],
        [
            "[{She} spends a lot and still has {part} of the money].",
            "[{She} puts only {part} of it into the bank] and wants to know how much that is.",
        ],
        ["How many dollars is that?", "How many dollars are left?"],
    ),
    "stickers": Family(
        "stickers",
        ["[{name} has {a} stickers].", "[{name} starts the day with {a} stickers]."],
        [
            "{name} opens [{n} packs of {m} stickers].",
            "{name}'s album has [{n} pages with {m} stickers on each].",
        ],
        [
            "[{new} has {b} more stickers than {last}].",
            "[{new} owns {b} stickers more than {last}].",
        ],
        [
            "[{new} has {b} fewer stickers than {last}].",
            "[{new} is {b} stickers short of what {last} has].",
        ],
        [
            "[{new} has {times} as many stickers as {last}].",
            "[{new} owns {times} the number that {last} has].",
        ],
        [
            "[{new} has {part} as many stickers as {last}].",
            "[{new} owns {part} of what {last} has].",
        ],
        ["How many stickers does {last} have?", "How many stickers belong to {last}?"],
    ),
    "road trip": Family(
        "miles",
        [
            "[{name} drives {a} miles] on Monday.",
            "On the first day of the trip, [{name} drives {a} miles].",
        ],
        [
            "{name} drives for [{n} hours at {m} miles an hour] on a muddy road.",
            "{name} cycles [{n} laps of {m} miles each].",
        ],
        [
            "The next day [{she} goes {b} miles farther].",
            "[A detour makes the route {b} miles longer].",
            "[{She} adds a side trip of {b} miles].",
        ],
        [
            "[A tunnel saves {her} {b} miles].",
            "The next day [{she} goes {b} miles less].",
            "[A shortcut makes the way {b} miles shorter].",
        ],
        [
            "The week after, [{she} drives {times} as far].",
            "On the last day [the distance is {times} as long].",
        ],
        [
            "On the day after that, [{she} manages {part} of the distance].",
            "In the rain [{she} drives only {part} as far].",
        ],
        ["How many miles is that?", "How many miles does {name} drive in the end?"],
    ),
}

HELD_OUT = {
    "bus": Family(
        "passengers",
        ["[A bus leaves the station with {a} passengers].", "[{a} people sit on a bus]."],
        [
            "A bus has [{n} rows, and {m} people sit in each row].",
            "At the station [{n} groups of {m} people board an empty bus].",
        ],
        [
            "At the next stop [{b} people get on].",
            "[{b} more passengers climb in] at the market.",
            "By the school [{b} children board the bus].",
        ],
        [
            "[{b} passengers get off] at the museum.",
            "At the hospital [{b} people leave the bus].",
            "[{b} riders step out] at the bridge.",
        ],
        [
            "At the stadium the bus fills up until [it carries {times} as many].",
            "After a concert [there are {times} as many people on board].",
        ],
        [
            "At the harbor many get out and [{part} of the people stay on board].",
            "At the mall many leave, and [just {part} of the riders remain].",
        ],
        ["How many people are on the bus now?", "How many passengers does the bus carry then?"],
    ),
    "garden": Family(
        "flowers",
        ["[{a} flowers grow] in {name}'s garden.", "[{name} plants {a} tulips]."],
        [
            "{name} plants [{n} rows with {m} flowers in each].",
            "{name} has [{n} pots, and {m} flowers bloom in every pot].",
        ],
        [
            "In May [{b} more flowers open].",
            "[{She} plants {b} roses] beside them.",
            "[The rain brings up {b} new flowers].",
        ],
        [
            "[Rabbits eat {b} of the flowers].",
            "[{She} cuts {b} flowers] for a vase.",
            "[{b} of them wither] in the heat.",
        ],
        [
            "A summer later [the garden has {times} as many flowers].",
            "They spread until [there are {times} as many].",
        ],
        [
            "After a storm [only {part} of the flowers are standing].",
            "In autumn [{part} of the flowers are still in bloom].",
        ],
        ["How many flowers are in the garden now?", "How many flowers does {name} have then?"],
    ),
    "game": Family(
        "points",
        [
            "[{name} begins a game with {a} points].",
            "After the first round [{name} has {a} points].",
        ],
        [
            "{name} hits [{n} targets, and each is worth {m} points].",
            "{name} wins [{m} points in each of {n} rounds].",
        ],
        [
            "[A lucky card brings {her} {b} points].",
            "In the next round [{she} scores {b} points].",
            "[{She} collects a bonus of {b} points].",
        ],
        [
            "[A foul costs {her} {b} points].",
            "[{She} loses {b} points] to a trap.",
            "[The referee takes away {b} points].",
        ],
        [
            "A magic potion makes [{her} score {times} as high].",
            "[{She} lands on a star and has {times} as many points].",
        ],
        [
            "[A dragon leaves {her} only {part} of {her} points].",
            "For cheating, [{she} may keep just {part} of the points].",
        ],
        ["What is {name}'s score?", "How many points does {name} have at the end?"],
    ),
    "heights": Family(
        "blocks",
        ["{name} builds [a tower of {a} blocks].", "[{name}'s tower is {a} blocks high]."],
        [
            "{name} stacks [{n} layers of {m} blocks].",
            "{name} piles up [{n} walls, {m} blocks each].",
        ],
        [
            "[{new}'s tower is {b} blocks taller than {last}'s].",
            "[{new} uses {b} blocks more than {last}].",
        ],
        [
            "[{new}'s tower is {b} blocks shorter than {last}'s].",
            "[{new} needs {b} blocks less than {last}].",
        ],
        [
            "[{new} builds {times} as high as {last}].",
            "[{new}'s tower has {times} the blocks of {last}'s].",
        ],
        [
            "[{new} gets only {part} as high as {last}].",
            "[{new}'s tower has {part} of the blocks that {last}'s has].",
        ],
        ["How many blocks does {last} use?", "How high is {last}'s tower, in blocks?"],
    ),
}  # fmt: skip

# Only for the last measurement: written after the experiment was planned, and never looked at.
FRESH = {
    "letters": Family(
        "letters",
        [
            "[{name}'s mailbag holds {a} letters].",
            "In the morning [{name} loads {a} letters] onto a bicycle.",
        ],
        [
            "{name} empties [{n} mailboxes with {m} letters in each].",
            "{name} ties up [{n} bundles of {m} letters].",
        ],
        [
            "On Main Street [a clerk hands {her} {b} letters].",
            "[{b} letters for the village] arrive by train.",
            "[{She} collects {b} letters] from the hotel.",
        ],
        [
            "[{She} delivers {b} letters] to the farms.",
            "[{b} letters have no stamp] and go back.",
            "At the town hall [{she} drops off {b} letters].",
        ],
        [
            "Just before the holidays [the mail grows to {times} as many letters].",
            "The truck from the city comes, and [{she} has {times} as many to carry].",
        ],
        [
            "[A helper takes some and leaves {her} {part} of the letters].",
            "By noon [{part} of the letters are still undelivered].",
        ],
        ["How many letters are left to deliver?", "How many letters does {name} carry then?"],
    ),
    "swimming": Family(
        "laps",
        ["[{name} swims {a} laps].", "[{name}'s training is {a} laps long]."],
        [
            "{name} swims [{n} sets of {m} laps].",
            "{name} comes to the pool on [{n} days and swims {m} laps on each].",
        ],
        [
            "[{new} swims {b} laps farther than {last}].",
            "[{new} goes on for {b} laps after {last} has stopped].",
        ],
        [
            "[{new} stops {b} laps before {last}].",
            "[{new} swims {b} laps less than {last}].",
        ],
        [
            "[{new} swims {times} as many laps as {last}].",
            "[{new} covers {times} the distance of {last}].",
        ],
        [
            "[{new} swims {part} of the laps that {last} swims].",
            "[{new} gets tired after {part} of {last}'s distance].",
        ],
        ["How many laps does {last} swim?", "What is {last}'s distance in laps?"],
    ),
}  # fmt: skip


# ---------------------------------------------------------------------------------- a problem


def word_problem(rng: random.Random, name: str, steps: int) -> Problem:
    """A problem of this family with this many steps, and its solution."""
    family = (TRAINED | HELD_OUT | FRESH)[name]
    names = rng.sample([(woman, "she", "her") for woman in WOMEN], 3)
    names += rng.sample([(man, "he", "his") for man in MEN], 3)
    rng.shuffle(names)
    person, she, her = names.pop()
    words = {"name": person, "last": person, "she": she, "She": she.capitalize()}
    words |= {"her": her, "Her": her.capitalize()}
    chosen: list[str] = []
    sentences: list[str] = []
    lines: list[str] = []
    total, used_kinds, steps_done = 0, "", 0
    while steps_done < steps:
        kind, numbers, sign, result = next_event(rng, total, used_kinds)
        choices = getattr(family, kind)
        template = rng.choice([text for text in choices if text not in chosen] or choices)
        chosen.append(template)
        if "{new}" in template:
            words["new"] = names.pop()[0]
        fields = words | numbers
        if her == "his":  # "gives him 4", but "his sister"
            template = re.sub(r"\{her\}(?= (\{|just|only|pay))", "him", template)
        sentence = template.format(**fields)
        sentences.append(capitalize_first(re.sub(r"[\[\]]", "", sentence)))
        event = capitalize_first(re.search(r"\[(.*)\]", sentence)[1])
        lines.append(f"{event}: {sign} = {result} {family.unit}." if sign else f"{event}.")
        steps_done += bool(sign)
        if "new" in words:
            words["last"] = words["new"]
        total, used_kinds = result, used_kinds + kind
    question = " ".join([*sentences, rng.choice(family.ask).format(**words)])
    solution = "\n".join([*lines, f"\\boxed{{{total}}}"])
    return Problem(
        f"{name}-{zlib.crc32(question.encode()):08x}", question, str(total),
        level=str(steps), type=name, solution=solution,
    )  # fmt: skip


def next_event(
    rng: random.Random, total: int, used_kinds: str
) -> tuple[str, dict[str, object], str, int]:
    """(kind, the numbers in its sentence, the left side of its equation, the new total)."""
    if not used_kinds:
        if rng.random() < 0.6:
            a = rng.randint(3, 12)
            return "start", {"a": a}, "", a
        n = rng.randint(2, 6)
        m = rng.randint(2, LARGEST // n)
        return "groups", {"n": n, "m": m}, f"{n} * {m}", n * m
    while True:
        kind = rng.choice(["add", "add", "add", "sub", "sub", "sub", "times", "times", "share"])
        b, k = rng.randint(2, 9), rng.randint(2, 5)
        if kind == "add" and total + b <= LARGEST:
            return kind, {"b": b}, f"{total} + {b}", total + b
        if kind == "sub" and total - b >= 2:
            return kind, {"b": b}, f"{total} - {b}", total - b
        if kind == "times" and total * k <= LARGEST and used_kinds.count("times") < 1:
            return kind, {"times": TIMES[k]}, f"{total} * {k}", total * k
        if kind == "share" and total % k == 0 and total > k and used_kinds.count("share") < 1:
            return kind, {"part": PARTS[k]}, f"{total} / {k}", total // k


def capitalize_first(text: str) -> str:
    return text[0].upper() + text[1:]


# ------------------------------------------------------------------------------- sets of them


def problem_stream(
    families: Sequence[str], steps: Sequence[int], seed: int | str
) -> Iterator[Problem]:
    """Problems of these families without end and without repeats. All families, and all numbers of
    steps, are equally likely."""
    rng = random.Random(f"word problems {seed}")
    yielded: set[str] = set()
    while True:
        name = rng.choice(list(families))
        problem = word_problem(rng, name, rng.choice(list(steps)))
        # The sequence of equations alone decides whether it may be trained on.
        is_held_out = zlib.crc32(" ".join(equations(problem.solution)).encode()) % 5 == 0
        if is_held_out == (name not in TRAINED) and problem.problem not in yielded:
            yielded.add(problem.problem)
            yield problem


def worked(count: int = 4000, steps: Sequence[int] = WORKED_STEPS) -> list[Problem]:
    """Solved problems for the warm start: `rfs train --recipe sft --problems
    studies/word_problems.py:worked`."""
    return list(islice(problem_stream(list(TRAINED), steps, f"worked {steps}"), count))


def worked_longer() -> list[Problem]:
    """Solved problems of all the lengths that reinforcement learning trains on."""
    return worked(12_000, TRAINED_STEPS)


def problems() -> list[Problem]:
    """Training problems: `rfs train --problems studies/word_problems.py:problems`."""
    return list(islice(problem_stream(list(TRAINED), TRAINED_STEPS, "trained"), 4000))


def held_out(count: int = 64, steps: Sequence[int] = TRAINED_STEPS) -> list[Problem]:
    """Problems of families that no stage trained on."""
    return list(islice(problem_stream(list(HELD_OUT), steps, f"held out {steps}"), count))


def fresh(families: Sequence[str], count: int, steps: Sequence[int]) -> list[Problem]:
    """Other problems of families that nobody trained on: for the last measurement."""
    return list(islice(problem_stream(families, steps, f"fresh {len(families)} {steps}"), count))


# --------------------------------------------------------------------------------- the checker

EQUATION = re.compile(r"(\d+) ?([-+*/x×÷]) ?(\d+) ?= ?(\d+)")
SIGNS = {"x": "*", "×": "*", "÷": "/"}


def equations(text: str) -> list[str]:
    """All of the text's equations of two numbers, such as "7 + 4 = 11"."""
    return [f"{a} {SIGNS.get(sign, sign)} {b} = {c}" for a, sign, b, c in EQUATION.findall(text)]


def is_true(equation: str) -> bool:
    """Whether an equation such as "7 + 4 = 11" is true."""
    a, sign, b, _, c = equation.split()
    x, y = int(a), int(b)
    if sign == "/":
        return y != 0 and x == y * int(c)
    return {"+": x + y, "-": x - y, "*": x * y}[sign] == int(c)


def checked_steps(text: str) -> list[bool]:
    """For each equation of a solution: whether its arithmetic is correct."""
    return [is_true(equation) for equation in equations(text)]
