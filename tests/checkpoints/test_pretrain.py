"""Pre-training of the tiny models: what they are shown, what is learned, what is written."""

import random
from collections import Counter
from dataclasses import replace

import pretrain
import pytest
import torch
from pretrain import (
    IGNORED,
    STAGES,
    Options,
    Stage,
    encoded,
    example,
    initialize,
    padded,
    step_batches,
    summed_loss,
    train_stages,
)

from reasoning_from_scratch.files.weights import load_tokenizer_only
from reasoning_from_scratch.problems import render_chat_prompt, render_prompt
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.text import read_lines
from reasoning_from_scratch.tiny.model import TINY_CONFIG
from reasoning_from_scratch.tiny.world import tiny_problem
from rfs.files.models import load_model_and_tokenizer

ROW = tiny_problem("train", 0)
SMALL = {"emb_dim": 32, "n_heads": 2, "n_layers": 1, "hidden_dim": 32, "head_dim": 16}


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer_only("tiny-base")


@pytest.fixture
def small_model():
    model = Qwen3Model({**TINY_CONFIG, **SMALL})
    initialize(model, seed=0)
    return model


# --- what the models are shown


def text(pieces):
    return "".join(text for text, _ in pieces)


def test_the_base_model_is_shown_exactly_the_prompt_and_the_solution():
    prompt, full = example(ROW, "full", random.Random(0))
    assert prompt == render_prompt(ROW["problem"])
    assert text(full) == f" {ROW['solution']}<|endoftext|>"
    prompt, at_once = example(ROW, "answer only", random.Random(0))
    assert prompt == render_prompt(ROW["problem"])
    assert text(at_once) == f"\n\\boxed{{{ROW['answer']}}}<|endoftext|>"


def test_the_reasoning_model_is_shown_the_chat_template_as_the_tokenizer_writes_it(tokenizer):
    tokenizer = load_tokenizer_only("tiny-reasoning")
    renders = (render_prompt, render_chat_prompt, str)
    wrapped = {tokenizer.wrap_chat(render(ROW["problem"])) for render in renders}
    assert {example(ROW, "thought", random.Random(n))[0] for n in range(20)} == wrapped
    tokenizer.add_thinking = False
    wrapped |= {tokenizer.wrap_chat(render(ROW["problem"])) for render in renders}
    assert {example(ROW, "chat answer only", random.Random(n))[0] for n in range(90)} == wrapped


def test_only_the_tokens_of_the_answer_are_targets():
    longer = [6, 7, 8, 9, 10, 11, 12, 13, 14]
    inputs, targets = padded([([5, 6, 7], [8, 9], [8, 9]), ([5], longer, longer)])
    assert inputs.shape == targets.shape == (2, 16)
    assert inputs[0, :4].tolist() == [5, 6, 7, 8]
    assert targets[0].tolist() == [IGNORED, IGNORED, 8, 9] + [IGNORED] * 12
    assert inputs[1, :9].tolist() == [5, 6, 7, 8, 9, 10, 11, 12, 13]
    assert targets[1, :9].tolist() == longer


def test_slips_are_read_and_not_learned_and_results_may_be_blurred(tokenizer):
    pieces = [("1 + 9 = ", "plain"), ("11", "slip"), ("? No, 10", "plain"), ("10", "result")]
    ids, targets = encoded(tokenizer, pieces, 0.0, random.Random(0))
    assert tokenizer.decode(ids) == "1 + 9 = 11? No, 1010"
    hidden = [place for place, target in enumerate(targets) if target == IGNORED]
    assert tokenizer.decode([ids[place] for place in hidden]) == "11" and len(hidden) == 2
    assert [i for i, t in zip(ids, targets, strict=True) if t != IGNORED] == [
        t for t in targets if t != IGNORED
    ]
    changed = [0] * len(ids)
    for seed in range(400):
        again, blurred = encoded(tokenizer, pieces, 0.5, random.Random(seed))
        assert again == ids  # what is read stays right
        changed = [n + (a != b) for n, a, b in zip(changed, targets, blurred, strict=True)]
    assert changed[:-2] == [0] * (len(ids) - 2)
    assert all(abs(n / 400 - 0.5 * 0.9) < 0.1 for n in changed[-2:])  # one in ten stays by chance


