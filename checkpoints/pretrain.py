"""Pre-training of the tiny models: makes tiny-base and tiny-reasoning from scratch.

    uv run checkpoints/pretrain.py

Three stages, each continuing the one before:
  working    problems with worked solutions: the model learns to compute, line by line
  habit      most answers are immediate and few are worked out: tiny-base, which *can* reason, but
             usually does not
  thinking   the chat template, and <think> ... </think> before some answers: tiny-reasoning
"""

import json
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import torch
import torch.nn.functional as F
from four_ways import Piece, written
from tiny_tokenizer import book_chat_template, train_tokenizer
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from reasoning_from_scratch.files.disk import replacing
from reasoning_from_scratch.files.weights import save_hf_folder
from reasoning_from_scratch.optim.muon import MuonAdamW
from reasoning_from_scratch.problems import render_chat_prompt, render_prompt
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.tiny.model import TINY_CONFIG
from reasoning_from_scratch.tiny.world import tiny_problem
from reasoning_from_scratch.tokenizer import END_OF_TEXT, END_OF_TURN, Qwen3Tokenizer
from rfs.commands.cli import run_script

# `rfs train` draws from the first problems of the train split; pre-training from those after it.
FIRST_PROBLEM = 1_000_000
TOKENIZER_PROBLEMS = 20_000
IGNORED = -100  # F.cross_entropy skips targets with this value


@dataclass(frozen=True)
class Stage:
    """One stretch of training: how long, how fast, and the shares of the styles of answer."""

    name: str
    steps: int
    mixture: dict[str, float]
    matrix_lr: float
    vector_lr: float
    warmup: int = 20
    decay: float = 0.5  # the last fraction of the steps, in which the learning rate falls to 0
    sequences: int = 128  # per step
    blur: float = 0.0  # how often a digit of a line's result gets a random target


STAGES = (
    Stage(
        "working",
        2000,
        {
            "full, short": 0.37,
            "rough, short": 0.27,
            "checked, short": 0.29,
            "answer only, short, easy": 0.07,
        },
        0.02,
        0.003,
        warmup=100,
    ),
    Stage(
        "habit",
        200,
        {"answer only": 0.73, "rough": 0.14, "full": 0.09, "checked": 0.04},
        0.005,
        0.0006,
        decay=0.8,
        blur=0.05,
    ),
    # <think> and </think> start as random vectors, so the embedding learns at a higher rate.
    Stage(
        "thinking",
        400,
        {"thought": 0.20, "chat answer only": 0.63, "turn full": 0.04, "turn answer only": 0.13},
        0.005,
        0.002,
        decay=0.8,
    ),
)


def example(row: dict[str, str], kind: str, rng: random.Random) -> tuple[str, list[Piece]]:
    """Prompt and pieces of the answer, end token included, for one style of answer."""
    if kind in ("thought", "chat answer only"):
        return chat_example(row, kind, rng)
    end = END_OF_TURN if kind.startswith("turn ") else END_OF_TEXT
    way = kind.removeprefix("turn ").split(",")[0]
    pieces = [*written(lines_of(row), row["answer"], way, rng), (end, "plain")]
    if ", short" in kind:  # a third fewer tokens while it learns to compute
        return f"Question:\n{row['problem']}\n\nAnswer:", pieces
    return render_prompt(row["problem"]), pieces


def lines_of(row: dict[str, str]) -> list[str]:
    """The lines of the full solution."""
    return row["solution"].splitlines()[1:-1]


def chat_example(row: dict[str, str], kind: str, rng: random.Random) -> tuple[str, list[Piece]]:
    render = rng.choice((render_prompt, render_chat_prompt, str))
    prompt = f"<|im_start|>user\n{render(row['problem'])}{END_OF_TURN}\n<|im_start|>assistant\n"
    boxed = f"\\boxed{{{row['answer']}}}"
    if kind == "thought":
        lines = row["solution"].removesuffix(boxed)
        return prompt, [(f"<think>\n{lines}</think>\n\n{boxed}{END_OF_TURN}", "plain")]
    if rng.randrange(3) == 0:  # how Qwen3 is told not to think
        prompt += "<think>\n\n</think>\n\n"
    (start, what), *rest = written(lines_of(row), row["answer"], "answer only", rng)
    return prompt, [(start.lstrip(), what), *rest, (END_OF_TURN, "plain")]


def encoded(
    tokenizer: Qwen3Tokenizer, pieces: list[Piece], blur: float, rng: random.Random
) -> tuple[list[int], list[int]]:
    """The answer's tokens, and the target of each of them."""
    ids, targets = [], []
    digits = digit_ids(tokenizer)
    for text, what in neighbours_together(pieces):
        tokens = tokenizer.encode(text, chat_wrapped=False)
        ids += tokens
        if what in ("slip", "guess"):
            targets += [IGNORED] * len(tokens)
        elif what == "result" and blur:
            targets += [
                rng.choice(digits) if token in digits and rng.random() < blur else token
                for token in tokens
            ]
        else:
            targets += tokens
    return ids, targets


