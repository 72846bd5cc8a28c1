"""A regime for each method of the chapter, where it should matter: small runs with and without it.

    uv run studies/regimes.py --list                       # the regimes, and the runs still to make
    uv run studies/regimes.py --regime clip-higher --seeds 5
    uv run studies/regimes.py --table                      # with, without, difference, error

A run takes about a minute on one core. Its line in regimes.csv is written as soon as it is
finished, and the run is not made again. First, three runs with separate seeds (100, 101, 102) try
every learning rate of an arm, and three more retry the two best if it was a close call. Then five
other runs at the best one are measured and reported. The rows of `lag` depend on how fast sampler
and trainer happen to be, so running them again gives other numbers. All others are reproducible on
the same machine, even those of `methods-lag`, whose rollouts are always exactly 8 updates old.
"""

import sys
import zlib

from regime_findings import Regime
from regime_runs import RegimesOptions, run_regimes

from reasoning_from_scratch.losses import ppo
from reasoning_from_scratch.recipes import RECIPES
from reasoning_from_scratch.tiny.ways import way_of
from rfs.commands.cli import run_script
from rfs.tasks.problem_sets import load_problems

SHORT = {"model": "tiny-base", "problems": "tiny", "steps": 40, "max_new_tokens": 160}
# The quickstart's model, on problems longer than any solution that it has seen.
LONGER = {
    "model": "tiny-grpo",
    "problems": "tiny-longer-train",
    "steps": 30,
    "max_new_tokens": 224,
}
# The base model, on problems of six to eight steps: 2.8% of its answers are correct (16 to each of
# the first 299). Of a step's four groups, most have no correct answer, and some have one.
RARE = {
    "model": "tiny-base",
    "problems": "studies/regimes.py:six_steps_or_more",
    "steps": 24,
    "max_new_tokens": 224,
    "problems_per_step": 4,
    "rollouts": 16,
}
# Eight updates for each batch, so that the later ones meet a policy that has moved.
EIGHT_UPDATES = {"epochs": 2, "num_substeps": 4}
# Learning rates: plain GRPO does best at 4e-4. Lower ones for arms that step more often, whose
# rollouts are stale, or whose reward is easy to get.
USUAL_RATES = (2e-4, 4e-4, 8e-4)
LOWER_RATES = (1e-4, 2e-4, 4e-4)
LOWEST_RATES = (5e-5, 1e-4, 2e-4)
TWO_LOW_RATES = (1e-4, 2e-4)
# About half of the full solutions do not end within this limit. Without the limit every answer
# has the required format from the first step on, so a format reward has no gradient.
CUT_OFF = {"max_new_tokens": 48}
# With one update for each batch every ratio is 1, so what these are named after has no effect.
# The regime "objective" compares them where it has one.
WITHOUT_EFFECT = ("gspo", "cispo", "dro")
WITH_A_TEACHER = ("distill", "opsd", "sft")  # as in the regimes "three-ways" and "rivals"
# Those that "methods-lag", "rare" and "fewer-trained" compare.
OWN_PAGES = ("dppo", "maxrl", "tis", "seq_tis", "mis", "pods")

