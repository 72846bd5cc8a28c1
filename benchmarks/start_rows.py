"""Rows without a model: grading, and how long it takes until anything happens."""

import json
import time
from pathlib import Path
from statistics import median

from duel import Result, Work, run_python, seconds
from grading_report import labelled_pairs

from reasoning_from_scratch.grading import answer_verdict

ROOT = Path(__file__).parents[1]
MATH500 = Path("data/math500_test.json")
LAUNCH = "import time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"


def grading(work: Work) -> list[Result]:
    """Verdicts per second in a process that has graded others before."""
    files = sorted((ROOT / "tests" / "grading" / "pairs").glob("*.txt"))
    labelled = [(p.pred, p.truth) for file in files for p in labelled_pairs(file)]
    warm, pairs, name = labelled[::2], labelled[1::2], "labelled pairs (no data/math500_test.json)"
    if MATH500.is_file():
        rows = json.loads(MATH500.read_text(encoding="utf-8"))
        pairs = [(row["solution"], row["answer"]) for row in rows]
        pairs += [(a["answer"], b["answer"]) for a, b in zip(rows, rows[1:], strict=False)]
        name = f"{len(pairs)} pairs from MATH-500"
    for pair in warm:
        answer_verdict(*pair)
    start = time.perf_counter()
    for pair in pairs:  # once: a second time would find its answers remembered
        answer_verdict(*pair)
    speed = len(pairs) / (time.perf_counter() - start)
    return [
        Result(
            f"grading, {name}",
            f"{speed:,.0f} answers/s",
            target=">= 2,000 answers/s",
            met=speed >= 2000,
        )
    ]


def start(work: Work) -> list[Result]:
    """Imports in fresh processes, after one that fills the disk cache."""
    torch_alone = launch("import torch", work.rounds)
    # Importing torch takes seconds, and varies by more than what is measured: timed after it.
    package = launch(
        "import torch; start = time.perf_counter(); import reasoning_from_scratch", work.rounds
    )
    trainer = launch(
        "import torch; start = time.perf_counter(); import reasoning_from_scratch.trainer",
        work.rounds,
    )
    command = ["-m", "reasoning_from_scratch", "--help"]
    waits = []
    for _ in range(work.rounds + 1):
        before = time.perf_counter()
        run_python(*command)
        waits.append(time.perf_counter() - before)
    code = "import sys, reasoning_from_scratch.trainer; print(int('sympy' in sys.modules))"
    sympy = int(run_python("-c", code).stdout)
    base = f"importing torch: {seconds(torch_alone)}"
    return [
        Result(
            "import reasoning_from_scratch, beyond torch",
            seconds(package),
            base,
            target="<= 50 ms",
            met=package <= 0.05,
        ),
        Result("import reasoning_from_scratch.trainer, beyond torch", seconds(trainer), base),
        Result("rfs --help", seconds(median(waits[1:])), target="< 1 s", met=median(waits[1:]) < 1),
        Result(
            "a trainer's process imports sympy",
            "yes" if sympy else "no",
            target="no",
            met=not sympy,
        ),
    ]


def launch(code: str, rounds: int) -> float:
    times = [float(run_python("-c", LAUNCH.format(code)).stdout) for _ in range(rounds + 1)]
    return median(times[1:])
