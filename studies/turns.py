"""The pictures and tables of ch07_turns.ipynb: who wrote which token, how tiny-player guesses.

    Talk(rollout, tokenizer)            a rollout as text, with the model's words marked
    draw_mask(rollout, tokenizer)       its tokens, and the mask under them
    next_guess(model, tokenizer, ...)   the exact distribution of a guess
    draw_...                            pictures of games and players
    stored...                           tables and pictures of what the scripts measured

The training loop and the numbers are in the notebook.
"""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from statistics import mean

import torch
from binary_search import TURNS, best_play, possible_range, uniform_play
from IPython.display import Markdown
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from torch import Tensor

from reasoning_from_scratch.logprobs import padded_logprobs
from reasoning_from_scratch.problems import problem_prompt
from reasoning_from_scratch.rollouts import make_batch
from reasoning_from_scratch.sampling import Rollout
from reasoning_from_scratch.text import align_table, mean_and_range
from reasoning_from_scratch.tiny.guessing import MOST, guess_problem
from rfs.files.tables import read_table
from rfs.report.palette import COLORS

HERE = Path(__file__).parent
# Fills that suit dark and light pages, with black text.
SAMPLED_FILL, READ_FILL = "#9ecae1", "#ffffff"


# --- who wrote what ---


class Talk:
    """A rollout as text. What the model wrote is marked, and only that is trained on."""

    def __init__(self, rollout: Rollout, tokenizer, name: str = "") -> None:
        self.name, self.pieces = name, text_pieces(rollout, tokenizer)

    def __repr__(self) -> str:
        text_with_marks = "".join(f"<{text}>" if sampled else text for text, sampled in self.pieces)
        return f"{self.name} {text_with_marks}".strip()

    def _repr_html_(self) -> str:
        mark = f"<mark style='background:{SAMPLED_FILL};color:black;padding:0 3px'>"
        html = "".join(
            f"{mark}{escape(text)}</mark>" if sampled else f" {escape(text)} "
            for text, sampled in self.pieces
        )
        return f"<div style='line-height:1.9'><b>{escape(self.name)}</b> {html}</div>"


def text_pieces(rollout: Rollout, tokenizer) -> list[tuple[str, bool]]:
    """The text of a rollout, cut where the writer changes: (text, whether the model wrote it)."""
    forced, pieces = set(rollout.forced), []
    for position, token in enumerate(rollout.response_ids):
        sampled = position not in forced
        if not pieces or pieces[-1][1] != sampled:
            pieces.append(([], sampled))
        pieces[-1][0].append(token)
    texts = [(tokenizer.decode(ids).replace("<|endoftext|>", ""), who) for ids, who in pieces]
    return [(text.replace("\n", " ").strip(), who) for text, who in texts]


def draw_mask(rollout: Rollout, tokenizer) -> Figure:
    """A rollout's tokens in a row, without the prompt, and the mask under them."""
    words = [tokenizer.decode([token]) for token in rollout.response_ids]
    words = ["end" if "endoftext" in word else word.replace("\n", "\\n") for word in words]
    mask = make_batch([rollout]).mask[0, len(rollout.prompt_ids) :]
    figure = Figure(figsize=(0.34 * len(words) + 0.7, 0.9), layout="constrained")
    panel = figure.subplots()
    for x, (word, sampled) in enumerate(zip(words, mask.tolist(), strict=True)):
        fill = SAMPLED_FILL if sampled else READ_FILL
        box = {"boxstyle": "round,pad=0.2", "facecolor": fill, "edgecolor": "#888888"}
        panel.text(x, 1, word, ha="center", va="center", fontsize=9, bbox=box, color="black")
        panel.text(x, 0, f"{sampled:.0f}", ha="center", va="center", fontsize=10)
    panel.text(-0.8, 0, "mask", ha="right", va="center", fontsize=10)
    panel.set(xlim=(-1.9, len(words) - 0.4), ylim=(-0.5, 1.6))
    panel.set_axis_off()
    return figure


# --- how tiny-player guesses ---


