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

from asking import refuse_mixed_options

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
# The reward: 1 if the number is found within six guesses, or more for fewer guesses.
REWARD_SETTINGS: dict[str, dict[str, Any]] = {
    "in time": {"max_turns": 6, "reward_parts": {"correct": 1.0}},
    "faster": {"max_turns": TURNS, "reward_parts": {"speed": 1.0}},
}
COLORS = ("tab:gray", "tab:blue", "tab:green", "tab:purple", "tab:brown")
RUN_SETTINGS = {"problems": "guess", "problems_per_step": 32, "rollouts": 8, "device": "cpu"}


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
        refuse_mixed_options(options, ("model", "steps", "lr", "plays"))
        for reward, kl_coef, seed in product(options.reward, options.kl_coef, options.seeds):
            key = {"pay": reward, "kl": f"{kl_coef:g}"}
            key |= {"leave out": str(options.leave_out), "seed": str(seed)}
            replace_rows(options.out, key, train_and_measure(options, reward, kl_coef, seed))
    rows = [row for row in read_table(options.out) if row["pay"] == options.reward[0]]
    if not rows:
        raise UserError(f'{options.out} has no run with --reward "{options.reward[0]}" to draw')
    draw(rows, options.out.with_suffix(".png"))
    print(options.out.with_suffix(".png"))


def train_and_measure(
    options: Options, reward: str, kl_coef: float, seed: int
) -> Iterator[dict[str, str]]:
    """Trains one run; yields a row for each of its saves, which are then deleted."""
    numbers = load_problems("guess")
    training_numbers = numbers[: len(numbers) - options.leave_out]
    held_out_numbers = numbers[len(training_numbers) :]
    with TemporaryDirectory() as folder:
        config = configure(
            "grpo", model=options.model, steps=options.steps, lr=options.lr, seed=seed,
            save_every=options.eval_every, log_path=f"{folder}/run", preflight=False,
            num_groups_to_log=0, eval_every=0, problem_limit=len(training_numbers),
            **RUN_SETTINGS, **GAME, **REWARD_SETTINGS[reward], **kl_settings(kl_coef),
        )  # fmt: skip
        result = train(config, quiet=True).require_finished()
        seconds = sum(row["time/total"] for row in result.rows)
        message = f"{reward}, KL {kl_coef:g}, seed {seed}: {options.steps} steps in {seconds:.0f} s"
        print(message, flush=True)
        for step in range(0, options.steps + 1, options.eval_every):
            name = f"{folder}/run/checkpoints/{step:06d}" if step else options.model
            for split, some in (("asked", training_numbers), ("left out", held_out_numbers)):
                if some:
                    row = {"step": str(step), "numbers": split}
                    yield row | measure(name, some, options.plays)


def kl_settings(kl_coef: float) -> dict[str, Any]:
    """A KL term toward the starting player, with a weight that falls to 0."""
    return {"kl": "k2", "kl_coef": kl_coef, "kl_schedule": "linear"} if kl_coef else {}


def measure(name: str, problems: Sequence[Problem], plays: int) -> dict[str, str]:
    """The summary of the games that the model of this name plays."""
    return summary(games(*load_model_and_tokenizer(name), problems, plays))


def summary(game_records: Sequence[tuple[int, list[int]]]) -> dict[str, str]:
    """Of (number, guesses) of each game: the share of numbers found within k guesses, the shares of
    legal guesses and of guesses in the middle third of the possible range, and the counts of first
    guesses."""
    shares_found = [
        mean(number in guesses[:k] for number, guesses in game_records) for k in range(1, TURNS + 1)
    ]
    in_middle_third, legal = [], []
    first_guess_counts: Counter[int] = Counter()
    for number, guesses in game_records:
        first_guess_counts[guesses[0] if guesses else 0] += 1
        for turn, guess in enumerate(guesses):
            low, high = possible_range(guesses[:turn], number, MOST)
            legal.append(low <= guess <= high)
            if high - low > 1:  # two numbers have no middle
                in_middle_third.append(is_in_middle_third(low, high, guess))
    return {
        **{f"within {k}": f"{share:.4f}" for k, share in enumerate(shares_found, 1)},
        "middle": f"{mean(in_middle_third):.4f}",
        "legal": f"{mean(legal):.4f}",
        "first": " ".join(str(first_guess_counts[number]) for number in range(1, MOST + 1)),
    }


def games(model, tokenizer, problems: Sequence[Problem], plays: int) -> list[tuple[int, list[int]]]:
    """(number, guesses) of each game; the model plays `plays` games per number."""
    sampling = Sampling(rollouts=plays, seed=1, max_turns=TURNS, **GAME)
    game_records = []
    for group in sample_groups(model, tokenizer, problems, sampling):
        for rollout in group.rollouts:
            text = tokenizer.decode(rollout.response_ids)
            guesses = [int(word) for word in re.findall(r"\d+", text)]
            game_records.append((int(group.problem.answer), guesses))
    return game_records


