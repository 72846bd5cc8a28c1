"""The picture and the table of the page about SmolLM2, from the files of experiment.py.

    uv run studies/experiment_page.py

draws GRPO's curves in experiment.png and prints the table of all stages in Markdown.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd
from ch08_pictures import remove_frame
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from rfs.files.tables import read_table
from rfs.report.curves import DASHES
from rfs.report.palette import COLORS

HERE = Path(__file__).resolve().parent
# Each row of the table: a file, one of its stages, at which learning rate, and the stages that
# prepared it, whose time counts, too.
ARMS = {
    "warm start": ("experiment", "warm-start", 2e-4, ()),
    "GRPO, 60 steps": ("experiment", "grpo", 3e-5, ()),
    "GRPO, 24 steps": ("experiment_24_steps_bfloat16", "grpo", 3e-5, ()),
    "worked solutions": ("experiment_rates", "solutions", 6e-5, ()),
    "GRPO's correct answers": (
        "experiment_rates",
        "from-teacher",
        6e-5,
        ("teacher-answers", "grpo"),
    ),
    "chosen problems": ("experiment_24_steps_bfloat16", "grpo-chosen", 3e-5, ("pass-rates",)),
    "a teacher's marks": ("experiment_24_steps_bfloat16", "on-policy", 3e-5, ("grpo",)),
    "self-distillation": ("experiment_24_steps_bfloat16", "self-teacher", 3e-5, ()),
}
SEEDS = (1, 2)  # with which all of ARMS ran
COLUMN_TITLES = {  # columns of these files, and what the table calls them
    "fresh": "greedy",
    "fresh_families": "new families",
    "fresh_5_steps": "five steps",
    "fresh_sampled": "temperature 1",
    "fresh_pass@8": "pass@8",
}


def main() -> None:
    draw(read_table(HERE / "experiment_curve.csv")).savefig(HERE / "experiment.png", dpi=110)
    print(*markdown_table(), sep="\n")


def markdown_table() -> Iterator[str]:
    """The lines of the table."""
    table = arms_table()
    yield f"| | {' | '.join(table.columns)} |"
    yield "|---|" + "---:|" * len(table.columns)
    for name, row in table.iterrows():
        yield f"| {' | '.join([str(name), *row])} |".replace("|  |", "| |")


def arms_table() -> pd.DataFrame:
    """The mean over SEEDS of each of ARMS, in percent; its cost since the warm start
    (experiment.csv is from another machine), and its difference from GRPO with the same seed, in
    points with greedy decoding."""
    names = {file for file, *_ in ARMS.values()}
    files = {name: pd.read_csv(HERE / f"{name}.csv") for name in names}
    comparison = files["experiment_24_steps_bfloat16"]
    grpo = comparison[comparison["stage"] == "grpo"].set_index("seed")["fresh"]
    lines = {}
    for name, (file, stage, lr, preparing_stages) in ARMS.items():
        rows = files[file]
        arm_rows = rows[(rows["stage"] == stage) & (rows["lr"] == lr) & rows["seed"].isin(SEEDS)]
        arm_rows = arm_rows.set_index("seed")
        preparing = comparison[comparison["stage"].isin(preparing_stages)]
        preparation = preparing.groupby("seed")["seconds"].sum()
        seconds = arm_rows["seconds"].add(preparation.reindex(arm_rows.index, fill_value=0.0))
        gains = 100 * (arm_rows["fresh"] - grpo)
        lines[name] = {
            "seconds": f"{seconds.mean():,.0f}" if file != "experiment" else "",
            **{title: f"{100 * arm_rows[key].mean():.0f}" for key, title in COLUMN_TITLES.items()},
            "perplexity": f"{arm_rows['perplexity'].mean():.0f}",
            "minus GRPO": " ".join(f"{gain:+.0f}" for gain in gains.dropna())
            if stage != "grpo"
            else "",
        }
    return pd.DataFrame.from_dict(lines, orient="index")


def draw(rows: Sequence[Mapping[str, str]]) -> Figure:
    """GRPO. Left: the share of correct answers to training problems at each step, one thin line per
    seed. Right: held-out accuracy with greedy decoding, and the share of false equations, at the
    steps at which they were measured."""
    figure = Figure(figsize=(9, 2.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    columns = ((left, "reward", 0), (right, "greedy", 0), (right, "false_steps", 1))
    labels = {"greedy": "held-out accuracy", "false_steps": "false equations"}
    for i, seed in enumerate(sorted({row["seed"] for row in rows})):
        for panel, column, color in columns:
            points = [
                (int(row["step"]), float(row[column]))
                for row in rows
                if row["seed"] == seed and row[column]
            ]
            panel.plot(
                *zip(*points, strict=True), color=COLORS[color], ls=DASHES[color],
                marker="" if column == "reward" else "o", ms=4, lw=1.2,
                label="" if i else labels.get(column, ""),
            )  # fmt: skip
    left.set(title="training problems, temperature 1", xlabel="step", ylim=(0, 1))
    right.set(title="held-out problems, greedy decoding", xlabel="step", ylim=(0, 1))
    right.legend(frameon=False)
    for panel in (left, right):
        panel.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        remove_frame(panel)
    return figure


if __name__ == "__main__":
    main()
