"""A real model learns arithmetic: SmolLM2-135M-Instruct, with three solved examples before the
question, in several runs. It was pre-trained on two trillion tokens by others, on nothing of ours.

    uv run --extra gguf ch06/real_model.py
    uv run --extra gguf ch06/real_model.py --picture-only

A line of the CSV file is a run after so many steps: which share of 96 held-out problems it gets
right, and how well it still reads ordinary text. One run of `rfs train` is

    rfs train --model smollm2 --problems ch06/real_model.py:problems \
        --reward ch06/real_model.py:reward --prompt ch06/three_examples.txt --stop "\\n" \
        --max-new-tokens 6 --problems-per-step 16 --lr 3e-5
"""

import math
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import torch

from reasoning_from_scratch.ch06 import sequence_logprob
from reasoning_from_scratch.commands.cli import run_script
from reasoning_from_scratch.fast.cut import FAST
from reasoning_from_scratch.files.problem_sets import with_prompt
from reasoning_from_scratch.files.tables import read_table, replace_rows
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.rollouts import sample_groups
from reasoning_from_scratch.run.options import configure
from reasoning_from_scratch.run.start import train
from reasoning_from_scratch.sampling import Sampling, greedy

HERE = Path(__file__).resolve()
PROMPT = str(HERE.parent / "three_examples.txt")
SIGNS = {"sums": "+", "differences": "-", "products": "*"}
HELD_OUT = 32  # of each kind
LONGEST = 6  # tokens of an answer
# Ordinary text, to see what else becomes of the model.
TEXT = """The ferry leaves at six in the morning, and by then the fishermen have been at work for
three hours. They stand on the quay in yellow coats and sort what the nets brought up: herring for
the market in town, crabs for the hotel, and a bucket of odd things for the children, who collect
starfish. Nobody speaks much. When the sun comes over the hill behind the church, the light falls
on the windows of the harbour office first, and then on the water, which turns from grey to green.
My grandmother used to say that you can tell the weather of the whole day from that green. I never
learned how. I only remember that she was right more often than the radio."""