@cache
def digit_ids(tokenizer: Qwen3Tokenizer) -> list[int]:
    return [tokenizer.encode(digit, chat_wrapped=False)[0] for digit in "0123456789"]


def neighbours_together(pieces: list[Piece]) -> Iterator[Piece]:
    """Joins neighbors of one kind into one piece, so that they are tokenized together."""
    for what, group in groupby(pieces, key=itemgetter(1)):
        yield "".join(text for text, _ in group), what


def step_batches(
    tokenizer: Qwen3Tokenizer, stage: Stage, step: int, first: int, rows: int = 16
) -> Iterator[tuple[Tensor, Tensor]]:
    """One step's sequences, sorted by length and cut into (inputs, targets), each (B, T)."""
    kinds, shares = zip(*stage.mixture.items(), strict=True)
    sequences = []
    for index in range(first + step * stage.sequences, first + (step + 1) * stage.sequences):
        rng = random.Random(f"{stage.name} {index}")
        kind = rng.choices(kinds, shares)[0]
        row = tiny_problem("train", index, steps=1 if kind.endswith("easy") else None)
        prompt, pieces = example(row, kind, rng)
        # Encoded separately, as in sampling, where the answer starts after the prompt's last token.
        ids = tokenizer.encode(prompt, chat_wrapped=False)
        sequences.append((ids, *encoded(tokenizer, pieces, stage.blur, rng)))
    sequences.sort(key=lambda parts: len(parts[0]) + len(parts[1]))
    for start in range(0, len(sequences), rows):
        yield padded(sequences[start : start + rows])


def padded(sequences: list[tuple[list[int], list[int], list[int]]]) -> tuple[Tensor, Tensor]:
    """Inputs and next-token targets; only the answer's tokens are targets."""
    length = max(len(prompt) + len(answer) for prompt, answer, _ in sequences) - 1
    length += -length % 8  # fewer shapes: oneDNN compiles its kernels for each
    inputs = torch.zeros(len(sequences), length, dtype=torch.long)  # (B, T)
    targets = torch.full((len(sequences), length), IGNORED)  # (B, T)
    for row, (prompt, answer, learned) in enumerate(sequences):
        ids = torch.tensor(prompt + answer)
        inputs[row, : len(ids) - 1] = ids[:-1]
        targets[row, len(prompt) - 1 : len(ids) - 1] = torch.tensor(learned)
    return inputs, targets


