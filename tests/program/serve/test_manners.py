"""Who may come in, what a mistake is told, and what is left when a client is gone."""

import json
import random
import time
import warnings
from collections import Counter

import pytest

pytest.importorskip("starlette", reason="needs the extra serve")

from starlette.testclient import TestClient

from rfs.serve.app import build
from rfs.serve.body import MAX_BYTES
from rfs.serve.options import ServeOptions


@pytest.fixture(scope="module")
def application(tmp_path_factory):
    return build(ServeOptions(log_path=str(tmp_path_factory.mktemp("served")), device="cpu"))


@pytest.fixture(scope="module")
def client(application):
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setattr("rfs.serve.app.TIDY_INTERVAL", 0.5)
        with TestClient(application, "http://127.0.0.1", raise_server_exceptions=False) as one:
            yield one


def test_a_page_from_elsewhere_is_not_let_in(client):
    assert client.get("/v1/models").status_code == 200
    for headers in (
        {"host": "evil.example"},
        {"host": "localhost.evil.example:8000"},
        {"host": "testserver"},
        {"host": "[::1]evil.com"},
        {"host": "[::1].evil.com:8000"},
        {"host": "127.0.0.1:8000@evil.com"},
        {"host": "evil.com/127.0.0.1"},
        {"host": ""},
        {"origin": "http://evil.example"},
        {"origin": "http://evil.com//127.0.0.1"},
        {"origin": "http://127.0.0.1.evil.com"},
        {"origin": "null"},
    ):
        answer = client.get("/v1/models", headers=headers)
        assert answer.status_code == 403 and answer.json()["detail"], headers
    for headers in (
        {"host": "127.0.0.1:8000", "origin": "http://127.0.0.1:8000"},
        {"host": "LOCALHOST", "origin": "https://LOCALHOST"},
        {"host": "[::1]:8000", "origin": "http://[::1]:8000"},
    ):
        assert client.get("/v1/models", headers=headers).status_code == 200, headers


def test_with_a_key_only_who_has_it(tmp_path):
    options = ServeOptions(log_path=str(tmp_path), device="cpu", host="0.0.0.0", api_key="tml-key")
    with TestClient(build(options), "http://127.0.0.1") as client:
        assert client.get("/api/v1/healthz").status_code == 200
        assert client.get("/health").status_code == 200
        for headers in ({}, {"X-API-Key": "tml-kez"}, {"Authorization": "Bearer x"}):
            assert client.get("/v1/models", headers=headers).status_code == 401
        for headers in ({"X-API-Key": "tml-key"}, {"Authorization": "Bearer tml-key"}):
            assert client.get("/v1/models", headers=headers).status_code == 200
        assert client.get("/?key=tml-key").status_code == 200


def test_paths_and_bodies_that_are_none(client):
    answer = client.get("/api/v1/no_such_call")
    assert answer.status_code == 404 and "has no call GET" in answer.json()["detail"]
    assert client.get("/api/v1/asample").status_code == 405
    for body in (b"{", b"[1]", b"\xff", b"null", b'"x"', b"[" * 10_000):
        answer = client.post("/v1/completions", content=body)
        assert answer.status_code == 400 and "JSON" in answer.json()["detail"]
    answer = client.post("/v1/completions", content=b" " * (MAX_BYTES + 1))
    assert answer.status_code == 413
    for name in ("../../etc/passwd", "a:train:0/../..", "x:train:1"):
        assert client.get(f"/api/v1/training_runs/{name}").status_code in (400, 404)
        path = {"tinker_path": f"tinker://{name}/weights/a"}
        assert client.post("/api/v1/weights_info", json=path).status_code in (400, 404)


# --- a fuzz of all routes

VALUES = [
    None, True, 0, -1, 1, 3, 2**70, 0.5, float("inf"), "", "x", "tiny", "\ud800", [], [1], ["a"],
    [[1, 2]], [None], {}, {"a": 1}, {"type": "x"}, [{}], [{"role": "user", "content": "2"}],
    "tinker://a:train:0/weights/b", {"chunks": [{"tokens": [1, 2]}]},
    {"chunks": [{"tokens": ["a"]}]},
]  # fmt: skip
KEYS = """
    session_id model_seq_id base_model lora_config optimizer_config user_metadata model_id
    seq_id path adam_params optimizer_params ttl_seconds overwrite kind sampling_session_seq_id
    optimizer tinker_path sampling_session_id num_samples prompt sampling_params
    topk_sample_logprobs topk_prompt_logprobs target_prompt_logprobs prompt_alt_tokens_k
    prompt_logprobs prompt_logprobs_last_n request_id model messages tools stream stop n seed
    temperature top_p top_k logprobs top_logprobs echo max_tokens token_ids stream_options
    stop_token_ids chat_template_kwargs display_name record_stability_info best_of
""".split()


