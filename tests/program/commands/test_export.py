"""`rfs export` and `rfs push`: what other programs open, and what comes up to the hub."""

import base64
import json

import pytest
import torch
import transformers
from command_world import make_world, train_words
from file_server import closed_port, hub_at, respond, serving
from toy import toy_config, toy_model, toy_problems, toy_tokenizer, train

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.weights import save_model
from reasoning_from_scratch.problems import load_prompt_format, prompt_format_of
from rfs import load_model_and_tokenizer
from rfs.commands.chat import Chat, ChatOptions
from rfs.commands.cli import main
from rfs.serve.models import Models
from rfs.serve.openai_bodies import Conversation, SamplingOptions
from rfs.serve.openai_call import conversation_prompt, stops_of

LLAMA = {"qk_norm": False, "norm_eps": 1e-5}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of a model in Llama's manner, with LoRA: its save is the merged model."""
    folder = tmp_path_factory.mktemp("llama")
    config = toy_config(folder / "run", steps=2, lora_rank=2, lr=1e-2, report_every=0)
    tokenizer = toy_tokenizer(folder)
    train(config, model=toy_model(**LLAMA), tokenizer=tokenizer, problems=toy_problems())
    return folder / "run"


@torch.no_grad()
def test_transformers_opens_what_is_exported(run, tmp_path, capsys):
    assert main(["export", str(run), "--out", str(tmp_path / "out")]) == 0
    assert "model.safetensors" in capsys.readouterr().out
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert type(theirs).__name__ == "LlamaForCausalLM"
    ours, tokenizer = load_model_and_tokenizer(run)
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    expected = theirs(ids).logits
    assert (ours(ids) - expected).abs().max() < 1e-5 * expected.abs().max().clamp(min=1)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "rfs train" in card and "recipe `grpo`" in card.lower().replace("recipe: ", "recipe ")
    assert theirs.generation_config.eos_token_id == tokenizer.eos_token_id
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names >= {"config.json", "tokenizer.json", "generation_config.json"}
    assert not any("optimizer" in name or "state" in name for name in names)


def test_a_bare_file_becomes_a_folder(tmp_path):
    model, _ = load_model_and_tokenizer("tiny")
    path = save_model(model, tmp_path / "mine.pth")
    assert main(["export", str(path), "--out", str(tmp_path / "out")]) == 0
    loaded, tokenizer = load_model_and_tokenizer(tmp_path / "out")
    assert torch.equal(loaded.tok_emb.weight, model.tok_emb.weight) and tokenizer.vocab_size


def test_a_folder_that_is_there_is_left_alone(run, tmp_path, capsys):
    (tmp_path / "thesis.tex").write_text("mine")
    assert main(["export", str(run), "--out", str(tmp_path)]) == 2
    assert "exists and is not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


class Hub:
    """As much of the hub as an upload needs; it takes every file within the commit."""

    def __init__(self, url):
        self.files, self.url = {}, f"{url}/me/mine"

    def __call__(self, handler, _):
        body = b""
        if handler.command == "POST":
            body = handler.rfile.read(int(handler.headers["Content-Length"] or 0))
        answer = {"url": self.url, "commitOid": "0" * 40, "commitUrl": f"{self.url}/commit/0"}
        if handler.path.endswith("/preupload/main"):
            names = [one["path"] for one in json.loads(body)["files"]]
            how = {"uploadMode": "regular", "shouldIgnore": False}
            answer = {"files": [{"path": name, **how} for name in names]}
        elif handler.path.endswith("/commit/main"):
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        elif "/api/repos/create" not in handler.path:
            answer = {"id": "me/mine", "sha": "0" * 40, "siblings": []}
        respond(handler, 200, json.dumps(answer).encode(), Content_Type="application/json")


@pytest.fixture
def hub(monkeypatch):
    with serving() as server:
        server._httpd.RequestHandlerClass.do_POST = server._httpd.RequestHandlerClass.do_GET
        hub = Hub(server.url)
        server.behaviors = [hub]
        hub_at(monkeypatch, server.url, "unused")
        monkeypatch.setenv("HF_TOKEN", "hf_test")
        yield hub


def test_push_sends_the_save_and_nothing_else(run, hub, capsys):
    assert main(["push", str(run), "me/mine"]) == 0, capsys.readouterr().err
    assert {"config.json", "model.safetensors", "README.md", "tokenizer.json"} <= set(hub.files)
    assert not any("optimizer" in name or "jsonl" in name for name in hub.files)
    *_, place = sorted(run.glob("checkpoints/*/config.json"))
    assert hub.files["config.json"] == place.read_bytes()
    assert "/me/mine" in capsys.readouterr().out


