"""Download a GRPO checkpoint that the book's author published, and ask it something.

    uv run ch07/use_checkpoint.py --grpo-type no_kl --step 50 --question "What is 12 * 13 - 5?"

The checkpoints are of Qwen3-0.6B: 1.5 GB each.
"""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rfs.commands.cli import run_script


@dataclass
class Options:
    list: bool = False
    """Only list what is published."""
    grpo_type: str = "no_kl"
    """Ask a checkpoint of this run: no_kl, tracking, clip_ratio, kl or format_reward."""
    step: int = 50
    """Ask the checkpoint after this training step."""
    question: str = "Half of a number plus 7 is 20. What is the number?"
    """Ask this."""
    max_new_tokens: int = 1024
    """End an answer after this many tokens."""
    device: str = "auto"
    """Compute on this: cpu, cuda, mps, or auto."""
    out: Path = Path(__file__).resolve().parents[1] / "checkpoints"
    """Download into this folder, 1.5 GB; existing files are used."""


def main(options: Options) -> None:
    from reasoning_from_scratch.fast.device import default_dtype, trusted_device
    from reasoning_from_scratch.files import downloads
    from rfs.commands.chat import Chat, ChatOptions, say
    from rfs.files.models import load_model_and_tokenizer

    if options.list:
        for kind, steps in downloads.GRPO_CHECKPOINTS.items():
            print(f"{kind:<15}steps {', '.join(map(str, steps))}")
        return
    path = downloads.published_checkpoint(options.grpo_type, options.step, options.out)
    device = trusted_device(options.device)
    model, tokenizer = load_model_and_tokenizer(
        path, device, local_dir=options.out, dtype=partial(default_dtype, device)
    )
    asked = ChatOptions(template="math", max_new_tokens=options.max_new_tokens)
    say(Chat(model, tokenizer, asked).answer(options.question))


if __name__ == "__main__":
    sys.exit(run_script(main))
