"""The picture of gsm8k.py: the curves of the runs that learn from rollouts."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from rfs.report.forest import soften
from rfs.report.palette import COLORS

WINDOW = 5  # steps: sixteen problems are too few to see a trend from one step to the next
PANELS = {
    "reward": "reward of the rollouts, temperature 1",
    "entropy": "entropy of a token",
    "tokens": "tokens per answer",
    "latex": "share of answers in LaTeX",
}


def group_by_run(rows: Sequence[dict[str, str]]) -> dict[str, list[dict[str, str]]]:
    """The rows of each run, by its name in the legend, which has the learning rate only where an
    arm ran at several with one seed."""
    runs: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        runs.setdefault((f"{row['arm']}, seed {row['seed']}", row["lr"]), []).append(row)
    names = [name for name, _ in runs]
    return {
        f"{name}, lr {lr}" if names.count(name) > 1 else name: run
        for (name, lr), run in runs.items()
    }


def draw(rows: Sequence[dict[str, str]], path: Path) -> None:
    """A line for each run of the first model. Dots are its accuracy with greedy decoding on the
    200 problems that were held out."""
    import matplotlib.pyplot as plt

    runs = group_by_run([row for row in rows if row["model"] == rows[0]["model"]])
    figure, panels = plt.subplots(2, 2, figsize=(9, 6.4), layout="constrained")
    for panel, (name, title) in zip(panels.flat, PANELS.items(), strict=True):
        panel.set_prop_cycle(color=COLORS)
        soften(panel)
        for label, run in runs.items():
            measured = [row for row in run if row[name]]  # a step may have had no update
            values = [float(row[name]) for row in measured]
            steps = [1 + int(row["step"]) for row in measured]
            smooth = [fmean(values[max(0, i + 1 - WINDOW) : i + 1]) for i in range(len(values))]
            (line,) = panel.plot(steps, smooth, label=label)
            panel.plot(steps, values, ".", color=line.get_color(), alpha=0.3, markersize=4)
            if name == "reward":
                evaluated = [row for row in run if row["held_back"]]
                after = [int(row["held_back_after"]) for row in evaluated]
                accuracies = [float(row["held_back"]) for row in evaluated]
                panel.plot(after, accuracies, "o--", color=line.get_color(), linewidth=1)
        panel.set(title=title, xlabel="step", ylim=(0, None))
    panels.flat[0].legend(fontsize=9)
    figure.savefig(path, dpi=110)
    plt.close(figure)