@dataclass
class Options:
    out: Path = Path("ch06/real_model.csv")
    """File to write; the picture has the same name with .png."""
    folder: Path = Path("runs/real_model")
    """The runs go here, each with its report."""
    model: str = "smollm2"
    """The model to train."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """A run for each."""
    steps: int = 150
    """Updates of a run."""
    every: int = 25
    """Steps between two measurements."""
    lr: float = 3e-5
    """Learning rate."""
    problems_per_step: int = 16
    """Problems of a step."""
    rollouts: int = 8
    """Answers to each."""
    lora_rank: int = 0
    """Train additions of this rank instead of all weights."""
    picture_only: bool = False
    """Draw the picture of what the file holds, and train nothing."""


def main(options: Options) -> None:
    """Trains, measures, and draws."""
    if not options.picture_only:
        for seed in options.seeds:
            this = {"lr": f"{options.lr:g}", "lora": str(options.lora_rank), "seed": str(seed)}
            replace_rows(options.out, this, run(options, seed))
    draw(read_table(options.out), options.out.with_suffix(".png"))
    print(options.out.with_suffix(".png"))


def run(options: Options, seed: int) -> Iterator[dict[str, str]]:
    """One training, and what `measured` found on its way."""
    config = configure(
        "grpo", model=options.model, steps=options.steps, lr=options.lr, seed=seed,
        problems_per_step=options.problems_per_step, rollouts=options.rollouts,
        lora_rank=options.lora_rank, problems=f"{HERE}:problems", reward=f"{HERE}:reward",
        prompt=PROMPT, stop="\n", max_new_tokens=LONGEST, evaluators=[f"{HERE}:measured"],
        eval_every=options.every, eval_problems=[f"{HERE}:held_out"], eval_limit=1,
        preflight=False, log_path=str(options.folder / f"lora{options.lora_rank}-seed{seed}"),
    )  # fmt: skip
    seconds = 0.0
    for row in train(config).rows:
        seconds += row["time/total"]
        found = {name: row.get(f"measured/{name}") for name in COLUMNS}
        if None not in found.values():
            numbers = {name: f"{value:.4f}" for name, value in found.items()}
            yield {"step": f"{row['eval_step']:.0f}", "seconds": f"{seconds:.0f}"} | numbers


# ----------------------------------------------------------------------------------- the task


def all_problems() -> tuple[list[Problem], list[Problem]]:
    """(to train on, held out). 13 + 24 and 24 + 13 are on the same side."""
    rng = random.Random("real model")
    trained, aside = [], []
    for kind, sign in SIGNS.items():
        if kind == "products":
            pairs = [(a, b) for a in range(2, 13) for b in range(2, a + 1)]
        else:
            pairs = [(a, b) for a in range(1, 100) for b in range(1, a + 1)]
            pairs = [(a, b) for a, b in pairs if (a + b <= 100 if sign == "+" else a > b)]
        rng.shuffle(pairs)
        for place, (a, b) in enumerate(pairs):
            orders = [(a, b)] if sign == "-" or a == b else [(a, b), (b, a)]
            if place < HELD_OUT:
                aside.append(problem(kind, *rng.choice(orders)))
            else:
                trained += [problem(kind, *order) for order in orders]
    return trained, aside


def problem(kind: str, a: int, b: int) -> Problem:
    question = f"{a} {SIGNS[kind]} {b} ="
    answer = {"sums": a + b, "differences": a - b, "products": a * b}[kind]
    return Problem(question, question, str(answer), type=kind)


def problems() -> Iterator[Problem]:
    """As many of each kind, again and again, in a random order."""
    rng = random.Random(0)
    trained = all_problems()[0]
    kinds = [[asked for asked in trained if asked.type == kind] for kind in SIGNS]
    while True:
        yield rng.choice(rng.choice(kinds))


def held_out() -> list[Problem]:
    return all_problems()[1]


def reward(text: str, problem: Problem) -> float:
    return float(text.strip() == problem.answer)


# ------------------------------------------------------------------------------- what it knows

COLUMNS = ("greedy", "sampled", "pass@8", *SIGNS, "perplexity")


def measured(model, tokenizer) -> dict[str, float]:
    """Shares of the held-out problems, greedy and sampled eight times (each kind: sampled), and
    the perplexity of ordinary text."""
    asked = held_out()
    first = [group[0] for group in right_answers(model, tokenizer, asked, greedy(LONGEST))]
    sampling = Sampling(LONGEST, rollouts=8, seed=1)
    groups = right_answers(model, tokenizer, asked, sampling)
    each = {
        kind: mean(
            mean(group) for one, group in zip(asked, groups, strict=True) if one.type == kind
        )
        for kind in SIGNS
    }
    found = {
        "greedy": mean(first),
        "sampled": mean(each.values()),
        "pass@8": mean(map(any, groups)),
    }
    return found | each | {"perplexity": perplexity(model, tokenizer)}


def right_answers(model, tokenizer, asked: Sequence[Problem], sampling: Sampling) -> list:
    """For each problem: which of its answers are right."""
    shown = with_prompt(asked, PROMPT, tokenizer)
    groups = sample_groups(model, tokenizer, shown, sampling, step=0, engine=FAST)
    return [
        [bool(reward(rollout.text, group.problem)) for rollout in group.rollouts]
        for group in groups
    ]


def perplexity(model, tokenizer) -> float:
    ids = torch.tensor(tokenizer.encode(TEXT.replace("\n", " "), chat_wrapped=False))  # (T,)
    with torch.no_grad():
        return math.exp(-sequence_logprob(model, ids, 1).item() / (len(ids) - 1))


def draw(rows: Sequence[dict[str, str]], path: Path) -> None:
    """Left: all held-out problems. Right: each kind, sampled. A band is the range of the seeds."""
    import matplotlib.pyplot as plt

    rows = [row for row in rows if row["lora"] == "0"]
    steps = sorted({int(row["step"]) for row in rows})
    figure, places = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
    for place, names in zip(places, (("pass@8", "greedy", "sampled"), SIGNS), strict=True):
        for name in names:
            each = [[float(r[name]) for r in rows if int(r["step"]) == step] for step in steps]
            line = place.plot(steps, [mean(some) for some in each], "o-", label=name)[0]
            low, high = [min(some) for some in each], [max(some) for some in each]
            place.fill_between(steps, low, high, color=line.get_color(), alpha=0.2)
        place.set(xlabel="step", ylim=(0, 1))
        place.legend(fontsize=9)
    places[0].set(title="96 held-out problems", ylabel="share right")
    places[1].set(title="By kind, sampled")
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(run_script(main))