def draw(rows: Sequence[dict[str, str]], path: Path) -> None:
    """Left: the first guess over training. Right: found within k guesses, beside exact curves."""
    import matplotlib.pyplot as plt

    rows = [row for row in rows if row["numbers"] == "asked"]
    trained_on_all = [row for row in rows if row["leave out"] == "0"]
    rows = trained_on_all or rows
    weights = sorted({row["kl"] for row in rows}, key=float)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    first_guess_rows = [row for row in rows if row["kl"] == weights[-1]]
    seed = min(row["seed"] for row in first_guess_rows)
    counts = {
        int(row["step"]): [int(count) for count in row["first"].split()]
        for row in first_guess_rows
        if row["seed"] == seed
    }
    shares = [[count / max(1, sum(of_step)) for count in of_step] for of_step in counts.values()]
    width = max(counts) / (len(counts) - 1)
    image = left.imshow(
        list(zip(*shares, strict=True)), aspect="auto", origin="lower", cmap="viridis",
        vmax=max(map(max, shares)), extent=(0, max(counts) + width, 0.5, MOST + 0.5),
    )  # fmt: skip
    figure.colorbar(image, ax=left, label="share of the games")
    left.set(title=f"The first guess{kl_suffix(weights[-1])}", xlabel="step", ylabel="number")
    k = range(1, TURNS + 1)
    curves = {"before training": [row for row in rows if row["step"] == "0"]}
    for kl in weights:
        kl_rows = [row for row in rows if row["kl"] == kl]
        last = max(int(row["step"]) for row in kl_rows)
        at_end = [row for row in kl_rows if int(row["step"]) == last]
        curves[f"after training{kl_suffix(kl)}"] = at_end
    for i, (label, curve_rows) in enumerate(curves.items()):
        color = COLORS[i % len(COLORS)]
        shares = [[float(row[f"within {n}"]) for row in curve_rows] for n in k]  # (k, seeds)
        right.plot(k, list(map(mean, shares)), "o-", color=color, label=label)
        low, high = list(map(min, shares)), list(map(max, shares))
        right.fill_between(k, low, high, color=color, alpha=0.25)
    best = [*best_play(MOST), 1.0, 1.0]
    right.plot(k, [uniform_play(MOST)[n] for n in k], "k:", label="uniform play, exactly")
    right.plot(k, [best[n] for n in k], "k--", label="the best that is possible")
    right.set(title="Found", xlabel="guesses", ylabel="share found", ylim=(0, 1.03), xticks=k)
    right.legend(loc="upper left", fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def kl_suffix(kl_coef: str) -> str:
    """The part of a title that names the KL term, if there was one."""
    return f", KL {kl_coef} to 0" if float(kl_coef) else ""


# --- strategies to compare with ---


def uniform_play(largest: int) -> list[float]:
    """The exact share of numbers found within k = 0, 1, 2, ... guesses, until all are found, if
    each guess is drawn uniformly from the numbers that are still possible."""
    # odds[n][j]: with n numbers possible, the chance to need exactly j guesses, all equally likely.
    odds: list[list[float]] = [[0.0], [0.0, 1.0]]
    for size in range(2, largest + 1):
        row = [0.0] * (size + 1)
        row[1] = 1 / size
        for guess in range(size):  # below it are `guess` numbers, above it the rest
            for rest in (guess, size - 1 - guess):
                for needed, chance in enumerate(odds[rest]):
                    if needed:
                        row[needed + 1] += chance * rest / size / size
        odds.append(row)
    shares, total = [], 0.0
    for chance in odds[largest]:
        total += chance
        shares.append(total)
    return shares


def best_play(largest: int) -> list[float]:
    """The same for binary search, which halves the range with each guess."""
    return [min(1.0, (2**k - 1) / largest) for k in range(largest.bit_length() + 1)]


def is_in_middle_third(low: int, high: int, guess: int) -> bool:
    """Whether a guess lies in the middle third of the numbers that are possible."""
    size = high - low + 1
    return low + size / 3 - 0.5 <= guess <= high - size / 3 + 0.5


def possible_range(guesses: Sequence[int], number: int, largest: int) -> tuple[int, int]:
    """The lowest and the highest number that is still possible after some guesses."""
    too_low = [guess for guess in guesses if guess < number]
    too_high = [guess for guess in guesses if guess > number]
    return max(too_low, default=0) + 1, min(too_high, default=largest + 1) - 1


if __name__ == "__main__":
    sys.exit(run_script(main))
