"""With which weights a run begins, and that it finds the very same again when it is resumed."""

import shutil
from unittest.mock import Mock

import pytest
import torch
from command_world import commands, contents, equal, refused, resume, run, saved, train_words
from toy import toy_config, toy_model, toy_run, toy_tokenizer

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.weights import save_hf_folder
from rfs.run.folder import RunFolder
from rfs.run.origin import refuse_overwriting_source, weights_checksum, with_absolute_files


def test_the_mark_of_weights_sees_one_bit():
    model = toy_model()
    count, crc = weights_checksum(model)
    assert count == sum(p.numel() for p in model.parameters())
    assert weights_checksum(toy_model()) == [count, crc]
    with torch.no_grad():
        model.out_head.weight.view(torch.int32)[-1, -1] ^= 1
    assert weights_checksum(model)[1] != crc
    assert weights_checksum(toy_model(dtype=torch.bfloat16))[1] != crc


def test_the_sign_of_a_zero_does_not_count():
    """A 4-bit file has zeros of both signs, and -0.0 + LoRA's 0.0, as it is saved, is 0.0."""
    weights = toy_model(), toy_model()
    for model, zero in zip(weights, (0.0, -0.0), strict=True):
        model.trf_blocks[0].ff.fc1.weight.data[0] = zero
    assert weights_checksum(weights[0]) == weights_checksum(weights[1])


def test_a_name_is_no_folder_that_overwrite_would_delete(tmp_path, monkeypatch):
    """--out . --overwrite, from inside a run of a shipped model."""
    folder = toy_run(tmp_path / "run", steps=1).folder
    monkeypatch.chdir(folder)
    start = Mock(model="tiny-base", weights=None, config=Mock(kl_reference=None))
    refuse_overwriting_source(start, RunFolder("."))
    start.weights = "checkpoints/000001"
    with pytest.raises(UserError, match="--overwrite would delete"):
        refuse_overwriting_source(start, RunFolder("."))


def test_files_are_named_from_the_root_and_sets_by_their_names(world, monkeypatch):
    monkeypatch.chdir(world)
    files = {
        "problems": "../task.py:problems",
        "reward": "~/task.py:reward",
        "data_path": "problems.jsonl",
        "eval_problems": ["tiny-test", "problems.jsonl", "tiny-tset", f"{world}/problems.jsonl"],
        "evaluators": ["task.py:f"],
    }
    monkeypatch.setenv("HOME", "/home/me")
    whole = with_absolute_files(toy_config(world, **files))
    assert whole.problems == f"{world.parent}/task.py:problems"
    assert whole.reward == "/home/me/task.py:reward"
    assert whole.data_path == f"{world}/problems.jsonl"
    path = f"{world}/problems.jsonl"
    assert whole.eval_problems == ["tiny-test", path, "tiny-tset", path]
    assert whole.evaluators == [f"{world}/task.py:f"]
    (world / "p.txt").touch()
    for prompt, found in (
        ("p.txt", f"{world}/p.txt"),
        ("chat:p.txt", f"chat:{world}/p.txt"),
        ("plain:p.txt", f"plain:{world}/p.txt"),
        ("chat", "chat"),
        ("chat:none.txt", "chat:none.txt"),
    ):
        assert with_absolute_files(toy_config(world, prompt=prompt)).prompt == found
    (world / "gsm8k").touch()
    assert with_absolute_files(toy_config(world, problems="gsm8k")).problems == "gsm8k"


# ---- through `rfs train`


@pytest.mark.parametrize(
    "source",
    ["--load-checkpoint-path X", "--model X/checkpoints/000004", "--kl-reference X/checkpoints"],
)
def test_a_run_is_not_deleted_for_a_run_that_starts_from_it(world, source, capsys):
    before = contents(world / "X")
    flag, path = source.split()
    penalty = "--kl token --kl-coef 0.1".split() if "kl" in flag else []
    words = train_words(world, world / "X", "--overwrite", flag, world / path, *penalty)
    assert "which --overwrite would delete" in refused(words, capsys)
    assert contents(world / "X") == before


@pytest.mark.parametrize(
    "how, fate",
    [
        ("--lora-rank 2", "extended"),
        ("--kl k3 --kl-coef 0.5", "overwritten"),
        ("--lora-rank 2", "deleted"),
        ("--kl k3 --kl-coef 0.5", "elsewhere"),
    ],
)
def test_a_run_goes_on_from_where_it_began(world, how, fate):
    flags = ["--load-checkpoint-path", world / "X", *how.split()]
    whole = run(world, "whole", *flags)
    part = run(world, "part", *flags, "--steps", 2)
    if fate == "extended":
        assert commands(resume(world / "X", "--steps", 6)) == 0
    elif fate == "overwritten":
        run(world, "X", "--overwrite", "--seed", 7, "--steps", 6)
    elif fate == "deleted":
        shutil.rmtree(world / "X")
    else:
        world = world.rename(world.parent / "moved")
        part, whole = world / "part", world / "whole"
    places = ("problems", "eval-problems")
    task = [f"--{name}={world}/problems.jsonl" for name in places]
    assert commands(resume(part, "--steps", 4, *task)) == 0
    assert equal(saved(part, 4), saved(whole, 4))


def test_other_weights_under_the_old_name_are_noticed(world, capsys):
    flags = ["--lora-rank", 2, "--steps", 2]
    part = run(world, "part", *flags)
    shutil.rmtree(part / "checkpoints" / "000000")
    assert commands(resume(part, "--steps", 3)) == 0  # the folder still has them
    shutil.rmtree(world / "tiny-toy")
    (world / "tiny-other").rename(world / "tiny-toy")
    before = contents(part)
    assert "began with other weights" in refused(resume(part, "--steps", 4), capsys)
    assert contents(part) == before


TO_ANOTHER = "--kl token --kl-coef 0.5 --kl-reference".split()


def test_a_run_goes_on_with_its_reference_and_with_no_other(world, capsys):
    flags = [*TO_ANOTHER, world / "tiny-other"]
    whole = run(world, "whole", *flags)
    part = run(world, "part", *flags, "--steps", 2)
    own = run(world, "own", *flags[:4])  # with its own beginning as reference
    words = resume(part, "--steps", 4, "--kl-reference", world / "tiny-toy")
    assert "cannot continue with another --kl-reference" in refused(words, capsys)
    assert commands(resume(part, "--steps", 4)) == 0
    assert equal(saved(part, 4), saved(whole, 4)) and not equal(saved(own, 4), saved(whole, 4))
    save_hf_folder(toy_model(7), toy_tokenizer(world), world / "tiny-other")
    said = refused(resume(part, "--steps", 6), capsys)
    assert "began with other weights in --kl-reference" in said
    shutil.rmtree(world / "tiny-other")
    assert "tiny-other" in refused(resume(part, "--steps", 6), capsys)


def test_a_reference_with_other_tokens_is_refused(world, capsys):
    words = train_words(world, world / "new", *TO_ANOTHER, "tiny-base")
    assert "choose one with the same tokenizer" in refused(words, capsys)
    assert not (world / "new").exists()
