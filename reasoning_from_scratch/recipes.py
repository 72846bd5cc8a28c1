"""Algorithms as rows: what each changes in TrainConfig's defaults, and where it comes from.

The defaults are plain GRPO: z-scored advantages, clipped ratio 0.8 to 1.2, mean over each
rollout's tokens, no KL, temperature 1. Clip bounds are absolute ratios everywhere.
A paper's "epsilon 0.2" is clip_low 0.8, clip_high 1.2.
"""

from dataclasses import dataclass
from typing import Literal

from reasoning_from_scratch.errors import unknown_name


@dataclass(frozen=True)
class Recipe:
    """One row: TrainConfig fields that differ, one line about the idea, and its source."""

    changes: dict[str, object]
    about: str
    paper: str


GRPO_PAPER = (
    "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models, "
    "2024, arXiv:2402.03300"
)
TINKER = "Tinker cookbook, rl_basic and its documented losses, Thinking Machines Lab, 2025"
MISMATCH = (
    "When Speed Kills Stability: Demystifying RL Collapse from the Training-Inference Mismatch, "
    "Liu et al., 2025"
)

RECIPES = {
    "grpo": Recipe(
        {},
        "the defaults: the mean reward of the group is the baseline, the ratio is clipped",
        GRPO_PAPER + " (without its KL term)",
    ),
    "grpo_kl": Recipe(
        {"kl": "k3", "kl_coef": 0.04},
        "GRPO with the paper's KL term in the loss, which keeps the model close to its start",
        GRPO_PAPER,
    ),
    "ch06": Recipe(
        {
            "objective": "reinforce",
            "aggregate": "constant",
            "length_constant": 1,
            "temperature": 0.8,
            "top_p": 0.9,
            "keep_sampling_mask": False,
            "logprob_temperature": 1.0,
        },
        "the book's first GRPO: summed log-probabilities, no KL; it samples more narrowly "
        "(0.8, 0.9) than the policy whose log-probabilities it trains, so its gradient is biased",
        "this book, chapter 6; after " + GRPO_PAPER,
    ),
    "format_reward": Recipe(
        {"reward_parts": {"correct": 1.0, "format": 1.0}},
        "rewards the format too, even of an incorrect answer, so it can be hacked",
        "this book, chapter 7; after DeepSeek-R1: Incentivizing Reasoning Capability in LLMs via "
        "Reinforcement Learning, 2025, arXiv:2501.12948",
    ),
    "format_if_correct": Recipe(
        {"reward_parts": {"correct": 1.0, "format": 1.0}, "conditional_format": True},
        "rewards the format only of a correct answer; compare with format_reward",
        "this book, chapter 7",
    ),
    "dr_grpo": Recipe(
        {"advantage": "mean", "aggregate": "constant"},
        "no division by the group's spread, none by the rollout's length: both are biases",
        "Understanding R1-Zero-Like Training: A Critical Perspective, 2025, arXiv:2503.20783",
    ),
    "dapo": Recipe(
        {
            "clip_high": 1.28,
            "aggregate": "token",
            "active_sampling": True,
            "reward_parts": {"correct": 1.0, "wrong": -1.0},
            "overlong_penalty": 16,
        },
        "clips later above 1, weights all tokens equally, samples until each group has correct and "
        "incorrect answers (+1, -1), and penalizes length near the limit (a fifth in the paper)",
        "DAPO: An Open-Source LLM Reinforcement Learning System at Scale, 2025, arXiv:2503.14476",
    ),
    "gspo": Recipe(
        {"objective": "gspo", "clip_low": 1 - 3e-4, "clip_high": 1 + 4e-4},
        "one ratio per rollout, the geometric mean of its tokens' ratios, in a narrow range",
        "Group Sequence Policy Optimization, 2025, arXiv:2507.18071",
    ),
    "cispo": Recipe(
        {"objective": "cispo", "aggregate": "token", "clip_low": 0.0, "clip_high": 4.0},
        "the clipped ratio is only a weight: rare tokens that matter keep their gradient; with a "
        "lower bound of 0 only weights above 4 are cut",
        "MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention, 2025, "
        "arXiv:2506.13585 (bounds as Tinker documents them)",
    ),
    "dro": Recipe(
        {"advantage": "mean", "objective": "dro", "aggregate": "sum"},
        "no ratio: a quadratic penalty on moving away from the sampler, suited to stale samples",
        "Offline Regularised Reinforcement Learning for Large Language Models Alignment, 2024, "
        "arXiv:2405.19107 (token by token, as Tinker documents it)",
    ),
    "rloo": Recipe(
        {
            "advantage": "leave-one-out",
            "objective": "reinforce",
            "aggregate": "constant",
            "length_constant": 1,
            "kl": "reward",
            "kl_coef": 0.03,
        },
        "REINFORCE on whole answers, each against the mean of the others, KL in the reward",
        "Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback "
        "in LLMs, 2024, arXiv:2402.14740",
    ),
    "reinforce": Recipe(
        {"advantage": "mean", "objective": "reinforce", "aggregate": "token"},
        "on policy, no ratio and no clip: rewards minus their mean, equal weight for all tokens",
        "nanochat, scripts/chat_rl.py, 2025; after Simple Statistical Gradient-Following "
        "Algorithms for Connectionist Reinforcement Learning, 1992",
    ),
    "importance_sampling": Recipe(
        {
            "advantage": "mean",
            "objective": "importance_sampling",
            "aggregate": "sum",
            "reward_parts": {"correct": 1.0, "unformatted": -0.1},
        },
        "ratio times advantage, summed, nothing clipped; a missing format costs 0.1",
        TINKER,
    ),
    "olmo3": Recipe(
        {
            "advantage": "mean",
            "aggregate": "token",
            "clip_high": 1.272,
            "active_sampling": True,
            "truncate_importance": 2.0,
        },
        "DAPO's filters without its length penalty, Dr. GRPO's advantage, and weights (at most "
        "2) that correct for differences between sampler and trainer",
        "Olmo 3, 2025, arXiv:2512.13961",
    ),
    "deepseek_v32": Recipe(
        {
            "advantage": "mean",
            "kl": "k3",
            "kl_coef": 0.001,
            "kl_importance_weighted": True,
            "sequence_mask_threshold": 0.5,
            "top_p": 0.95,
        },
        "unbiased KL, a mask for bad rollouts that the policy has moved away from, and training on "
        "the tokens that top-p kept (the paper gives no values; these are ours)",
        "DeepSeek-V3.2: Pushing the Frontier of Open Large Language Models, 2025, arXiv:2512.02556",
    ),
    "gdpo": Recipe(
        {"reward_parts": {"correct": 1.0, "format": 1.0}, "advantage_per_part": True},
        "each reward part z-scored separately, summed, then z-scored over the whole step",
        "GDPO: Group reward-Decoupled Normalization Policy Optimization for Multi-reward RL "
        "Optimization, 2026, arXiv:2601.05242",
    ),
    "dppo": Recipe(
        {"objective": "dppo"},
        "no clip of the ratio: a token has no gradient once its probability has moved by 0.2, so "
        "rare ones can grow and common ones cannot collapse; for many updates or a lag",
        "Rethinking the Trust Region in LLM Reinforcement Learning, 2026, arXiv:2602.04879 (its "
        "binary total variation)",
    ),
    "maxrl": Recipe(
        {"advantage": "maxrl"},
        "divides by a group's mean reward, not by its spread: the gradient approaches that of log "
        "p, so hard problems count 1 / p; matters where few answers are correct",
        "Maximum Likelihood Reinforcement Learning, 2026, arXiv:2602.02710",
    ),
    "tis": Recipe(
        {"truncate_importance": 2.0},
        "each token weighted by p_start / p_sampler, at most 2; matters where the sampler lags, "
        "cuts or computes in another number format than the trainer",
        "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training, Yao et al., 2025",
    ),
    "seq_tis": Recipe(
        {"truncate_importance": 2.0, "importance_level": "sequence"},
        "one such weight for the whole answer, the product of its tokens': unbiased below the "
        "cap, but few long answers have a weight near 1",
        MISMATCH,
    ),
    "mis": Recipe(
        {"mask_importance": 2.0, "importance_level": "sequence"},
        "the same weight, but an answer above 2 is dropped, not capped: an answer that the "
        "sampler should hardly have drawn points to a fault",
        MISMATCH,
    ),
    "pods": Recipe(
        {"train_rollouts": 4},
        "trains on the half of each group (here 4 of 8; in the paper 16 of 64) whose rewards vary "
        "most, and compares these alone; matters where training costs more than sampling",
        "Not All Rollouts are Useful: Down-Sampling Rollouts in LLM Reinforcement Learning, 2025, "
        "arXiv:2504.13818",
    ),
    "sft": Recipe(
        {"objective": "cross_entropy", "aggregate": "token"},
        "supervised: nothing is sampled; the model learns each problem's solution, with equal "
        "weight for all tokens",
        "Training language models to follow instructions with human feedback, 2022, "
        "arXiv:2203.02155 (its first stage)",
    ),
    "distill": Recipe(
        {
            "objective": "importance_sampling",
            "aggregate": "token",
            "kl": "token",
            "kl_coef": 1.0,
            "kl_reference": "tiny-grpo-longer",
            "reward_parts": {"correct": 0.0},
        },
        "no reward: each token that the model draws gets an advantage for being more likely under "
        "the teacher, which --kl-reference names, than under the model",
        "On-Policy Distillation, Thinking Machines Lab, 2025",
    ),
    "opsd": Recipe(
        {
            "objective": "importance_sampling",
            "aggregate": "token",
            "kl": "token",
            "kl_coef": 1.0,
            "kl_solution": True,
            "reward_parts": {"correct": 0.0},
        },
        "distill without a teacher: the initial model scores each token, and is shown the "
        "problem's solution; matters where reading a solution is easier than finding it",
        "Self-Distilled Reasoner: On-Policy Self-Distillation for Large Language Models, 2026, "
        "arXiv:2601.18734 (at the sampled token; it sums over the vocabulary)",
    ),
}


