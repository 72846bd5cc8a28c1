"""Words: which runs of letters are one, what they mean, and how two phrases are compared."""

import re

from .number_words import NUMBER_WORDS

ORDINAL_ENDINGS = {"st", "nd", "rd", "th"}
SHORT_WORDS = set(
    """yes no odd even all none red blue one two six ten tie both half only true right left up down
    acute obtuse north south east west cat dog sun mon tue wed thu fri sat day may jan feb mar apr
    jun jul aug sep oct nov dec male am pm not any cube cone kite rhombus sphere max dne never
    always to way ways cats hats bags cars jars maps pads bars cans pans man men girl boy kids legs
    dogs pens rats bats rays laps pals tags""".split()
)
# What a phrase means where it means a mathematical object; on the right: our notation.
MEANINGS = {
    "infinity": r"\infty",
    "positive infinity": r"\infty",
    "negative infinity": r"-\infty",
    "minus infinity": r"-\infty",
    "inf": r"\infty",
    "empty set": r"\emptyset",
    "the empty set": r"\emptyset",
    "null set": r"\emptyset",
    "all real numbers": r"\mathbb{R}",
    "all reals": r"\mathbb{R}",
    "all real": r"\mathbb{R}",
    "real numbers": r"\mathbb{R}",
    "the real numbers": r"\mathbb{R}",
    "the set of all real numbers": r"\mathbb{R}",
    "set of all real numbers": r"\mathbb{R}",
    "all real values": r"\mathbb{R}",
    "all integers": r"\mathbb{Z}",
    "the integers": r"\mathbb{Z}",
    "integers": r"\mathbb{Z}",
    "half": r"\frac{1}{2}",
    "one half": r"\frac{1}{2}",
    "one third": r"\frac{1}{3}",
    "two thirds": r"\frac{2}{3}",
    "one quarter": r"\frac{1}{4}",
    "one fourth": r"\frac{1}{4}",
    "three quarters": r"\frac{3}{4}",
    "three fourths": r"\frac{3}{4}",
}
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
DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
# A leading or trailing remark with one of these changes what the number says.
CHANGES_MEANING = set(
    """not no nor except without if when unless or and more less greater fewer smaller larger least
    most over under above below about around approximately approx nearly almost roughly between to
    from than times dozen half minus plus negative mod modulo where for neither either but wrong
    incorrect tenths hundredths thousandths halves thirds fourths fifths factorial isn't
    never maybe perhaps possibly squared cubed into""".split()
)
# A label is dropped where it ends with one of these: "the answer is", "there are".
BEFORE_VALUES = set("is are equals be answer ans get gives equal have has was total".split())
REMARKS = {"is", "are", "answer", "total", "exactly", "only", "result", "final", "value", "ans"}
ORDINAL = re.compile(r"([0-9])(?:st|nd|rd|th)\b")
ROMAN = set("ii iii iv vi vii viii ix II III IV VI VII VIII IX".split())
CHANGES_MEANING |= set(DAYS) | set(MONTHS) | set(NUMBER_WORDS)
LETTERS_IN_ORDER = "abcdefghijklmnopqrstuvwxyz"


def looks_like_word(run: str) -> bool:
    """Whether plain letters are one word. Products of variables are short, or have no vowel that
    one finds in words, or follow the alphabet."""
    lower = run.lower()
    if run in ROMAN or lower in SHORT_WORDS or lower in SYNONYMS or lower in NUMBER_WORDS:
        return True
    if len(run) < 3 or lower in LETTERS_IN_ORDER:
        return False
    if run[0].isupper() and run[1:].islower() and any(c in "aeiouy" for c in lower):
        return True
    if not (run.islower() or run.isupper() or run[1:].islower()) or len(run) < 4:
        return False
    vowels = sum(c in "aeiouy" for c in lower)
    has_telling_vowel = any(c in "eiou" for c in lower)
    return 0 < vowels < len(run) and (has_telling_vowel or len(run) >= 5)


def phrase_key(phrase: str) -> str:
    """The form in which two phrases are compared: no case, punctuation, hyphens or article."""
    plain = ORDINAL.sub(r"\1", phrase.lower().replace("'", ""))
    words = re.findall(r"[^\W_]+", plain)
    while len(words) > 1 and len(words[1]) > 1 and words[0] in ("a", "an", "the", "on"):
        words = words[1:]
    if any(word in MONTHS for word in words):
        words = sorted(words)  # March 14 and 14 March
    key = " ".join(words)
    return SYNONYMS.get(key, key)