@torch.no_grad()
def next_guess(model, tokenizer, said: Sequence[tuple[int, str]] = ()) -> Tensor:
    """The probability (64,) of each number as the next guess, after guesses and their answers.

    They are exact: a number is a few tokens and the end of the turn, whose probabilities multiply.
    The sum falls short of 1 by the guesses that are not numbers from 1 to 64."""
    prompt = tokenizer.encode(problem_prompt(guess_problem(1)))  # does not name the number
    for guess, answer in said:
        prompt += turn_of(tokenizer, str(guess))
        prompt += tokenizer.encode(tokenizer.reply_turn(answer), chat_wrapped=False)
    turns = [turn_of(tokenizer, str(number)) for number in range(1, MOST + 1)]
    rollouts = [
        Rollout(prompt_ids=prompt, response_ids=turn, logprobs=[0.0] * len(turn)) for turn in turns
    ]
    return padded_logprobs(model, make_batch(rollouts)).sum(-1).exp()  # (64,)


def turn_of(tokenizer, text: str) -> list[int]:
    """The tokens of one of the model's turns, including its end."""
    return [*tokenizer.encode(text, chat_wrapped=False), tokenizer.eos_token_id]


def positions_in_range(games: Sequence[tuple[int, Sequence[int]]]) -> list[float]:
    """Where each guess lies in the range that is possible at that time, from 0, the lowest number,
    to 1, the highest. Only guesses with at least eight possible numbers count."""
    positions = []
    for number, guesses in games:
        for turn, guess in enumerate(guesses):
            low, high = possible_range(guesses[:turn], number, MOST)
            if high - low >= 7 and low <= guess <= high:
                positions.append((guess - low) / (high - low))
    return positions


# --- pictures ---


def draw_places(players: Mapping[str, Sequence[tuple[int, Sequence[int]]]]) -> Figure:
    """Where the guesses of some players lie in the possible range."""
    figure = Figure(figsize=(6.6, 2.8), layout="constrained")
    panel = figure.subplots()
    for i, (name, games) in enumerate(players.items()):
        positions = positions_in_range(games)
        shares = torch.histc(torch.tensor(positions), 12, 0, 1) / len(positions)  # (12,)
        centers = (torch.arange(12) + 0.5) / 12
        style = {"color": COLORS[i], "alpha": 0.65, "label": name}
        panel.bar(centers.tolist(), shares.tolist(), 1 / 13, **style)
    panel.axhline(1 / 12, color="#888888", ls=":", label="uniform")
    panel.set(xlabel="place in the possible range: 0 lowest, 1 highest", ylabel="share of guesses")
    panel.margins(y=0.25)
    panel.legend(frameon=False, loc="upper center", ncols=1 + len(players))
    return figure


def draw_training(opening_by_step: Mapping[int, Tensor], found_shares: Sequence[float]) -> Figure:
    """Left: the first guess's probabilities, step by step. Right: the share of rollouts that found
    the number in time, each step and the mean over ten."""
    figure = Figure(figsize=(7.6, 3.2), layout="constrained")
    left, found_panel = figure.subplots(1, 2)
    figure.colorbar(draw_heat(left, opening_by_step), ax=left, label="probability")
    left.set(title="The opening guess", ylabel="number")
    steps = range(len(found_shares))
    found_panel.plot(steps, found_shares, color=COLORS[0], lw=0.7, alpha=0.35)
    ten_step_means = [mean(found_shares[max(0, step - 9) : step + 1]) for step in steps]
    found_panel.plot(steps, ten_step_means, color=COLORS[0], label="rollouts, mean of ten steps")
    found_panel.axhline(uniform_play(MOST)[6], color="#888888", ls=":", label="uniform play")
    found_panel.axhline(best_play(MOST)[6], color="#888888", ls="--", label="the best possible")
    found_panel.set(title="Found with six guesses", xlabel="step", ylabel="share", ylim=(0.3, 1.02))
    found_panel.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0, 0.93))
    return figure


