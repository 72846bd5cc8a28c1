"""What anybody would type to let a Qwen learn GSM8K, and what becomes of it, for the museum.

    uv run --extra gguf rfs train --model qwen-0.5b --problems gsm8k --lr 1e-5 \\
        --problems-per-step 4 --max-new-tokens 256 --steps 16 --seed 3 --no-preflight \\
        --out runs/naive
    uv run studies/naive_run.py runs/naive      keeps what the room shows of it

The run trains all weights, with the book's prompt in the model's chat template. naive_run.csv has
its curves, and naive_run_answers.json the first answers of its first and its last step. The
repaired run is grpo of gsm8k.py, with seed 3.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE))
from ch07_pictures import joint_curves  # noqa: E402
from gsm8k import training_curve  # noqa: E402
from gsm8k_chapter import GRPO, LINE_WIDTH, beginning, select_rows  # noqa: E402
from gsm8k_table import CHOOSING_SEED  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from tyro.conf import Positional  # noqa: E402

from reasoning_from_scratch.errors import UserError  # noqa: E402
from reasoning_from_scratch.files.disk import write_atomically  # noqa: E402
from reasoning_from_scratch.text import read_lines  # noqa: E402
from rfs.commands.cli import run_script  # noqa: E402
from rfs.files.tables import read_table, write_table  # noqa: E402

CURVES, ANSWERS = HERE / "naive_run.csv", HERE / "naive_run_answers.json"
REPAIRED = GRPO | {"seed": CHOOSING_SEED}
CURVE_TITLES = {
    "reward": "reward (share of correct rollouts)",
    "mixed": "groups with a signal (share)",
    "cut_off": "cut-off answers (share)",
    "entropy": "entropy (nats per token)",
}
MAX_CHARACTERS = 300  # of an answer


@dataclass
class Options:
    run: Positional[Path]
    """Keep the curves and answers of this run's folder."""


def main(options: Options) -> None:
    step_files = sorted(options.run.glob("train_*_rollout_summaries.jsonl"))
    if not step_files:
        raise UserError(f"{options.run} holds no run with its answers; give the folder of a run")
    answers = {str(1 + n): first_answers(step_files[n]) for n in (0, len(step_files) - 1)}
    write_table(CURVES, training_curve(options.run))
    write_atomically(ANSWERS, json.dumps(answers, indent=1, ensure_ascii=False) + "\n")


def first_answers(path: Path) -> list[dict]:
    """The first answer to each problem of a step."""
    return [
        {name: row["steps"][0]["logs"][name] for name in ("problem", "answer")}
        | {
            "text": row["text"],
            "reward": row["total_reward"],
            "ended": row["stop_reason"] == "stop",
        }
        for row in read_lines(path)
        if row["traj_idx"] == 0
    ]


def show_answers(count: int = 2) -> None:
    """Prints some answers of the first and of the last step."""
    for step, answers in json.loads(ANSWERS.read_text("utf-8")).items():
        for answer in answers[:count]:
            print(wrap_lines(f"step {step}: {answer['problem']} ({answer['answer']})"))
            end = "" if answer["ended"] else "   <- the length limit"
            print(wrap_lines(beginning(answer["text"].strip(), MAX_CHARACTERS)))
            print(f"reward {answer['reward']:.2f}{end}\n")


def wrap_lines(text: str) -> str:
    """Each line of the text, wrapped by itself."""
    return "\n".join(fill(line, LINE_WIDTH) for line in text.splitlines())


def drawn() -> Figure:
    """The first steps of the repaired run, and as many of this one."""
    naive = as_numbers(read_table(CURVES))
    repaired = as_numbers(select_rows(read_table(HERE / "gsm8k_curves.csv"), REPAIRED))
    runs = {"repaired": repaired[: len(naive)], "naive": naive}
    return joint_curves(runs, CURVE_TITLES)


def as_numbers(rows: list[dict[str, str]]) -> list[dict]:
    return [
        {"step": int(row["step"])}
        | {name: float(row[name]) if row[name] else None for name in CURVE_TITLES}
        for row in rows
    ]


if __name__ == "__main__":
    sys.exit(run_script(main))
