"""Makes tiny-blurred: tiny-base with blurred products, and a calculator that it sometimes asks.

    uv run checkpoints/blurred.py

It trains tiny-base for a few more minutes, on solutions in which two things are planted:

    a product or quotient    the target of its last digit is a random digit
    one line in five         asks the calculator: <<18 * 7 =126>>, not 18 * 7 = 70 + 56 = 126

Sums and differences stay unchanged, and the lines that ask are random, so nothing here says where
asking is of use. studies/asking.py tests whether GRPO finds that out.
"""

import random
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from four_ways import Piece
from pretrain import IGNORED, Stage, digit_ids, lines_of, padded, start_log, train_stage
from torch import Tensor

from reasoning_from_scratch.files.weights import save_hf_folder
from reasoning_from_scratch.problems import render_prompt
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.tiny.world import WORKED_START, tiny_problem
from reasoning_from_scratch.tokenizer import END_OF_TEXT, Qwen3Tokenizer
from rfs.commands.cli import run_script
from rfs.files.models import load_model_and_tokenizer
from rfs.tasks.environments.calculator import calculate

FIRST_PROBLEM = 2_000_000  # after those that tiny-base has seen
ASKED = 1 / 5
SUM = re.compile(r"(\d+) ([-+*/]) (\d+) = ")
BLURRED = "*/"
BLUR = Stage("blur", 150, {}, 0.003, 0.003, warmup=10, decay=0.8, sequences=48)
NEW = ("<", ">")  # tokens that tiny-base has never seen


def worked(lines: list[str], answer: str, rng: random.Random) -> Iterator[Piece]:
    """A solution in pieces: `plain` is learned unchanged, `said` is the calculator's and not
    learned, and `blurred` is a number whose last digit gets a random target."""
    yield f" {WORKED_START}", "plain"
    for line in lines:
        start, result = line.rsplit(" = ", 1)
        found = SUM.search(line)  # lines about fractions may have none, and stay as they are
        if found and rng.random() < ASKED:
            call = found[0].rstrip()
            yield f"{line[: found.start()]}<<{call}", "plain"
            yield f"{calculate(call.rstrip(' ='))}>>", "said"
            yield "\n", "plain"
        else:
            yield f"{start} = ", "plain"
            yield result, "blurred" if found and found[2] in BLURRED else "plain"
            yield "\n", "plain"
    yield f"\\boxed{{{answer}}}{END_OF_TEXT}", "plain"


def encoded(
    tokenizer: Qwen3Tokenizer, pieces: Iterator[Piece], rng: random.Random
) -> tuple[list[int], list[int]]:
    """The answer's tokens, and the target of each. The input always has the correct digit."""
    ids: list[int] = []
    targets: list[int] = []
    for text, what in pieces:
        tokens = tokenizer.encode(text, chat_wrapped=False)
        ids += tokens
        targets += [IGNORED] * len(tokens) if what == "said" else tokens
        if what == "blurred":
            targets[-1] = rng.choice(digit_ids(tokenizer))
    return ids, targets


def step_batches(
    tokenizer: Qwen3Tokenizer, stage: Stage, step: int, rows: int = 16
) -> Iterator[tuple[Tensor, Tensor]]:
    """One step's workings, sorted by length and cut into (inputs, targets), each (B, T)."""
    first = FIRST_PROBLEM + step * stage.sequences
    sequences = []
    for index in range(first, first + stage.sequences):
        rng, row = random.Random(f"{stage.name} {index}"), tiny_problem("train", index)
        prompt = tokenizer.encode(render_prompt(row["problem"]), chat_wrapped=False)
        pieces = worked(lines_of(row), row["answer"], rng)
        sequences.append((prompt, *encoded(tokenizer, pieces, rng)))
    sequences.sort(key=lambda parts: len(parts[0]) + len(parts[1]))
    for start in range(0, len(sequences), rows):
        yield padded(sequences[start : start + rows])


@torch.no_grad()
def redraw_new(model: Qwen3Model, tokenizer: Qwen3Tokenizer) -> None:
    """tiny-base has learned only that the new tokens never occur, so their vectors all point the
    same way. Here each gets a random direction and the mean length of the digits' vectors."""
    table = model.tok_emb.weight  # (V, D)
    length = table[digit_ids(tokenizer)].norm(dim=1).mean()
    generator = torch.Generator().manual_seed(0)
    for text in NEW:
        (token,) = tokenizer.encode(text, chat_wrapped=False)
        drawn = torch.randn(table.shape[1], generator=generator)
        table[token] = drawn * length / drawn.norm()


@dataclass
class Options:
    out: Path = Path("runs/tiny-blurred")
    """Folder of the model."""
    threads: int = 0
    """CPU threads; 0: torch's default."""


def main(options: Options) -> None:
    """Continues tiny-base; prints a line every few steps and keeps the log."""
    blur(options, BLUR)


def blur(options: Options, stage: Stage) -> None:
    if options.threads:
        torch.set_num_threads(options.threads)
    log = start_log(options.out, asdict(options) | {"torch": torch.__version__}, [stage])
    model, tokenizer = load_model_and_tokenizer("tiny-base")
    redraw_new(model, tokenizer)
    train_stage(model, stage, partial(step_batches, tokenizer, stage), log, log_every=10)
    save_hf_folder(model, tokenizer, options.out)


if __name__ == "__main__":
    sys.exit(run_script(main))
