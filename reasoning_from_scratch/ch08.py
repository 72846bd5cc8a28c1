"""Chapter 8, distillation: a model learns from answers that a stronger one has written.

First what the notebook builds, one function per stage; all stages minimize the same loss:

    weighted_loss     -w log p of an answer's tokens: the stages differ in w
    learn             one update on it
    practice          GRPO: on the model's own answers; w says how much better than its group
                      an answer is
    distill           on the model's own answers, too, but w, from teacher_weights, says how much
                      likelier each token is under a teacher

Then, numbered as there, the functions of the book's chapter 8. 8.3 the teacher's answers · 8.4 as
text · 8.5 and 8.6 as tokens, and how long they are · 8.7 the loss of an example · 8.8 the loop
The engine does the same in batches, `rfs train --recipe sft`; tests compare the two.
"""

import csv
import json
import random
from datetime import datetime
from pathlib import Path

import matplotlib.pyplot as plt
import requests
import torch
import torch.nn.functional as F

from answer_grader import grade_answer
from reasoning_from_scratch.advantages import zscore
from reasoning_from_scratch.ch05 import answer_token_ids
from reasoning_from_scratch.ch06 import evaluation_mode
from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.disk import replacing, write_atomically
from reasoning_from_scratch.files.downloads import (
    download_file,
    download_qwen3_small,
    get_with_timeout,
)
from reasoning_from_scratch.problem_sets import file_rows
from reasoning_from_scratch.problems import render_prompt
from reasoning_from_scratch.rollouts import told_rollouts
from reasoning_from_scratch.tokenizer import Qwen3Tokenizer

# What the notebook builds


def weighted_loss(model, rollouts, weights):
    """-w log p, summed over the answers' tokens and divided by their
    number. A weight is one number per answer, or (T,), one per token."""
    total, tokens = 0.0, 0
    for rollout, weight in zip(rollouts, weights, strict=True):
        start = len(rollout.prompt_ids)
        ids = torch.tensor(rollout.prompt_ids + rollout.response_ids)
        logits = model(ids[None, :-1])[0].float()  # (all - 1, V)
        logprobs = logits.log_softmax(dim=-1)[start - 1 :]  # (T, V)
        drawn = logprobs.gather(-1, ids[start:, None])[:, 0]  # (T,)
        total = total - (weight * drawn).sum()
        tokens += len(drawn)
    return total / tokens


WEIGHTED = TrainConfig(objective="cross_entropy", aggregate="token")


def learn(policy, rollouts, weights, lr):
    """One update on weighted_loss. Returns the loss."""
    for rollout, weight in zip(rollouts, weights, strict=True):
        ones = torch.ones(len(rollout.response_ids))
        rollout.token_advantages = weight * ones
    tokens = sum(len(rollout.response_ids) for rollout in rollouts)
    sums = policy.forward_backward(rollouts, WEIGHTED, tokens)
    policy.optim_step(lr, grad_clip=1.0)
    return sum(float(part["loss"]) for part in sums)


def judge(rollout, problem):
    """The reward: 1 for a correct answer, whatever steps lead to it."""
    return {"correct": float(grade_answer(rollout.text, problem.answer))}


def practice(policy, problems, config, step, lr):
    """One step of GRPO. Returns the groups that it sampled."""
    groups = policy.sample(problems, config, step, judge=judge)
    rollouts, weights = [], []
    for group in groups:
        if not group.uniform:
            rollouts += group.rollouts
            weights += zscore(torch.tensor(group.rewards)).tolist()
    if rollouts:
        learn(policy, rollouts, weights, lr)
    return groups


def teacher_weights(student, teacher, rollouts, told=False):
    """For each token of the answers to one problem: log q - log p, minus
    the mean of that over the other answers' tokens.
    With `told`, the teacher sees the problem's solution in its prompt."""
    seen = told_rollouts(rollouts, teacher.tokenizer) if told else rollouts
    weights = [theirs - ours for theirs, ours in zip(
        teacher.logprobs(seen), student.logprobs(rollouts), strict=True)]
    if len(weights) < 2:
        raise ValueError("compare at least 2 rollouts of each problem")
    total, count = sum(w.sum() for w in weights), sum(map(len, weights))
    return [w - (total - w.sum()) / (count - len(w)) for w in weights]


