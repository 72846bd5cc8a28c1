"""A folder of LoRA is a model wherever a model is named: its base with what it adds."""

import json
import shutil

import pytest
import torch

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files import model_names
from reasoning_from_scratch.files.adapters import ADAPTER_WEIGHTS
from reasoning_from_scratch.files.model_names import ADAPTER_CONFIG, base_model_of
from reasoning_from_scratch.files.tensor_files import load_state, save_state
from reasoning_from_scratch.files.weights import load_tokenizer_only
from reasoning_from_scratch.optim.lora import add_lora, lora_layers, merge_lora, save_peft
from reasoning_from_scratch.problems import PROMPT_FILE, PromptFormat, prompt_format_of
from rfs.commands import cli
from rfs.config import RunConfig
from rfs.files.models import check_model_name, load_model_and_tokenizer
from rfs.run.options import resolved


@pytest.fixture
def adapter(tmp_path):
    return written(tmp_path / "adapter", "tiny")[0]


def written(folder, base, rank=3, alpha=6.0, dtype=torch.bfloat16, places=("att", "ff")):
    """A folder, and the model with LoRA that it was written from."""
    model, _ = load_model_and_tokenizer(base, dtype=dtype)
    add_lora(model, rank, alpha, places=places)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for layer in lora_layers(model).values():
            drawn = torch.randn(layer.lora_B.shape, generator=generator)
            layer.lora_B.copy_(drawn * 0.05)
    return save_peft(model, folder, str(base)), model


def changed(folder, **values):
    path = folder / ADAPTER_CONFIG
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | values))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("places", [("att", "ff"), ("att",)])
def test_its_weights_are_those_of_the_merged_model_to_the_bit(tmp_path, dtype, places):
    folder, model = written(tmp_path / "adapter", "tiny", dtype=dtype, places=places)
    expected = merge_lora(model).state_dict()
    found = load_model_and_tokenizer(folder, dtype=dtype)[0].state_dict()
    base, tokenizer = load_model_and_tokenizer("tiny", dtype=dtype)
    before = base.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    other = {name for name in found if not torch.equal(found[name], before[name])}
    assert len(other) == len(lora_layers(model))
    assert load_tokenizer_only(folder).encode("3 + 4") == tokenizer.encode("3 + 4")


def test_the_base_may_be_a_folder_that_the_commands_find_again(tmp_path):
    """`rfs export` writes a folder that others open, which is then the base of another adapter."""
    first, model = written(tmp_path / "first", "tiny", dtype=torch.float32)
    assert cli.main(["export", str(first), "--to", str(tmp_path / "whole")]) == 0
    expected = merge_lora(model).state_dict()
    assert all(torch.equal(t, expected[n]) for n, t in load_state(tmp_path / "whole").items())
    second, model = written(tmp_path / "second", tmp_path / "whole", dtype=torch.float32)
    found = load_model_and_tokenizer(second)[0].state_dict()
    assert all(torch.equal(found[n], t) for n, t in merge_lora(model).state_dict().items())


def test_one_that_is_shipped_is_known_by_its_name(adapter, monkeypatch):
    """Its base, its prompt and its weights are found from anywhere."""
    asked = PromptFormat("Problem: {problem}\nSolution:", stop="\n")
    (adapter / PROMPT_FILE).write_bytes(asked.to_json())
    monkeypatch.setattr(model_names, "shipped_folder", lambda name: adapter)
    check_model_name("qwen-gsm8k")
    assert base_model_of("qwen-gsm8k") == "tiny"
    wanted, _ = load_model_and_tokenizer(adapter)
    found, tokenizer = load_model_and_tokenizer("qwen-gsm8k")
    assert prompt_format_of(tokenizer) == asked
    both = zip(wanted.state_dict().values(), found.state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in both)
    assert load_tokenizer_only("qwen-gsm8k").encode("3 + 4")


def test_a_run_begins_with_it_and_has_the_options_of_its_base(tmp_path, adapter):
    config = resolved(RunConfig(model=str(adapter)))
    assert config.problems == resolved(RunConfig(model="tiny")).problems
    run = tmp_path / "run"
    flags = "--steps 1 --lr 0 --problems-per-step 2 --rollouts 2 --max-new-tokens 4 --no-preflight"
    command = ["train", "--model", str(adapter), "--log-path", str(run), *flags.split()]
    assert cli.main([*command, "--device", "cpu"]) == 0
    kept = load_state(run / "checkpoints" / "000001")
    begun = load_model_and_tokenizer(adapter, dtype=torch.float32)[0].state_dict()
    assert all(torch.equal(kept[name], begun[name]) for name in kept)