def test_push_without_a_hub_or_a_name_is_one_line(run, monkeypatch, capsys):
    assert main(["push", str(run), "mine"]) == 2
    assert "mine is not OWNER/NAME" in capsys.readouterr().err
    hub_at(monkeypatch, f"http://127.0.0.1:{closed_port()}", "unused")
    assert main(["push", str(run), "me/mine"]) == 2
    (line,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("rfs push")]
    assert "could not push to me/mine" in line and "hf auth login" in line


# ---- how a model was asked goes with it


@pytest.fixture(scope="module")
def asked_otherwise(tmp_path_factory):
    """A run whose prompt and stop are its own, exported, and its adapter."""
    folder = tmp_path_factory.mktemp("asked")
    (folder / "shots.txt").write_text("Q: 1 + 1\nA: 2\nQ: {problem}\nA:\n")
    make_world(folder)
    more = ["--prompt", f"{folder}/shots.txt", "--stop", r"\n\n", "--lora-rank", "2"]
    assert main(train_words(folder, folder / "run", *more)) == 0
    assert main(["export", f"{folder}/run", "--out", f"{folder}/out"]) == 0
    (folder / "shots.txt").unlink()  # whoever gets the folder has no such file
    return folder


@pytest.mark.parametrize("name", ["out", "run/adapter"])
def test_a_model_is_asked_the_way_it_was_trained(asked_otherwise, name, capsys, caplog, tmp_path):
    place = asked_otherwise / name
    told = json.loads((place / "prompt.json").read_text())
    assert told == {
        "prompt": "Q: 1 + 1\nA: 2\nQ: {problem}\nA:", "chat_template": False, "stop": "\n\n",
    }  # fmt: skip
    problems = ["--problems", f"{asked_otherwise}/problems.jsonl", "--max-new-tokens", "4"]
    capsys.readouterr()
    card = asked_otherwise / f"{place.name}.jsonl"
    assert main(["evaluate", str(place), *problems, "--out", str(card)]) == 0
    assert "asked as in training, with --prompt" in capsys.readouterr().out
    measured = json.loads(card.with_suffix(".card.json").read_text())["settings"]
    model, tokenizer = load_model_and_tokenizer(place)
    assert measured["prompt"] == tokenizer.decode(tokenizer.encode(told["prompt"]))
    assert measured["stop"] == "\n\n"
    talk = Chat(model, tokenizer, ChatOptions())
    assert talk.template == "as in training" and tokenizer.stop_text == "\n\n"
    asked = tokenizer.encode(told["prompt"].replace("{problem}", "abc"))
    assert talk.prompt_ids("abc") == asked
    with caplog.at_level("INFO"):
        served = Models({"mine": str(place)}, tmp_path).base("mine")
    assert "mine: a single question is asked as in training: 'Q: 1 + 1" in caplog.text
    body = Conversation(messages=[{"role": "user", "content": "abc"}])
    assert served.tokenizer.encode(conversation_prompt(body, served)) == asked
    assert stops_of(SamplingOptions(), served.tokenizer).texts == ("\n\n",)
    assert Chat(model, tokenizer, ChatOptions(template="plain")).prompt_ids("a") == [
        *tokenizer.encode("a")
    ]


@pytest.mark.parametrize("text", [None, "Changed since: {problem}", "no place in it"])
def test_a_run_is_asked_as_in_training_though_its_prompt_file_is_gone(
    asked_otherwise, text, capsys, tmp_path
):
    run, file = asked_otherwise / "run", asked_otherwise / "shots.txt"
    words = ["evaluate", str(run), "--problems", f"{asked_otherwise}/problems.jsonl"]
    if text:
        file.write_text(text)
    try:
        assert main([*words, "--out", f"{tmp_path}/answers.jsonl"]) == 0
    finally:
        file.unlink(missing_ok=True)
    settings = json.loads((tmp_path / "answers.card.json").read_text())["settings"]
    tokenizer = load_model_and_tokenizer(run)[1]
    told = prompt_format_of(tokenizer)
    assert settings["prompt"] == tokenizer.decode(tokenizer.encode(told.prompt))
    assert told.prompt.startswith("Q: 1 + 1") and settings["stop"] == told.stop == "\n\n"


def test_a_damaged_prompt_file_is_one_line(asked_otherwise, tmp_path, capsys):
    for text in ("{", "[]", '{"prompt": "no place", "chat_template": true, "stop": null}'):
        (tmp_path / "prompt.json").write_text(text)
        with pytest.raises(UserError, match="does not say how the model was asked"):
            load_prompt_format(tmp_path)
