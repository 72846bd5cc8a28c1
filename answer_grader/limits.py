"""The grader's limits: caps on the text, and a budget of work instead of a timer.

A timer needs a signal (main thread only) or a process per answer; counting work needs neither and
gives the same verdict on every machine.
"""

from fractions import Fraction

MAX_CHARS = 4_000  # an answer longer than this is not an answer
MAX_TOKENS = 1_200
MAX_DEPTH = 40  # of nested brackets, fractions and roots
MAX_BITS = 12_000  # of any integer that we compute
MAX_WORK = 20_000  # units of about a microsecond each


class Unparsed(Exception):
    """The text is not an answer in our grammar."""


class TooBig(Exception):
    """Deciding would take more work than an answer is worth."""


class Undefined(Exception):
    """The tree has no value: a division by zero, an infinity inside a sum."""


class NotReal(Exception):
    """A root or logarithm left the real numbers at this point."""


class Budget:
    """How much work one comparison may still cost."""

    def __init__(self) -> None:
        self.units_left = MAX_WORK

    def spend(self, units: int = 1) -> None:
        self.units_left -= units
        if self.units_left < 0:
            raise TooBig

    def charge(self, value: Fraction) -> Fraction:
        """Charges for an exact number by its size, and refuses one that has grown too long."""
        bits = value.numerator.bit_length() + value.denominator.bit_length()
        if bits > MAX_BITS:
            raise TooBig
        self.spend(1 + bits // 256 + (bits // 1_000) ** 2)
        return value

    def power(self, base: Fraction, exponent: int) -> Fraction:
        """base ** exponent, refused before it is computed where the result would be too long."""
        if base == 0 and exponent < 0:
            raise Undefined
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if base not in (0, 1, -1) and bits * abs(exponent) > MAX_BITS:
            raise TooBig
        if base in (1, -1):
            exponent %= 2
        return self.charge(base**exponent)
