"""What must hold for any input, tried on many: extraction, normalization, top-p, batches.

The ordinary form tries the same inputs every time; -m soak tries 100 times as many, new ones.
More properties stand with their modules: tests/grader/test_rewrites.py, test_sampling_*.py,
test_advantages.py, test_losses.py, test_rollouts.py.
"""

import math
import re

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from policy import policy_distribution

from answer_grader import (
    answer_verdict,
    extract_final_candidate,
    get_last_boxed,
    has_readable_answer,
)
from reasoning_from_scratch.rollouts import Rollout, make_batch
from reasoning_from_scratch.sampling import sample_next_token
from reasoning_from_scratch.text import json_line, one_line, visible

QUIET = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}


def tried(*given_strategies, examples: int = 25, **named_strategies):
    """A property as two tests: some inputs that stay the same, and for the soak many new ones."""

    def decorate(check):
        @pytest.mark.parametrize("soak", [False, pytest.param(True, marks=pytest.mark.soak)])
        def test(soak):
            count = 100 * examples if soak else examples
            setting = settings(max_examples=count, derandomize=not soak, **QUIET)
            setting(given(*given_strategies, **named_strategies)(check))()

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return decorate


any_text = st.text(alphabet=st.characters(blacklist_categories=()), max_size=60)
pieces = st.sampled_from([
    r"\boxed{", r"\fbox{", "}", "{", r"\}", r"\boxed 5", "$", r"\frac{1}{2}", "12", "-3.5", "1,000",
    " ", "\n", r"\text{cm}", "x^2", "^", "answer", "\\", "\u202e", "\x00", "½", "\ud800",
])  # fmt: skip
mixed_text = st.one_of(any_text, st.lists(pieces, max_size=12).map("".join))
whole_answers = st.text("0123456789abcxyz+-*/=.,() ", min_size=1, max_size=20).filter(str.strip)

# ---- extraction


@tried(mixed_text, whole_answers, mixed_text.filter(lambda text: "boxed" not in text))
def test_the_last_box_is_found_whatever_stands_around_it(before, answer, after):
    after = after.replace("fbox", "").replace("}", "")  # else it may close a box around the last
    assert get_last_boxed(f"{before}\n\\boxed{{{answer}}}{after}") == answer


@tried(mixed_text, st.sampled_from(["number_then_full", "number_only", None]))
def test_what_is_extracted_stands_in_the_text(text, fallback):
    found = extract_final_candidate(text, fallback=fallback)
    without_boxes = re.sub(r"\\(?:boxed|fbox)(?![A-Za-z])", " ", text)  # of a box in a box
    assert found in text or found in without_boxes
    assert extract_final_candidate(text, fallback=fallback) == found
    if fallback is None and get_last_boxed(text.strip()) is None:
        assert found == ""


@tried(mixed_text, mixed_text)
def test_a_verdict_is_one_of_four_and_never_an_error(text, truth):
    assert answer_verdict(text, truth) in ("correct", "wrong", "unparsed", "too big")
    assert has_readable_answer(text) in (True, False)


@tried(whole_answers)
def test_an_answer_equals_itself_in_a_box(answer):
    assert answer_verdict(f"\\boxed{{{answer}}}", answer) in ("correct", "unparsed")


# ---- normalization


@tried(any_text)
def test_text_that_is_shown_is_harmless(text):
    assert visible(visible(text)) == visible(text)
    assert one_line(text, 50).replace(" ", "").isprintable() or not text.isprintable()
    assert json_line({"text": text, text: [math.nan]}).isascii()
    assert "\n" not in one_line(text, 50) and len(one_line(text * 9, 50)) < 250


# ---- top-p

logit_rows = st.lists(st.floats(-1e4, 1e4, width=32), min_size=2, max_size=30)


@tried(logit_rows, st.floats(0.01, 1.0), st.integers(0, 31), st.integers(1, 2**23 - 1))
def test_what_is_drawn_was_kept_and_its_probability_is_told(logits, top_p, top_k, u):
    logits = torch.tensor([logits])
    draw = sample_next_token(logits, torch.tensor([u * 2.0**-23]), 1.0, top_p, top_k)
    expected = policy_distribution(logits, 1.0, top_p, top_k)[0, draw.tokens[0]]
    assert expected > -math.inf
    torch.testing.assert_close(draw.logprobs[0], expected, rtol=1e-4, atol=1e-4)


# ---- padding and masks

token_lists = st.lists(st.integers(0, 40), max_size=12)
drawn = st.lists(
    st.tuples(token_lists.filter(len), token_lists, st.floats(-3, 3, width=32)),
    min_size=1,
    max_size=8,
)


def as_rollout(prompt, response, advantage) -> Rollout:
    logprobs = [-0.1 * (i + 1) for i in range(len(response))]
    return Rollout(None, prompt, response, logprobs, [0.5] * len(response), advantage=advantage)


@tried(drawn)
def test_a_batch_holds_each_rollout_and_nothing_else(items):
    rollouts = [as_rollout(*item) for item in items]
    batch = make_batch(rollouts)
    for row, rollout in enumerate(rollouts):
        start, end = len(rollout.prompt_ids), len(rollout)
        assert batch.token_ids[row, :end].tolist() == rollout.prompt_ids + rollout.response_ids
        assert batch.mask[row].nonzero()[:, 0].tolist() == list(range(start, end))
        torch.testing.assert_close(
            batch.old_logprobs[row, start:end].tolist(), rollout.logprobs, rtol=1e-6, atol=1e-6
        )
        outside = batch.mask[row] == 0
        assert (batch.old_logprobs[row, outside] == 0).all()
        assert (batch.token_ids[row, end:] == 0).all() and batch.lengths[row] == end
    assert batch.mask.sum() == sum(len(rollout.response_ids) for rollout in rollouts)
