"""`rfs recipes`: what each recipe changes, and its paper. It does not wait for torch."""

import textwrap

from reasoning_from_scratch.recipes import RECIPES


def recipes_command() -> None:
    """Prints what each recipe changes, and its paper."""
    print(recipe_table())


def recipe_table(width: int = 96) -> str:
    """All rows as text: name, what changes, the idea, the source."""
    lines = []
    for name, recipe in RECIPES.items():
        changes = "  ".join(f"{field}={_value_text(v)}" for field, v in recipe.changes.items())
        lines.append(name)
        for text in (changes or "(nothing)", recipe.about, recipe.paper):
            lines += textwrap.wrap(
                text,
                width,
                initial_indent="    ",
                subsequent_indent="      ",
                break_long_words=False,
                break_on_hyphens=False,
            )
    return "\n".join(lines)


def _value_text(value: object) -> str:
    if isinstance(value, dict):  # reward parts
        return ",".join(f"{part}={weight:g}" for part, weight in value.items())
    return str(value)