def test_a_run_writes_one_that_names_its_base_and_is_its_last_save(tmp_path):
    run = tmp_path / "run"
    flags = "--steps 1 --problems-per-step 4 --lora-rank 2 --lr 1e-2 --eval-every 1 --eval-limit 1"
    command = f"train --recipe sft --model tiny --problems tiny --device cpu {flags}"
    assert cli.main([*command.split(), "--log-path", str(run)]) == 0
    assert (run / "checkpoints" / "000000").exists()  # the evaluation before the first step
    assert base_model_of(run / "adapter") == "tiny"
    saved = load_state(run / "checkpoints" / "000001")
    found = load_model_and_tokenizer(run / "adapter", dtype=torch.float32)[0].state_dict()
    assert all(torch.equal(saved[name], found[name]) for name in saved)


@pytest.mark.parametrize("command", ["chat", "evaluate"])
def test_commands_that_ask_take_it(adapter, command, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: "")  # chat: no question
    limits = ["--limit", "2", "--max-new-tokens", "4"] if command == "evaluate" else []
    assert cli.main([command, "--model", str(adapter), "--device", "cpu", *limits]) == 0


def test_one_without_tensors_or_with_a_strange_configuration_is_refused(tmp_path, capsys):
    empty, _ = written(tmp_path / "empty", "tiny")
    save_state({}, empty / ADAPTER_WEIGHTS)
    with pytest.raises(UserError, match="has no tensors, so it would change nothing in tiny"):
        load_model_and_tokenizer(empty)
    nested = shutil.copytree(empty, tmp_path / "nested")
    text = (nested / ADAPTER_CONFIG).read_text()
    (nested / ADAPTER_CONFIG).write_text(
        text.replace("{", '{"a": ' + "[" * 5000 + "]" * 5000 + ",", 1)
    )
    assert cli.main(["evaluate", "--model", str(nested), "--limit", "1"]) == 2
    assert f"set base_model_name_or_path in {nested / ADAPTER_CONFIG}" in capsys.readouterr().err


def test_a_base_that_is_gone_or_is_no_whole_model(tmp_path, capsys):
    first, _ = written(tmp_path / "first", "tiny")
    twice = shutil.copytree(first, tmp_path / "twice")
    gone = dict.fromkeys(("/gone", None, 7), "put it back")
    for base, says in (gone | {str(first): "export"}).items():
        changed(twice, base_model_name_or_path=base)
        loaders = (load_model_and_tokenizer, load_tokenizer_only)
        for call in (check_model_name, base_model_of, *loaders):
            with pytest.raises(UserError, match=f"is LoRA for .*{base}.* .*{says}"):
                call(twice)
    assert cli.main(["chat", "--model", str(twice)]) == 2
    assert f"rfs export {first} --out" in capsys.readouterr().err


@pytest.mark.parametrize(
    "values, says",
    [
        ({"base_model_name_or_path": "tiny-player"}, "for another model than tiny-player"),
        ({"r": 4}, r"expected A and B of .* \[\(4, "),
        ({"peft_type": "LOHA"}, "expected peft_type LORA"),
        ({"use_dora": True}, "expected peft_type LORA"),
        ({"r": 0}, "expected peft_type LORA"),
        ({"r": 10**400}, "expected peft_type LORA"),
        ({"lora_alpha": "6"}, "expected peft_type LORA"),
    ],
)
def test_what_its_configuration_may_not_say(adapter, values, says):
    changed(adapter, **values)
    with pytest.raises(UserError, match=says):
        load_model_and_tokenizer(adapter)


def test_other_layers_and_halves(adapter):
    path = adapter / ADAPTER_WEIGHTS
    state = load_state(path)
    half = next(name for name in state if name.endswith("lora_B.weight"))
    layer = "base_model.model.model.layers.99.mlp.up_proj.lora_A.weight"
    for other, says in (
        ({name: tensor for name, tensor in state.items() if name != half}, "expected A and B of"),
        (state | {layer: torch.ones(3, 4)}, "to be absent"),
        (state | {"base_model.model.lm_head.weight": torch.ones(3, 4)}, "only LoRA of linear"),
    ):
        save_state(other, path)
        with pytest.raises(UserError, match=says):
            load_model_and_tokenizer(adapter)
    path.unlink()
    with pytest.raises(UserError, match="there is no checkpoint"):
        load_model_and_tokenizer(adapter)
