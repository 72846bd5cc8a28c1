"""Learning from rollouts that are 0, 1, 3, ... updates old: which recipes bear it?

    uv run python benchmarks/off_policy.py --out ch07/off_policy.csv [--plot off_policy.png]

The sampler is always exactly as far behind as it may be, which is the worst that
--max-steps-off-policy allows, and makes the runs repeatable: step s is sampled with the weights
after s - lag updates. Runs that are in the file already are not run again.
"""

import argparse
import copy
import csv
import sys
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import torch

from reasoning_from_scratch.commands.cli import with_home
from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.fast.cut import FAST
from reasoning_from_scratch.fast.packed import packed_logprobs
from reasoning_from_scratch.files.disk import write_whole
from reasoning_from_scratch.files.problem_sets import load_problems
from reasoning_from_scratch.files.weights import load_model_and_tokenizer
from reasoning_from_scratch.optim.adamw import learning_rate
from reasoning_from_scratch.rollouts import RolloutEngine, sample_step
from reasoning_from_scratch.run.options import configure, resolved
from reasoning_from_scratch.run.start import make_optimizer
from reasoning_from_scratch.trainer import Engine, chosen_groups, set_advantages, train_step

# What is compared: recipes as they are, and some with a single change. With a lag, recipes that
# clip weigh tokens by p_start / p_sampler by themselves; "unweighted" takes that away.
RUNS = {
    "reinforce": {"recipe": "reinforce"},
    "reinforce, weighted": {"recipe": "reinforce", "truncate_importance": 2.0},
    "grpo": {"recipe": "grpo"},
    "grpo, unweighted": {"recipe": "grpo", "truncate_importance": 0.0},
    "cispo": {"recipe": "cispo"},
    "cispo, unweighted": {"recipe": "cispo", "truncate_importance": 0.0},
    "gspo": {"recipe": "gspo"},
    "dro": {"recipe": "dro"},
}
COLUMNS = ("recipe", "lr", "lag", "seed", "step", "accuracy", "entropy")


def lagged_run(config: TrainConfig, lag: int) -> Iterator[tuple[float, float]]:
    """Accuracy of each step's rollouts, and entropy of the policy that sampled them."""
    model, tokenizer = load_model_and_tokenizer(config.model, "cpu")
    problems, optimizer = load_problems(config.problems), make_optimizer(model, config, config.seed)
    engine = RolloutEngine(FAST)
    policies: deque = deque(maxlen=lag + 1)  # the oldest first
    for step in range(config.steps):
        policies.append(copy.deepcopy(model))
        groups = sample_step(policies[0], tokenizer, problems, config, step, engine=engine)
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        entropies = [entropy for rollout in rollouts for entropy in rollout.entropies]
        yield fmean(rollout.rewards["correct"] for rollout in rollouts), fmean(entropies)
        chosen = chosen_groups(groups, config)
        set_advantages(chosen, config)
        train_step(
            model,
            optimizer,
            chosen,
            config,
            learning_rate(config, step, config.steps),
            engine=Engine(packed_logprobs),
        )


def run_one(name: str, lr: float, lag: int, seed: int, steps: int) -> list[dict]:
    sizes = {"problems_per_step": 4, "rollouts": 8, "max_new_tokens": 64, "steps": steps}
    config = resolved(
        configure(
            **RUNS[name], **sizes, model="tiny-base", lr=lr, seed=seed, max_steps_off_policy=lag
        )
    )
    head = {"recipe": name, "lr": lr, "lag": lag, "seed": seed}
    return [
        head | {"step": step, "accuracy": round(accuracy, 4), "entropy": round(entropy, 4)}
        for step, (accuracy, entropy) in enumerate(lagged_run(config, lag))
    ]


def read_rows(path: Path) -> list[dict]:
    if not path.is_file():
        return []
    kinds = dict.fromkeys(COLUMNS, float) | {"recipe": str, "lag": int, "seed": int, "step": int}
    with path.open(newline="") as file:
        return [
            {name: kinds[name](value) for name, value in row.items()}
            for row in csv.DictReader(file)
        ]


def write_rows(path: Path, rows: list[dict]) -> None:
    lines = [",".join(COLUMNS)]
    lines += [
        ",".join(f'"{row[n]}"' if "," in str(row[n]) else str(row[n]) for n in COLUMNS)
        for row in rows
    ]
    write_whole(path, "\n".join(lines) + "\n")


def mean_curves(rows: list[dict]) -> dict[tuple, list[float]]:
    """(lr, recipe, lag) -> accuracy per step, mean over seeds."""
    values: dict[tuple, dict] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        values[row["lr"], row["recipe"], row["lag"]][row["step"]].append(row["accuracy"])
    return {key: [fmean(steps[step]) for step in sorted(steps)] for key, steps in values.items()}


def plot(rows: list[dict], path: Path) -> None:
    from matplotlib.figure import Figure

    curves = mean_curves(rows)
    rates = sorted({lr for lr, _, _ in curves})
    names = list(dict.fromkeys(name for _, name, _ in curves))
    figure = Figure(figsize=(2.6 * len(names), 2.4 * len(rates)), layout="constrained")
    axes = figure.subplots(len(rates), len(names), sharex=True, sharey=True, squeeze=False)
    for (lr, name, lag), values in sorted(curves.items()):
        ax = axes[rates.index(lr)][names.index(name)]
        ax.plot(values, label=f"lag {lag}")
        ax.set_title(f"{name}, lr {lr:g}", fontsize=9)
        ax.legend(fontsize=7)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/off_policy.csv"))
    parser.add_argument("--runs", nargs="+", default=list(RUNS), choices=list(RUNS))
    parser.add_argument("--lags", nargs="+", type=int, default=[0, 1, 3])
    parser.add_argument("--lrs", nargs="+", type=float, default=[5e-5])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--plot", type=Path, help="also draw the curves")
    given = parser.parse_args(with_home(sys.argv[1:]))
    torch.set_num_threads(1)  # so that the figures do not depend on the machine's cores
    rows = read_rows(given.out)
    done = {(row["recipe"], row["lr"], row["lag"], row["seed"]) for row in rows}
    asked = [
        (name, lr, lag, seed)
        for seed in range(given.seeds)
        for lr in given.lrs
        for name in given.runs
        for lag in given.lags
    ]
    for which in asked:
        if which not in done:
            rows += run_one(*which, given.steps)
            write_rows(given.out, rows)
            print(*which, f"{fmean(row['accuracy'] for row in rows[-5:]):.3f}", flush=True)
    if given.plot:
        plot(rows, given.plot)


if __name__ == "__main__":
    main()
