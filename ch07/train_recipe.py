"""Train with one of the recipes of section 7.6; `--list` shows them all.

    uv run ch07/train_recipe.py --recipe dapo --steps 50

Any other flag of `rfs train` works, too, and overrides the recipe.
"""

import sys

from rfs.commands.cli import main

if __name__ == "__main__":
    sys.exit(main(["recipes"] if "--list" in sys.argv else ["train", *sys.argv[1:]]))
