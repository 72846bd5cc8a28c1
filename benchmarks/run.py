"""Measures speed and memory, side by side with peers, and prints the table of README.md.

In a clone of the repository, with peers that are no dependency of the project:

    uv run --with transformers --with trl benchmarks/run.py

Without peers, their rows show our side only. `--only NAME ...` runs some rows, `--list` names
them. The row "real" runs only if it is named, since it fetches a model of 491 MB; it has two more
peers:

    uv run --extra gguf --with transformers --with trl --with peft --with xllamacpp \
        benchmarks/run.py --only real

What a GPU can do is measured by gpu_gate.py.
"""

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

import peers  # noqa: E402
import qwen_rows  # noqa: E402
import real_rows  # noqa: E402
import tiny_rows  # noqa: E402
from duel import FULL, TOY, Result, Work  # noqa: E402

from reasoning_from_scratch.errors import UserError  # noqa: E402

ROWS: dict[str, Callable[[Work], Iterable[Result]]] = {
    "sampling": qwen_rows.sampling,
    "decoding": qwen_rows.decoding,
    "training": qwen_rows.training,
    "grpo-step": tiny_rows.grpo_step,
    "quickstart": tiny_rows.quickstart,
    "evaluation": tiny_rows.evaluation,
    "growth": qwen_rows.growth,
    "real": real_rows.measure_real_model,
}
COLUMNS = ["what", "ours", "peer", "ratio", "target", "met"]


def main(argv: list[str] | None = None) -> int:
    options = make_parser().parse_args(argv)
    if options.list:
        print("\n".join(f"{name:<14}{first_docstring_line(row)}" for name, row in ROWS.items()))
        return 0
    if options.threads < 1:
        raise UserError(f"--threads is {options.threads}, but must be at least 1")
    torch.set_num_threads(options.threads)
    missing = [name for name in ("transformers", "trl") if not peers.are_installed(name)]
    if missing:
        print(
            f"not installed: {', '.join(missing)}; their side is left out. Both come with: "
            "uv run --with transformers --with trl benchmarks/run.py"
        )
    print(describe_machine(), end="\n\n", flush=True)
    work = TOY if options.toy else FULL
    if options.model:
        work = replace(work, real_model=options.model)
    print(table_line(COLUMNS) + "\n" + table_line(["---"] * len(COLUMNS)), flush=True)
    for name in options.only or [name for name in ROWS if name != "real"]:
        for result in ROWS[name](work):
            print(table_line(result.cells()), flush=True)
    return 0


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=ROWS, metavar="NAME", help="only these rows")
    parser.add_argument("--list", action="store_true", help="name the rows")
    parser.add_argument(
        "--model",
        metavar="FILE",
        help="of the row real: a file or name, as rfs train takes it (default: qwen-0.5b)",
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=torch.get_num_threads(),
        help="torch threads, of both sides (default: %(default)s)",
    )
    parser.add_argument(
        "--toy",
        action="store_true",
        help="everything very small, to see that it runs; no figure counts",
    )
    return parser


def first_docstring_line(row: Callable) -> str:
    return (row.__doc__ or "").splitlines()[0]


def table_line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def describe_machine() -> str:
    """What the figures were measured on."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    names = ("torch", "transformers", "trl", "peft", "xllamacpp")
    versions = [f"{name} {version(name)}" for name in names if peers.are_installed(name)]
    return (
        f"{time.strftime('%Y-%m-%d')}, {torch.get_num_threads()} threads, "
        f"{platform.machine()}, {gpu}; {', '.join(versions)}"
    )


def version(name: str) -> str:
    from importlib.metadata import version as installed

    return installed(name)


if __name__ == "__main__":
    # The peers are made of our weights: they need no hub, and say nothing about it.
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(str(error))
