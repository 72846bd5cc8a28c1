"""Chapter 6, training a reasoner with GRPO: one problem, one rollout at a time, in plain view.

6.4 the training problems · 6.5 sampling a rollout · 6.6 its reward · 6.7 its advantage
6.8 its log-probability · 6.9 the loss of a group · 6.10 the training loop: the book's, and the one
that the chapter runs, for several problems at a time

The engine (rollouts.py, trainer.py) does the same in batches; tests compare the two.
"""

import csv
import json
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import requests
import torch

from reasoning_from_scratch import problem_sets
from reasoning_from_scratch.advantages import zscore  # 6.7
from reasoning_from_scratch.ch02 import switch_to_evaluation
from reasoning_from_scratch.ch03 import extract_final_candidate, grade_answer, render_prompt
from reasoning_from_scratch.ch04 import scale_logits_by_temperature, top_p_filter
from reasoning_from_scratch.fast.engine import generate
from reasoning_from_scratch.files.data_sets import DATA_SETS
from reasoning_from_scratch.files.disk import replacing, write_atomically
from reasoning_from_scratch.files.downloads import get_with_timeout
from reasoning_from_scratch.qwen3 import KVCache, room_for_answer
from reasoning_from_scratch.rollouts import problem_index
from reasoning_from_scratch.sampling import Sampling
from reasoning_from_scratch.tokenizer import stop_ids_of

# 6.4 The training problems


def load_math_train(local_path="math_train.json", save_copy=True):
    """The 12,000 rows of MATH that are not in MATH-500.

    Read from the file or, if there is none, downloaded.
    """
    if Path(local_path).exists():
        return problem_sets.load_math_train(local_path)
    try:
        response = get_with_timeout(requests.get, DATA_SETS["math-train"].url)
        response.raise_for_status()
        rows = response.json()
    except (requests.RequestException, ValueError):  # no answer, no JSON
        rows = None
    if not isinstance(rows, list):  # download it elsewhere, or say why not
        return problem_sets.load_math_train(local_path, save_copy)
    if save_copy:
        write_atomically(Path(local_path), json.dumps(rows, indent=2))
    return rows


# 6.5 Sampling a rollout


def probas_to_draw_from(logits, temperature, top_p):
    """Logits (1, V) to probabilities: tempered, softmax, cut with top-p.

    Temperature None changes nothing; 0 always takes the likeliest token.
    """
    if temperature == 0:
        best = logits.argmax(dim=-1, keepdim=True)  # (1, 1)
        return torch.zeros_like(logits).scatter(-1, best, 1.0)
    if temperature is not None:
        logits = scale_logits_by_temperature(logits, temperature)
    return top_p_filter(torch.softmax(logits, dim=-1), top_p)


@torch.no_grad()
def sample_response(model, tokenizer, prompt, device,
                    max_new_tokens=512, temperature=0.8, top_p=0.9):
    """One rollout: all token ids (T,), prompt length, text of the answer.

    The stop token is kept: the model learns when to stop, too.
    """
    switch_to_evaluation(model)  # no dropout
    prompt_ids = tokenizer.encode(prompt)
    cache = KVCache(n_layers=model.cfg["n_layers"])
    model.reset_kv_cache()
    next_ids = torch.tensor([prompt_ids], device=device)  # (1, T)
    answer_ids = []
    room = room_for_answer(model, len(prompt_ids), max_new_tokens)
    while len(answer_ids) < room:
        logits = model(next_ids, cache=cache)[:, -1].float()  # (1, V)
        probas = probas_to_draw_from(logits, temperature, top_p)
        # Drawn on the CPU, so that a seed means the same on every device.
        next_ids = torch.multinomial(probas.cpu(), num_samples=1).to(device)
        answer_ids.append(next_ids.item())
        if answer_ids[-1] in stop_ids_of(tokenizer):
            break
    token_ids = torch.tensor(prompt_ids + answer_ids, device=device)
    return token_ids, len(prompt_ids), tokenizer.decode(answer_ids)


# 6.6 Its reward


def reward_rlvr(answer_text, ground_truth):
    """1.0 for the correct answer inside \\boxed{}, else 0.0."""
    answer = extract_final_candidate(answer_text, fallback=None)
    if not answer:
        return 0.0
    return float(grade_answer(answer_text, ground_truth))


# 6.8 Its log-probability


def sequence_logprob(model, token_ids, prompt_len):
    """The sum of log-probabilities over the answer's tokens."""
    logits = model(token_ids.unsqueeze(0)).squeeze(0).float()  # (T, V)
    logprobs = torch.log_softmax(logits, dim=-1)
    targets = token_ids[1:].unsqueeze(-1)  # position t predicts token t + 1
    selected = logprobs[:-1].gather(-1, targets).squeeze(-1)  # (T - 1,)
    return selected[prompt_len - 1 :].sum()


