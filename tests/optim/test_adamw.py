"""AdamW against torch's, small updates in bfloat16, schedules."""

import math
from functools import partial

import pytest
import torch
from torch import nn

from reasoning_from_scratch.config import Optim
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.optim import adamw as optim
from reasoning_from_scratch.optim.adamw import AdamW, stochastic_round
from reasoning_from_scratch.optim.muon import MuonAdamW
from reasoning_from_scratch.trainer import learning_rate


def net(dtype=torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3)).to(dtype)


def test_equals_torch():
    ours, theirs = net(), net()
    optimizer = AdamW(ours, 0.9, 0.95, weight_decay=0.1)
    matrices = [p for p in theirs.parameters() if p.dim() > 1]
    vectors = [p for p in theirs.parameters() if p.dim() == 1]
    oracle = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=1e-2,
        betas=(0.9, 0.95),
        eps=1e-8,
    )
    for step in range(20):
        x = torch.randn(4, 5, generator=torch.Generator().manual_seed(step))
        for model in (ours, theirs):
            model.zero_grad()
            model(x).square().sum().backward()
        optimizer.step(1e-2)
        oracle.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", ["master", "stochastic"])
def test_a_thousand_small_updates_of_bfloat16_weights_arrive(kind):
    """1,000 updates of 1e-5 to weights near 0.02 move them by 0.01; rounded each, by nothing."""
    layer = nn.Linear(64, 64, bias=False, dtype=torch.bfloat16)
    nn.init.constant_(layer.weight, 0.02)
    start = layer.weight.detach().clone()
    assert torch.equal(start - torch.tensor(1e-5, dtype=torch.bfloat16), start)  # the trap
    optimizer = AdamW(layer, low_precision_updates=kind)
    for _ in range(1000):
        layer.weight.grad = torch.ones_like(layer.weight)  # Adam then moves by lr each time
        optimizer.step(1e-5)
    moved = (start.float() - layer.weight.float()).mean().item()
    assert moved == pytest.approx(0.01, rel=0.02)


def test_stochastic_rounding_is_right_on_average_and_repeatable():
    values = torch.full((200_000,), 0.02003)
    rounded = stochastic_round(values, seed=1)
    assert set(rounded.tolist()) == {0.02001953125, 0.0201416015625}  # its two neighbors
    assert rounded.float().mean().item() == pytest.approx(0.02003, abs=1e-6)
    assert torch.equal(rounded, stochastic_round(values, seed=1))
    exact = torch.tensor([0.5, -1.0, 0.0])
    assert torch.equal(stochastic_round(exact, seed=2).float(), exact)


