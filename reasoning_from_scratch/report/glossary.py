"""What each metric means and when it is healthy: the one table behind README's glossary."""

from typing import NamedTuple


class Metric(NamedTuple):
    name: str  # <eval>, <part>, <stage>: a name that depends on the run
    meaning: str
    healthy: str


METRICS = [
    Metric("env/all/reward/total", "mean reward of all sampled rollouts", "rises"),
    Metric(
        "env/all/<part>",
        "mean of one reward part; `correct` is the share of right answers, "
        "`format` of answers that end by themselves with a readable box",
        "rises",
    ),
    Metric(
        "env/all/reward_failed",
        "with --reward: share of calls of your verifier that raised, "
        "took too long or returned no number",
        "0; logs.log has an example of each kind; 1 for 3 steps ends the run",
    ),
    Metric(
        "<eval>/env/all/correct",
        "held-out accuracy on each of --eval-problems, greedy unless --eval-samples > 1; "
        "`eval_acc` is that of the first set, by which the best save is chosen",
        "rises with the reward; falling alone: the reward is gamed",
    ),
    Metric(
        "eval_step",
        "updates that the evaluated weights had seen",
        "the line's step; one more in the last line, which has the evaluation of the final weights",
    ),
    Metric(
        "before/<name>",
        "in the last line, where an evaluation fell on the last step: that one, before the step",
        "as without before/",
    ),
    Metric(
        "<eval>/pass@<k>",
        "chance that k sampled answers hold a right one",
        "pass@1 nears pass@k as the model becomes sure",
    ),
    Metric(
        "<evaluator>/<name>",
        "a number that an evaluator of your own returned under this name, see --evaluators",
        "-",
    ),
    Metric(
        "env/all/by_group/frac_mixed",
        "share of groups whose rewards are not all equal: the only ones with a gradient",
        "above 0.3; 0 for long: nothing is learned",
    ),
    Metric(
        "env/all/by_group/frac_all_good, frac_all_bad",
        "the others, by their reward (good: at least 0.5)",
        "all bad falls first, all good grows at the end",
    ),
    Metric(
        "env/all/ac_tokens_per_turn",
        "mean answer length in tokens, end of text included",
        "may grow; near --max-new-tokens: cut off",
    ),
    Metric(
        "env/all/forced_tokens_per_turn",
        "with --calculator: mean number of tokens per answer that the calculator wrote; "
        "they are in no other length, speed or loss. Missing where it wrote none",
        "-",
    ),
    Metric(
        "env/all/cutoff_share",
        "share of answers that ran into --max-new-tokens or filled the model's context",
        "below 0.1",
    ),
    Metric(
        "env/all/ob_tokens_per_turn, total_*, turns_per_episode",
        "mean prompt length; sums over the step; always 1 turn",
        "-",
    ),
    Metric(
        "advantage/mean, advantage/std",
        "over the rollouts of the step, before a KL that is paid in the reward",
        "mean 0; std at most 1 with z-scores, less the more groups are uniform",
    ),
    Metric(
        "optim/loss",
        "the number that is differentiated: -sum(objective) / denominator, and the KL term",
        "without trend; not a measure of progress. Near 0 on policy only with a "
        "ratio (ppo, importance_sampling, gspo) and answers counted alike; with log p in it "
        "(reinforce, cispo, dro) any number",
    ),
    Metric(
        "optim/grad_norm",
        "norm of the gradient before clipping; mean over optimizer steps",
        "steady; a spike of 20 times: look at that step's page",
    ),
    Metric(
        "optim/entropy",
        "-mean log q(token) of the sampled tokens, q the sampler's distribution",
        "falls slowly; near 0 early: collapsed; rising: dissolving",
    ),
    Metric(
        "optim/token_entropy",
        "mean over positions of -sum q log q: the same with less noise. "
        "q is after temperature, top-p and top-k",
        "as optim/entropy",
    ),
    Metric(
        "optim/kl_sample_train_v1",
        "mean(log q - log p), p the trainer's first forward pass before the step's first update",
        "below 1e-6 in float32, 1e-3 in bfloat16; without the "
        "kept mask, or with another --logprob-temperature, it also holds that difference",
    ),
    Metric(
        "optim/kl_sample_train_v2",
        "mean((log q - log p)^2) / 2. Both are over the rollouts that are trained on; where no "
        "group had a signal, over all",
        "as v1; larger with lag, or with top-p and no kept mask. An alarm watches both, from 0.01 "
        "on",
    ),
    Metric(
        "kl_policy_base",
        "mean k3 = ref/p - 1 - log(ref/p) over all rollouts of the step, an "
        "estimate of KL(p || start)",
        "grows from 0; 0.1 and more: far from the start",
    ),
    Metric(
        "kl_pre_post_v1, kl_pre_post_v2",
        "with --compute-post-kl: v1 and v2 between sampler and the policy after the update",
        "steady; a jump: too large an update",
    ),
    Metric("optim/kl_loss", "kl_coef times the KL term in the loss", "small beside the reward"),
    Metric(
        "optim/ratio_mean, ratio_max",
        "over sampled tokens, all passes: p / p_start for ppo, "
        "cispo and gspo (there one per rollout), p_start being the trainer's own when the step "
        "began; p / q for reinforce, importance_sampling and dro; p / p_start for all with "
        "--truncate-importance",
        "p / p_start: exactly 1 with one update per step; p / q: 1 "
        "but for rounding, lag and a missing mask; max below 10 with more updates",
    ),
    Metric(
        "optim/clip_frac",
        "ppo: share of tokens whose gradient the clip takes away; gspo: "
        "share of rollouts; cispo: share of tokens whose weight is cut, their gradient stays; "
        "others: 0",
        "0 with one update per step; below 0.3 with more",
    ),
    Metric(
        "optim/importance_weight",
        "mean weight of a token: min(p_start / q, cap) with "
        "--truncate-importance, 0 where --sequence-mask-threshold leaves a rollout out; else 1",
        "near 1; far below: most of what was sampled no longer counts",
    ),
    Metric(
        "optim/lr, optim/updates",
        "learning rate; optimizer steps taken",
        "updates 0: no group had a signal",
    ),
    Metric(
        "optim/update_ratio",
        "how far the last optimizer step moved the matrices of the blocks, relative to their size",
        "1e-5 to 1e-3; below 2e-6: the weights hardly move",
    ),
    Metric(
        "optim/nonfinite", "optimizer steps left out because loss or gradient was not finite", "0"
    ),
    Metric(
        "sampling_client/step_min, step_mean, step_max",
        "with --max-steps-off-policy: updates "
        "that the weights had seen which sampled the step's rollouts",
        "training_client/step minus step_min is the lag: at most --max-steps-off-policy",
    ),
    Metric("training_client/step", "updates that the weights have seen which are trained", "-"),
    Metric(
        "time/<stage>, time/total",
        "seconds for sampling, reward, train, eval, save, report",
        "sampling and train dominate",
    ),
    Metric(
        "time/sampler",
        "with --max-steps-off-policy: seconds that the sampler took, beside the "
        "trainer; `time/sampling` is what the trainer waited for it",
        "waiting much shorter than this: sampling hides behind training",
    ),
    Metric(
        "perf/sample_tokens_per_sec, perf/train_tokens_per_sec",
        "answer tokens per second of sampling, and of the whole update",
        "steady",
    ),
    Metric("progress/batch, progress/done_frac", "the step, from 0; share of steps done", "-"),
    Metric(
        "entropy, ac_tokens_per_turn, kl_sample_train_v1, kl_sample_train_v2, reward/total",
        "short names of the above, for cells that use them",
        "-",
    ),
]


def metrics_glossary() -> str:
    """The table in markdown."""
    rows = [
        f"| {code(m.name)} | {m.meaning.replace('|', chr(92) + '|')} | {m.healthy} |"
        for m in METRICS
    ]
    return "\n".join(["| metric | what it is | healthy |", "|---|---|---|", *rows])


def code(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split(", "))
