"""nanochat's chat_rl, with its flags, on the tiny model or any other.

python ch07/chat_rl.py                                  the tiny model, on a CPU
python ch07/chat_rl.py --model base                     Qwen3-0.6B on GSM8K
python ch07/chat_rl.py --model-tag RUN --model-step 60  go on from a step of a run
torchrun --standalone --nproc_per_node=2 ch07/chat_rl.py -- --run=two

What it does, and what a preset changes: reasoning_from_scratch/commands/chat_rl.py.
"""

import sys

from reasoning_from_scratch.commands.chat_rl import chat_rl_command

if __name__ == "__main__":
    sys.exit(chat_rl_command())
