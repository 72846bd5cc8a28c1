"""How fast Muon moves the tiny model's matrices at multiples of its own rate, beside AdamW.

    uv run benchmarks/muon_rates.py --out runs/muon_rates

30 steps of GRPO for each rate and seed; prints the table that stands in benchmarks/README.md.
"""

import argparse
import sys
from pathlib import Path
from statistics import fmean

import torch

from reasoning_from_scratch.commands.cli import with_home
from reasoning_from_scratch.files.weights import load_model_and_tokenizer
from reasoning_from_scratch.optim.muon import MuonAdamW
from reasoning_from_scratch.run.options import configure
from reasoning_from_scratch.run.start import train

STEPS = 30
FACTORS = (0.1, 0.2, 0.4, 0.8, 1.0, 1.6, 3.2)
OWN_RATE = MuonAdamW._rate
BEFORE = {"optimizer": "muon", "matrix_lr": 0.02, "embedding_lr": 0.2, "unembedding_lr": 0.004}


def measured(folder: Path, seed: int, factor: float = 1.0, **changes) -> tuple[float, ...]:
    """How far the matrices went, held-out accuracy, and training accuracy at the end."""

    def rate(self, name, weight):
        return OWN_RATE(self, name, weight) * (factor if name in self.muons else 1.0)

    MuonAdamW._rate = rate
    config = configure(
        "grpo",
        model="tiny-base",
        steps=STEPS,
        seed=seed,
        eval_every=STEPS,
        eval_limit=200,
        device="cpu",
        preflight=False,
        log_path=str(folder / f"{seed}"),
        **changes,
    )
    result = train(config, quiet=True)
    start = load_model_and_tokenizer("tiny-base", "cpu", dtype=torch.float32)[0].state_dict()
    end = {
        name: weight
        for name, weight in result.model.state_dict().items()
        if name.startswith("trf_blocks") and weight.dim() == 2
    }
    moved = sum(float((weight - start[name]).square().sum()) for name, weight in end.items())
    size = sum(float(start[name].square().sum()) for name in end)
    right = fmean(row["env/all/correct"] for row in result.rows[-5:])
    return (moved / size) ** 0.5, result.rows[-1]["eval_acc"], right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/muon_rates"))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(with_home(sys.argv[1:]))
    runs = {"AdamW": {}, "Muon as before": BEFORE}
    runs |= {f"Muon x {factor:g}": {"optimizer": "muon", "factor": factor} for factor in FACTORS}
    print("| optimizer | matrices moved by | greedy accuracy | sampled, last 5 steps |")
    print("|---|---|---|---|")
    for number, (name, changes) in enumerate(runs.items()):
        seeds = [
            measured(options.out / str(number), seed, **changes) for seed in range(options.seeds)
        ]
        moved, greedy, sampled = map(fmean, zip(*seeds, strict=True))
        print(f"| {name} | {moved:.1e} | {greedy:.1%} | {sampled:.1%} |", flush=True)


if __name__ == "__main__":
    main()
