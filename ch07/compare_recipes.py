"""Several recipes, several seeds, one table and one picture.

    uv run ch07/compare_recipes.py --recipes grpo dr_grpo dapo --seeds 3

`rfs compare` is the same.
"""

import sys

from rfs.commands.cli import main

if __name__ == "__main__":
    sys.exit(main(["compare", *sys.argv[1:]]))
