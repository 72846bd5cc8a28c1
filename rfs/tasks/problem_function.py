"""Problems that a function of your own yields: FILE.py:FUNCTION.

    rfs train --problems my_task.py:problems

A function `test_problems` in the same file yields those to evaluate on.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.problem_sets import as_problem, field_text
from reasoning_from_scratch.problems import Problem
from rfs.tasks.foreign import describe_error
from rfs.tasks.own_task import file_defines, function_from_file
from rfs.tasks.source import FileSource

OWN_SIZE = 12_000  # problems taken from a generator that may never end


class ProblemFunction(FileSource):
    """What FILE.py:FUNCTION yields, as Problem objects or as rows like a file's."""

    NAME_PATTERN = re.compile(r".*\.py:.*", re.DOTALL)
    LISTED_NAMES = ("FILE.py:FUNCTION",)

    def problems(self, limit: int | None = None) -> list[Problem]:
        problems = list(islice(self.rows(), limit))
        if not problems:
            raise UserError(f"{self.name} yields no problems")
        return problems

    def rows(self) -> Iterator[Problem]:
        index, stem = 0, Path(self.name.rpartition(":")[0]).stem
        try:
            for row in islice(function_from_file(self.name)(), OWN_SIZE):
                if isinstance(row, Problem):  # a verifier may not need an answer
                    texts: dict[str, Any] = {
                        "problem": field_text(vars(row), "problem"),
                        "answer": field_text(vars(row), "answer", optional=True),
                    }
                    problem = replace(row, **texts)
                else:
                    problem = as_problem(row, f"{stem}/{index}")
                yield problem
                index += 1
        except (UserError, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # the reader's code may raise anything
            raise UserError(f"{self.name}, problem {index}: {describe_error(error)}") from error

    def check(self) -> None:
        """Looks for the function."""
        function_from_file(self.name)

    def exists(self) -> bool:
        return file_defines(self.name)

    def held_out_name(self) -> str:
        tests = self.name.rpartition(":")[0] + ":test_problems"
        return tests if file_defines(tests) else super().held_out_name()
