"""Tools in two small classes, in the form that TRL's `environment_factory` takes. They import
nothing from this project, so TRL can use the same classes.

    rfs train --environment ch07/my_tools.py:Calculator --problems tiny
    rfs train --environment ch07/my_tools.py:Search --problems ch07/my_tools.py:problems
"""

import ast
import operator

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
PRICES = {"tea": 3, "coffee": 4, "cake": 6, "soup": 7, "bread": 2, "cheese": 9}
NOTES = {item: f"Since the first of May, {item} costs {price}." for item, price in PRICES.items()}


class Calculator:
    """There is no `get_reward`: the grader judges the answer that is written at the end."""

    def reset(self, **row) -> str | None:
        return None

    def calculate(self, expression: str) -> str:
        """Works out a calculation.

        Args:
            expression: Whole numbers with +, - and *, such as 12 * 7.
        """
        return str(value(ast.parse(expression[:100], mode="eval").body))


def value(tree):
    """Numbers, +, - and *; nothing else is computed."""
    if isinstance(tree, ast.Constant) and type(tree.value) is int:
        return tree.value
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return -value(tree.operand)
    if isinstance(tree, ast.BinOp) and type(tree.op) in OPERATORS:
        return OPERATORS[type(tree.op)](value(tree.left), value(tree.right))
    raise ValueError("only whole numbers, +, - and * are computed")


def problems():
    """No model knows these prices: they are in the notes."""
    for item, price in list(PRICES.items())[:4]:
        yield {"problem": f"How much does {item} cost?", "answer": str(price)}


def test_problems():
    """Other prices, to evaluate on."""
    for item, price in list(PRICES.items())[4:]:
        yield {"problem": f"How much does {item} cost?", "answer": str(price)}


class Search:
    """The answer is handed in with a tool, and `get_reward` says whether it is correct."""

    def reset(self, answer: str, **row) -> str | None:
        self.price, self.submitted = int(answer), None
        return "\nSearch the notes, then submit the price."

    def search(self, word: str) -> str:
        """Looks a word up in the notes.

        Args:
            word: One word, such as milk.
        """
        return NOTES.get(word.lower(), f"There is no note about {word}.")

    def submit(self, price: int) -> str:
        """Hands in the answer. The last one counts.

        Args:
            price: The price, a whole number.
        """
        self.submitted = price
        return "Thank you."

    def get_reward(self) -> float:
        return float(self.submitted == self.price)


if __name__ == "__main__":  # there is nothing to run here: say what this is
    print(__doc__)
