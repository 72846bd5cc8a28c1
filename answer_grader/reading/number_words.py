"""Numbers in words: twenty-one, three hundred and five, two thirds, one and a half."""

import re
from fractions import Fraction

SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
NUMBER_WORDS = {word: n for n, word in enumerate(SMALL)} | {
    word: 10 * (n + 2) for n, word in enumerate(TENS)
}
ORDINAL_WORDS = {
    word: n + 1
    for n, word in enumerate(
        "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split()
    )
}
DENOMINATORS = {word: n for word, n in ORDINAL_WORDS.items() if n > 2} | {
    "half": 2,
    "quarter": 4,
    "hundredth": 100,
    "thousandth": 1_000,
}
PLURAL_DENOMINATORS = {f"{word}s": n for word, n in DENOMINATORS.items()} | {"halves": 2}
SCALES = {"hundred": 100, "thousand": 1_000, "million": 10**6, "billion": 10**9, "trillion": 10**12}


def number_from_words(phrase: str) -> int | None:
    """ "twenty-one" -> 21, "three hundred and five" -> 305, None for anything else."""
    total, group, seen = 0, 0, False
    for word in re.split(r"[\s-]+", phrase.strip().lower()):
        if word in NUMBER_WORDS:
            value, before = NUMBER_WORDS[word], group % 100
            if before and not (0 < value < 10 and before in range(20, 100, 10)):
                return None  # "one two" is not 3
            group, seen = group + value, True
        elif word == "hundred" and 0 < group < 10:
            group *= 100
        elif word in SCALES and word != "hundred" and group:
            total, group = total + group * SCALES[word], 0
        elif word != "and" or not seen:
            return None
    return total + group if seen else None


def fraction_from_words(phrase: str) -> Fraction | None:
    """ "three quarters" -> 3/4, "two and a half" -> 5/2; None for what has no denominator.

    The singular goes with one only: twenty third is the 23rd.
    """
    before, _, last = phrase.lower().replace("-", " ").rpartition(" ")
    integer_words, mixed, count = f" {before} ".rpartition(" and ")
    base = number_from_words(integer_words) if mixed else 0
    count = count.strip()
    if last == "half" and not before:
        top = 1
    elif last in DENOMINATORS and count in ("a", "one"):
        top = 1
    elif last in PLURAL_DENOMINATORS and count != "one":
        top = number_from_words(count)
    else:
        return None
    if top is None or base is None:
        return None
    return base + Fraction(top, DENOMINATORS.get(last) or PLURAL_DENOMINATORS[last])