def draw_heat(panel: Axes, opening_by_step: Mapping[int, Tensor]) -> AxesImage:
    """Step by step, how often each number is the opening guess."""
    steps = list(opening_by_step)
    columns = torch.stack([opening_by_step[step] for step in steps], dim=1)  # (64, steps)
    step_gap = steps[1] - steps[0]
    panel.set(xlabel="step", yticks=(1, 16, 32, 48, 64))
    return panel.imshow(
        columns.numpy(), aspect="auto", origin="lower", cmap="viridis", vmin=0,
        extent=(steps[0] - step_gap / 2, steps[-1] + step_gap / 2, 0.5, MOST + 0.5),
    )  # fmt: skip


def draw_found(curves: Mapping[str, Sequence[Sequence[float]]]) -> Figure:
    """The share of games won within 1, 2, ... guesses: for each player the mean and the range of
    its runs, beside uniform play and the best play, both exact."""
    figure = Figure(figsize=(6.6, 3.6), layout="constrained")
    panel = figure.subplots()
    turns = range(1, TURNS + 1)
    for i, (name, runs) in enumerate(curves.items()):
        shares_by_turn = list(zip(*runs, strict=True))
        style = {"color": COLORS[i], "marker": "os^D"[i]}
        panel.plot(turns, list(map(mean, shares_by_turn)), label=name, **style)
        low, high = list(map(min, shares_by_turn)), list(map(max, shares_by_turn))
        panel.fill_between(turns, low, high, color=COLORS[i], alpha=0.25)
    best = [*best_play(MOST), *[1.0] * TURNS]
    uniform = uniform_play(MOST)[1 : TURNS + 1]
    panel.plot(turns, uniform, color="#888888", ls=":", label="uniform play, exact")
    panel.plot(turns, [best[k] for k in turns], color="#888888", ls="--", label="best play, exact")
    panel.set(xlabel="guesses", ylabel="share of games found", ylim=(0, 1.03), xticks=list(turns))
    panel.legend(frameon=False, fontsize=9)
    return figure


def draw_next(players: Mapping[str, Sequence[Tensor]], titles: Sequence[str]) -> Figure:
    """The next guess after some beginnings of a game, a panel each, a line for each player."""
    figure = Figure(figsize=(7.6, 2.6), layout="constrained")
    panels = figure.subplots(1, len(titles), sharey=True)
    for panel_index, (panel, title) in enumerate(zip(panels, titles, strict=True)):
        for i, (name, guesses) in enumerate(players.items()):
            shares, style = guesses[panel_index].tolist(), {"color": COLORS[i], "label": name}
            panel.bar(range(1, MOST + 1), shares, 1.0, alpha=0.65, **style)
        panel.set_title(title, fontsize=10)
        panel.set(xlabel="number", xticks=(1, 16, 32, 48, 64))
    panels[0].set(ylabel="probability")
    panels[0].legend(frameon=False, fontsize=9)
    return figure


# --- what the scripts measured ---


def found_curve(row: Mapping[str, str]) -> list[float]:
    """The shares found within 1, 2, ... guesses, from what `summary` returns."""
    return [float(row[f"within {k}"]) for k in range(1, TURNS + 1)]


def stored_games(kl: str = "0") -> dict[int, list[dict[str, str]]]:
    """The runs of binary_search.csv with all numbers and the reward for a number found in time:
    step -> a row for each seed. `kl`: the KL term's weight at the first step."""
    runs: dict[int, list[dict[str, str]]] = {}
    for row in read_table(HERE / "binary_search.csv"):
        run_key = row["pay"], row["kl"], row["leave out"], row["numbers"]
        if run_key == ("in time", kl, "0", "asked"):
            runs.setdefault(int(row["step"]), []).append(row)
    return runs


