"""The museum of failures: eight runs that went wrong, shown before it is said why.

    visit(1)        trains the run of room 1 and shows its curves and three of its answers
    guess(1, "b")   says whether that is what happened, and if not, what speaks against it
    repair(1)       says what was wrong, changes that one thing, and draws both runs
    sweep()         the right answers of a healthy run over its learning rate, for room 5

ch07_museum.ipynb leads through the rooms. Whoever reads on here has seen behind the curtain.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from unittest.mock import patch

from ch07_pictures import joint_curves
from matplotlib.figure import Figure
from torch import Tensor

from reasoning_from_scratch import losses
from reasoning_from_scratch.config import from_json, replaced, to_json
from reasoning_from_scratch.losses import kl_estimate
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.report.curves import COLORS, TEXT
from reasoning_from_scratch.report.forest import soften
from reasoning_from_scratch.report.health import new_alarms
from reasoning_from_scratch.report.metrics import ENTROPY, MIXED, REWARD, TOKENS
from reasoning_from_scratch.rewards import correctness
from reasoning_from_scratch.run.options import configure
from reasoning_from_scratch.run.start import train
from reasoning_from_scratch.tasks.problem_sets import load_problems
from reasoning_from_scratch.text import read_lines

PLAN = {
    "model": "tiny-base",
    "steps": 20,
    "lr": 3e-4,
    "max_new_tokens": 160,
    "preflight": False,
    "num_groups_to_log": 0,
    "report_every": 0,
    "device": "cpu",
}
SEED = 2  # of the run that is shown first, and the only one where a room is dear
TWO = (SEED, 3)
RATES = (1e-6, 1e-5, 1e-4, 3e-4, 1e-3)  # of the sweep
LOOKS = {"repaired": 0, "sick": 1}  # as everywhere in the chapter: blue is the good case
CURVES = {
    REWARD: "reward paid",
    "right": "share of right rollouts",
    "eval_acc": "held-out accuracy",
    TOKENS: "tokens per answer",
    ENTROPY: "entropy (nats per token)",
    "kl_policy_base": "KL from the reference, k1 (nats)",
    MIXED: "groups with a signal (share)",
}


@dataclass(frozen=True)
class Room:
    sick: dict  # what the run has beside PLAN; "edit" is a change of the code itself
    repair: dict  # the one field that is put right
    truth: str  # the letter of what happened
    said: dict[str, str]  # for each letter: what to say to a reader who chose it
    seeds: tuple[int, ...] = (SEED,)


def brief_reward(text: str, problem) -> float:
    """1 for a right answer, less a sixtieth for each character."""
    return correctness(text, problem.answer) - len(text) / 60


def k1_in_the_loss(kind: str, logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """In place of losses.kl_estimate, whichever is asked for. By its name the loss refuses it."""
    return kl_estimate("k1", logprobs, ref_logprobs)


def k2_in_the_loss(kind: str, logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """k2 where the loss asks for it. The distance that is drawn is k1, as in the sick run: k3 is an
    exponential, and single tokens that four passes have pushed down would lift it to thousands."""
    return kl_estimate("k2" if kind == "k2" else "k1", logprobs, ref_logprobs)


def four_problems() -> list[Problem]:
    """What somebody trained on, and then took for a test."""
    return load_problems("tiny", limit=4)


ROOMS = {
    1: Room(
        sick={"max_new_tokens": 24},
        repair={"max_new_tokens": 160},
        seeds=TWO,
        truth="b",
        said={
            "a": "Too low a rate would leave every curve where it was. Here the length moves: "
            "something is being learned.",
            "b": "Yes. A working of two lines or more is cut off before its box, and earns "
            "nothing. What is still paid are guesses, and workings of a single line.",
            "c": "There are groups with a signal, so some of the answers are right. And the same "
            "model learns these problems elsewhere.",
            "d": "Then the reward would rise while the share of right answers falls. Here the two "
            "are one curve.",
        },
    ),
    2: Room(
        sick={"reward": f"{__file__}:brief_reward"},
        repair={"reward": None},
        seeds=TWO,
        truth="d",
        said={
            "a": "A rate that is too high carries the reward away too. This reward is no worse at "
            "the end than at the start.",
            "b": "Look at the last lines of the answers: each of them ends by itself.",
            "c": "The problems are those of every other room.",
            "d": "Yes. A sixtieth off for each character: a full working costs more than a right "
            "answer earns. The cheapest answer is a guess, and training found it.",
        },
    ),
    3: Room(
        sick={"top_p": 0.6, "keep_sampling_mask": False},
        repair={"top_p": 1.0},
        seeds=TWO,
        truth="c",
        said={
            "a": "All of these answers are short and end by themselves.",
            "b": "It was as low at the first step. And the model has hardly changed since: next "
            "to no group had a signal, so there was next to no update.",
            "c": "Yes. The sampler drew from the likeliest tokens only, up to a mass of 0.6, and "
            "what begins a working is not among them. What is never sampled is never rewarded.",
            "d": "A guess is paid as everywhere: 1 if it is right. There is no better-paid way "
            "among these rollouts, because there is no other way among them at all.",
        },
    ),
    4: Room(
        sick={"objective": "reinforce", "epochs": 4, "lr": 5e-4, "steps": 13},
        repair={"objective": "ppo"},
        truth="a",
        said={
            "a": "Yes. Each batch is trained on four times, and nothing says that the policy has "
            "moved in between. What was right for the first pass is pushed once more, and again.",
            "b": "Then the run would see the same text, and earn the same, as before.",
            "c": "The limit is 160 tokens. These answers are far from it.",
            "d": "The reward is that of every other run: 1 for a right answer, else 0.",
        },
    ),
    5: Room(
        sick={"lr": 1e-6},
        repair={"lr": 3e-4},
        seeds=TWO,
        truth="b",
        said={
            "a": "One answer in five is right from the start, and most groups have a signal. "
            "There is enough to learn from.",
            "b": "Yes. 1e-6 is a good rate for Qwen3-0.6B, and far too small for this model.",
            "c": "Then an alarm would have gone off at the first step. And what is sampled here "
            "holds all kinds of answers.",
            "d": "A penalty that holds the model would have a curve of its own here: its distance "
            "from the reference. This run has none.",
        },
    ),
    6: Room(
        sick={"lr": 2e-3},
        repair={"lr": 3e-4},
        truth="a",
        said={
            "a": "Yes. The first steps go in the right direction, and each goes much too far.",
            "b": "One update per batch: each rollout is used once, by the policy that drew it.",
            "c": "The run of room 1 could not write long answers, and wanted to. This one writes "
            "them, and they were short at the beginning.",
            "d": "It is paid for right answers and nothing else, and it is paid nothing.",
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
        truth="b",
        said={
            "a": "The reward is 1 for a right answer, and the share of right answers, which the "
            "grader counts by itself, is the same curve.",
            "b": "Yes. It is tested on the four problems that it is trained on. Held-out accuracy "
            "of exactly 1, again and again, is too good for a model of this size.",
            "c": "In rooms 4 and 6 you saw what becomes of a run whose updates go too far. This "
            "one loses nothing that is drawn here.",
            "d": "At the first step one answer in five was right, and the problems are the same at "
            "the last.",
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
        truth="b",
        said={
            "a": "A stronger one would push harder, and in the same direction. The distance grows "
            "although it is charged for.",
            "b": "Yes. It is k1, and the gradient of log p - log q is that of log p alone. With "
            "fresh rollouts it is 0 on average. With rollouts that are used four times it pushes "
            "down whatever was sampled, right or wrong.",
            "c": "Then the reward would stay up while the right answers vanish. They go together.",
            "d": "At the end they are. When the right answers began to vanish, nearly all of them "
            "still ended by themselves.",
        },
    ),
}


def visit(number: int) -> Figure:
    """Train the run of a room, print three of its answers, and draw its curves."""
    for row in three_answers(trained(number)):
        facts = row["steps"][0]["logs"]
        end = "" if row["stop_reason"] == "stop" else "   <- the length limit"
        print(f"{facts['problem']}\n  right would be {facts['answer']}; it wrote:")
        for line in row["text"].strip().splitlines():
            print("   |", line)
        print(f"  paid {row['total_reward']:.2f}{end}\n")
    return drawn(number, ["sick"])


def guess(number: int, letter: str = "?") -> None:
    said = ROOMS[number].said
    print(said.get(letter.lower(), f"Choose one of {', '.join(said)}."))


def repair(number: int) -> Figure:
    """Say what was wrong and which alarms went off, and draw the run beside the repaired one."""
    room = ROOMS[number]
    (name, value), *_ = room.repair.items()
    was, now = (
        getattr(of, "__name__", str(of).rpartition("/")[2])  # of a file its name
        for of in (room.sick.get(name, PLAN.get(name)), value)
    )
    print(f"It was {name} = {was}; repaired: {name} = {now}")
    for title in ("sick", "repaired"):
        for seed in room.seeds:
            found = list(alarms_of(trained(number, title == "repaired", seed))) or ["no alarm"]
            print(f"{title}, seed {seed}:", "; ".join(found))
    return drawn(number, ["repaired", "sick"])


def drawn(number: int, titles: list[str]) -> Figure:
    """The runs of a room with all its seeds, all of one title in one color."""
    room = ROOMS[number]
    runs = {
        title if seed == room.seeds[0] else f"{title}, seed {seed}": (
            with_right(trained(number, title == "repaired", seed))
        )
        for title in titles
        for seed in room.seeds
    }
    looks = [LOOKS[title] for title in titles for _ in room.seeds]
    return joint_curves(runs, shown_curves(trained(number)), looks)


def sweep() -> Figure:
    """What a healthy run reaches at several learning rates; room 5 is the first of them."""
    reached = {lr: right_at(lr) for lr in RATES}
    figure = Figure(figsize=(5.2, 2.8), layout="constrained")
    panel = figure.subplots()
    panel.plot(list(reached), list(reached.values()), "o-", color=COLORS[LOOKS["repaired"]])
    panel.plot(RATES[0], reached[RATES[0]], "o", color=COLORS[LOOKS["sick"]], ms=9)
    panel.set(xscale="log", ylim=(0, 1), xlabel="learning rate")
    panel.set_title("share of right rollouts, last five steps", color=TEXT, fontsize=10)
    soften(panel)
    return figure


def right_at(lr: float) -> float:
    return last_of(finished(PLAN | {"lr": lr}), "right")


@dataclass(frozen=True)
class Finished:
    """What is looked at of a run. Its folder, of 30 MB and more, is gone."""

    rows: list[dict]  # the metrics of each step
    rollouts: list[list[dict]]  # the sampled answers of each step


def trained(number: int, repaired: bool = False, seed: int = SEED) -> Finished:
    plan, edit = plan_of(number, repaired)
    return finished(plan | {"seed": seed}, edit)


def plan_of(number: int, repaired: bool) -> tuple[dict, Callable | None]:
    """Options of the run, and what stands in place of losses.kl_estimate while it runs."""
    room = ROOMS[number]
    plan = PLAN | room.sick | (room.repair if repaired else {})
    return plan, plan.pop("edit", None)


def finished(plan: dict, edit: Callable | None = None) -> Finished:
    values = json.dumps(to_json(configure("grpo", **({"seed": SEED} | plan))), sort_keys=True)
    return trained_once(values, edit)


@cache
def trained_once(values: str, edit: Callable | None) -> Finished:
    """Several rooms are repaired to one and the same run."""
    with TemporaryDirectory() as folder:
        config = replaced(from_json(json.loads(values)), log_path=f"{folder}/room")
        with patch.object(losses, "kl_estimate", edit or losses.kl_estimate):
            rows = train(config, quiet=True).rows
        paths = sorted(Path(folder).glob("room/train_*_rollout_summaries.jsonl"))
        return Finished(rows, [read_lines(path) for path in paths])


def last(number: int, curve: str, repaired: bool = False, seed: int = SEED) -> float:
    return last_of(trained(number, repaired, seed), curve)


def last_of(run: Finished, curve: str) -> float:
    """The mean of a curve over the last five steps that measured it."""
    return fmean([row[curve] for row in with_right(run) if row.get(curve) is not None][-5:])


def alarms_of(run: Finished) -> Iterator[str]:
    for end in range(1, len(run.rows) + 1):
        for alarm in new_alarms(run.rows[:end]):
            yield f"step {end - 1}, {alarm.name}: {alarm.saw}"


def with_right(run: Finished) -> list[dict]:
    """The metrics, with the share of right answers by the grader, whatever the run was paid."""
    shares = [
        fmean(correctness(row["text"], row["steps"][0]["logs"]["answer"]) for row in step)
        for step in run.rollouts
    ]
    return [row | {"right": share} for row, share in zip(run.rows, shares, strict=True)]


def three_answers(run: Finished) -> list[dict]:
    """The first answers to three problems of the last step."""
    return [row for row in run.rollouts[-1] if row["traj_idx"] == 0][:3]


def shown_curves(run: Finished) -> dict[str, str]:
    measured = {"right"}.union(*run.rows)
    return {name: label for name, label in CURVES.items() if name in measured}