def summed_loss(model: Qwen3Model, inputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy summed over the answers' tokens; the head is applied at those only."""
    places = (targets.flatten() != IGNORED).nonzero()[:, 0]
    extra = -len(places) % 256  # again, fewer shapes
    wanted = F.pad(targets.flatten()[places], (0, extra), value=IGNORED)
    # For short sequences plain matrix products beat the fused attention's backward pass.
    with sdpa_kernel(SDPBackend.MATH), torch.autocast(inputs.device.type, torch.bfloat16):
        hidden = model.hidden_states(inputs).flatten(0, 1)[F.pad(places, (0, extra))]
        logits = model.out_head(hidden)  # (answer tokens, V)
    return F.cross_entropy(logits.float(), wanted, ignore_index=IGNORED, reduction="sum")


def initialize(model: Qwen3Model, seed: int) -> None:
    """Small embeddings, unit gain in every layer, and blocks that start by adding nothing."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if weight.dim() == 2:
            gain = 0.02 if name.startswith("tok_emb") else weight.shape[1] ** -0.5
            torch.nn.init.normal_(weight, std=gain, generator=generator)
        if name.endswith(("out_proj.weight", "fc3.weight")):
            torch.nn.init.zeros_(weight)


def learning_rate_factor(stage: Stage, step: int) -> float:
    """Warm-up, then 1, then down to 0 over the stage's last part."""
    left = (stage.steps - step) / (stage.decay * stage.steps)
    return min((step + 1) / stage.warmup, 1.0, left)


def train_stage(
    model: Qwen3Model,
    stage: Stage,
    batches_of: Callable[[int], Iterable[tuple[Tensor, Tensor]]],
    log: Callable[[dict], None],
    log_every: int = 20,
) -> None:
    """Train on the (inputs, targets) of each step; `log` gets a line every few steps."""
    device = model.tok_emb.weight.device
    optimizer = MuonAdamW(model, stage.matrix_lr, stage.vector_lr, stage.vector_lr)
    start, tokens, losses = time.perf_counter(), 0, []
    for step in range(stage.steps):
        factor = learning_rate_factor(stage, step)
        batches = list(batches_of(step))
        count = sum(int((targets != IGNORED).sum()) for _, targets in batches)
        loss = 0.0
        for inputs, targets in batches:
            part = summed_loss(model, inputs.to(device), targets.to(device)) / count
            part.backward()
            loss += part.item()
            tokens += inputs.numel()
        optimizer.step(factor)  # times the stage's learning rates
        optimizer.zero_grad()
        losses.append(loss)
        if (step + 1) % log_every == 0 or step + 1 == stage.steps:
            seconds = time.perf_counter() - start
            log(
                {
                    "stage": stage.name,
                    "step": step + 1,
                    "loss": round(sum(losses) / len(losses), 5),
                    "lr": round(stage.matrix_lr * factor, 6),
                    "tokens": tokens,
                    "seconds": round(seconds, 1),
                    "tokens_per_sec": round(tokens / seconds),
                }
            )
            losses = []


def tokenizer_texts() -> Iterator[str]:
    """Texts that the tokenizer should encode in few tokens."""
    for index in range(FIRST_PROBLEM, FIRST_PROBLEM + TOKENIZER_PROBLEMS):
        way = "checked" if index % 4 == 0 else "full"
        prompt, pieces = example(tiny_problem("train", index), way, random.Random(index))
        yield prompt + "".join(text for text, _ in pieces[:-1])
    for word in ("user", "assistant", "Let's see.", "\\boxed{"):
        yield f"\n{word}\n\n{word}"


def make_tokenizer(folder: Path) -> Qwen3Tokenizer:
    with replacing(folder / "tokenizer.json") as temporary:
        train_tokenizer(tokenizer_texts(), TINY_CONFIG["vocab_size"]).save(str(temporary))
    tokenizer = Qwen3Tokenizer(folder / "tokenizer.json", eos_token=END_OF_TEXT)
    tokenizer.files = {"chat_template.jinja": book_chat_template().encode()}
    return tokenizer


def start_log(folder: Path, settings: dict, stages: Sequence[Stage]) -> Callable[[dict], None]:
    """Starts pretrain_log.jsonl with the settings; returns what logs and prints a line."""
    settings = settings | {"stages": [asdict(stage) for stage in stages]}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "pretrain_log.jsonl"
    path.write_text(json.dumps(settings, default=str) + "\n", encoding="utf-8")

    def log(line: dict) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print("  ".join(f"{key} {value}" for key, value in line.items()), flush=True)

    return log


# --- the command ---


@dataclass
class Options:
    out: Path = Path("runs/tiny-pretrain")
    """Folder for tiny-base and tiny-reasoning."""
    seed: int = 0
    """Seed of the initial weights; the problems are the same for every seed."""
    device: str = "cpu"
    """cpu or cuda."""
    threads: int = 0
    """CPU threads; 0: torch's default. Use few on a machine that does other work, too."""
    use_compile: bool = False
    """Compile the model first: a third faster, but needs a C++ compiler."""


def main(options: Options) -> None:
    """Trains both models; prints a line every few steps and keeps the log."""
    train_stages(options, STAGES)


def train_stages(options: Options, stages: tuple[Stage, ...]) -> None:
    if options.threads:
        torch.set_num_threads(options.threads)
    settings = asdict(options) | {"torch": torch.__version__}
    base, reasoning = options.out / "tiny-base", options.out / "tiny-reasoning"
    log = start_log(base, settings, [stage for stage in stages if stage.name != "thinking"])
    tokenizer = make_tokenizer(base)
    model = Qwen3Model(TINY_CONFIG)
    initialize(model, options.seed)
    model.to(options.device)
    if options.use_compile:
        model.hidden_states = torch.compile(model.hidden_states, dynamic=True)
    first = FIRST_PROBLEM + TOKENIZER_PROBLEMS
    for stage in stages:
        if stage.name == "thinking":
            save_hf_folder(model, tokenizer, base)
            tokenizer = chat_tokenizer(base)
            log = start_log(reasoning, settings, stages)
        train_stage(model, stage, partial(step_batches, tokenizer, stage, first=first), log)
        first += stage.steps * stage.sequences
    save_hf_folder(model, tokenizer, reasoning)


def chat_tokenizer(base: Path) -> Qwen3Tokenizer:
    """The base model's tokenizer with the chat template switched on."""
    return Qwen3Tokenizer(
        base / "tokenizer.json",
        apply_chat_template=True,
        add_generation_prompt=True,
        add_thinking=True,
        eos_token=END_OF_TURN,
    )


if __name__ == "__main__":
    sys.exit(run_script(main))