def distill(student, teacher, problems, sampling, step, lr, told=False):
    """One step of distillation on the student's own answers."""
    rollouts, weights = [], []
    for group in student.sample(problems, sampling, step):
        rollouts += group.rollouts
        weights += teacher_weights(student, teacher, group.rollouts, told)
    learn(student, rollouts, weights, lr)


# 8.3 The teacher's answers

DISTILL_URL = "https://huggingface.co/datasets/rasbt/math_distill/resolve/main/data/{}.json"
PARTITIONS = (
    "deepseek-r1-math-train",
    "deepseek-r1-math500",
    "qwen3-235b-a22b-math-train",
    "qwen3-235b-a22b-math500",
)


def load_distill_data(local_path=None, partition="deepseek-r1-math-train", save_copy=True):
    """Problems with the thinking and the answer of a teacher.

    Read from the file or, if there is none, downloaded.
    """
    if partition not in PARTITIONS:
        known = ", ".join(PARTITIONS)
        raise ValueError(f"there is no partition {partition}; choose one of {known}")
    path = Path(local_path or f"{partition}.json")
    if path.exists():
        return [row for _, row in file_rows(path)]
    url = DISTILL_URL.format(partition)
    try:
        response = get_with_timeout(requests.get, url)
        response.raise_for_status()
        rows = response.json()
    except (requests.RequestException, ValueError):  # no answer, no JSON
        rows = None
    if not isinstance(rows, list):  # try again, or say why not
        return [row for _, row in file_rows(download_file(url, path))]
    if save_copy:
        write_atomically(path, json.dumps(rows, indent=2))
    return rows


# 8.4 As text


def format_distilled_answer(entry):
    """The teacher's thinking between its two tokens, then its answer."""
    content = str(entry["message_content"] or "").strip()
    if not content:
        raise ValueError("this entry has no answer: message_content is empty")
    if "message_thinking" not in entry:
        raise ValueError("this entry has no message_thinking")
    thinking = str(entry["message_thinking"] or "").strip()
    return f"<think>{thinking}</think>\n\n{content}"


# 8.5 As tokens


def load_reasoning_tokenizer(local_dir="qwen3"):
    """Qwen3's, with its chat template; answers begin with thinking."""
    download_qwen3_small(kind="reasoning", tokenizer_only=True, out_dir=local_dir)
    return Qwen3Tokenizer(
        tokenizer_file_path=Path(local_dir) / "tokenizer-reasoning.json",
        apply_chat_template=True,
        add_generation_prompt=True,
        add_thinking=True,
    )


def build_examples(data, tokenizer):
    """Each prompt and answer as one row of token ids, and how many entries were skipped."""
    examples, skipped = [], 0
    for entry in data:
        try:
            answer = format_distilled_answer(entry)
        except ValueError:  # nothing to learn from
            skipped += 1
            continue
        prompt_ids = tokenizer.encode(render_prompt(entry["problem"]))
        answer_ids = answer_token_ids(tokenizer, answer)
        token_ids = prompt_ids + answer_ids + [tokenizer.eos_token_id]
        example = {"token_ids": token_ids, "prompt_len": len(prompt_ids)}
        examples.append(example)
    return examples, skipped


# 8.6 How long they are


def compute_length(examples, answer_only=False):
    """Prints how many tokens the examples, or their answers, have."""
    lengths = [
        len(example["token_ids"]) - answer_only * example["prompt_len"] for example in examples
    ]
    shortest, longest = min(lengths), max(lengths)
    print(f"Average: {sum(lengths) / len(lengths):.0f} tokens")
    print(f"Shortest: {shortest} tokens (index {lengths.index(shortest)})")
    print(f"Longest: {longest} tokens (index {lengths.index(longest)})")


def filter_examples_by_max_len(examples, max_len=2048):
    """Those of at most max_len tokens: memory grows with the longest."""
    return [example for example in examples if len(example["token_ids"]) <= max_len]


# 8.7 The loss of an example


def compute_example_loss(model, example, device):
    """Mean cross-entropy of the answer's tokens, not of the prompt's."""
    token_ids = torch.tensor(example["token_ids"], device=device)  # (T,)
    logits = model(token_ids[:-1].unsqueeze(0)).squeeze(0).float()
    first = example["prompt_len"] - 1  # this position predicts the answer's first
    return F.cross_entropy(logits[first:], token_ids[first + 1 :])


