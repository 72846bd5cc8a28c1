"""What must be in memory before the first answer is counted, and held against the device."""

import pytest
import torch
from toy import toy_model, toy_run

from reasoning_from_scratch.config import Optim, TrainConfig
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.optim.adamw import AdamW
from reasoning_from_scratch.optim.lora import add_lora
from reasoning_from_scratch.run import memory
from reasoning_from_scratch.run.memory import check_memory, fixed_bytes

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
        with optimizer.adding_up(model):
            model(torch.arange(6)[None]).float().sum().backward()
    there = sum(weight.nbytes for weight in model.parameters())
    there += sum(gradient.nbytes for gradient in optimizer.gradients())
    there += sum(state.nbytes for state in optimizer.state.values())
    assert fixed_bytes(model, Optim(low_precision_updates=updates)) == there


def test_a_model_that_cannot_fit_is_refused_with_a_flag_that_helps(tmp_path, monkeypatch):
    model, config = toy_model(), TrainConfig(model="mine")
    needed = fixed_bytes(model, config)
    monkeypatch.setattr(memory, "device_bytes", lambda device: needed)
    check_memory(model, None, config, CPU)
    with pytest.raises(UserError, match="before the first.*--lora-rank 16"):
        check_memory(model, model, config, CPU)
    check_memory(model, model, config, CPU, ranks=2)  # a slice on each
    monkeypatch.setattr(memory, "device_bytes", lambda device: 1000)
    with pytest.raises(UserError, match="only 0.0 GB: use --lora-rank 16"):
        toy_run(tmp_path / "run")
    assert not (tmp_path / "run").exists()