@pytest.mark.parametrize("method", [AdamW, MuonAdamW])
@pytest.mark.parametrize("kind", ["master", "stochastic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_state_continues_exactly(method, kind, dtype):
    make = partial(method, low_precision_updates=kind)

    def run(model, optimizer, steps):
        for step in steps:
            x = torch.randn(4, 5, generator=torch.Generator().manual_seed(step)).to(dtype)
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step(1e-3)

    whole, first, second = net(dtype), net(dtype), net(dtype)
    run(whole, make(whole), range(6))
    half = make(first)
    run(first, half, range(3))
    second.load_state_dict(first.state_dict())
    rest = make(second)
    rest.load_state_dict(half.state_dict(), half.updates)
    run(second, rest, range(3, 6))
    for a, b in zip(whole.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_state_that_is_none_of_its_own_changes_nothing():
    model, other = net(torch.float32), nn.Linear(3, 3)
    optimizer = AdamW(model)
    good, before = optimizer.state_dict(), {k: v.clone() for k, v in optimizer.state.items()}
    name = next(iter(good))
    for state, updates, says in (
        (good, -1, "no optimizer has made -1 updates"),
        (AdamW(other).state_dict(), 1, "is absent, but must be of shape"),
        (good | {name: torch.ones(1)}, 1, r"is of shape \(1,\), but must be"),
    ):
        with pytest.raises(UserError, match=says):
            optimizer.load_state_dict(state, updates)
    assert optimizer.updates == 0
    assert all(torch.equal(optimizer.state[k], v) for k, v in before.items())


def test_state_is_made_when_it_is_needed_of_the_weights_that_are_there_then():
    model, later = net(torch.bfloat16), net(torch.bfloat16)
    for method in (AdamW, MuonAdamW):
        optimizer = method(model)
        with torch.no_grad():
            for weight in later.parameters():
                weight.add_(1.0)
        model.load_state_dict(later.state_dict())
        assert "state" not in vars(optimizer)
        model(torch.ones(1, 5, dtype=torch.bfloat16)).sum().backward()
        optimizer.step(1e-4)
        for name, weight in model.named_parameters():
            assert torch.equal(optimizer.state[f"{name}.master"].bfloat16(), weight)
        optimizer.zero_grad()
        moved = model.state_dict()["0.bias"] - later.state_dict()["0.bias"]
        assert moved.abs().max() < 1e-2


def test_clipping():
    model = net()
    optimizer = AdamW(model)
    for limit, left in ((0.5, 0.5), (100, None), (0, None)):
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        norm = optimizer.clip_gradient(limit)
        assert norm == pytest.approx(math.sqrt(5 * 7 + 7 + 7 * 3 + 3))
        now = torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item()
        assert now == pytest.approx(left or norm, rel=1e-4)


def test_the_norm_of_a_bfloat16_gradient_is_not_rounded():
    model = net().bfloat16()
    for p in model.parameters():
        p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(0)).bfloat16()
    exact = torch.cat([p.grad.double().flatten() for p in model.parameters()]).norm().item()
    assert AdamW(model).clip_gradient(0) == pytest.approx(exact, rel=1e-6)


def test_schedules():
    def rates(schedule, *steps):
        config = Optim(lr=1.0, lr_schedule=schedule, warmup_steps=2)
        return [learning_rate(config, step, steps=10) for step in steps]

    assert rates("constant", 0, 1, 2, 9) == [0.5, 1.0, 1.0, 1.0]
    assert rates("linear", 1, 2, 6) == [1.0, 1.0, 0.5]
    assert rates("cosine", 2, 6) == [1.0, pytest.approx(0.5)]
    assert 0 < rates("cosine", 9)[0] < 0.05


def test_the_rate_grows_with_the_square_root_of_the_batch():
    config = Optim(lr=1e-5, lr_at_problems=64, lr_schedule="linear")
    assert learning_rate(config, 0, 10, problems_per_step=256) == pytest.approx(2e-5)
    assert learning_rate(config, 5, 10, problems_per_step=16) == pytest.approx(0.25e-5)
    assert learning_rate(Optim(lr=1e-5), 0, 10, problems_per_step=256) == 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_taken_together_changes_nothing(dtype, monkeypatch):
    """Everything in one group; a matrix and a vector; two rows of a matrix; one."""
    updated = []
    for size in (2**18, 42, 10, 1):
        monkeypatch.setattr(optim, "SLICE", size)
        model = net(dtype)
        optimizer = AdamW(model, weight_decay=0.1)
        for step in range(3):
            generator = torch.Generator().manual_seed(step)
            for parameter in model.parameters():
                parameter.grad = torch.randn(parameter.shape, generator=generator).to(dtype)
            optimizer.step(1e-2)
        updated.append([*model.parameters(), *optimizer.state.values()])
    for others in updated[1:]:
        assert all(torch.equal(a, b) for a, b in zip(updated[0], others, strict=True))


def test_several_optimizers_of_one_narrow_model_do_not_take_each_others_gradients():
    model = net().to(torch.bfloat16)
    first, second = AdamW(model), AdamW(model)
    for optimizer in (second, first):
        with optimizer.accumulate_gradients(model):
            model(torch.ones(2, 5, dtype=torch.bfloat16)).sum().backward()
    assert len(first.gradients()) == len(second.gradients()) == 4
    usual = torch.optim.SGD(model.parameters(), lr=1.0)
    before = model[0].weight.detach().clone()
    model(torch.ones(2, 5, dtype=torch.bfloat16)).sum().backward()
    usual.step()
    assert not torch.equal(model[0].weight, before)


def test_what_has_no_gradient_or_no_rows_is_left_out():
    model = net()
    model[1].weight = nn.Parameter(torch.empty(0, 7))
    before = model[0].bias.detach().clone()
    optimizer = AdamW(model)
    for parameter in (model[0].weight, model[1].weight):
        parameter.grad = torch.ones_like(parameter)
    optimizer.step(1e-2)
    assert torch.equal(model[0].bias, before)
    assert optimizer.update_ratio() > 0


def test_narrow_gradients_are_never_all_there_beside_their_sum():
    """Each goes into the float32 sum as soon as the backward pass has made it."""
    model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(4)]).to(torch.bfloat16)
    optimizer, most = AdamW(model), []

    def look(parameter):
        most.append(sum(p.grad is not None for p in model.parameters()))

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(look)  # called before the optimizer's
    x = torch.ones(2, 8, dtype=torch.bfloat16)
    for _ in range(3):
        with optimizer.accumulate_gradients(model):
            model(x).float().square().sum().backward()
    assert max(most) == 1 and len(most) == 3 * 8
    assert all(gradient.dtype == torch.float32 for gradient in optimizer.gradients())
    gradient = torch.autograd.grad(model(x).float().square().sum(), [*model.parameters()])
    for sum_, one in zip(optimizer.gradients(), gradient, strict=True):
        torch.testing.assert_close(sum_, 3 * one.float(), rtol=1e-6, atol=0)
