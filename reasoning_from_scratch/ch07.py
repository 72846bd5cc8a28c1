"""Chapter 7, making GRPO better: watch more than the reward, and pay for the form.

7.1 what to watch: advantages, entropy, curves · 7.4 a format reward
(7.2 the clipped ratio and 7.3 the KL term are in losses.py.)
"""

import csv

import matplotlib.pyplot as plt
import torch
from matplotlib.ticker import MaxNLocator

from reasoning_from_scratch.advantages import zscore
from reasoning_from_scratch.files.downloads import download_from_github  # noqa: F401
from reasoning_from_scratch.rewards import END_THINK_TOKEN_ID, THINK_TOKEN_ID  # noqa: F401

# 7.1 What to watch


def compute_advantage_stats(rewards_list):
    """A group's advantages, their mean (near 0) and standard deviation.

    That is near 1, or 0 if all rewards are equal: nothing to learn here.
    """
    advantages = zscore(torch.tensor(rewards_list, dtype=torch.float32))
    return advantages, advantages.mean().item(), advantages.std().item()


def sequence_logprob_and_entropy(model, token_ids, prompt_len):
    """sequence_logprob, and the mean entropy of the answer's tokens."""
    logits = model(token_ids.unsqueeze(0)).squeeze(0).float()  # (T, V)
    logprobs = torch.log_softmax(logits, dim=-1)
    targets = token_ids[1:].unsqueeze(-1)  # position t predicts token t + 1
    selected = logprobs[:-1].gather(-1, targets).squeeze(-1)  # (T - 1,)
    probas = logprobs[prompt_len - 1 : -1].detach().exp()  # (answer, V)
    entropy = torch.special.entr(probas).sum(dim=-1)  # entr(p) = -p log p
    mean_entropy = entropy.sum() / max(len(entropy), 1)
    return selected[prompt_len - 1 :].sum(), mean_entropy


def moving_average(values, window_fraction=0.25):
    """Means over a trailing window, that fraction of all values wide."""
    values = [float(value) for value in values]
    window = max(1, int(len(values) * window_fraction))
    averages = []
    for end in range(1, len(values) + 1):
        recent = values[max(0, end - window) : end]
        averages.append(sum(recent) / len(recent))
    return averages


def read_csv_column(csv_path, column):
    """Steps and values of one column; rows where it is empty are left out."""
    with open(csv_path, newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row.get(column)]
    steps = [int(row["step"]) for row in rows]
    return steps, [float(row[column]) for row in rows]


def plot_grpo_metrics(csv_path, columns, save_as=None):
    """Up to four columns of a metrics file as curves, eval_acc as bars."""
    figure, axes = plt.subplots(2, 2, figsize=(9, 6), sharex=True)
    for axis, column in zip(axes.flat, columns, strict=False):
        steps, values = read_csv_column(csv_path, column)
        if not values:  # not measured: its place stays empty
            continue
        if column == "eval_acc":
            axis.bar(steps, values, width=0.6 * max(steps) / len(steps))
        else:
            axis.plot(steps, values, alpha=0.35)
            axis.plot(steps, moving_average(values), color="C0")
        axis.set(xlabel="step", ylabel=column)
        whole_steps = MaxNLocator(integer=True, min_n_ticks=1)
        axis.xaxis.set_major_locator(whole_steps)
    for axis in axes.flat:
        axis.set_visible(axis.has_data())
    figure.tight_layout()
    if save_as:
        figure.savefig(save_as, dpi=150)
    plt.show()


# 7.4 A format reward


def reward_format(token_ids, prompt_len, start_think_id=THINK_TOKEN_ID,
                  end_think_id=END_THINK_TOKEN_ID):
    """1.0 if the answer has <think> and after it </think>, else 0.0.

    What stands between them does not count: this can be paid for nothing.
    """
    answer = [int(token) for token in token_ids[prompt_len:]]
    if start_think_id not in answer or end_think_id not in answer:
        return 0.0
    return float(answer.index(start_think_id) < answer.index(end_think_id))
