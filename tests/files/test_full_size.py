"""A model of 0.6B parameters, random, as large as the published one: it opens in little memory."""

import shutil
import subprocess
import sys

WRITE_FULL_SIZE = """
import sys, torch
from reasoning_from_scratch.qwen3 import QWEN_CONFIG_06_B, Qwen3Model
with torch.device("meta"):
    shapes = {name: t.shape for name, t in Qwen3Model(QWEN_CONFIG_06_B).state_dict().items()}
pattern = (torch.randn(1_000_003) * 0.02).bfloat16()
state = {name: torch.empty(shape, dtype=torch.bfloat16) for name, shape in shapes.items()}
for name, tensor in state.items():
    for piece in tensor.view(-1).split(len(pattern)):
        piece.copy_(pattern[: len(piece)])
    if name.endswith("scale"):
        tensor += 1
torch.save(state, sys.argv[1])
"""
LOAD_FULL_SIZE = """
import resource, sys, torch
from reasoning_from_scratch.qwen3 import KVCache
from reasoning_from_scratch.files.weights import load_model_and_tokenizer
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
    1 if sys.platform == "darwin" else 1024)
before = peak()
model, tokenizer = load_model_and_tokenizer(sys.argv[1])
assert model.tok_emb.weight.dtype == torch.bfloat16
cache, ids = KVCache(model.cfg["n_layers"], max_length=16), torch.tensor([[1, 2, 3, 4]])
answer = []
with torch.no_grad():
    for _ in range(3):
        ids = model(ids, cache=cache)[:, -1:].argmax(dim=-1)
        answer.append(ids.item())
assert cache.lengths.tolist() == [6]
print(peak() - before, sum(p.numel() for p in model.parameters()), *answer)
"""


def test_full_size_06b_loads_in_under_3_gb_and_generates(tmp_path, tiny_tokenizer_file):
    """About 15 seconds and 1.5 GB of disk, given back at the end."""
    path = tmp_path / "qwen3-0.6B-base.pth"
    shutil.copy(tiny_tokenizer_file, tmp_path / "tokenizer-base.json")
    run = {"check": True, "capture_output": True, "text": True}
    try:
        subprocess.run([sys.executable, "-c", WRITE_FULL_SIZE, str(path)], **run)
        assert path.stat().st_size > 1.5e9
        result = subprocess.run([sys.executable, "-c", LOAD_FULL_SIZE, str(path)], **run)
    finally:
        path.unlink(missing_ok=True)
    extra, parameters, *answer = map(int, result.stdout.split())
    assert parameters == 751_632_384 and len(answer) == 3
    print(f"extra memory {extra / 1e9:.2f} GB")
    assert extra < 3e9