# 6.9 The loss of a group


@contextmanager
def evaluation_mode(model):
    """No dropout inside the block; afterwards the model is as before."""
    was_training = getattr(model, "training", False)
    if was_training:
        model.eval()
    try:
        yield
    finally:
        if was_training:
            model.train()


def compute_grpo_loss(model, tokenizer, example, device, num_rollouts=2,
                      max_new_tokens=256, temperature=0.8, top_p=0.9):
    """Stages 2 to 6 for the rollouts of one problem."""
    if num_rollouts < 2:
        raise ValueError("num_rollouts must be at least 2, to compare them")
    prompt = render_prompt(example["problem"])
    logprobs, samples = [], []
    with evaluation_mode(model):
        for _ in range(num_rollouts):
            token_ids, prompt_len, text = sample_response(  # 2 rollouts
                model=model, tokenizer=tokenizer, prompt=prompt,
                device=device, max_new_tokens=max_new_tokens,
                temperature=temperature, top_p=top_p,
            )
            reward = reward_rlvr(text, example["answer"])  # 3 rewards
            samples.append({"text": text, "reward": reward,
                            "gen_len": len(token_ids) - prompt_len})
            logprobs.append(  # 5 log-probabilities
                sequence_logprob(model, token_ids, prompt_len))
    rewards = torch.tensor([sample["reward"] for sample in samples])
    advantages = zscore(rewards)  # 4 advantages
    loss = (-advantages.to(device) * torch.stack(logprobs)).mean()  # 6 loss
    return {"loss": loss.item(), "pg_loss": loss.item(),
            "rewards": rewards.tolist(), "samples": samples,
            "advantages": advantages.tolist(), "loss_tensor": loss}


# 6.10 The training loop


def train_rlvr_grpo(
    model,
    tokenizer,
    math_data,
    device,
    steps=None,
    num_rollouts=2,
    max_new_tokens=256,
    temperature=0.8,
    top_p=0.9,
    lr=1e-5,
    checkpoint_every=50,
    checkpoint_dir=".",
    csv_log_path=None,
):
    """One problem, one group, one update per step. Ctrl-C saves and returns."""
    steps = len(math_data) if steps is None else steps
    if csv_log_path is None:
        now = datetime.now().strftime("%Y%m%d_%H%M%S")
        csv_log_path = f"train_rlvr_grpo_metrics_{now}.csv"
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    step = 0
    try:
        for step in range(1, steps + 1):
            example = math_data[(step - 1) % len(math_data)]  # 1 problems
            stats = compute_grpo_loss(  # 2 to 6
                model=model, tokenizer=tokenizer, example=example,
                device=device, num_rollouts=num_rollouts,
                max_new_tokens=max_new_tokens,
                temperature=temperature, top_p=top_p,
            )
            update_weights(model, optimizer, stats)  # 7 update
            log_step(stats, step, steps, csv_log_path)
            if step % 10 == 0:
                print_samples(stats)
            if checkpoint_every and step % checkpoint_every == 0:
                path = save_checkpoint(model, checkpoint_dir, step)
                print(f"Saved checkpoint to {path}")
    except KeyboardInterrupt:
        path = save_checkpoint(model, checkpoint_dir, step, "interrupt")
        print(f"\nInterrupted. Saved checkpoint to {path}")
    return model


def update_weights(model, optimizer, stats):
    """One optimizer step; none if all rewards were equal.

    The gradient is zero then, but AdamW's momentum would still move weights.
    """
    if not any(stats["advantages"]):
        return
    optimizer.zero_grad()
    stats["loss_tensor"].backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()


def log_step(stats, step, steps, csv_log_path):
    """One line for the reader, one for the CSV file."""
    reward_avg = sum(stats["rewards"]) / len(stats["rewards"])
    lengths = [sample["gen_len"] for sample in stats["samples"]]
    avg_response_len = sum(lengths) / len(lengths)
    print(
        f"[Step {step}/{steps}] loss={stats['loss']:.4f} "
        f"reward_avg={reward_avg:.3f} avg_resp_len={avg_response_len:.1f}"
    )
    append_csv_metrics(
        csv_log_path, step, steps, stats["loss"],
        reward_avg, avg_response_len,
    )


def print_samples(stats, count=3):
    """The first few answers of a group, each on a line of its own."""
    for sample in stats["samples"][:count]:
        print(
            f"  reward={sample['reward']:.1f} length={sample['gen_len']}: "
            f"{sample['text']!r}"
        )


