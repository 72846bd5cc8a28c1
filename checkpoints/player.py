"""Pre-training of tiny-player, which plays higher or lower by the rules and without a plan.

    uv run checkpoints/player.py

Each guess of its games is drawn uniformly from the numbers that are still possible. Nothing in the
games prefers the middle, so any strategy that GRPO teaches the player is not from this data.
"""

import random
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from pretrain import IGNORED, Stage, initialize, padded, start_log, train_stage
from torch import Tensor

from reasoning_from_scratch.files.weights import save_hf_folder
from reasoning_from_scratch.problems import Problem, problem_prompt
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.tiny.guessing import MOST, guess_problem
from reasoning_from_scratch.tiny.model import TINY_CONFIG
from reasoning_from_scratch.tokenizer import END_OF_TEXT, Qwen3Tokenizer
from rfs.commands.cli import run_script
from rfs.tasks.environments.guess import Guess

TOKENIZER = Path(__file__).parent / "tiny-base" / "tokenizer.json"
# A quarter of tiny-base's weights: the game is small, and a step of training should be quick.
CONFIG = TINY_CONFIG | {"emb_dim": 128, "head_dim": 32, "hidden_dim": 256, "context_length": 256}
PLAY = Stage("play", 1000, {}, 0.02, 0.003, warmup=50, decay=0.6)


def game(rng: random.Random) -> tuple[Problem, list[tuple[int, str | None]]]:
    """A game by the rules: each guess, and what the environment says to it."""
    problem = guess_problem(rng.randint(1, MOST))
    environment, turns, low, high = Guess(problem), [], 1, MOST
    reply: str | None = ""
    while reply is not None:
        guess = rng.randint(low, high)
        reply = environment.reply(str(guess))
        turns.append((guess, reply))
        if reply == "higher":
            low = guess + 1
        else:
            high = guess - 1
    return problem, turns


def example(
    tokenizer: Qwen3Tokenizer, rng: random.Random
) -> tuple[list[int], list[int], list[int]]:
    """A game as tokens: the prompt, what follows, and the targets for what follows."""
    problem, turns = game(rng)
    ids: list[int] = []
    targets: list[int] = []
    for guess, reply in turns:
        drawn = [*tokenizer.encode(str(guess), chat_wrapped=False), tokenizer.eos_token_id]
        said = [] if reply is None else reply_ids(tokenizer, reply)
        ids += drawn + said
        targets += drawn + [IGNORED] * len(said)
    return tokenizer.encode(problem_prompt(problem), chat_wrapped=False), ids, targets


def reply_ids(tokenizer: Qwen3Tokenizer, reply: str) -> list[int]:
    return tokenizer.encode(tokenizer.reply_turn(reply), chat_wrapped=False)


def step_batches(
    tokenizer: Qwen3Tokenizer, stage: Stage, step: int, rows: int = 32
) -> Iterator[tuple[Tensor, Tensor]]:
    """One step's games, sorted by length and cut into (inputs, targets), each (B, T)."""
    first = step * stage.sequences
    games = [
        example(tokenizer, random.Random(f"{stage.name} {index}"))
        for index in range(first, first + stage.sequences)
    ]
    games.sort(key=lambda parts: len(parts[1]))
    for start in range(0, len(games), rows):
        yield padded(games[start : start + rows])


@dataclass
class Options:
    out: Path = Path("runs/tiny-player")
    """Folder of the model."""
    seed: int = 0
    """Seed of the initial weights; the games are the same for every seed."""
    threads: int = 0
    """CPU threads; 0: torch's default."""


def main(options: Options) -> None:
    """Trains the player; prints a line every few steps and keeps the log."""
    train_player(options, PLAY)


def train_player(options: Options, stage: Stage) -> None:
    if options.threads:
        torch.set_num_threads(options.threads)
    log = start_log(options.out, asdict(options) | {"torch": torch.__version__}, [stage])
    tokenizer = Qwen3Tokenizer(TOKENIZER, eos_token=END_OF_TEXT)
    model = Qwen3Model(CONFIG)
    initialize(model, options.seed)
    train_stage(model, stage, partial(step_batches, tokenizer, stage), log)
    save_hf_folder(model, tokenizer, options.out)


if __name__ == "__main__":
    sys.exit(run_script(main))
