"""Files of tensors: what is not one, is cut off or holds something else is refused."""

import pytest
import torch

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.weights import load_state, save_model
from rfs.files.models import load_model_and_tokenizer
from tests.files.test_weights import make_model, one_line


@pytest.mark.parametrize("name", ["model.pth", "model.safetensors"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<!doctype html><html></html>",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 3\n",
        b"PK\x03\x04" + bytes(100),
        bytes(range(256)),
    ],
)
def test_wrong_files(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match="is damaged, cut off") as info:
        load_model_and_tokenizer(path)
    assert str(path) in one_line(info)


@pytest.mark.parametrize("name", ["model.pth", "model.safetensors"])
@pytest.mark.parametrize("share", [0.1, 0.6, 0.999])
def test_cut_off_files(tmp_path, name, share):
    path = save_model(make_model(), tmp_path / name)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(UserError, match="is damaged, cut off") as info:
        load_state(path)
    one_line(info)


@pytest.mark.parametrize(
    "content, found",
    [
        ([torch.zeros(2)], "holds a list"),
        ({"model": {"tok_emb.weight": torch.zeros(2, 2)}, "step": 3}, "model is dict"),
    ],
)
def test_files_that_hold_something_else(tmp_path, content, found):
    torch.save(content, tmp_path / "model.pth")
    with pytest.raises(UserError, match=f"{found}, expected a "):
        load_state(tmp_path / "model.pth")