def save_checkpoint(model, checkpoint_dir, step, suffix=""):
    """Saves the weights; a crash meanwhile leaves no partial file."""
    name = f"qwen3-0.6B-rlvr-grpo-step{step:05d}"
    path = Path(checkpoint_dir) / f"{name}{'-' * bool(suffix)}{suffix}.pth"
    with replacing(path) as temporary:
        torch.save(model.state_dict(), temporary)
    return path


def append_csv_metrics(
    csv_log_path, step_idx, total_steps, loss, reward_avg, avg_response_len
):
    """Appends one row; a new file gets its header first."""
    path = Path(csv_log_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists() or path.stat().st_size == 0
    numbers = {
        "loss": loss,
        "reward_avg": reward_avg,
        "avg_response_len": avg_response_len,
    }
    with open(path, "a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if is_new:
            writer.writerow(["step", "total_steps", *numbers])
        cells = [f"{number:.6f}" for number in numbers.values()]
        writer.writerow([step_idx, total_steps, *cells])


# 6.10 The loop for several problems at a time


def pick_problems(problems, step, count=8, seed=0):
    """Stage 1: the problems of a step, from a shuffle of them all."""
    places = range(step * count, (step + 1) * count)
    return [problems[problem_index(seed, place, len(problems))]
            for place in places]


def draw_rollouts(model, tokenizer, problems, step,
                  num_rollouts=8, max_new_tokens=160, seed=0):
    """Stage 2: a group of rollouts for each problem, all side by side."""
    prompts = [tokenizer.encode(render_prompt(problem.problem))
               for problem in problems]
    sampling = Sampling(max_new_tokens, rollouts=num_rollouts, seed=seed)
    return generate(
        model, prompts, sampling, stop_ids=stop_ids_of(tokenizer),
        streams=[(step, place) for place in range(len(problems))],
    )


def mark_rollouts(tokenizer, problems, groups):
    """Stage 3: the rewards (N, G) of N groups of G rollouts."""
    return torch.tensor([
        [reward_rlvr(tokenizer.decode(rollout.text_ids), problem.answer)
         for rollout in group]
        for problem, group in zip(problems, groups, strict=True)])


def rollout_logprobs(model, rollouts, device):
    """Stage 5: the log-probability of each answer (B,), in one pass."""
    shape = (len(rollouts), max(map(len, rollouts)))
    token_ids = torch.zeros(shape, dtype=torch.long)  # (B, T)
    mask = torch.zeros(shape)  # (B, T)
    for row, rollout in enumerate(rollouts):
        start, end = len(rollout.prompt_ids), len(rollout)
        token_ids[row, :start] = torch.tensor(rollout.prompt_ids)
        token_ids[row, start:end] = torch.tensor(rollout.response_ids)
        mask[row, start:end] = 1
    token_ids, mask = token_ids.to(device), mask.to(device)
    logits = model(token_ids[:, :-1]).float()  # (B, T - 1, V)
    logprobs = torch.log_softmax(logits, dim=-1)
    selected = logprobs.gather(-1, token_ids[:, 1:, None])[..., 0]
    return (selected * mask[:, 1:]).sum(dim=-1)  # (B,)


def grpo_gradient(model, groups, advantages, device):
    """Stages 5 and 6, a group at a time; uniform groups are skipped."""
    total = 0.0
    for group, values in zip(groups, advantages, strict=True):
        if not values.any():
            continue
        logprobs = rollout_logprobs(model, group, device)  # 5
        loss = -(values.to(device) * logprobs).sum() / advantages.numel()
        loss.backward()  # 6: the gradients of the groups add up
        total += loss.item()
    return total


def train_grpo(model, tokenizer, problems, device, steps, lr=1e-4,
               max_new_tokens=160, seed=0, on_step=None):
    """Stages 1 to 7, `steps` times. on_step is called after each step."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.0)
    for step in range(steps):
        chosen = pick_problems(problems, step, seed=seed)  # 1 problems
        groups = draw_rollouts(  # 2 rollouts
            model, tokenizer, chosen, step,
            max_new_tokens=max_new_tokens, seed=seed)
        rewards = mark_rollouts(tokenizer, chosen, groups)  # 3 rewards
        advantages = torch.stack([zscore(r) for r in rewards])  # 4
        loss = grpo_gradient(model, groups, advantages, device)  # 5 and 6
        if advantages.any():  # 7 update
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        if on_step:
            on_step(step, chosen, groups, rewards, loss)
    return model
