"""Words: which runs of letters are one, what they mean, and how two phrases are compared."""

import re

from .number_words import NUMBER_WORDS

ORDINAL_ENDINGS = {"st", "nd", "rd", "th"}
# Phrases that are objects of mathematics, by the names that trees.Const gives these.
OBJECTS = {"infinity": "inf", "inf": "inf", "empty set": "empty", "null set": "empty"}
NUMBER_SETS = {
    "real": "reals",
    "reals": "reals",
    "integers": "integers",
    "naturals": "naturals",
    "natural": "naturals",
    "rationals": "rationals",
    "rational": "rationals",
    "complex": "complexes",
}
AROUND_NUMBER_SETS = {"the", "set", "of", "all", "numbers", "values"}
SYNONYMS = {
    "dne": "does not exist",
    "no solutions": "no solution",
    "there is no solution": "no solution",
    "there are no solutions": "no solution",
    "no real solutions": "no real solution",
    "sun": "sunday",
    "mon": "monday",
    "tue": "tuesday",
    "tues": "tuesday",
    "wed": "wednesday",
    "thu": "thursday",
    "thurs": "thursday",
    "fri": "friday",
    "sat": "saturday",
}
MONTHS = (
    "january february march april may june july august september october november december".split()
)
SHORT_MONTHS = {month[:3] for month in MONTHS}
DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
# A leading or trailing remark with one of these changes what the number says.
CHANGES_MEANING = set(
    """not no nor except without if when unless or and more less greater fewer smaller larger least
    most over under above below about around approximately approx nearly almost roughly between to
    from than times dozen half minus plus negative mod modulo where for neither either but wrong
    incorrect tenths hundredths thousandths halves thirds fourths fifths factorial isn't
    never maybe perhaps possibly squared cubed into false fails fail failed rejected extraneous
    undefined invalid likely unlikely probably guess guessing unsure doubt could might can hopefully
    alternatively otherwise instead rather else xor impossible unknown then""".split()
)
# A label is dropped where it ends with one of these: "the answer is", "there are".
BEFORE_VALUES = set("is are equals be answer ans get gives equal have has was total".split())
REMARKS = {"is", "are", "answer", "total", "exactly", "only", "result", "final", "value", "ans"}
WORD = re.compile(r"(?:(?<!\w)-(?=[0-9]))?[^\W_]+")
ORDINAL = re.compile(r"([0-9])(?:st|nd|rd|th)\b")
ROMAN = set("ii iii iv vi vii viii ix II III IV VI VII VIII IX".split())
# Words of two and three letters are products but for these.
SHORT_WORDS = {"all", "any", "not", "odd", "to", "yes", "no", *SHORT_MONTHS}
CHANGES_MEANING |= set(DAYS) | set(MONTHS) | set(NUMBER_WORDS)
ALPHABET = "abcdefghijklmnopqrstuvwxyz"
VOWELS, TELLING_VOWELS, VOWELS_AND_Y = set("aeiou"), set("eiou"), set("aeiouy")


def looks_like_word(run: str) -> bool:
    """Whether plain letters are a word and no product of variables.

    A word has a vowel, and few words have only the vowel a. One writes products in the order of
    the alphabet, and rarely of more than three letters: bars and first are words, abx and abcd not.
    """
    lower = run.lower()
    if run in ROMAN or lower in SHORT_WORDS or lower in SYNONYMS or lower in NUMBER_WORDS:
        return True
    if len(run) < 3 or lower in ALPHABET:
        return False
    if run[0].isupper() and run[1:].islower() and not VOWELS_AND_Y.isdisjoint(lower):
        return True
    if not (run.islower() or run.isupper() or run[1:].islower()) or len(run) < 4:
        return False
    vowels = sum(c in VOWELS_AND_Y for c in lower)
    if not 0 < vowels < len(run):
        return False
    return not TELLING_VOWELS.isdisjoint(lower) or len(run) >= 5 or not in_order(lower)


def is_counted_noun(run: str) -> bool:
    """Whether letters that stand behind a number and a blank are what is counted: 3 men, 2 xy."""
    return len(run) >= 3 and run.islower() and not VOWELS.isdisjoint(run) and not in_order(run)


def in_order(run: str) -> bool:
    """Whether the letters follow the alphabet, as those of a product do."""
    return list(run) == sorted(run)


def phrase_key(phrase: str) -> str:
    """The form in which two phrases are compared: no case, punctuation, hyphens or article. The
    sign of a number stays."""
    normalized = ORDINAL.sub(r"\1", phrase.lower().replace("'", "").replace("−", "-"))
    words = WORD.findall(normalized)
    while len(words) > 1 and len(words[1]) > 1 and words[0] in ("a", "an", "the", "on"):
        words = words[1:]
    if any(word in MONTHS for word in words):
        words = sorted(words)  # March 14 and 14 March
    key = " ".join(words)
    return SYNONYMS.get(key, key)
