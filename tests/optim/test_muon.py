"""Muon for the matrices, AdamW for the rest: against torch, and in bfloat16. (That its state is
resumed is in test_adamw.py.)"""

import pytest
import torch
from small_model import small_model

from reasoning_from_scratch.optim.adamw import AdamW
from reasoning_from_scratch.optim.muon import MuonAdamW, parameter_kind

RATES = {"matrix_lr": 0.02, "embedding_lr": 0.3, "unembedding_lr": 0.05}
LR = 0.1
TORCH_HAS_MUON = hasattr(torch.optim, "Muon")  # from 2.9 on


def backward(model, step):
    ids = torch.randint(0, 13, (3, 7), generator=torch.Generator().manual_seed(step))
    model.zero_grad()
    model(ids).float().square().mean().backward()


def test_kinds():
    kinds = {name: parameter_kind(name, p) for name, p in small_model().named_parameters()}
    assert kinds["tok_emb.weight"] == "embedding" and kinds["out_head.weight"] == "head"
    assert kinds["trf_blocks.0.ff.fc1.weight"] == "matrix"
    assert kinds["trf_blocks.1.norm1.scale"] == "head"


@pytest.mark.skipif(not TORCH_HAS_MUON, reason="torch is older than 2.9")
def test_each_parameter_moves_as_by_the_optimizer_of_its_kind(monkeypatch):
    """Torch's Muon and our AdamW see the gradients of the mixed run, and must make its weights.
    Torch makes updates orthogonal in bfloat16; here it is held to float32."""
    model, copies = small_model(), small_model()
    mixed = MuonAdamW(model, **RATES)
    named = dict(copies.named_parameters())
    muon = torch.optim.Muon(
        [p for n, p in named.items() if parameter_kind(n, p) == "matrix"],
        lr=RATES["matrix_lr"] * LR,
        weight_decay=0.0,
    )
    adams = {"embedding": AdamW(copies), "head": AdamW(copies)}
    for step in range(4):
        backward(model, step)
        for (name, p), copy in zip(model.named_parameters(), copies.parameters(), strict=True):
            assert torch.equal(p, copy), name
            copy.grad = p.grad.clone()
        mixed.step(LR)
        with monkeypatch.context() as to_float32:
            to_float32.setattr(torch.Tensor, "bfloat16", torch.Tensor.float)  # until torch 2.14
            to_float32.setattr(torch, "bfloat16", torch.float32)  # from 2.15 on
            muon.step()
        gradients = {name: p.grad for name, p in named.items()}
        for kind, adam in adams.items():
            for name, p in named.items():
                p.grad = gradients[name] if parameter_kind(name, p) == kind else None
            adam.step(LR * RATES[f"{'un' if kind == 'head' else ''}embedding_lr"])


def test_weight_decay_shrinks_every_matrix_and_no_vector():
    """By the step's learning rate, whatever the rate of its kind. Without a gradient nothing else
    moves a weight."""
    model = small_model()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = MuonAdamW(model, matrix_lr=20.0, weight_decay=0.5)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step(0.1)
    for name, parameter in model.named_parameters():
        kept = 0.95 if parameter.dim() > 1 else 1.0
        torch.testing.assert_close(parameter.detach(), kept * before[name])


def test_small_updates_of_bfloat16_matrices_arrive():
    model = small_model().bfloat16()
    before = model.trf_blocks[0].ff.fc1.weight.detach().clone()
    slow = MuonAdamW(model, matrix_lr=2e-5, embedding_lr=0.0, unembedding_lr=0.0)
    for _ in range(60):
        backward(model, 0)
        slow.step(1.0)
    moved = (model.trf_blocks[0].ff.fc1.weight - before).float().norm()
    # 60 nearly equal orthogonal updates of 24 x 32, each of norm sqrt(24) x 2e-5 x scale.
    assert 0.5 < moved / (60 * 2e-5 * 24**0.5) < 1.5
    assert model.trf_blocks[0].ff.fc1.weight.dtype == torch.bfloat16
