"""The colors of pictures. They are those of the pages: colors.css has them, and what each means."""

import re
from importlib.resources import files

_COLOR = re.compile(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), #[0-9a-f]{6}\)")


def colors_css() -> str:
    return (files("rfs.report") / "templates" / "colors.css").read_text("utf-8")


COLOR = dict(_COLOR.findall(colors_css()))  # by name, as on a light page
COLORS = tuple(COLOR[f"c{number}"] for number in range(5))  # of curves, in this order
TEXT, RULE = COLOR["soft"], COLOR["line"]
