"""Numbers in words: twenty-one, three hundred and five."""

import re

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
SCALES = {"hundred": 100, "thousand": 1_000, "million": 10**6, "billion": 10**9, "trillion": 10**12}


def number_from_words(phrase: str) -> int | None:
    """ "twenty-one" -> 21, "three hundred and five" -> 305, None for anything else."""
    total, group, seen = 0, 0, False
    for word in re.split(r"[\s-]+", phrase.strip().lower()):
        if word in NUMBER_WORDS:
            group, seen = group + NUMBER_WORDS[word], True
        elif word == "hundred" and 0 < group < 10:
            group *= 100
        elif word in SCALES and word != "hundred" and group:
            total, group = total + group * SCALES[word], 0
        elif word != "and" or not seen:
            return None
    return total + group if seen else None
