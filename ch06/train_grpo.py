"""GRPO on the tiny model, or with `--model base` on Qwen3-0.6B: the same as `rfs train`.

    uv run ch06/train_grpo.py --steps 50

`--recipe ch06` trains exactly what the chapter builds.
"""

import sys

from rfs.commands.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
