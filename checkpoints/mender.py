"""Makes tiny-mender: tiny-base, which also knows what to do when it is told that it is wrong.

    uv run checkpoints/mender.py

It continues tiny-base for a minute or two on conversations. The first answers are those of
tiny-base's last stage, in the same shares, most of them given at once. An answer given at once is
wrong here and is told so; then the problem is worked out:

    model          \\boxed{19}
    environment    That is wrong. Try again.
    model          59 - 11 = 48, and so on

The wrong answer is read and never learned. ch07/second_try.py asks what GRPO makes of it.
"""

import random
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from four_ways import slip, written
from pretrain import IGNORED, STAGES, Stage, encoded, lines_of, padded, start_log, train_stage
from torch import Tensor

from reasoning_from_scratch.commands.cli import run_script
from reasoning_from_scratch.environments.retry import TRY_AGAIN
from reasoning_from_scratch.files.weights import load_model_and_tokenizer, save_hf_folder
from reasoning_from_scratch.problems import render_prompt
from reasoning_from_scratch.tiny.world import tiny_problem
from reasoning_from_scratch.tokenizer import END_OF_TEXT, Qwen3Tokenizer

FIRST_PROBLEM = 3_000_000  # after those that the other models have seen
HABIT = next(stage for stage in STAGES if stage.name == "habit")
MEND = Stage("mend", 25, HABIT.mixture, 0.001, 0.0006, warmup=3, sequences=48, blur=HABIT.blur)


def conversation(
    tokenizer: Qwen3Tokenizer, row: dict[str, str], way: str, rng: random.Random, blur: float
) -> tuple[list[int], list[int]]:
    """What follows the prompt, and what is to be learned of it."""
    answer = row["answer"] if way != "at once" else slip(row["answer"], rng)
    pieces = list(written(lines_of(row), answer, way, rng))
    if way == "at once":
        pieces[1] = (answer, "guess")  # also for problems of one step: it is wrong
    ids, targets = encoded(tokenizer, [*pieces, (END_OF_TEXT, "plain")], blur, rng)
    if way == "at once":
        said = tokenizer.encode(tokenizer.reply_turn(TRY_AGAIN), chat_wrapped=False)
        working = written(lines_of(row), row["answer"], "full", rng)
        mended = encoded(tokenizer, [*working, (END_OF_TEXT, "plain")], blur, rng)
        ids += said + mended[0]
        targets += [IGNORED] * len(said) + mended[1]
    return ids, targets


def step_batches(
    tokenizer: Qwen3Tokenizer, stage: Stage, step: int, rows: int = 16
) -> Iterator[tuple[Tensor, Tensor]]:
    """One step's conversations, sorted by length and cut into (inputs, targets), each (B, T)."""
    ways, shares = zip(*stage.mixture.items(), strict=True)
    first = FIRST_PROBLEM + step * stage.sequences
    sequences = []
    for index in range(first, first + stage.sequences):
        rng, row = random.Random(f"{stage.name} {index}"), tiny_problem("train", index)
        prompt = tokenizer.encode(render_prompt(row["problem"]), chat_wrapped=False)
        way = rng.choices(ways, shares)[0]
        sequences.append((prompt, *conversation(tokenizer, row, way, rng, stage.blur)))
    sequences.sort(key=lambda parts: len(parts[0]) + len(parts[1]))
    for start in range(0, len(sequences), rows):
        yield padded(sequences[start : start + rows])


@dataclass
class Options:
    out: Path = Path("runs/tiny-mender")
    """Folder of the model."""
    threads: int = 0
    """CPU threads; 0: as many as torch likes."""


def main(options: Options) -> None:
    """Continues tiny-base; prints a line every few steps and keeps the log."""
    make_mender(options, MEND)


def make_mender(options: Options, stage: Stage) -> None:
    if options.threads:
        torch.set_num_threads(options.threads)
    log = start_log(options.out, asdict(options) | {"torch": torch.__version__}, [stage])
    model, tokenizer = load_model_and_tokenizer("tiny-base")
    train_stage(model, stage, partial(step_batches, tokenizer, stage), log, log_every=5)
    save_hf_folder(model, tokenizer, options.out)


if __name__ == "__main__":
    sys.exit(run_script(main))
