"""Judging answers: is what stands in the box the same as the truth?

extract.py finds the box; lexer.py, grammar.py, notation.py and statements.py read the answer into
a tree; kinds.py says what kind of thing it is; equal.py compares two of a kind with the exact
arithmetic of ring.py and values.py. No string is ever evaluated as code, and limits.py bounds the
work of every judgment.
"""

from .arithmetic import arithmetic
from .extract import extract_final_candidate, get_last_boxed
from .plain import equality_check, normalize_text, run_demos_table, split_into_parts
from .symbolic import sympy_parser
from .verdict import GRADER_VERSION, check_truth, grade_answer, judge, parses

__all__ = [
    "GRADER_VERSION",
    "arithmetic",
    "check_truth",
    "equality_check",
    "extract_final_candidate",
    "get_last_boxed",
    "grade_answer",
    "judge",
    "normalize_text",
    "parses",
    "run_demos_table",
    "split_into_parts",
    "sympy_parser",
]
