"""What must be in memory before the first answer is counted, and held against the device."""

import json
import re
from dataclasses import replace

import pytest
import torch
from toy import toy_model, toy_run, train

from reasoning_from_scratch.config import Optim
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.fast import memory as fitting
from reasoning_from_scratch.fast.memory import fitting_micro_batch, fixed_bytes
from reasoning_from_scratch.optim.adamw import AdamW
from reasoning_from_scratch.optim.lora import add_lora
from reasoning_from_scratch.qwen3 import QWEN_CONFIG_06_B, Qwen3Model
from rfs.config import RunConfig
from rfs.files.models import load_model_and_tokenizer
from rfs.run import memory, start
from rfs.run.memory import check_memory
from rfs.run.options import resumed_config

CPU = torch.device("cpu")


@pytest.mark.parametrize("lora", [0, 2])
@pytest.mark.parametrize("updates", ["master", "stochastic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_counted_is_what_is_there(dtype, updates, lora):
    """Weights, gradients after two micro-batches, and the optimizer's state."""
    if (dtype, updates) == (torch.float32, "stochastic"):
        return  # refused: float32 has nothing to round to
    model = toy_model(dtype=dtype)
    if lora:
        add_lora(model, lora, 32.0)
    optimizer = AdamW(model, low_precision_updates=updates)
    for _ in range(2):
        with optimizer.accumulate_gradients(model):
            model(torch.arange(6)[None]).float().sum().backward()
    there = sum(weight.nbytes for weight in model.parameters())
    there += sum(gradient.nbytes for gradient in optimizer.gradients())
    there += sum(state.nbytes for state in optimizer.state.values())
    assert fixed_bytes(model, Optim(low_precision_updates=updates)) == there


def test_a_model_that_cannot_fit_is_refused_with_a_flag_that_helps(tmp_path, monkeypatch):
    model, config = toy_model(), RunConfig(model="mine")
    needed, gpu = fixed_bytes(model, config), torch.device("cuda")
    monkeypatch.setattr(memory, "device_bytes", lambda device: needed)
    check_memory(model, None, config, gpu)
    with pytest.raises(UserError, match="mine needs .* for the optimizer .*--lora-rank 16"):
        check_memory(model, model, config, gpu)
    check_memory(model, model, config, gpu, ranks=2)  # a slice on each
    monkeypatch.setattr(memory, "device_bytes", lambda device: 1000)
    with pytest.raises(UserError, match="only 0.0 GB: "):
        toy_run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


QWEN = QWEN_CONFIG_06_B | {"n_layers": 4, "vocab_size": 20_000, "dtype": torch.bfloat16}
SHORT = {"max_new_tokens": 16, "sample_rows": 4, "micro_batch_tokens": 64}


@pytest.mark.parametrize(
    "changes, lora, says",
    [
        ({}, 0, r"for the optimizer \(.*or use --lora-rank 16"),
        ({"max_new_tokens": 30_000}, 16, "keys and values of 4 answers .*--sample-rows 1"),
        (
            {"micro_batch_tokens": 8192, "max_new_tokens": 256},
            16,
            "a training pass over 8,192 tokens .*ointing",
        ),
        ({}, 16, "for weights .*use a smaller --model"),
    ],
)
def test_on_a_cpu_the_largest_part_is_named(changes, lora, says, monkeypatch, caplog):
    config = RunConfig(model="mine", lora_rank=lora, **SHORT | changes)
    monkeypatch.setattr(memory, "available_memory", lambda: 1000)
    check_memory(big(lora), None, config, CPU)
    assert re.search(says, caplog.text)


def test_other_programs_that_take_the_memory_bring_a_warning(monkeypatch, caplog):
    model, config = big(16), RunConfig(model="mine", lora_rank=16, **SHORT)
    for free, warned in ((10 * memory.GB, False), (1000, True)):
        monkeypatch.setattr(memory, "available_memory", lambda free=free: free)
        caplog.clear()
        check_memory(model, None, config, CPU)
        assert ("only 0.0 GB are free" in caplog.text) is warned


def big(lora: int) -> Qwen3Model:
    with torch.device("meta"):
        model = Qwen3Model(QWEN)
        if lora:
            add_lora(model, lora, 32.0)
    return model


@pytest.mark.parametrize(
    "free, processes, tokens",
    [(0, 1, 3072), (36, 1, 4608), (72, 1, 8192), (72, 4, 3072), (float("inf"), 1, 8192)],
)
def test_a_training_pass_takes_a_part_of_what_is_free(free, processes, tokens, monkeypatch):
    model, config = big(16), RunConfig()
    monkeypatch.setattr(fitting, "available_memory", lambda: free * memory.GB)
    assert fitting_micro_batch(model, config, CPU, processes) == tokens
    assert fitting_micro_batch(model, config, torch.device("cuda")) == 8192
    with_less = fitting_micro_batch(model, replace(config, gradient_checkpointing=True), CPU)
    assert with_less == 8192


def test_the_tiny_models_never_depend_on_it(monkeypatch):
    model, _ = load_model_and_tokenizer("tiny-base", "cpu")
    monkeypatch.setattr(fitting, "available_memory", lambda: 0)
    assert fitting_micro_batch(model, RunConfig(), CPU) == 8192


def test_a_run_notes_its_micro_batches_and_a_resumed_one_splits_as_it_did(tmp_path, monkeypatch):
    monkeypatch.setattr(start, "fitting_micro_batch", lambda *given: 40)
    plain = toy_run(tmp_path / "plain", steps=4)
    first = toy_run(tmp_path / "run", steps=2)
    assert json.loads((first.folder / "config.json").read_text())["micro_batch_tokens"] == 40
    monkeypatch.setattr(start, "fitting_micro_batch", lambda *given: 10**6)
    resumed = train(resumed_config(first.folder, steps=4), quiet=True)
    pairs = zip(plain.model.parameters(), resumed.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