def known(client):
    """Values that lead further in: of a session with a sampler and a model."""
    session = client.post("/api/v1/create_session", json={}).json()["session_id"]
    body = {"session_id": session, "sampling_session_seq_id": 0, "base_model": "tiny"}
    client.post("/api/v1/create_sampling_session", json=body)
    body = {"session_id": session, "model_seq_id": 0, "base_model": "tiny"}
    client.post("/api/v1/create_model", json=body)
    return {
        "session_id": session,
        "model_id": f"{session}:train:0",
        "sampling_session_id": f"{session}:sample:0",
        "request_id": f"{session}:train:0:create",
        "base_model": "tiny",
        "model": "tiny",
        "prompt": {"chunks": [{"tokens": [1, 2]}]},
        "token_ids": [1, 2],
        "max_tokens": 2,
        "sampling_params": {"max_tokens": 2},
        "messages": [{"role": "user", "content": "2"}],
    }


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_sent_no_route_fails(application, client, seed, monkeypatch):
    monkeypatch.setattr("rfs.serve.promises.FETCH_TIMEOUT", 0.05)
    draw, good = random.Random(seed), known(client)
    routes = [(r.path, next(iter(r.methods - {"HEAD"}))) for r in application.routes]
    statuses = Counter()
    for _ in range(400):
        path, method = draw.choice(routes)
        for key in ("session_id", "sampler_id", "model_id", "kind", "name", "name:path", "number"):
            value = draw.choice([good.get(key, "x"), "x", "..", "a:train:0", "%00", "weights", "1"])
            path = path.replace(f"{{{key}}}", value)
        body = {key: draw.choice(VALUES) for key in draw.sample(KEYS, draw.randrange(6))}
        body |= {key: value for key, value in good.items() if draw.random() < 0.8}
        if draw.random() < 0.1:
            answer = client.request(method, path, content=draw.randbytes(draw.randrange(40)))
        elif "forward_backward" in path:
            noise, kind = draw.randbytes(draw.randrange(60)), "application/x-protobuf"
            answer = client.request(method, path, content=noise, headers={"content-type": kind})
        else:
            answer = client.request(method, path, content=json.dumps(body))
        statuses[answer.status_code] += 1
        assert answer.status_code < 500, (method, path, body, answer.text)
        if answer.status_code >= 400 and answer.status_code != 408:
            assert answer.json()["detail"], (path, answer.text)
            assert "Traceback" not in answer.text
    assert statuses[200] > 40


def test_a_silent_client_is_let_go(application, client):
    tinker = application.state.tinker
    good = known(client)
    session = tinker.sessions[good["session_id"]]
    session.last_seen -= 10_000
    deadline = time.monotonic() + 30
    while good["session_id"] in tinker.sessions:  # it is looked for from time to time
        assert time.monotonic() < deadline
        time.sleep(0.1)
    beat = client.post("/api/v1/session_heartbeat", json={"session_id": good["session_id"]})
    assert beat.status_code == 410  # which ends the client's heartbeats
    assert good["model_id"] not in tinker.models.trained


def test_many_requests_leave_nothing(application, client, monkeypatch):
    """Of results that were fetched none is kept for longer than it is said."""
    monkeypatch.setattr("rfs.serve.promises.KEEP_FETCHED", 0.0)
    tinker, good = application.state.tinker, known(client)
    call = {"sampling_session_id": good["sampling_session_id"], "prompt": good["prompt"]}
    call |= {"sampling_params": {"max_tokens": 1}}
    for seq_id in range(150):
        made = client.post("/api/v1/asample", json=call | {"seq_id": seq_id}).json()
        assert client.post("/api/v1/retrieve_future", json=made).status_code == 200
    assert len(tinker.promises.by_id) < 100 and tinker.promises.size < 10_000
    while tinker.worker.in_progress:  # its answer is there before its row is free
        time.sleep(0.01)
    assert len(tinker.worker.batches) <= 5
    batch, requests = next(iter(tinker.worker.batches.values()))
    assert len(batch.prompts) <= 1 and not requests