REGIMES = {
    "clip-higher": Regime(
        "With eight updates per batch, does a higher upper bound keep rare good answers alive?",
        {
            "clip 0.8 to 1.2": {},
            "clip 0.8 to 1.28": {"clip_high": 1.28},
            "clip 0.8 to 2": {"clip_high": 2.0},
        },
        outcome="entropy",
        lrs=TWO_LOW_RATES,
        common=SHORT | EIGHT_UPDATES,
        also=("greedy test", "pass@8", "full", "checked"),
    ),
    "kl": Regime(
        "Does a KL penalty keep a model that learns longer problems from forgetting short ones?",
        {
            "no KL": {},
            "k3 0.1": {"kl": "k3", "kl_coef": 0.1},
            "k2 0.1": {"kl": "k2", "kl_coef": 0.1},
            "in the reward 0.1": {"kl": "reward", "kl_coef": 0.1},
        },
        outcome="greedy test",
        common=LONGER,
        also=("greedy longer",),
    ),
    "length": Regime(
        "Does the mean over each answer's tokens make incorrect answers longer?",
        {
            "mean per sequence": {"aggregate": "sequence"},
            "over a constant": {"aggregate": "constant"},
            "over all tokens": {"aggregate": "token"},
        },
        outcome="wrong tokens",
        lower_is_better=True,
        common=LONGER | {"advantage": "mean"},
        also=("right tokens", "pass@1", "greedy longer"),
    ),
    "overlong": Regime(
        "Does a price on tokens make it choose the cheap style where that suffices?",
        {
            "no price": {},
            "over the last 80": {"overlong_penalty": 80},
            "over all 160": {"overlong_penalty": 160},
        },
        outcome="tokens test",
        lower_is_better=True,
        common=SHORT,
        lrs=USUAL_RATES,
        arm_lrs={"over all 160": (*LOWER_RATES, 8e-4)},
        also=("greedy test", "pass@1", *("answer only", "rough", "full", "checked")),
    ),
    "active": Regime(
        "Where most groups are all incorrect, is it worth sampling until enough are mixed?",
        {
            "as they come": {},
            "active": {"active_sampling": True},
            "as they come, 16 problems": {"problems_per_step": 16},
        },
        outcome="greedy longer",
        common=LONGER,
        lrs=LOWER_RATES,
        arm_lrs={
            "active": (*LOWER_RATES, 8e-4),
            "as they come, 16 problems": (5e-5, *LOWER_RATES),
        },
        also=("pass@1", "tokens"),
        pairs=(("active", "as they come"), ("active", "as they come, 16 problems")),
    ),
    "group-size": Regime(
        "With 64 rollouts per step, is it better to sample many problems, or fewer but more often?",
        {
            f"{size} each": {"rollouts": size, "problems_per_step": 64 // size}
            for size in (8, 2, 4, 32)
        },
        outcome="pass@1",
        common=SHORT,
        also=("greedy test", "mixed"),
    ),
    "fewer-trained": Regime(
        "In equal time: is it better to train on fewer of the rollouts, for more steps?",
        {  # "4 of 16": of 16 rollouts the four whose rewards vary most
            "8 of 8": {},
            "4 of 8": {"train_rollouts": 4, "steps": 52},
            "8 of 16": {"rollouts": 16, "train_rollouts": 8, "steps": 28},
            "4 of 16": {"rollouts": 16, "train_rollouts": 4, "steps": 32},
        },
        outcome="pass@1",
        common=SHORT,
        lrs=USUAL_RATES,
        also=("greedy test", "tokens"),
    ),
    "lag": Regime(
        "Where rollouts are up to 3 or 8 updates old, what does the loss need of their sampler?",
        {
            "lag 0": {},
            "lag 3": {"max_steps_off_policy": 3, "truncate_importance": 0.0},
            "lag 3, weighted": {"max_steps_off_policy": 3, "truncate_importance": 2.0},
            "lag 8": {"max_steps_off_policy": 8, "truncate_importance": 0.0},
            "lag 8, weighted": {"max_steps_off_policy": 8, "truncate_importance": 2.0},
            "lag 8, masked": {
                "max_steps_off_policy": 8,
                "truncate_importance": 0.0,
                "sequence_mask_threshold": 0.5,
            },
            "lag 8, ratio to sampler": {
                "max_steps_off_policy": 8,
                "objective": "studies/regimes.py:clipped_against_the_sampler",
            },
        },
        outcome="pass@1",
        common=SHORT,
        lrs=USUAL_RATES,
        arm_lrs={  # uncorrected lag needs smaller steps
            "lag 3": LOWEST_RATES,
            "lag 8": (2.5e-5, *LOWEST_RATES),
            "lag 8, weighted": (*LOWER_RATES, 8e-4),
            "lag 8, masked": LOWER_RATES,
        },
        also=("greedy test",),
        pairs=(
            ("lag 3", "lag 0"),
            ("lag 8", "lag 0"),
            ("lag 3, weighted", "lag 3"),
            ("lag 8, weighted", "lag 8"),
            ("lag 8, masked", "lag 8"),
            ("lag 8, ratio to sampler", "lag 8"),
            ("lag 8, ratio to sampler", "lag 8, weighted"),
        ),
    ),
    "int8": Regime(
        "Where the sampler's weights have 8 bits and the trainer's 32, does learning suffer?",
        {
            "32 bits": {},
            "8 bits": {"sampling_weights": "int8", "truncate_importance": 0.0},
            "8 bits, weighted": {"sampling_weights": "int8", "truncate_importance": 2.0},
        },
        outcome="pass@1",
        common=SHORT,
        lrs=USUAL_RATES,
        # The rate of the first arm: rounding is too small a change to want another.
        arm_lrs={"8 bits": (4e-4,), "8 bits, weighted": (4e-4,)},
        also=("greedy test", "entropy"),
        pairs=(
            ("8 bits", "32 bits"),
            ("8 bits, weighted", "32 bits"),
            ("8 bits, weighted", "8 bits"),
        ),
    ),
    "methods-lag": Regime(
        "Where every rollout is 8 updates old, what should the loss do about it?",
        {
            "clip alone": {},
            "token weights": {"recipe": "tis"},
            "sequence weights, capped": {"recipe": "seq_tis"},
            "sequence weights, masked": {"recipe": "mis"},
            "dppo": {"recipe": "dppo"},
        },
        outcome="pass@1",
        common=SHORT | {"steps": 24},
        lrs=USUAL_RATES,
        arm_lrs={"clip alone": LOWER_RATES, "token weights": (1e-4, *USUAL_RATES)},
        chosen_by="pass@1",  # its training rollouts say nothing about its last eight updates
        also=("greedy test",),
        pairs=(
            ("token weights", "clip alone"),
            ("sequence weights, capped", "clip alone"),
            ("sequence weights, masked", "clip alone"),
            ("dppo", "clip alone"),
            ("sequence weights, capped", "token weights"),
            ("sequence weights, masked", "sequence weights, capped"),
            ("dppo", "token weights"),
        ),
        lag=8,
    ),
    "rare": Regime(
        "Where few answers are correct, which advantage learns the most from them?",
        {
            "z-score": {},
            "maxrl": {"recipe": "maxrl"},
        },
        outcome="pass@1",
        common=RARE,
        lrs=USUAL_RATES,
        also=("greedy test", "mixed"),
    ),
    "epochs": Regime(
        "Are four passes over each batch safe with the clip, and unsafe without?",
        {
            "1 pass": {},
            "4 passes, clip": {"epochs": 4},
            "4 passes, no clip": {"epochs": 4, "clip_low": 0.0, "clip_high": 1e6},
        },
        outcome="pass@1",
        lrs=LOWER_RATES,
        arm_lrs={"1 pass": USUAL_RATES, "4 passes, no clip": (*LOWEST_RATES, 4e-4)},
        common=SHORT | {"steps": 30},
        also=("greedy test",),
        pairs=(("4 passes, clip", "4 passes, no clip"), ("4 passes, clip", "1 pass")),
    ),
    "format": Regime(
        "Where many solutions are cut off, does a format reward teach it to write the answer only?",
        {
            "correct": {},
            "format alone": {"reward_parts": {"format": 1.0}},
            "correct and format": {"recipe": "format_reward"},
            "format if correct": {"recipe": "format_if_correct"},
        },
        outcome="greedy test",
        lrs=USUAL_RATES,
        # A format is easy to learn, so the reward still grows at rates that ruin all else.
        arm_lrs={
            "format alone": (8e-4, 1.6e-3, 3.2e-3, 6.4e-3),
            "correct and format": (*USUAL_RATES, 1.6e-3),
        },
        common=SHORT | CUT_OFF,
        also=("reward", "pass@1", "answer only"),
        chosen_by="reward",  # people who tune a run look at its reward
    ),
    "advantage": Regime(
        "Does it matter how the rewards of a group become advantages?",
        {
            "z-score": {},
            "minus the mean": {"advantage": "mean"},
            "leave one out": {"advantage": "leave-one-out"},
        },
        outcome="pass@1",
        common=SHORT,
        also=("greedy test", "entropy"),
    ),
    "pairing": Regime(
        "Which advantage goes with which average over tokens?",
        {
            "z-score, per sequence": {"aggregate": "sequence"},
            "z-score, constant": {"aggregate": "constant"},
            "minus the mean, per sequence": {"advantage": "mean", "aggregate": "sequence"},
            "minus the mean, constant": {"advantage": "mean", "aggregate": "constant"},
        },
        outcome="pass@1",
        common=SHORT,
        lrs=USUAL_RATES,
        also=("greedy test", "wrong tokens"),
    ),
    "objective": Regime(
        "With eight updates per batch, which objective learns most?",
        {
            "ppo": {},
            "gspo": {"recipe": "gspo"},
            "cispo": {"recipe": "cispo"},
            "dro": {"recipe": "dro"},
        },
        outcome="pass@1",
        lrs=TWO_LOW_RATES,
        common=SHORT | EIGHT_UPDATES,
        also=("greedy test", "entropy"),
    ),
    "sampling-mask": Regime(
        "After sampling with top-p 0.8, what does it cost to train as if nothing had been cut?",
        {
            "as if uncut": {"keep_sampling_mask": False},
            "mask kept": {"keep_sampling_mask": True},
            "as if uncut, weighted": {"keep_sampling_mask": False, "truncate_importance": 2.0},
        },
        outcome="pass@1",
        common=SHORT | {"top_p": 0.8},
        also=("greedy test", "entropy"),
        chosen_by="pass@1",  # the reward under the cut hardly tells the rates apart
    ),
    "lora": Regime(
        "Do additions of rank 8 learn as much as all weights?",
        {"all weights": {}, "LoRA, rank 8": {"lora_rank": 8}},
        outcome="pass@1",
        common=SHORT,
        lrs=USUAL_RATES,
        arm_lrs={"LoRA, rank 8": (1e-3, 2e-3, 4e-3)},
        also=("greedy test",),
    ),
    "muon": Regime(
        "Does Muon learn faster than AdamW?",
        {"AdamW": {}, "Muon": {"optimizer": "muon"}},
        outcome="pass@1",
        common=SHORT,
        arm_lrs={"AdamW": (2e-4, 4e-4, 8e-4), "Muon": (1e-4, 2e-4, 4e-4, 8e-4)},
        also=("greedy test",),
    ),
    "gdpo": Regime(
        "With two reward parts, is it better to z-score each by itself?",
        {"z-score of the sum": {"recipe": "format_reward"}, "of each part": {"recipe": "gdpo"}},
        outcome="pass@1",
        lrs=TWO_LOW_RATES,
        common=SHORT | CUT_OFF,
        also=("greedy test", "reward", "answer only"),
    ),
    "recipes": Regime(
        "Of the recipes as they were published, which is ahead of plain GRPO?",
        {
            name: {"recipe": name}
            for name in RECIPES
            if name not in WITHOUT_EFFECT + WITH_A_TEACHER + OWN_PAGES
        },
        outcome="pass@1",
        common=SHORT,
        also=("greedy test", "tokens"),
    ),
    "three-ways": Regime(
        "At about the same cost: rewards, its own correct answers, or a teacher?",
        {
            "GRPO": {"steps": 10},
            # Correct answers are learned like any other text.
            "own correct answers": {
                "objective": "reinforce",
                "advantage": "studies/regimes.py:right_answers",
                "aggregate": "token",
                "steps": 10,
            },
            "distilled": {"recipe": "distill", "steps": 6},
        },
        outcome="pass@1",
        # Answer 32 problems, make eight updates from them, then take the next 32.
        common=SHORT | {"problems_per_step": 32, "num_substeps": 8},
        lrs=LOWER_RATES,
        arm_lrs={"GRPO": USUAL_RATES, "distilled": (*LOWER_RATES, 8e-4)},
        also=("pass@64", "greedy test", "greedy longer", "old answers"),
        samples=64,
    ),
    "rivals": Regime(
        "At the same cost: rewards, chosen problems, worked solutions, or one of three teachers?",
        {
            "GRPO": {},
            "GRPO, chosen problems": {
                "problems": "ch08/rivals.py:solved_sometimes",
                "steps": 38,
            },
            "worked solutions": {"recipe": "sft", "steps": 190},
            "a teacher's answers": {
                "recipe": "sft",
                "problems": "ch08/rivals.py:teachers_answers",
                "steps": 135,
            },
            "a teacher's marks": {"recipe": "distill", "kl_reference": "tiny-grpo", "steps": 32},
            "its own marks, told": {"recipe": "opsd", "steps": 56},
        },
        outcome="pass@1",
        common=SHORT,
        lrs=USUAL_RATES,
        arm_lrs={"worked solutions": (1e-4, *USUAL_RATES), "its own marks, told": LOWEST_RATES},
        chosen_by="pass@1",  # arms that learn from others' answers have no rollouts
        also=("greedy test", "pass@8", "greedy longer"),
    ),
    "spurious": Regime(
        "Does a reward that knows nothing of the answer teach anything?",
        {
            "untrained": {"steps": 1},
            "coin": {"reward": "studies/regimes.py:coin"},
            "any solution steps": {"reward": "studies/regimes.py:any_working"},
            "correct": {},
        },
        outcome="pass@1",
        lrs=USUAL_RATES,
        common=SHORT,
        arm_lrs={"untrained": (0.0,), "coin": LOWEST_RATES, "any solution steps": LOWER_RATES},
        also=("greedy test",),
        chosen_by="pass@1",  # gives the coin its best chance to look good
    ),
}


def clipped_against_the_sampler(logprobs, old_logprobs, advantages):
    """ppo with the ratio to the sampler's recorded log-probabilities, not to those at the start of
    the step."""
    return ppo((logprobs - old_logprobs).exp(), advantages, 0.8, 1.2)


def six_steps_or_more():
    """Those of tiny-longer-train that need six to eight steps."""
    return (one for one in load_problems("tiny-longer-train") if one.level > "Level 5")


def test_problems():
    """Their test set: new problems of seven and eight steps."""
    return load_problems("tiny-longer")


def right_answers(rewards):
    """1 for a correct answer and 0 for an incorrect one, whatever the others of its group are."""
    return rewards


def coin(text, problem):
    """1 or 0 at random, whatever the answer is; drawn from its text, so a run is reproducible."""
    return zlib.crc32(f"{problem.problem}{text}".encode()) >> 8 & 1


def any_working(text, problem):
    """1 for an answer with solution steps, correct or not."""
    return float(way_of(text, steps=1) != "answer only")


def main(options: RegimesOptions) -> None:
    run_regimes(REGIMES, options)


if __name__ == "__main__":
    sys.exit(run_script(main))
