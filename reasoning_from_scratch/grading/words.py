"""Words: which runs of letters are one, which words are numbers or units, which mean a set."""

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
ORDINAL_ENDINGS = {"st", "nd", "rd", "th"}

# Each group is one unit; the first name is the one it is compared by.
UNIT_GROUPS = """
mm millimeter millimeters millimetre millimetres
cm centimeter centimeters centimetre centimetres
dm decimeter decimeters
m meter meters metre metres
km kilometer kilometers kilometre kilometres kms
inch inches in
foot feet ft
yard yards yd yds
mile miles mi
unit units
mg milligram milligrams
g gram grams gm gms
kg kilogram kilograms kgs kilo kilos
lb pound pounds lbs
oz ounce ounces
ton tons tonne tonnes
second seconds sec secs s
minute minutes min mins
hour hours hr hrs h
day days
week weeks
month months
year years yr yrs
ml milliliter milliliters millilitre millilitres mL
liter liters litre litres L
gallon gallons gal
quart quarts qt
pint pints
cup cups
acre acres
hectare hectares
dollar dollars USD usd buck bucks
cent cents
euro euros EUR
gbp
yen
rupee rupees
degree degrees deg degs
radian radians rad rads
celsius
fahrenheit
kelvin
percent percents percentage
mph
kph
newton newtons N
joule joules J
watt watts W
volt volts V
hertz Hz
pascal pascals Pa
mole moles mol
bit bits
byte bytes
"""
UNITS = {
    name: names[0]
    for names in (line.split() for line in UNIT_GROUPS.split("\n") if line)
    for name in names
}
# Plain letters count as a unit only under these names: 5cm is one, 5m is a product.
BARE_UNITS = {name for name in UNITS if len(name) >= 2} - {"rad", "mol"}
AFTER_VALUES = BARE_UNITS | {"sq", "cu", "per"}

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


def singular(noun: str) -> str:
    """Good enough to tell apples from oranges and not from an apple."""
    for ending, replacement in (("ies", "y"), ("ches", "ch"), ("shes", "sh"), ("xes", "x")):
        if noun.endswith(ending) and len(noun) > 4:
            return noun[: -len(ending)] + replacement
    return noun[:-1] if noun.endswith("s") and not noun.endswith("ss") and len(noun) > 3 else noun