@torch.no_grad()
def evaluate_examples(model, examples, device):
    """The mean loss of examples not trained on, without dropout."""
    with evaluation_mode(model):
        losses = [
            compute_example_loss(model=model, example=example, device=device).item()
            for example in examples
        ]
    return sum(losses) / len(losses)


# 8.8 The loop


def train_distillation(
    model,
    train_examples,
    val_examples,
    device,
    epochs=2,
    lr=5e-6,
    grad_clip_norm=None,
    seed=123,
    log_every=50,
    checkpoint_dir="checkpoints",
    csv_log_path=None,
):
    """One example, one update per step. Ctrl-C saves and returns."""
    if not train_examples or not val_examples:
        raise ValueError("there must be examples to learn and to evaluate on")
    if csv_log_path is None:
        now = datetime.now().strftime("%Y%m%d_%H%M%S")
        csv_log_path = f"train_distill_metrics_{now}.csv"
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    order, shuffle = list(train_examples), random.Random(seed).shuffle
    total, step, recent = epochs * len(order), 0, []
    model.train()
    try:
        for epoch in range(1, epochs + 1):
            shuffle(order)
            for example in order:
                loss = compute_example_loss(model=model, example=example, device=device)
                optimizer.zero_grad()
                loss.backward()
                if grad_clip_norm is not None:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip_norm)
                optimizer.step()
                step += 1
                recent.append(loss.item())
                ends = step == epoch * len(order)
                if ends or (log_every and step % log_every == 0):
                    log_losses(
                        model, val_examples, device, epoch, step, total, recent, csv_log_path
                    )
                    recent = []
            path = save_checkpoint(model, checkpoint_dir, step, f"epoch{epoch}")
            print(f"Saved checkpoint to {path}")
    except KeyboardInterrupt:
        path = save_checkpoint(model, checkpoint_dir, step, "interrupt")
        print(f"\nInterrupted. Saved checkpoint to {path}")
    return model


def log_losses(model, val_examples, device, epoch, step, total, recent, csv_log_path):
    """One line for the reader, one for the CSV file."""
    train_loss = sum(recent) / len(recent)
    val_loss = evaluate_examples(model=model, examples=val_examples, device=device)
    print(
        f"[Epoch {epoch} | Step {step}/{total}] train_loss={train_loss:.4f} val_loss={val_loss:.4f}"
    )
    append_csv_metrics(csv_log_path, epoch, step, train_loss, val_loss)


def save_checkpoint(model, checkpoint_dir, step, suffix=""):
    """Saves the weights; a crash meanwhile leaves no partial file."""
    name = f"qwen3-0.6B-distill-step{step:05d}"
    path = Path(checkpoint_dir) / f"{name}{'-' * bool(suffix)}{suffix}.pth"
    with replacing(path) as temporary:
        torch.save(model.state_dict(), temporary)
    return path


def append_csv_metrics(csv_log_path, epoch_idx, total_steps, train_loss, val_loss):
    """Appends one row; a new file gets its header first."""
    path = Path(csv_log_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists() or path.stat().st_size == 0
    with open(path, "a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if is_new:
            writer.writerow(["epoch", "total_steps", "train_loss", "val_loss"])
        losses = [f"{loss:.6f}" for loss in (train_loss, val_loss)]
        writer.writerow([epoch_idx, total_steps, *losses])


def plot_distill_metrics(csv_path="train_distill_metrics.csv"):
    """Both losses over the steps: when the held-out one rises, stop."""
    if not Path(csv_path).exists():
        raise UserError(
            f"there is no {csv_path}: train_distillation writes "
            "the file that its csv_log_path names"
        )
    with open(csv_path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    steps = [int(row["total_steps"]) for row in rows]
    figure, axis = plt.subplots(figsize=(6, 4))
    for column, label in (("train_loss", "training"), ("val_loss", "held out")):
        axis.plot(steps, [float(row[column]) for row in rows], label=label)
    axis.set(xlabel="step", ylabel="loss (nats per token)")
    axis.legend()
    figure.tight_layout()
    plt.show()
