"""Does GRPO find binary search? tiny-player guesses numbers, before, during and after training.

    uv run studies/binary_search.py
    uv run studies/binary_search.py --picture-only

tiny-player knows the rules of higher or lower and has no plan. The reward is 1 if the number is
found within six guesses. Each line of the CSV file is a run after some number of steps: the share
of numbers that it found within 1, 2, ... guesses, and its first guesses.

    uv run studies/binary_search.py --leave-out 8 --kl-coef 0 --seeds 0

Eight of the 64 numbers never come up in training. Does the player still find them?
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from asking import check_table

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.sampling import Sampling
from reasoning_from_scratch.tiny.guessing import MOST, TOKENS
from rfs.commands.cli import run_script
from rfs.engine import sample_groups
from rfs.files.models import load_model_and_tokenizer
from rfs.files.tables import read_table, replace_rows
from rfs.run.options import configure
from rfs.run.start import train
from rfs.tasks.problem_sets import load_problems

TURNS = 8  # in measurements: two more than "in time" allows
GAME = {"environment": "guess"} | TOKENS
# What the reward counts: found within six guesses, or more for fewer guesses.
PAYS: dict[str, dict[str, Any]] = {
    "in time": {"max_turns": 6, "reward_parts": {"correct": 1.0}},
    "faster": {"max_turns": TURNS, "reward_parts": {"speed": 1.0}},
}
COLORS = ("tab:gray", "tab:blue", "tab:green", "tab:purple", "tab:brown")
PLAN = {"problems": "guess", "problems_per_step": 32, "rollouts": 8, "device": "cpu"}


@dataclass
class Options:
    out: Path = Path("studies/binary_search.csv")
    """Write this file; the picture has the same name with .png."""
    model: str = "tiny-player"
    """Start from this player."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Make a run with each of these seeds."""
    reward: tuple[str, ...] = ("in time",)
    """Reward this: "in time" (found within six guesses), "faster" (fewer guesses)."""
    kl_coef: tuple[float, ...] = (0.0, 0.05)
    """Multiply the KL term by this at the first step; the weight falls linearly to 0."""
    leave_out: int = 0
    """Keep this many of the numbers out of training."""
    steps: int = 600
    """Make this many updates per run."""
    lr: float = 5e-4
    """Learn at this rate."""
    eval_every: int = 50
    """Measure after every N steps."""
    plays: int = 32
    """Play this many games per number in a measurement."""
    picture_only: bool = False
    """Draw the picture from the file, and train nothing."""


def main(options: Options) -> None:
    """Trains, measures, and draws."""
    if not 0 < options.eval_every <= options.steps or options.steps % options.eval_every:
        raise UserError(
            f"--eval-every is {options.eval_every}; choose a number that divides --steps "
            f"{options.steps}, so that the end is measured"
        )
    if not options.picture_only:
        check_table(options, ("model", "steps", "lr", "plays"))
        for pay, kl, seed in product(options.reward, options.kl_coef, options.seeds):
            this = {"pay": pay, "kl": f"{kl:g}"}
            this |= {"leave out": str(options.leave_out), "seed": str(seed)}
            replace_rows(options.out, this, run(options, pay, kl, seed))
    rows = [row for row in read_table(options.out) if row["pay"] == options.reward[0]]
    if not rows:
        raise UserError(f'{options.out} has no run with --reward "{options.reward[0]}" to draw')
    draw(rows, options.out.with_suffix(".png"))
    print(options.out.with_suffix(".png"))


def run(options: Options, pay: str, kl: float, seed: int) -> Iterator[dict[str, str]]:
    """Trains one run and measures it at its saves, which are then deleted."""
    numbers = load_problems("guess")
    asked = numbers[: len(numbers) - options.leave_out]
    left_out = numbers[len(asked) :]
    with TemporaryDirectory() as place:
        config = configure(
            "grpo", model=options.model, steps=options.steps, lr=options.lr, seed=seed,
            save_every=options.eval_every, log_path=f"{place}/run", preflight=False,
            num_groups_to_log=0, eval_every=0, problem_limit=len(asked),
            **PLAN, **GAME, **PAYS[pay], **leash(kl),
        )  # fmt: skip
        done = train(config, quiet=True).require_finished()
        seconds = sum(row["time/total"] for row in done.rows)
        line = f"{pay}, KL {kl:g}, seed {seed}: {options.steps} steps in {seconds:.0f} s"
        print(line, flush=True)
        for step in range(0, options.steps + 1, options.eval_every):
            name = f"{place}/run/checkpoints/{step:06d}" if step else options.model
            for which, chosen in (("asked", asked), ("left out", left_out)):
                if chosen:
                    row = {"step": str(step), "numbers": which}
                    yield row | measured(name, chosen, options.plays)


def leash(kl: float) -> dict[str, Any]:
    """A KL term toward the starting player, with a weight that falls to 0."""
    return {"kl": "k2", "kl_coef": kl, "kl_schedule": "linear"} if kl else {}


def measured(name: str, problems: Sequence[Problem], plays: int) -> dict[str, str]:
    """How a model plays: the share of numbers found within k guesses, the shares of legal guesses
    and of guesses in the middle third of the possible range, and its first guesses."""
    return summary(played(name, problems, plays))