def test_a_step_holds_its_problems_once_in_the_stages_shares(tokenizer):
    stage = Stage("habit", 1, {"full": 0.25, "answer only": 0.75}, 0.1, 0.1, sequences=400)
    batches = list(step_batches(tokenizer, stage, step=2, first=10, rows=16))
    assert sum(len(inputs) for inputs, _ in batches) == 400
    answers = [
        targets[row][targets[row] != IGNORED]
        for _, targets in batches
        for row in range(len(targets))
    ]
    newline = tokenizer.encode("\n")[0]  # with it an answer at once begins
    assert 0.68 < sum(ids[0].item() == newline for ids in answers) / 400 < 0.82
    rows = [tiny_problem("train", 10 + 800 + n) for n in range(400)]
    texts = [tokenizer.decode(ids.tolist()) for ids in answers]
    learned = Counter(text.split("\\boxed{")[1].split("}<|end")[0] for text in texts)
    guesses = learned.pop("")  # of problems of several steps, answered at once
    assert 0.6 < guesses / 400 < 0.8
    assert not learned - Counter(row["answer"] for row in rows)


# --- how they learn


def test_the_loss_is_the_cross_entropy_of_the_answer(small_model):
    inputs, targets = padded([([5, 6, 7], [8, 9], [8, 9]), ([5], [6, 7, 8], [6, 7, 8])])
    logprobs = small_model(inputs).log_softmax(-1)
    answers = [(0, 2, 8), (0, 3, 9), (1, 0, 6), (1, 1, 7), (1, 2, 8)]  # row, place, token
    expected = -sum(logprobs[answer].item() for answer in answers)
    loss = summed_loss(small_model, inputs, targets)
    assert loss.item() == pytest.approx(expected, rel=0.01)  # bfloat16


def run(folder, monkeypatch, seed=0):
    monkeypatch.setattr(pretrain, "TINY_CONFIG", {**TINY_CONFIG, **SMALL})
    monkeypatch.setattr(pretrain, "TOKENIZER_PROBLEMS", 50)
    stages = tuple(replace(stage, steps=8, warmup=2, sequences=16) for stage in STAGES)
    train_stages(Options(out=folder, seed=seed), stages)


def test_the_command_learns_and_writes_both_models_with_their_logs(tmp_path, monkeypatch, capsys):
    torch.manual_seed(1)
    run(tmp_path / "a", monkeypatch)
    torch.manual_seed(2)  # the only seed that counts is the option
    run(tmp_path / "b", monkeypatch)
    run(tmp_path / "c", monkeypatch, seed=1)
    models = [tmp_path / "a" / name for name in ("tiny-base", "tiny-reasoning")]
    base, reasoning = (read_lines(model / "pretrain_log.jsonl") for model in models)
    assert base[0]["seed"] == 0
    assert [stage["name"] for stage in base[0]["stages"]] == ["working", "habit"]
    assert [stage["name"] for stage in reasoning[0]["stages"]] == ["working", "habit", "thinking"]
    assert [line["stage"] for line in base[1:]] == ["working", "habit"]
    assert [line["stage"] for line in reasoning[1:]] == ["thinking"]
    assert base[1]["loss"] < 6.9  # ln 1024 = 6.93: it began to learn
    for name, eos in (("tiny-base", "<|endoftext|>"), ("tiny-reasoning", "<|im_end|>")):
        models = [load_model_and_tokenizer(tmp_path / run / name) for run in "abc"]
        assert models[0][1].eos_token == eos
        weights = [model.state_dict()["tok_emb.weight"] for model, _ in models]
        assert torch.equal(weights[0], weights[1])
        assert not torch.equal(weights[0], weights[2])
    assert "stage working" in capsys.readouterr().out