def stored_openings(kl: str = "0") -> Figure | Markdown:
    """The opening guess over training, a panel for each seed."""
    runs = stored_games(kl)
    if not runs:
        return not_made_yet("binary_search.csv")
    seeds = [row["seed"] for row in runs[0]]
    figure = Figure(figsize=(7.6, 2.8), layout="constrained")
    row_of_panels = figure.subplots(1, len(seeds), sharey=True, squeeze=False)[0]
    shares = {step: [parse_shares(row["first"]) for row in rows] for step, rows in runs.items()}
    for i, (panel, seed) in enumerate(zip(row_of_panels, seeds, strict=True)):
        image = draw_heat(panel, {step: of_seeds[i] for step, of_seeds in shares.items()})
        panel.set_title(f"seed {seed}", fontsize=10)
    figure.colorbar(image, ax=row_of_panels, label="share of games")
    row_of_panels[0].set_ylabel("opening guess")
    return figure


def parse_shares(first_guesses: str) -> Tensor:
    """Shares (64,) from the file's counts of first guesses."""
    counts = torch.tensor([float(count) for count in first_guesses.split()])
    return counts / counts.sum().clamp(min=1)


def stored_curves(**kinds: str) -> Figure | Markdown:
    """The share of games found within 1, 2, ... guesses, before and after. `kinds`: a name for
    each weight of the KL term, as in stored_games."""
    games_by_name = {name: stored_games(kl) for name, kl in kinds.items()}
    if not all(games_by_name.values()):
        return not_made_yet("binary_search.csv")
    players = {"before": next(iter(games_by_name.values()))[0]}
    for name, runs in games_by_name.items():
        players[f"after {max(runs)} steps, {name}"] = runs[max(runs)]
    return draw_found({name: list(map(found_curve, rows)) for name, rows in players.items()})


def stored_plays(kl: str = "0") -> Markdown:
    """Before, during and after training: found within some guesses, guesses in the middle third."""
    runs = stored_games(kl)
    if not runs:
        return not_made_yet("binary_search.csv")
    columns = {f"within {k}": f"within {k}" for k in (4, 5, 6, 7)}
    columns["in the middle third"] = "middle"
    steps = list(runs)
    quarters = dict.fromkeys(steps[len(steps) * quarter // 4] for quarter in range(4))
    lines = [["steps", *columns]]
    for step in [*quarters, steps[-1]]:
        lines.append([str(step), *(spread_of(runs[step], name) for name in columns.values())])
    for name, play in (("uniform play, exact", uniform_play), ("best play, exact", best_play)):
        lines.append([name, *(f"{100 * [*play(MOST), 1.0][k]:.1f}" for k in (4, 5, 6, 7)), ""])
    return table_with_note(lines, len(runs[0]))


def stored(name: str, columns: Mapping[str, tuple[str, float]]) -> Markdown:
    """A table of the sampled measurements in one of our files, for each arm before and after.
    `columns`: title -> name in the file, and the factor it is multiplied by (100: percent)."""
    rows = [row for row in read_table(HERE / name) if row["answers"] == "sampled"]
    if not rows:
        return not_made_yet(name)
    last = max(int(row["step"]) for row in rows)
    lines = [["training", "measured", *columns]]
    for arm in dict.fromkeys(row["arm"] for row in rows):
        for step, when in ((0, "before"), (last, f"after {last} steps")):
            arm_rows = [row for row in rows if row["arm"] == arm and int(row["step"]) == step]
            cells = (spread_of(arm_rows, *column) for column in columns.values())
            lines.append([arm, when, *cells])
    return table_with_note(lines, len({row["seed"] for row in rows}))


def spread_of(rows: Sequence[Mapping[str, str]], column: str, factor: float = 100) -> str:
    """The mean over the rows, and their lowest and highest value."""
    values = [factor * float(row[column]) for row in rows if row[column] != "nan"]
    return mean_and_range(values) if values else "-"


def table_with_note(lines: Sequence[Sequence[str]], seeds: int) -> Markdown:
    note = "Shares are in percent."
    if seeds > 1:
        note += f" Means of {seeds} seeds; in parentheses the lowest and the highest."
    return Markdown("\n".join([*align_table(lines), "", note]))


def not_made_yet(name: str) -> Markdown:
    script = Path(name).with_suffix(".py")
    return Markdown(f"`{name}` is not there yet: `uv run studies/{script}` makes it.")
