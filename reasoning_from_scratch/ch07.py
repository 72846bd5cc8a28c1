"""Chapter 7, making GRPO better: watch more than the reward, and use rollouts more than once.

7.1 what to watch: advantages, entropy, curves · 7.2 log-probabilities token by token
7.3 the loop of chapter 6 with ratio, clip, several passes and KL · 7.4 a format reward
(The clip, the KL estimate and the averages that it combines are in losses.py.)
"""

import copy
import csv
from pathlib import Path

import matplotlib.pyplot as plt
import requests
import torch
import torch.nn.functional as F
from matplotlib.ticker import MaxNLocator

from reasoning_from_scratch.advantages import zscore
from reasoning_from_scratch.ch06 import draw_rollouts, mark_rollouts, pick_problems
from reasoning_from_scratch.files import downloads
from reasoning_from_scratch.files.disk import replacing
from reasoning_from_scratch.files.downloads import get_with_timeout, is_web_page
from reasoning_from_scratch.losses import (
    aggregate,
    kl_estimate,
    ppo,
)
from reasoning_from_scratch.rewards import END_THINK_TOKEN_ID, THINK_TOKEN_ID  # noqa: F401
from reasoning_from_scratch.rollouts import make_batch, micro_batches

# 7.1 What to watch


def compute_advantage_stats(rewards_list):
    """A group's advantages, their mean (near 0) and standard deviation.

    The latter is near 1, or 0 if all rewards are equal: nothing to learn.
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
    """Means over a trailing window of window_fraction of all values."""
    values = [float(value) for value in values]
    window = max(1, int(len(values) * window_fraction))
    averages = []
    for end in range(1, len(values) + 1):
        recent = values[max(0, end - window) : end]
        averages.append(sum(recent) / len(recent))
    return averages


def read_csv_column(csv_path, column):
    """Steps and values of one column; rows where it is empty are skipped."""
    with open(csv_path, newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row.get(column)]
    steps = [int(row["step"]) for row in rows]
    return steps, [float(row[column]) for row in rows]


def download_from_github(rel_path, out=None):
    """Fetches a file of the book's repository; `out` defaults to its name."""
    path = Path(out or Path(rel_path).name)
    if path.exists():
        return path
    try:
        response = get_with_timeout(requests.get, downloads.book_url(rel_path))
        response.raise_for_status()
        content = response.content
    except requests.RequestException:
        content = b""
    if not content or is_web_page(content):  # try again, or say why not
        return downloads.download_from_github(rel_path, path)
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return path


def plot_grpo_metrics(csv_path, columns, save_as=None):
    """Up to four columns of a metrics file as curves, eval_acc as bars."""
    figure, axes = plt.subplots(2, 2, figsize=(9, 6), sharex=True)
    for axis, column in zip(axes.flat, columns, strict=False):
        steps, values = read_csv_column(csv_path, column)
        if not values:  # not measured: its plot stays empty
            continue
        if column == "eval_acc":
            axis.bar(steps, values, width=0.6 * max(steps) / len(steps))
        else:
            axis.plot(steps, values, alpha=0.35)
            axis.plot(steps, moving_average(values), color="C0")
        axis.set(xlabel="step", ylabel=column)
        axis.tick_params(labelbottom=True)  # there may be no plot below it
        whole_steps = MaxNLocator(integer=True, min_n_ticks=1)
        axis.xaxis.set_major_locator(whole_steps)
    for axis in axes.flat:
        axis.set_visible(axis.has_data())
    figure.tight_layout()
    if save_as:
        figure.savefig(save_as, dpi=150)
    plt.show()


# 7.2 Rollouts that are used more than once


def logprobs_per_token(model, batch):
    """Stage 5 without its last sum: (B, T), 0 where nothing was drawn."""
    logits = model(batch.token_ids[:, :-1]).float()  # (B, T - 1, V)
    logprobs = torch.log_softmax(logits, dim=-1)
    drawn = logprobs.gather(-1, batch.token_ids[:, 1:, None])[..., 0]
    return F.pad(drawn, (1, 0)) * batch.mask  # (B, T)


# 7.3 The loop of chapter 6, grown


@torch.no_grad()
def batches_of_step(model, reference, groups, advantages, device):
    """A step's rollouts in batches of like length, with their records."""
    flat = advantages.flatten()  # (N * G,)
    # A uniform group has no gradient; with a KL term every rollout has one.
    keep = flat.nonzero()[:, 0] if reference is None else range(len(flat))
    if not len(keep):
        return []
    rollouts = [one for group in groups for one in group]
    whole = make_batch([rollouts[i] for i in keep], device)
    whole.advantages = flat[keep].to(device)
    parts = micro_batches(whole.lengths.tolist(), max_tokens=2048)
    batches = [whole.rows(part) for part in parts]
    for batch in batches:
        batch.start_logprobs = logprobs_per_token(model, batch)  # (B, T)
        if reference is not None:
            batch.ref_logprobs = logprobs_per_token(reference, batch)
    return batches


def full_grpo_loss(logprobs, batch, num_rollouts, clip, kl_coef):
    """Stage 6 for one batch of a step that has num_rollouts in all."""
    ratio = (logprobs - batch.start_logprobs).exp()  # (B, T)
    values = ppo(ratio, batch.advantages[:, None], *clip)
    if batch.ref_logprobs is not None:
        kl = kl_estimate("k3", logprobs, batch.ref_logprobs)
        values = values - kl_coef * kl
    return -aggregate(values, batch.mask, "sequence", num_rollouts)


def train_full_grpo(model, tokenizer, problems, device, steps, lr=1e-4,
                    epochs=1, clip=(0.8, 1.2), kl_coef=0.0, seed=0,
                    on_step=None):
    """train_grpo with ratio, clip, several passes over a batch, and KL."""
    reference = copy.deepcopy(model) if kl_coef else None
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.0)
    for step in range(steps):
        chosen = pick_problems(problems, step, seed=seed)  # 1 problems
        groups = draw_rollouts(model, tokenizer, chosen, step, seed=seed)
        rewards = mark_rollouts(tokenizer, chosen, groups)  # 3 rewards
        advantages = torch.stack([zscore(r) for r in rewards])  # 4
        batches = batches_of_step(
            model, reference, groups, advantages, device)
        for _ in range(epochs if batches else 0):
            for batch in batches:
                logprobs = logprobs_per_token(model, batch)  # 5
                full_grpo_loss(logprobs, batch, rewards.numel(),
                               clip, kl_coef).backward()  # 6
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()  # 7 update
            optimizer.zero_grad()
        if on_step:
            on_step(step, rewards, batches)
    return model


# 7.4 A format reward


def reward_format(token_ids, prompt_len, start_think_id=THINK_TOKEN_ID,
                  end_think_id=END_THINK_TOKEN_ID):
    """1.0 if the answer has <think> and after it </think>, else 0.0.

    What is between them does not count: empty thinking is rewarded, too.
    """
    answer = [int(token) for token in token_ids[prompt_len:]]
    if start_think_id not in answer or end_think_id not in answer:
        return 0.0
    return float(answer.index(start_think_id) < answer.index(end_think_id))