def summary(each: Sequence[tuple[int, list[int]]]) -> dict[str, str]:
    """The same figures, from games already played."""
    found = [
        mean(int(number) in guesses[:k] for number, guesses in each) for k in range(1, TURNS + 1)
    ]
    middle, legal = [], []
    first: Counter[int] = Counter()
    for number, guesses in each:
        first[guesses[0] if guesses else 0] += 1
        for place, guess in enumerate(guesses):
            low, high = possible_after(guesses[:place], number, MOST)
            legal.append(low <= guess <= high)
            if high - low > 1:  # two numbers have no middle
                middle.append(middle_third(low, high, guess))
    return {
        **{f"within {k}": f"{share:.4f}" for k, share in enumerate(found, 1)},
        "middle": f"{mean(middle):.4f}",
        "legal": f"{mean(legal):.4f}",
        "first": " ".join(str(first[number]) for number in range(1, MOST + 1)),
    }


def played(name: str, problems: Sequence[Problem], plays: int) -> list[tuple[int, list[int]]]:
    """(number, guesses) of each game that the model of this name plays."""
    return games(*load_model_and_tokenizer(name), problems, plays)


def games(model, tokenizer, problems: Sequence[Problem], plays: int) -> list[tuple[int, list[int]]]:
    """(number, guesses) of each game: `plays` games per number, by the model in hand."""
    sampling = Sampling(rollouts=plays, seed=1, max_turns=TURNS, **GAME)
    found = []
    for group in sample_groups(model, tokenizer, problems, sampling):
        for rollout in group.rollouts:
            text = tokenizer.decode(rollout.response_ids)
            guesses = [int(word) for word in re.findall(r"\d+", text)]
            found.append((int(group.problem.answer), guesses))
    return found


def draw(rows: Sequence[dict[str, str]], path: Path) -> None:
    """Left: the first guess over training. Right: found within k guesses, beside exact curves."""
    import matplotlib.pyplot as plt

    rows = [row for row in rows if row["numbers"] == "asked"]
    everything = [row for row in rows if row["leave out"] == "0"]
    rows = everything or rows
    weights = sorted({row["kl"] for row in rows}, key=float)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    first = [row for row in rows if row["kl"] == weights[-1]]
    seed = min(row["seed"] for row in first)
    counts = {
        int(row["step"]): [int(count) for count in row["first"].split()]
        for row in first
        if row["seed"] == seed
    }
    shares = [[count / max(1, sum(each)) for count in each] for each in counts.values()]
    width = max(counts) / (len(counts) - 1)
    image = left.imshow(
        list(zip(*shares, strict=True)), aspect="auto", origin="lower", cmap="viridis",
        vmax=max(map(max, shares)), extent=(0, max(counts) + width, 0.5, MOST + 0.5),
    )  # fmt: skip
    figure.colorbar(image, ax=left, label="share of the games")
    left.set(title=f"The first guess{penalty_in(weights[-1])}", xlabel="step", ylabel="number")
    k = range(1, TURNS + 1)
    curves = {"before training": [row for row in rows if row["step"] == "0"]}
    for kl in weights:
        these = [row for row in rows if row["kl"] == kl]
        last = max(int(row["step"]) for row in these)
        at_end = [row for row in these if int(row["step"]) == last]
        curves[f"after training{penalty_in(kl)}"] = at_end
    for number, (label, chosen) in enumerate(curves.items()):
        color = COLORS[number % len(COLORS)]
        each = [[float(row[f"within {n}"]) for row in chosen] for n in k]
        right.plot(k, [mean(some) for some in each], "o-", color=color, label=label)
        right.fill_between(
            k, [min(some) for some in each], [max(some) for some in each], color=color, alpha=0.25
        )
    best = [*best_play(MOST), 1.0, 1.0]
    right.plot(k, [uniform_play(MOST)[n] for n in k], "k:", label="uniform play, exactly")
    right.plot(k, [best[n] for n in k], "k--", label="the best that is possible")
    right.set(title="Found", xlabel="guesses", ylabel="share found", ylim=(0, 1.03), xticks=k)
    right.legend(loc="upper left", fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def penalty_in(kl: str) -> str:
    """The part of a title that names the KL term, if there was one."""
    return f", KL {kl} to 0" if float(kl) else ""


# --- strategies to compare with ---


def uniform_play(most: int) -> list[float]:
    """The exact share of numbers found within k = 0, 1, 2, ... guesses, until all are found, if
    each guess is drawn uniformly from the numbers that are still possible."""
    # odds[n][j]: with n numbers possible, the chance to need exactly j guesses, all equally likely.
    odds: list[list[float]] = [[0.0], [0.0, 1.0]]
    for size in range(2, most + 1):
        row = [0.0] * (size + 1)
        row[1] = 1 / size
        for guess in range(size):  # below it are `guess` numbers, above it the rest
            for rest in (guess, size - 1 - guess):
                for needed, chance in enumerate(odds[rest]):
                    if needed:
                        row[needed + 1] += chance * rest / size / size
        odds.append(row)
    shares, total = [], 0.0
    for chance in odds[most]:
        total += chance
        shares.append(total)
    return shares


def best_play(most: int) -> list[float]:
    """The same for binary search, which halves the range with each guess."""
    shares = [min(1.0, (2**k - 1) / most) for k in range(most.bit_length() + 1)]
    return shares


def middle_third(low: int, high: int, guess: int) -> bool:
    """Whether a guess lies in the middle third of the numbers that are possible."""
    size = high - low + 1
    return low + size / 3 - 0.5 <= guess <= high - size / 3 + 0.5


def possible_after(guesses: Sequence[int], number: int, most: int) -> tuple[int, int]:
    """The lowest and the highest number that is still possible after some guesses."""
    below = [guess for guess in guesses if guess < number]
    above = [guess for guess in guesses if guess > number]
    return max(below, default=0) + 1, min(above, default=most + 1) - 1


if __name__ == "__main__":
    sys.exit(run_script(main))
