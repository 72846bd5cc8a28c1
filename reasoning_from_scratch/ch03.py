"""Chapter 3, evaluating a reasoning model: ask, find the answer, compare it, count.

3.2 loading · 3.3 generating a text · 3.4 to 3.6 from a text to a verdict · 3.7 the prompt
3.8 MATH-500
"""

import json
import re
import time
from pathlib import Path

import torch

from answer_grader import (  # noqa: F401  3.4 to 3.6
    extract_final_candidate,
    get_last_boxed,
    grade_answer,
    sympy_parser,
)
from answer_grader.comparing.comparison import same_answer
from answer_grader.limits import MAX_CHARS, TooBig, Unparsed
from answer_grader.reading.statements import parse
from reasoning_from_scratch.ch02 import generate_text_basic_stream_cache
from reasoning_from_scratch.files.weights import (  # noqa: F401  3.2
    load_model_and_tokenizer,
    load_tokenizer_only,
)
from reasoning_from_scratch.problem_sets import load_math500_test  # noqa: F401  3.8
from reasoning_from_scratch.problems import render_prompt  # noqa: F401  3.7
from reasoning_from_scratch.tokenizer import stop_ids_of

# 3.3 Generating a text


def generate_text_stream_concat(model, tokenizer, prompt, device, max_new_tokens, verbose=False):
    """The model's greedy answer as one string; `verbose` prints it while it is written."""
    token_ids = torch.tensor([tokenizer.encode(prompt)], device=device)  # (1, T)
    tokens = generate_text_basic_stream_cache(
        model=model,
        token_ids=token_ids,
        max_new_tokens=max_new_tokens,
        eos_token_id=tokenizer.eos_token_id,
    )
    return text_of_stream(tokens, tokenizer, verbose)


def text_of_stream(tokens, tokenizer, verbose=False):
    """Text of a stream of (1, 1) tokens, up to a stop token; `verbose` prints each immediately."""
    generated, stop_ids = [], stop_ids_of(tokenizer)
    for token in tokens:
        if token.item() in stop_ids:  # the stream itself knows only one of them
            break
        generated.append(token.item())
        if verbose:
            print(tokenizer.decode([token.item()]), end="", flush=True)
    if verbose:
        print()
    # Decoded together, since one character may be spread over several tokens.
    return tokenizer.decode(generated)


# 3.4 to 3.6 From a text to a verdict, in parts (the grader reads the text itself)

STYLE_COMMANDS = re.compile(r"\\(?:text|mathrm|textbf|mbox|mathbf|boxed|displaystyle)(?![A-Za-z])")
PLAIN_SPELLINGS = (
    (re.compile(r"\\left(?![a-z])|\\right(?![a-z])|\\[,;:!]"), ""),
    (re.compile(r"\\ |\\[()\[\]]|[$~]"), " "),
    (re.compile(r"\^\s*\\circ|\^\s*\{\s*\\circ\s*\}|°"), ""),
    (re.compile(r"\\[dt]frac(?![a-z])"), r"\\frac"),
    (re.compile(r"\\frac\s*\{([^{}]{0,200})\}\s*\{([^{}]{0,200})\}"), r"(\1)/(\2)"),
    (re.compile(r"\\sqrt\s*\{([^{}]{0,200})\}"), r"sqrt(\1)"),
    (re.compile(r"\\cdot|\\times"), "*"),
    (re.compile(r"\^"), "**"),
    (re.compile(r"(?<=[0-9])\{?,\}?(?=[0-9]{3}(?![0-9]))"), ""),
    (re.compile(r"^\s*[A-Ea-e][.:]\s+(?=\S)"), ""),  # the letter of a choice
)


def normalize_text(text: str | None) -> str:
    """A plain spelling of an answer, for display; grading reads the text itself."""
    if not text or len(text) > MAX_CHARS:
        return ""
    text = STYLE_COMMANDS.sub("", text.strip())
    for pattern, replacement in PLAIN_SPELLINGS:
        text = pattern.sub(replacement, text)
    return re.sub(r"\s+", " ", text.replace("{", "").replace("}", "")).strip().lower()


def equality_check(expr_gtruth: str, expr_pred: str) -> bool:
    """Whether two expressions have the same value."""
    if expr_gtruth == expr_pred:
        return True
    try:
        return same_answer(parse(expr_gtruth), parse(expr_pred))
    except (Unparsed, TooBig):
        return False


