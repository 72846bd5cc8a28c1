"""Constraints on an answer: each a sentence for the prompt, and a pure function that checks it.

A word is a run of letters and digits, with apostrophes and hyphens inside: "don't", "well-known".
Capitals do not matter where a word is looked for.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"”’')\]]*\s+")
_LAST_MARK = re.compile(r"[.!?…][\"”’')\]]*$")
_QUOTES_AND_SPACE = ' \t\r\n"“”*'  # quotation marks and bold are not part of what is said


def words_of(text: str) -> list[str]:
    return _WORD.findall(text)


def lower_words(text: str) -> list[str]:
    return [word.casefold() for word in words_of(text)]


# --- length and shape ---


def words_exactly(text: str, count: int) -> bool:
    return len(words_of(text)) == count


def words_at_most(text: str, count: int) -> bool:
    return len(words_of(text)) <= count


def words_at_least(text: str, count: int) -> bool:
    return len(words_of(text)) >= count


def sentences(text: str, count: int) -> bool:
    """`count` sentences, each of two words or more; the last ends with a mark, too."""
    pieces = _SENTENCE_END.split(text.strip())
    has_words = all(len(words_of(sentence)) >= 2 for sentence in pieces)
    return len(pieces) == count and has_words and bool(_LAST_MARK.search(text.strip()))


def lines(text: str, count: int) -> bool:
    """`count` lines, each of two words or more; empty ones do not count."""
    filled_lines = [line for line in text.splitlines() if line.strip()]
    return len(filled_lines) == count and all(len(words_of(line)) >= 2 for line in filled_lines)


def dashed_lines(text: str, count: int) -> bool:
    filled_lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines(text, count) and all(line.startswith(("- ", "– ", "— ")) for line in filled_lines)


# --- letters and marks ---


def lowercase(text: str, _: None = None) -> bool:
    return text == text.lower()


def capitals(text: str, _: None = None) -> bool:
    return text == text.upper()


def capitalized(text: str, _: None = None) -> bool:
    """Each word that begins with a letter begins with a capital."""
    return all(word[0] == word[0].upper() for word in words_of(text))


def ends_with(text: str, mark: str) -> bool:
    return text.rstrip(_QUOTES_AND_SPACE).endswith(mark)


def no_comma(text: str, _: None = None) -> bool:
    return not set(text) & set(",\uff0c\u060c\u3001")  # those of other scripts, too


def without_letter(text: str, letter: str) -> bool:
    return letter not in text.casefold()


def quoted(text: str, _: None = None) -> bool:
    """One pair of double quotation marks, around everything."""
    text = text.strip()
    pair = text[:1] + text[-1:]
    return len(text) > 1 and pair in ('""', "“”") and not set(text[1:-1]) & set('"“”')


def in_parentheses(text: str, _: None = None) -> bool:
    """Some words in parentheses, and some outside of them."""
    inside = re.findall(r"\(([^()]*)\)", text)
    outside = re.sub(r"\([^()]*\)", "", text)
    balanced = not set(outside) & set("()")
    return balanced and any(map(words_of, inside)) and bool(words_of(outside))


# --- words ---


def starts_with(text: str, word: str) -> bool:
    return lower_words(text)[:1] == [word.casefold()]


def last_word(text: str, word: str) -> bool:
    return lower_words(text)[-1:] == [word.casefold()]


def contains(text: str, word: str) -> bool:
    return word.casefold() in lower_words(text)


def avoids(text: str, word: str) -> bool:
    return word.casefold() not in lower_words(text)


def twice(text: str, word: str) -> bool:
    return lower_words(text).count(word.casefold()) == 2


# --- the table ---


class Constraint(NamedTuple):
    """A kind of instruction."""

    sentence: str  # as the prompt has it, with {} for the value
    holds: Callable[[str, Any], bool]
    values: Sequence[Any]  # to choose from; None where there is nothing to choose
    family: str  # a prompt has at most one constraint of a family
    trained: bool = True  # False: only in instructions@new-constraints


USED_WORDS = ("always", "because", "bright", "friend", "morning", "never", "old", "quiet", "small")
FIRST_WORDS = ("Every", "Many", "My", "Once", "Sometimes", "Today", "When")
FREQUENT_WORDS = ("and", "is", "it", "of", "the", "very")
LAST_WORDS = ("again", "day", "everyone", "home", "too")

CONSTRAINTS = {
    "words_exactly": Constraint("Use exactly {} words.", words_exactly, range(5, 13), "size"),
    "words_at_most": Constraint("Use at most {} words.", words_at_most, (8, 10, 12, 15), "size"),
    "words_at_least": Constraint("Use at least {} words.", words_at_least, (15, 20, 25), "size"),
    "sentences": Constraint("Write exactly {} sentences.", sentences, (2, 3, 4), "size"),
    "lines": Constraint("Write exactly {} lines.", lines, (2, 3, 4), "size"),
    "lowercase": Constraint("Use only lowercase letters.", lowercase, (None,), "case"),
    "capitals": Constraint("Use only capital letters.", capitals, (None,), "case"),
    "question": Constraint("End with a question mark.", ends_with, ("?",), "end"),
    "no_comma": Constraint("Do not use any commas.", no_comma, (None,), "comma"),
    "quoted": Constraint(
        "Put the whole answer in double quotation marks.", quoted, (None,), "quotes"
    ),
    "starts_with": Constraint('Begin with the word "{}".', starts_with, FIRST_WORDS, "start"),
    "contains": Constraint('Use the word "{}".', contains, USED_WORDS, "contains"),
    "avoids": Constraint('Do not use the word "{}".', avoids, FREQUENT_WORDS, "avoids"),
    # Never trained on.
    "exclamation": Constraint("End with an exclamation mark.", ends_with, ("!",), "end", False),
    "last_word": Constraint('End with the word "{}".', last_word, LAST_WORDS, "end", False),
    "capitalized": Constraint(
        "Begin every word with a capital letter.", capitalized, (None,), "case", False
    ),
    "without_letter": Constraint(
        'Do not use the letter "{}".', without_letter, ("b", "m", "w"), "avoids", False
    ),
    "twice": Constraint('Use the word "{}" exactly twice.', twice, USED_WORDS, "contains", False),
    "dashed_lines": Constraint(
        "Write exactly {} lines, each of which begins with a dash.",
        dashed_lines,
        (2, 3, 4),
        "size",
        False,
    ),
    "in_parentheses": Constraint(
        "Put a part of the answer in parentheses.", in_parentheses, (None,), "quotes", False
    ),
}