# Tinker's losses as documented: token terms summed, bounds on the ratio itself, no extra weight.
LossFn = Literal["importance_sampling", "ppo", "cispo", "dro"]
LOSS_FNS: dict[str, dict[str, float]] = {
    "importance_sampling": {},
    "ppo": {"clip_low": 0.8, "clip_high": 1.2},
    "cispo": {"clip_low": 0.0, "clip_high": 4.0},
    "dro": {"dro_beta": 0.05},
}


def loss_fn_changes(name: str | None) -> dict[str, object]:
    """What a loss function changes, on top of any recipe."""
    if name is None:
        return {}
    if name not in LOSS_FNS:
        raise unknown_name("loss_fn", name, LOSS_FNS)
    changes: dict[str, object] = {
        "objective": name,
        "aggregate": "sum",
        "truncate_importance": None,
        "mask_importance": None,
        "importance_level": "token",
        "sequence_mask_threshold": None,
    }
    return changes | LOSS_FNS[name]


def get_recipe(name: str) -> Recipe:
    """The row of that name ("Dr-GRPO" finds "dr_grpo"), or an error that suggests the nearest."""
    key = name.lower().replace("-", "_")
    if key not in RECIPES:
        raise unknown_name("recipe", name, RECIPES)
    return RECIPES[key]
