"""The museum of failures: eight runs that went wrong, shown before they are explained.

    visit(1)        trains the run of room 1 and shows its curves and three of its answers
    guess(1, "b")   says whether that is what happened, and if not, why not
    repair(1)       says what was wrong, changes that one thing, and draws both runs
    sweep()         the correct answers of a healthy run at several learning rates, for room 5

ch07_museum.ipynb leads through the rooms. Reading on in this file spoils the guessing.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from math import isclose
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from unittest.mock import patch

from ch07_pictures import joint_curves
from matplotlib.figure import Figure
from torch import Tensor

from reasoning_from_scratch import losses
from reasoning_from_scratch.losses import kl_estimate
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.rewards import correctness
from reasoning_from_scratch.text import read_lines
from rfs.config import from_json, replaced, to_json
from rfs.report.forest import soften
from rfs.report.health import new_alarms
from rfs.report.metrics import ENTROPY, MIXED, REWARD, TOKENS
from rfs.report.palette import COLORS, TEXT
from rfs.run.options import configure
from rfs.run.study import run_to_end
from rfs.tasks.problem_sets import load_problems

SETTINGS = {
    "model": "tiny-base",
    "steps": 20,
    "lr": 3e-4,
    "max_new_tokens": 160,
    "keep_sampling_mask": False,  # with top-p 1 there is none: it says something in room 3 only
    "preflight": False,
    "num_groups_to_log": 0,
    "report_every": 0,
    "device": "cpu",
}
SEED = 2  # of the run shown first; rooms that take long have no other seed
TWO_SEEDS = (SEED, 3)
SWEEP_RATES = (1e-6, 1e-5, 1e-4, 3e-4, 1e-3)
STYLES = {"repaired": 0, "sick": 1}  # blue for the good case, as everywhere in the chapter
CURVES = {
    REWARD: "reward",
    "right": "share of correct rollouts",
    "eval_acc": "held-out accuracy",
    TOKENS: "tokens per answer",
    ENTROPY: "entropy (nats per token)",
    "kl_policy_base": "KL from the reference, k1 (nats)",
    MIXED: "groups with a signal (share)",
}
REWARD_IS_CORRECT = "reward (share of correct rollouts)"  # where the two are the same


@dataclass(frozen=True)
class Room:
    sick: dict  # what the run adds to PLAN; "edit" replaces a piece of the code
    repair: dict  # the one field that is fixed
    diagnosis: str  # what was wrong, and its value after the repair
    correct_letter: str
    replies: dict[str, str]  # for each letter, to a reader who chose it
    seeds: tuple[int, ...] = (SEED,)


def brief_reward(text: str, problem) -> float:
    """1 for a correct answer, minus a sixtieth for each character."""
    return correctness(text, problem.answer) - len(text) / 60


def k1_in_the_loss(kind: str, logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """Replaces losses.kl_estimate, whatever the kind: the loss refuses k1 under its own name."""
    return kl_estimate("k1", logprobs, ref_logprobs)


def k2_in_the_loss(kind: str, logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """k2 where the loss asks for it. The distance in the plot is k1, as in the sick run: k3 grows
    exponentially, and single tokens pushed down by four passes would raise it to thousands."""
    return kl_estimate("k2" if kind == "k2" else "k1", logprobs, ref_logprobs)


def four_problems() -> list[Problem]:
    """The problems that somebody trained on, and then used as a test."""
    return load_problems("tiny", limit=4)


ROOMS = {
    1: Room(
        sick={"max_new_tokens": 24},
        repair={"max_new_tokens": 160},
        diagnosis="It was the length limit: 24 tokens (--max-new-tokens). Repaired: 160 tokens.",
        seeds=TWO_SEEDS,
        correct_letter="b",
        replies={
            "a": "With too low a learning rate every curve would stay where it was. Here the "
            "length changes, so something is being learned.",
            "b": "Yes. A solution of two lines or more is cut off before its box, and its reward "
            "is 0. Only guesses and solutions of a single line are still rewarded.",
            "c": "There are groups with a signal, so some of the answers are correct. And the "
            "same model learns these problems elsewhere.",
            "d": "Then the reward would rise while the share of correct answers falls. Here the "
            "two are the same curve.",
        },
    ),
    2: Room(
        sick={"reward": f"{__file__}:brief_reward"},
        repair={"reward": None},
        diagnosis="It was the reward: 1 for a correct answer, minus a sixtieth for each character "
        "(--reward). Repaired: without the subtraction.",
        seeds=TWO_SEEDS,
        correct_letter="d",
        replies={
            "a": "A learning rate that is too high ruins the reward, too. This reward is no worse "
            "at the end than at the start.",
            "b": "Look at the last lines of the answers: each answer ends by itself.",
            "c": "The problems are those of every other room.",
            "d": "Yes. Each character costs a sixtieth, so full solution steps cost more than a "
            "correct answer brings. The cheapest answer is a guess, and training found it.",
        },
    ),
    3: Room(
        sick={"top_p": 0.6},
        repair={"top_p": 1.0},
        diagnosis="It was the sampling: top-p 0.6 (--top-p). Repaired: top-p 1, the whole "
        "distribution.",
        seeds=TWO_SEEDS,
        correct_letter="c",
        replies={
            "a": "All of these answers are short and end by themselves.",
            "b": "The entropy was as low at the first step. And the model has hardly changed "
            "since: hardly any group had a signal, so there was hardly any update.",
            "c": "Yes. The sampler drew from the most likely tokens only, up to a total "
            "probability of 0.6, and the token that begins a solution is not among them. What is "
            "never sampled is never rewarded.",
            "d": "A guess is rewarded as everywhere: 1 if it is correct. No style of answer gets "
            "more here, because these rollouts contain no other style.",
        },
    ),
    4: Room(
        sick={"objective": "reinforce", "epochs": 4, "lr": 5e-4, "steps": 13},
        repair={"objective": "ppo"},
        diagnosis="It was the objective: reinforce, without a ratio (--objective). Repaired: ppo.",
        correct_letter="a",
        replies={
            "a": "Yes. Each batch is trained on four times, and the loss ignores that the policy "
            "has moved in between. Each pass makes the first pass's push again.",
            "b": "Then the run would write the same text, and get the same reward, as before.",
            "c": "The limit is 160 tokens. These answers are far from it.",
            "d": "The reward is that of most other runs: 1 for a correct answer, else 0.",
        },
    ),
    5: Room(
        sick={"lr": 1e-6},
        repair={"lr": 3e-4},
        diagnosis="It was the learning rate: 1e-6 (--lr). Repaired: 3e-4.",
        seeds=TWO_SEEDS,
        correct_letter="b",
        replies={
            "a": "One answer in five is correct from the start, and most groups have a signal. "
            "There is enough to learn from.",
            "b": "Yes. 1e-6 is a good learning rate for Qwen3-0.6B, and far too low for this "
            "model.",
            "c": "Then an alarm would have gone off at the first step. And the rollouts here "
            "contain all styles of answer.",
            "d": "With a KL penalty there would be one more curve here: the distance from the "
            "reference. This run has none.",
        },
    ),
    6: Room(
        sick={"lr": 2e-3},
        repair={"lr": 3e-4},
        diagnosis="It was the learning rate: 2e-3 (--lr). Repaired: 3e-4.",
        correct_letter="a",
        replies={
            "a": "Yes. The first steps go in the right direction, and each goes much too far.",
            "b": "One update per batch: each rollout is used once, by the policy that drew it.",
            "c": "In room 1 correct answers needed more room than the limit gave. Here the limit "
            "is ample: the answers were short at the beginning, and only later grew into it.",
            "d": "The reward counts correct answers and nothing else, and here it ends at 0.",
        },
    ),
    7: Room(
        sick={
            "problems": f"{__file__}:four_problems",
            "eval_problems": f"{__file__}:four_problems",
            "eval_every": 10,
            "lr": 5e-4,
        },
        repair={"eval_problems": "tiny-test"},
        diagnosis="It was the test set: the four training problems (--eval-problems). Repaired: "
        "tiny-test.",
        correct_letter="b",
        replies={
            "a": "The reward is 1 for a correct answer, and the share of correct rollouts, which "
            "the grader counts separately, is the same curve.",
            "b": "Yes. It is tested on the four problems that it is trained on. Held-out accuracy "
            "of exactly 1, again and again, is too good for a model of this size.",
            "c": "In rooms 4 and 6 you saw what happens to a run whose updates go too far. None "
            "of the curves here collapses.",
            "d": "At the first step one answer in five was correct, and at the last step the "
            "problems are the same.",
        },
    ),
    8: Room(
        sick={
            "edit": k1_in_the_loss,
            "kl": "k2",
            "kl_coef": 1.0,
            "epochs": 4,
            "steps": 16,
            "problems_per_step": 6,
            "max_new_tokens": 80,
        },
        repair={"edit": k2_in_the_loss},
        diagnosis="It was the KL estimate in the loss: k1. Repaired: k2, with the same weight.",
        correct_letter="b",
        replies={
            "a": "A larger weight would push harder, and in the same direction. The distance "
            "grows although the loss penalizes it.",
            "b": "Yes. It is k1, and the gradient of log p - log q is that of log p alone. With "
            "fresh rollouts it is 0 on average. With rollouts that are used four times it pushes "
            "down whatever was sampled, correct or not.",
            "c": "Then the reward would stay up while the correct answers vanish. They vanish "
            "together.",
            "d": "At the end they are. But when the correct answers began to vanish, nearly all "
            "answers still ended by themselves.",
        },
    ),
}


def visit(number: int) -> Figure:
    """Train the run of a room, print three of its answers, and draw its curves."""
    for row in three_answers(trained(number)):
        problem = row["steps"][0]["logs"]
        end = "" if row["stop_reason"] == "stop" else "   <- the length limit"
        print(f"{problem['problem']}\n  correct answer: {problem['answer']}; the model wrote:")
        for line in row["text"].strip().splitlines():
            print("   |", line)
        print(f"  reward {row['total_reward']:.2f}{end}\n")
    return draw_room(number, ["sick"])


def guess(number: int, letter: str = "?") -> None:
    replies = ROOMS[number].replies
    print(replies.get(letter.lower(), f"Choose one of {', '.join(replies)}."))


def repair(number: int) -> Figure:
    """Say what was wrong and which alarms went off, and draw the run beside the repaired one."""
    room = ROOMS[number]
    print(room.diagnosis)
    for title in ("sick", "repaired"):
        for seed in room.seeds:
            alarms = list(alarms_of(trained(number, title == "repaired", seed))) or ["no alarm"]
            print(f"{title}, seed {seed}:", "; ".join(alarms))
    return draw_room(number, ["repaired", "sick"])


def draw_room(number: int, titles: list[str]) -> Figure:
    """The runs of a room with all its seeds, all of one title in one color."""
    room = ROOMS[number]
    runs = {
        title if seed == room.seeds[0] else f"{title}, seed {seed}": (
            with_right(trained(number, title == "repaired", seed))
        )
        for title in titles
        for seed in room.seeds
    }
    looks = [STYLES[title] for title in titles for _ in room.seeds]
    return joint_curves(runs, shown_curves(runs.values()), looks)


def sweep() -> Figure:
    """What a healthy run reaches at several learning rates; room 5 is the first of them."""
    correct_by_lr = {lr: right_at(lr) for lr in SWEEP_RATES}
    figure = Figure(figsize=(5.2, 2.8), layout="constrained")
    panel = figure.subplots()
    values = list(correct_by_lr.values())
    panel.plot(SWEEP_RATES, values, "o-", color=COLORS[STYLES["repaired"]])
    panel.plot(SWEEP_RATES[0], values[0], "o", color=COLORS[STYLES["sick"]], ms=9)
    panel.set(xscale="log", ylim=(0, 1), xlabel="learning rate")
    panel.set_title("share of correct rollouts, last five steps", color=TEXT, fontsize=10)
    soften(panel)
    return figure


def right_at(lr: float) -> float:
    return mean_at_end(train_settings(SETTINGS | {"lr": lr}), "right")


@dataclass(frozen=True)
class FinishedRun:
    """What the rooms show of a run. Its folder, 30 MB and more, is deleted."""

    rows: list[dict]  # the metrics of each step
    rollouts: list[list[dict]]  # the sampled answers of each step


def trained(number: int, repaired: bool = False, seed: int = SEED) -> FinishedRun:
    settings, edit = room_settings(number, repaired)
    return train_settings(settings | {"seed": seed}, edit)


def room_settings(number: int, repaired: bool) -> tuple[dict, Callable | None]:
    """Options of the run, and what replaces losses.kl_estimate while it runs."""
    room = ROOMS[number]
    settings = SETTINGS | room.sick | (room.repair if repaired else {})
    return settings, settings.pop("edit", None)


def train_settings(settings: dict, edit: Callable | None = None) -> FinishedRun:
    config = configure("grpo", **({"seed": SEED} | settings))
    return trained_once(json.dumps(to_json(config), sort_keys=True), edit)


@cache
def trained_once(config_json: str, edit: Callable | None) -> FinishedRun:
    """Cached, because several rooms share the same repaired run."""
    with TemporaryDirectory() as folder:
        config = replaced(from_json(json.loads(config_json)), log_path=f"{folder}/room")
        with patch.object(losses, "kl_estimate", edit or losses.kl_estimate):
            rows = run_to_end(config).rows
        paths = sorted(Path(folder).glob("room/train_*_rollout_summaries.jsonl"))
        return FinishedRun(rows, [read_lines(path) for path in paths])


def last(number: int, curve: str, repaired: bool = False, seed: int = SEED) -> float:
    return mean_at_end(trained(number, repaired, seed), curve)


def mean_at_end(run: FinishedRun, curve: str) -> float:
    """The mean of a curve over the last five steps that measured it."""
    return fmean([row[curve] for row in with_right(run) if row.get(curve) is not None][-5:])


def alarms_of(run: FinishedRun) -> Iterator[str]:
    for end in range(1, len(run.rows) + 1):
        for alarm in new_alarms(run.rows[:end]):
            yield f"step {end - 1}, {alarm.name}: {alarm.observation}"


def with_right(run: FinishedRun) -> list[dict]:
    """The metrics and the share of correct answers by the grader, whatever the reward was."""
    shares = [
        fmean(correctness(row["text"], row["steps"][0]["logs"]["answer"]) for row in step)
        for step in run.rollouts
    ]
    return [row | {"right": share} for row, share in zip(run.rows, shares, strict=True)]


def three_answers(run: FinishedRun) -> list[dict]:
    """The first answers to three problems of the last step."""
    return [row for row in run.rollouts[-1] if row["traj_idx"] == 0][:3]


def shown_curves(runs: Iterable[list[dict]]) -> dict[str, str]:
    """The curves that these runs measured. If the reward is the share of correct rollouts in all of
    them, the two become one curve."""
    rows = list(chain.from_iterable(runs))
    measured: set[str] = set().union(*rows)
    shown = {name: label for name, label in CURVES.items() if name in measured}
    if all(isclose(row[REWARD], row["right"], abs_tol=1e-6) for row in rows):
        del shown["right"]
        shown[REWARD] = REWARD_IS_CORRECT
    return shown
