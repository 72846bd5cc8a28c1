"""Tools in two small classes, as TRL's `environment_factory` takes them. Nothing of this project
is imported: the same file can be used there.

    rfs train --environment ch07/my_tools.py:Calculator --problems tiny --steps 20
"""

import ast
import operator

NOTES = {
    "tea": "A cup of tea costs 3.",
    "cake": "A piece of cake costs 4.",
    "apples": "There are 6 apples in a bag.",
}
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def value(tree):
    """Numbers, +, - and *; nothing else is computed."""
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int):
        return tree.value
    if isinstance(tree, ast.BinOp) and type(tree.op) in OPERATORS:
        return OPERATORS[type(tree.op)](value(tree.left), value(tree.right))
    raise ValueError("only whole numbers, +, - and * are computed")


class Calculator:
    """There is no `get_reward`: the grader judges the answer."""

    def reset(self, **row) -> str | None:
        return None

    def calculate(self, expression: str) -> str:
        """Works out a calculation.

        Args:
            expression: Whole numbers with +, - and *, such as 12 * 7.
        """
        return str(value(ast.parse(expression[:100], mode="eval").body))


class Search:
    """It pays by itself, for a search that found something."""

    def reset(self, **row) -> str | None:
        self.found = 0
        return "Look up what you need."

    def search(self, word: str) -> str:
        """Looks up a word in the notes.

        Args:
            word: One word, such as tea.
        """
        note = NOTES.get(word.lower())
        self.found += note is not None
        return note or f"nothing about {word}; there are notes about {', '.join(NOTES)}"

    def get_reward(self) -> float:
        """Paid is a search that found something."""
        return float(self.found > 0)


if __name__ == "__main__":  # there is nothing to run here: say what this is
    print(__doc__)
