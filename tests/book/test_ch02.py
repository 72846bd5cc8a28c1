"""Chapter 2's generators: right by themselves, and the same as the batched sampler."""

import pytest
import torch
from small_model import small_model

from reasoning_from_scratch import ch02
from reasoning_from_scratch.sampling import generate, greedy
from tests.book.stand_ins import Counter

MODEL = small_model(13)
PROMPT = [5, 6, 7, 8]
BASIC = [ch02.generate_text_basic, ch02.generate_text_basic_cache]
STREAMS = [ch02.generate_text_basic_stream, ch02.generate_text_basic_stream_cache]


@pytest.mark.parametrize("generate_text", BASIC)
def test_new_tokens_without_prompt_and_end(generate_text):
    prompt = torch.tensor([[3, 4]])
    assert generate_text(Counter(), prompt, 3).tolist() == [[5, 6, 7]]
    assert generate_text(Counter(), prompt, 30, eos_token_id=9).tolist() == [[5, 6, 7, 8]]
    assert generate_text(Counter(), prompt, 3, eos_token_id=5).shape == (1, 0)
    assert generate_text(Counter(), prompt, 0).shape == (1, 0)


@pytest.mark.parametrize("stream", STREAMS)
def test_streams_yield_one_by_one(stream):
    tokens = list(stream(Counter(), torch.tensor([[3]]), 9, eos_token_id=6))
    assert [t.shape for t in tokens] == [(1, 1)] * 2
    assert torch.cat(tokens, dim=1).tolist() == [[4, 5]]


def test_with_a_cache_each_token_is_read_once():
    plain, cached = Counter(), Counter()
    ch02.generate_text_basic(plain, torch.tensor([[1, 2, 3]]), 4)
    ch02.generate_text_basic_cache(cached, torch.tensor([[1, 2, 3]]), 4)
    assert plain.seen == [3, 4, 5, 6]
    assert cached.seen == [3, 1, 1, 1] and cached.resets == 1


@pytest.mark.parametrize("generate_text", BASIC)
def test_plain_and_batched_are_the_same_greedy_tokens(generate_text):
    for stop in range(13):
        new = generate_text(MODEL, torch.tensor([PROMPT]), 12, eos_token_id=stop)[0].tolist()
        ((rollout,),) = generate(MODEL, [PROMPT], greedy(12), stop_ids={stop})
        assert new == rollout.text_ids


def test_generation_needs_no_gradient_and_leaves_its_mode_alone():
    """Not inference mode either: its tensors could not be trained on later."""
    tokens = ch02.generate_text_basic_cache(MODEL, torch.tensor([PROMPT]), 2)
    logits = MODEL(tokens)
    assert logits.requires_grad
    logits.sum().backward()
    MODEL.zero_grad(set_to_none=True)
    stream = ch02.generate_text_basic_stream(MODEL, torch.tensor([PROMPT]), 2)
    next(stream)
    assert torch.is_grad_enabled()
