"""Judging answers: is the answer in the box the same as the truth?

    text --reading/--> tree --comparing/--> the object that it denotes --comparing/--> same or not
                                  values.py computes values, where there are any

verdict.py is the entry point. Nothing here imports the rest of the package; no string is ever
evaluated as code, and limits.py bounds the work of every judgment. README.md lists the rules.
"""

from .calculations import arithmetic
from .reading.boxes import extract_final_candidate, get_last_boxed, judged_part
from .sympy_objects import sympy_parser
from .verdict import (
    GRADER_VERSION,
    UnreadableTruth,
    answer_verdict,
    check_truth,
    grade_answer,
    has_readable_answer,
)

__all__ = [
    "GRADER_VERSION",
    "UnreadableTruth",
    "arithmetic",
    "check_truth",
    "extract_final_candidate",
    "get_last_boxed",
    "grade_answer",
    "answer_verdict",
    "judged_part",
    "has_readable_answer",
    "sympy_parser",
]
