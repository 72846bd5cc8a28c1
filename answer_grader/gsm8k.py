"""GSM8K's format of an answer: the number after ####, where its solutions end and nanochat reads.

Stricter than the grader: the first such number is compared character by character, except for
thousands separators, so 24.0 is not 24.
"""

import re

NUMBER = re.compile(r"#### (-?[0-9.,]+)")
TRUTH = re.compile(r"\+?(-?[0-9]*\.?[0-9]+)\.?")
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


def without_thousands_commas(number: str) -> str:
    """1,234,567 as 1234567; a decimal comma, as in 3,5, stays."""
    return THOUSANDS.sub("", number)


def number_after_hashes(text: str) -> str | None:
    match = NUMBER.search(text)
    return match[1].replace(",", "") if match else None


def expected_number(answer: str) -> str | None:
    """A problem's answer as written after ####; None if it cannot be, such as 1/2."""
    match = TRUTH.fullmatch(without_thousands_commas(answer.strip()))
    return match[1] if match else None


def gsm8k_reward(text: str, problem) -> float:
    """1.0 if the first number after #### is the answer."""
    expected = expected_number(problem.answer)
    return float(expected is not None and number_after_hashes(text) == expected)