def split_into_parts(text: str) -> list[str]:
    """The elements of "(a, b)" or "[a, b]"; any other text is a single part."""
    if not text:
        return []
    inner = text[1:-1]
    if len(text) < 2 or text[0] not in "([" or text[-1] not in ")]" or "," not in inner:
        return [text]
    parts, depth, start = [], 0, 0
    for at, char in enumerate(inner):
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            parts.append(inner[start:at].strip())
            start = at + 1
    parts.append(inner[start:].strip())
    return parts if all(parts) else [text]


def run_demos_table(tests: list[tuple[str, str, str, bool]]) -> None:
    """Grades rows of (name, prediction, truth, expected) and prints them as a table."""
    header = ("Test", "Expect", "Got", "Status")
    rows = []
    for name, prediction, truth, expected in tests:
        got = grade_answer(prediction, truth)
        rows.append((name, str(expected), str(got), "PASS" if got == expected else "FAIL"))
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(4)]
    for row in [header, *rows]:
        print(" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
    passed = sum(row[3] == "PASS" for row in rows)
    print(f"\nPassed {passed}/{len(rows)}")


# 3.7 The prompt


def mini_eval_demo(model, tokenizer, device):
    """One question from prompt to verdict."""
    problem, answer = "Compute 1/2 + 1/6.", "2/3"
    prompt = render_prompt(problem)
    text = generate_text_stream_concat(
        model=model, tokenizer=tokenizer, prompt=prompt, device=device, max_new_tokens=64
    )
    extracted = extract_final_candidate(text)
    print(f"Question:        {problem}")
    print(f"Model's text:    {text!r}")
    print(f"Model's answer:  {extracted}")
    print(f"Correct answer:  {answer}")
    print(f"Graded:          {'correct' if grade_answer(extracted, answer) else 'incorrect'}")


# 3.8 MATH-500


def eta_progress_message(processed, total, start_time, show_eta=False, label="Progress"):
    """How far a loop is, and with `show_eta` how long the rest will take at the speed so far."""
    message = f"{label}: {processed}/{total}"
    if not show_eta or processed <= 0:
        return message
    per_item = (time.time() - start_time) / processed
    minutes, seconds = divmod(round(per_item * max(total - processed, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    eta = f"{seconds}s"
    if hours or minutes:
        eta = f"{minutes}m {seconds:02d}s"
    if hours:
        eta = f"{hours}h {minutes:02d}m {seconds:02d}s"
    return f"{message} | ETA: {eta}"


def evaluate_math500_stream(
    model, tokenizer, device, math_data, out_path=None, max_new_tokens=512, verbose=False
):
    """Answers each problem with greedy decoding -> (correct, total, accuracy).

    Each problem's JSON line is in the file before the next problem begins. `rfs evaluate` finds
    the same numbers in batches, and can resume.
    """
    if out_path is None:
        out_path = f"math500-{str(device).replace(':', '-')}.jsonl"
    correct, total, start_time = 0, len(math_data), time.time()
    with open(out_path, "w", encoding="utf-8") as file:
        for index, row in enumerate(math_data, start=1):
            prompt = render_prompt(row["problem"])
            text = generate_text_stream_concat(
                model=model,
                tokenizer=tokenizer,
                prompt=prompt,
                device=device,
                max_new_tokens=max_new_tokens,
                verbose=verbose,
            )
            extracted = extract_final_candidate(text)
            is_correct = grade_answer(extracted, row["answer"])
            correct += is_correct
            record = {
                "index": index,
                "problem": row["problem"],
                "gtruth_answer": row["answer"],
                "generated_text": text,
                "extracted": extracted,
                "correct": bool(is_correct),
            }
            file.write(json.dumps(record) + "\n")
            file.flush()
            end = "\n" if verbose else "\r"
            print(eta_progress_message(index, total, start_time, True, "MATH-500"), end=end)
    accuracy = correct / total if total else 0.0
    print(f"\nAccuracy: {accuracy:.1%} ({correct}/{total})")
    print(f"Total time: {(time.time() - start_time) / 60:.1f} min")
    print(f"Lines written to: {Path(out_path)}")
    return correct, total, accuracy
