"""Chapter 4, better answers without training: sample several, and let them vote.

4.3 any generator · 4.4 temperature · 4.5 top-p · 4.6 self-consistency
"""

from collections import Counter

import torch

from answer_grader import extract_final_candidate
from reasoning_from_scratch.ch02 import generate_text_basic_stream_cache, switch_to_evaluation
from reasoning_from_scratch.ch03 import text_of_stream
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.fast.cut import fast_cut
from reasoning_from_scratch.qwen3 import KVCache, room_for_answer

# 4.3 Any generator


def generate_text_stream_concat_flex(
    model,
    tokenizer,
    prompt,
    device,
    max_new_tokens,
    verbose=False,
    generate_func=None,
    **generate_kwargs,
):
    """The text that a streaming generator writes (default: the greedy one)."""
    if generate_func is None:
        generate_func = generate_text_basic_stream_cache
    token_ids = torch.tensor([tokenizer.encode(prompt)], device=device)  # (1, T)
    tokens = generate_func(
        model=model,
        token_ids=token_ids,
        max_new_tokens=max_new_tokens,
        eos_token_id=tokenizer.eos_token_id,
        **generate_kwargs,
    )
    return text_of_stream(tokens, tokenizer, verbose)


# 4.4 Temperature


def scale_logits_by_temperature(logits, temperature):
    """Below 1 sharpens the distribution, above 1 flattens it."""
    if temperature <= 0:
        raise ValueError("temperature must be > 0")
    return logits / temperature


@torch.no_grad()
def generate_text_temp_stream_cache(
    model, token_ids, max_new_tokens, eos_token_id=None, temperature=0.0
):
    """Yields sampled tokens (1, 1); temperature 0 takes the most probable one."""
    yield from generate_text_top_p_stream_cache(
        model, token_ids, max_new_tokens, eos_token_id, temperature
    )


def count_samples(probas, num_samples=1000, threshold=1, tokenizer=None):
    """Prints how often each token is drawn, if that is more often than `threshold`."""
    probas = probas.flatten().cpu()
    samples = torch.multinomial(probas, num_samples, replacement=True)
    for token_id, count in enumerate(torch.bincount(samples).tolist()):
        if count > threshold:
            name = token_id if tokenizer is None else tokenizer.decode([token_id])
            print(f"{count}x {name!r}")


def plot_scores_bar(
    next_token_logits, start=19_800, end=19_900, arrow=True, ylabel="Logit value"
):
    """The scores of the tokens from `start` to `end`; an arrow points at the largest."""
    import matplotlib.pyplot as plt

    token_ids, scores = _scores_between(next_token_logits, start, end)
    plt.bar(token_ids, scores)
    plt.xlabel("Token ID")
    plt.ylabel(ylabel)
    if arrow:
        best = token_ids[scores.index(max(scores))]
        plt.annotate(
            f"token {best}",
            xy=(best, max(scores)),
            xytext=(0.7, 0.9),
            textcoords="axes fraction",
            arrowprops={"arrowstyle": "->"},
        )
    plt.show()


def plot_logits_with_temperature(
    next_token_logits, start=19_800, end=19_900, T1=0.5, T2=5.0, temps=None
):
    """The same scores unscaled and at two temperatures, or at each of `temps`."""
    import matplotlib.pyplot as plt

    temps = (T1, T2) if temps is None else temps
    for temperature in dict.fromkeys((1.0, *temps)):
        scaled = scale_logits_by_temperature(next_token_logits, temperature)
        token_ids, scores = _scores_between(scaled, start, end)
        plt.plot(token_ids, scores, label=f"temperature {temperature}")
    plt.xlabel("Token ID")
    plt.ylabel("Scaled logit")
    plt.legend()
    plt.show()


def _scores_between(logits, start, end):
    scores = logits.flatten().float().cpu()[start:end].tolist()
    if not scores:
        raise UserError(f"no token ids from {start} to {end}: there are {logits.numel()} tokens")
    return list(range(start, start + len(scores))), scores


# 4.5 Top-p


def top_p_filter(probas, top_p):
    """Keep the smallest set of tokens whose mass is at least top_p; rows sum to 1 again."""
    if top_p is None or top_p >= 1.0:
        return probas
    exact = probas if probas.dtype == torch.float64 else probas.float()
    weights = fast_cut(exact.reshape(-1, probas.shape[-1]), top_p, 0).view(probas.shape)
    return (weights / weights.sum(-1, keepdim=True)).to(probas.dtype)


@torch.no_grad()
def generate_text_top_p_stream_cache(
    model,
    token_ids,
    max_new_tokens,
    eos_token_id=None,
    temperature=0.0,
    top_p=None,
):
    """Yields tokens (1, 1) sampled from the most probable ones, whose mass adds up to top_p."""
    switch_to_evaluation(model)
    cache = KVCache(n_layers=model.cfg["n_layers"])
    model.reset_kv_cache()
    for _ in range(room_for_answer(model, token_ids.shape[1], max_new_tokens)):
        logits = model(token_ids, cache=cache)[:, -1]  # (1, V)
        if temperature is None or temperature == 0.0:
            next_token = torch.argmax(logits, dim=-1, keepdim=True)
        else:
            logits = scale_logits_by_temperature(logits, temperature)
            probas = torch.softmax(logits.float(), dim=-1)
            probas = top_p_filter(probas, top_p)
            next_token = torch.multinomial(probas, num_samples=1)  # (1, 1)
        if eos_token_id is not None and torch.all(next_token == eos_token_id):
            return
        yield next_token
        token_ids = next_token


# 4.6 Self-consistency


def self_consistency_vote(
    model,
    tokenizer,
    prompt,
    device,
    num_samples=10,
    temperature=0.8,
    top_p=0.9,
    max_new_tokens=2048,
    show_progress=True,
    show_long_answer=False,
    seed=None,
):
    """Samples several answers and takes the most frequent one (None on a tie)."""
    full_answers, short_answers = [], []
    for i in range(num_samples):
        if seed is not None:
            torch.manual_seed(seed + i + 1)
        answer = generate_text_stream_concat_flex(
            model=model,
            tokenizer=tokenizer,
            prompt=prompt,
            device=device,
            max_new_tokens=max_new_tokens,
            verbose=show_long_answer,
            generate_func=generate_text_top_p_stream_cache,
            temperature=temperature,
            top_p=top_p,
        )
        full_answers.append(answer)
        short_answers.append(extract_final_candidate(answer))
        if show_progress:
            print(f"[Sample {i + 1}/{num_samples}] -> {short_answers[-1]!r}")
    return {
        "full_answers": full_answers,
        "short_answers": short_answers,
        **_count_votes(short_answers),
    }


def _count_votes(short_answers):
    counts = Counter(short_answers)
    groups = {answer: [] for answer in counts}
    for i, answer in enumerate(short_answers):
        groups[answer].append(i)
    most = max(counts.values(), default=0)
    winners = [answer for answer, count in counts.items() if count == most]
    return {
        "counts": counts,
        "groups": groups,
        "majority_winners": winners,
        "final_answer": winners[0] if len(winners) == 1 else None,
    }
