"""Chapter 4's generators and its vote: right by themselves, and the same as the batched sampler."""

from types import SimpleNamespace

import matplotlib
import pytest
import torch
from small_model import small_model

from reasoning_from_scratch import ch02, ch04
from tests.book.stand_ins import Answers
from tests.test_sampling import chi_squared_deviations, exact_pairs

matplotlib.use("Agg")
MODEL = small_model(13)
PROMPT = [5, 6, 7, 8]


@pytest.mark.parametrize("temperature", [0.0, None])
def test_temperature_zero_is_greedy(temperature):
    prompt = torch.tensor([PROMPT])
    greedy = ch02.generate_text_basic(MODEL, prompt, 12, eos_token_id=12)
    for stream in (ch04.generate_text_temp_stream_cache, ch04.generate_text_top_p_stream_cache):
        tokens = list(stream(MODEL, prompt, 12, 12, temperature=temperature))
        assert torch.equal(torch.cat(tokens, dim=1), greedy)
    default = list(ch04.generate_text_top_p_stream_cache(MODEL, prompt, 12, 12))
    assert torch.equal(torch.cat(default, dim=1), greedy)


@pytest.mark.parametrize("top_p", [None, 0.8])
def test_plain_samples_have_the_exact_distribution(top_p):
    """The same law that test_sampling.py holds the batched sampler to."""
    model, prompt = small_model(5, sharpness=3.0, n_layers=1), [1, 2]
    exact = exact_pairs(model, prompt, 0.9, top_p or 1.0, 0)
    stream, extra = ch04.generate_text_temp_stream_cache, {}
    if top_p:
        stream, extra = ch04.generate_text_top_p_stream_cache, {"top_p": top_p}
    torch.manual_seed(0)
    counts = torch.zeros(25)
    for _ in range(700):
        first, second = stream(model, torch.tensor([prompt]), 2, temperature=0.9, **extra)
        counts[first.item() * 5 + second.item()] += 1
    assert abs(chi_squared_deviations(counts, exact)) < 3.5


def vote_of(*texts, **how):
    asked = MODEL, Answers(*texts), "?", "cpu", len(texts)
    return ch04.self_consistency_vote(*asked, max_new_tokens=1, **how)


def test_the_most_frequent_answer_wins(capsys):
    texts = ["\\boxed{4}", "it is \\boxed{5}", "\\boxed{4}"]
    vote = vote_of(*texts)
    assert vote == {
        "full_answers": texts,
        "short_answers": ["4", "5", "4"],
        "counts": {"4": 2, "5": 1},
        "groups": {"4": [0, 2], "5": [1]},
        "majority_winners": ["4"],
        "final_answer": "4",
    }
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_a_tie_has_no_final_answer(capsys):
    vote = vote_of("\\boxed{4}", "\\boxed{5}", show_progress=False)
    assert vote["majority_winners"] == ["4", "5"] and vote["final_answer"] is None
    vote = vote_of()
    assert vote["majority_winners"] == [] and vote["final_answer"] is None
    assert capsys.readouterr().out == ""


def test_a_vote_can_be_repeated():
    digits = SimpleNamespace(
        eos_token_id=None,
        encode=lambda text: [int(digit) for digit in text],
        decode=lambda ids: " ".join(map(str, ids)),
    )
    options = dict(num_samples=4, max_new_tokens=4, show_progress=False)
    first, again, other = (
        ch04.self_consistency_vote(MODEL, digits, "123", "cpu", seed=seed, **options)
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first["full_answers"] != other["full_answers"]
    assert len(set(first["full_answers"])) > 1
