"""MATH-500 with what chapters 3 to 5 build: more tokens per problem instead of more training.

    uv run ch06/inference_scaling.py --method vote --samples 16

`--help` says which methods there are. With several of them it prints a table of accuracy against
tokens.
"""

import sys

from reasoning_from_scratch.commands.cli import run_script
from reasoning_from_scratch.commands.inference_scaling import inference_scaling

if __name__ == "__main__":
    sys.exit(run_script(inference_scaling))
