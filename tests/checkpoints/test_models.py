"""The shipped tiny models: small enough, and what their cards say of them."""

import json

import pytest
import torch
from model_report import begin_answers

from reasoning_from_scratch.files.weights import shipped_checkpoint
from reasoning_from_scratch.sampling import Sampling, greedy
from reasoning_from_scratch.tiny.model import TINY_CONFIG
from reasoning_from_scratch.tiny.ways import WAYS
from rfs.evaluation.evaluate import evaluate
from rfs.files.models import load_model_and_tokenizer
from rfs.report.ways import by_way, evaluated_answers
from rfs.tasks.problem_sets import load_problems

TEST = load_problems("tiny-test", limit=120)


@pytest.fixture(scope="module", params=["tiny-base", "tiny-reasoning"])
def shipped(request):
    return request.param, *load_model_and_tokenizer(request.param)


@pytest.fixture(scope="module")
def base():
    return load_model_and_tokenizer("tiny-base")


def test_the_folder_is_small_and_complete(shipped):
    name, model, tokenizer = shipped
    folder = shipped_checkpoint(name)
    assert (folder / "model.safetensors").stat().st_size <= 12_000_000
    assert 2_000_000 <= sum(p.numel() for p in model.parameters()) <= 5_000_000
    assert {key: model.cfg[key] for key in TINY_CONFIG} == TINY_CONFIG
    assert all(torch.isfinite(p).all() for p in model.parameters())
    config = json.loads((folder / "config.json").read_text())
    assert config["eos_token_id"] == tokenizer.eos_token_id
    card = (folder / "README.md").read_text()
    assert "checkpoints/pretrain.py" in card and "checkpoints/model_report.py" in card
    log = [json.loads(line) for line in (folder / "pretrain_log.jsonl").read_text().splitlines()]
    assert log[0]["seed"] == 0 and log[-1]["loss"] < log[1]["loss"]


def test_the_base_model_answers_at_once_and_mostly_wrong(base):
    likeliest = evaluate(*base, TEST, greedy(160))
    assert likeliest.accuracy < 0.10
    assert likeliest.mean_length < 10
    assert likeliest.cutoff_share == 0.0
    assert likeliest.parse_rate > 0.95  # a guess may be an empty box


def test_the_base_model_can_work_problems_out(base):
    model, tokenizer = base
    tokenizer, prompt = begin_answers(tokenizer)
    helped = evaluate(model, tokenizer, TEST, greedy(160), prompt_fn=prompt)
    assert helped.accuracy > 0.85
    assert helped.mean_length > 30


def test_the_base_model_has_four_ways_of_which_the_best_is_the_rarest(base):
    sampled = evaluate(*base, TEST, Sampling(200, rollouts=8))
    found = by_way(evaluated_answers(TEST, sampled.rows))
    assert sum(figures.share for figures in found.values()) == pytest.approx(1.0)
    shares = [found[way].share for way in WAYS]
    assert shares == sorted(shares, reverse=True)
    assert found["answer only"].share > 0.6 and found["checked"].share < 0.06
    right = {way: figures.right for way, figures in found.items()}
    assert right["answer only"] < 0.15 < 0.3 < right["rough"] < right["full"] < 0.9
    assert right["checked"] > 0.6
    tokens = [found[way].tokens for way in WAYS]
    assert tokens == sorted(tokens)


def test_the_reasoning_model_thinks_some_of_the_time():
    model, tokenizer = load_model_and_tokenizer("tiny-reasoning")
    sampled = evaluate(model, tokenizer, TEST, Sampling(200, rollouts=1))
    thought = [row for row in sampled.rows if "<think>\n" in row["generated_text"]]
    assert 0.15 < len(thought) / len(sampled.rows) < 0.55
    assert sum("</think>\n\n\\boxed{" in row["generated_text"] for row in thought) >= (
        0.95 * len(thought)
    )
    assert sum(row["correct"] for row in thought) / len(thought) > 0.7
    tokenizer, prompt = begin_answers(tokenizer)
    begun = evaluate(model, tokenizer, TEST, greedy(200), prompt_fn=prompt)
    assert begun.accuracy > 0.85
    tokenizer.add_thinking = False  # as Qwen3 is told not to think
    obeys = evaluate(model, tokenizer, TEST[:40], greedy(200))
    assert not any("<think>" in row["generated_text"] for row in obeys.rows)
