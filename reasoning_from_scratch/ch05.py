"""Chapter 5, self-refinement: score an answer, criticize it, write it again, keep the better one.

5.2 scoring by rules · 5.3 scoring by the model's own confidence · 5.4 the refinement loop
"""

import inspect
import math

import torch

from reasoning_from_scratch.ch03 import extract_final_candidate, render_prompt
from reasoning_from_scratch.ch04 import (
    generate_text_stream_concat_flex,
    generate_text_top_p_stream_cache,
)

# 5.2 Scoring by rules


def heuristic_score(
    answer,
    prompt=None,
    brevity_bonus=500.0,
    boxed_bonus=2.0,
    extract_bonus=1.0,
    fulltext_bonus=0.0,
):
    """Rewards a final answer that can be found, and a short text around it."""
    if extract_final_candidate(answer, fallback=None):
        score = boxed_bonus
    elif extract_final_candidate(answer, fallback="number_only"):
        score = extract_bonus
    else:
        score = fulltext_bonus if answer.strip() else 0.0
    # 1.5 for an empty text, 0.55 after `brevity_bonus` characters, 0 in the end
    return score + 1.5 * math.exp(-len(answer) / brevity_bonus)


# 5.3 Scoring by the model's own confidence


@torch.inference_mode()
def next_token_logprobas(model, token_ids):
    """The log-probability of each token of token_ids (1, T) but the first, given those before."""
    logits = model(token_ids)  # (1, T, V)
    logprobas = torch.log_softmax(logits.float(), dim=-1)
    targets = token_ids[:, 1:, None]  # (1, T - 1, 1)
    return logprobas[:, :-1].gather(-1, targets)[0, :, 0]  # (T - 1,)


def calc_next_token_probas(model, tokenizer, prompt, device, show=True):
    """How probable each next token of a text is; `show` also prints it."""
    token_ids = torch.tensor([tokenizer.encode(prompt)], device=device)
    probas = next_token_logprobas(model, token_ids).exp()
    if show:
        print("Next-token probabilities:", [round(p, 4) for p in probas.tolist()])
        print("Joint probability:", f"{probas.prod().item():.4g}")
    return probas


def calc_next_token_logprobas(model, tokenizer, prompt, device, show=True):
    """The same in logarithms: sums do not underflow where products do."""
    token_ids = torch.tensor([tokenizer.encode(prompt)], device=device)
    logprobas = next_token_logprobas(model, token_ids)
    if show:
        print("Next-token log-probabilities:", [round(p, 4) for p in logprobas.tolist()])
        print("Joint log-probability:", f"{logprobas.sum().item():.4f}")
    return logprobas


def avg_logprob_answer(model, tokenizer, prompt, answer, device="cpu"):
    """The mean log-probability of the answer's tokens after the prompt: the model's confidence."""
    prompt_ids = tokenizer.encode(prompt)
    answer_ids = answer_token_ids(tokenizer, answer)
    if not answer_ids:
        return -math.inf  # an empty answer must not count as a confident one
    token_ids = torch.tensor([prompt_ids + answer_ids], device=device)
    logprobas = next_token_logprobas(model, token_ids)
    return logprobas[-len(answer_ids) :].mean().item()


def answer_token_ids(tokenizer, text):
    """The ids of a text alone, without any chat template."""
    parameters = inspect.signature(tokenizer.encode).parameters
    options = {"chat_wrapped": False} if "chat_wrapped" in parameters else {}
    return tokenizer.encode(text, **options)


# 5.4 The refinement loop


def make_critique_prompt(raw_prompt, draft):
    """Asks what is wrong with a draft."""
    return (
        "You are a meticulous reviewer of mathematical work.\n"
        "Check the draft answer below step by step. Name each mistake, or say that there is none.\n"
        "Do not solve the question again. Be brief.\n\n"
        f"Question:\n{raw_prompt}\n\n"
        f"Draft answer:\n{draft}\n\n"
        "Critique:"
    )


def make_refine_prompt(raw_prompt, draft, critique):
    """Asks for a new answer that takes the review into account."""
    return (
        "You are a helpful math assistant.\n"
        "Rewrite the previous answer, correcting what the critique found, and keep what is right.\n"
        "Write the final result on a new line as:\n\\boxed{ANSWER}\n\n"
        f"Question:\n{raw_prompt}\n\n"
        f"Previous answer:\n{draft}\n\n"
        f"Critique:\n{critique}\n\n"
        "Revised answer:"
    )


def self_refinement_loop(
    model, tokenizer, raw_prompt, device, iterations=2, max_response_tokens=2048,
    max_critique_tokens=256, score_fn=None, prompt_renderer=render_prompt, prompt_suffix="",
    verbose=False, temperature=0.7, top_p=0.9,
):  # fmt: skip
    """Draft, then `iterations` times: review, revise, and keep the revision if it scores no worse.

    Without `score_fn(answer=..., prompt=...)` each revision replaces its draft.
    """

    def respond(prompt, max_new_tokens):
        return generate_text_stream_concat_flex(
            model=model, tokenizer=tokenizer, prompt=prompt, device=device,
            max_new_tokens=max_new_tokens, verbose=verbose,
            generate_func=generate_text_top_p_stream_cache, temperature=temperature, top_p=top_p,
        )  # fmt: skip

    def score(answer):
        return 0.0 if score_fn is None else score_fn(answer=answer, prompt=prompt)

    prompt = prompt_renderer(raw_prompt) + prompt_suffix
    current = respond(prompt, max_response_tokens)
    steps = []
    for iteration in range(1, iterations + 1):
        critique = respond(make_critique_prompt(raw_prompt, current), max_critique_tokens)
        refine_prompt = make_refine_prompt(raw_prompt, current, critique)
        revised = respond(refine_prompt, max_response_tokens)
        step = {
            "iteration": iteration,
            "draft_full": current,
            "draft_extracted": extract_final_candidate(current),
            "critique": critique,
            "revised_full": revised,
            "revised_extracted": extract_final_candidate(revised),
            "score_before": score(current),
            "score_after": score(revised),
        }
        steps.append(step)
        if step["score_after"] >= step["score_before"]:
            current = revised
    final = extract_final_candidate(current)  # `final` in one version of the book's code
    return {"final": final, "final_full": current, "final_extracted": final, "steps": steps}
