"""Malformed requests, over HTTP, to a real server: each is refused in one line, ends its turn, and
leaves the server, its models and the connection as they were."""

import asyncio
import http.client
import json
import threading
import time
from functools import partial
from itertools import count, product
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("starlette", reason="needs the extra serve")

from rfs.serve.body import read_bytes
from rfs.serve.messages import (
    FLOAT32,
    INT64,
    array_field,
    bytes_field,
    integer_field,
    map_entry,
    packed_field,
)

API = "/api/v1"
PROTOBUF = {"content-type": "application/x-protobuf"}
DIGITS_30, DIGITS_400 = "1" + "0" * 29, "1" + "0" * 399
SAMPLE = {"prompt": {"chunks": [{"tokens": [1, 2]}]}, "sampling_params": {"max_tokens": 2}}
COMPLETION = {"model": "tiny", "prompt": "2 + 2", "max_tokens": 2}
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "2"}], "max_tokens": 2}
GENERATE = {"model": "tiny", "token_ids": [1, 2], "sampling_params": {"max_tokens": 2}}


class Client:
    """One connection, which is never opened anew: http.client would do it by itself, so it is
    told not to."""

    def __init__(self, address):
        self.connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
        self.connection.connect()
        self.connection.auto_open = 0

    def __call__(self, path, body=None, method="POST", **headers):
        whole = isinstance(body, (bytes, str))
        self.connection.request(method, path, body if whole else json.dumps(body), headers)
        answer = self.connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")  # or protobuf


@pytest.fixture(scope="module")
def ask(server):
    return Client(server.address)


def answer_of(text):
    return json.loads(text)


class Line:
    """A session with a model and a sampler, and the numbers of their calls."""

    def __init__(self, ask):
        self.ask = ask
        self.session = answer_of(ask(f"{API}/create_session", {})[1])["session_id"]
        self.model, self.sampler = f"{self.session}:train:0", f"{self.session}:sample:0"
        numbered = {"session_id": self.session, "base_model": "tiny"}
        lora = {"rank": 2, "seed": 0}
        for call, more in (
            ("create_model", {"model_seq_id": 0, "lora_config": lora}),
            ("create_sampling_session", {"sampling_session_seq_id": 0}),
        ):
            status, _ = ask(f"{API}/{call}", numbered | more)
            assert status == 200
        self.numbers, self.samples = count(1), count(0)

    def call(self, **more):
        return {"model_id": self.model, "seq_id": next(self.numbers)} | more

    def result(self, told):
        """What became of a call that was taken."""
        status, text = self.ask(f"{API}/retrieve_future", {"request_id": told["request_id"]})
        return status, text

    def check_goes_on(self):
        """The next call has its turn, and says that the model is whole."""
        status, text = self.ask(f"{API}/optim_step", self.call(adam_params={"learning_rate": 0}))
        assert status == 200, text
        status, text = self.result(answer_of(text))
        assert status == 200 and "grad_norm" in text, text


@pytest.fixture(scope="module")
def line(ask):
    return Line(ask)


def check_refused(status, text, wanted=400, says=""):
    """One line that says what is wrong."""
    assert status == wanted, (status, text)
    detail = answer_of(text)["detail"]
    assert detail and "\n" not in detail and len(detail) < 2100 and "Traceback" not in detail
    assert says in detail, detail


# --- calls of a model in JSON, as text: some values cannot be written otherwise

ADAM = '{"model_id": "%s", "seq_id": %d, "adam_params": {"%s": %s}}'


@pytest.mark.parametrize("key", ["learning_rate", "beta1", "eps", "weight_decay", "unknown"])
@pytest.mark.parametrize(
    "value, says",
    [
        (DIGITS_400, "the number 10000000000000000000... (400 characters): numbers must be finite"),
        (DIGITS_30, DIGITS_30),
        ("-" + DIGITS_400, "the number -1000000000000000000... (401 characters)"),
        ("1e999", "the number 1e999: numbers must be finite"),
        ("NaN", "the number NaN: numbers must be finite"),
        ("-Infinity", "the number -Infinity"),
        ("[" * 90 + "]" * 90, "more than 64 lists or objects"),
    ],
)  # fmt: skip
def test_numbers_that_no_call_can_mean(ask, line, key, value, says):
    body = ADAM % (line.model, next(line.numbers), key, value)
    check_refused(*ask(f"{API}/optim_step", body), says=says)
    line.check_goes_on()


METADATA = '{"model_id": "%s", "seq_id": %d, "path": "bad", "user_metadata": {"a": %s}}'


@pytest.mark.parametrize("call", ["save_weights", "save_weights_for_sampler"])
def test_nan_in_metadata_poisons_nothing(ask, line, server, call):
    """Not this save, not those after it, not a list of all."""
    body = METADATA % (line.model, next(line.numbers), "NaN")
    check_refused(*ask(f"{API}/{call}", body), says="NaN")
    folder = server.folder / line.model.replace(":", "-")
    assert "NaN" not in "".join(p.read_text() for p in folder.rglob("*.json*"))
    status, text = ask(f"{API}/save_weights", line.call(path=f"good-{call}"))
    assert status == 200 and "tinker://" in line.result(answer_of(text))[1]
    for path in ("checkpoints", "training_runs", f"training_runs/{line.model}"):
        assert ask(f"{API}/{path}", method="GET")[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        b'{"user_metadata": {"a": "\xed\xa0\x80"}}',
        '{"user_metadata": {"a": "\\ud800"}}'.encode("utf-16"),
        b'{"user_metadata": {"a": "\xff"}}',
    ],
)
def test_what_is_not_text_is_refused(ask, body):
    check_refused(*ask(f"{API}/create_session", body), says="the body is not JSON in UTF-8")


def test_half_a_character_becomes_a_mark(ask):
    body = '{"user_metadata": {"a": "x\\ud83d", "b": "\\ud83d\\ude00"}}'
    session = answer_of(ask(f"{API}/create_session", body)[1])["session_id"]
    _, text = ask(f"{API}/sessions/{session}", method="GET")
    assert answer_of(text)["user_metadata"] == {"a": "x\ufffd", "b": "\N{GRINNING FACE}"}


# --- forward_backward, as protobuf


def tensor(values, kind=np.int64, shape=None):
    format = {np.int64: INT64, np.float32: FLOAT32}[kind]
    shape = [len(values)] if shape is None else shape
    return array_field(1, values, kind) + integer_field(3, format) + packed_field(4, shape)


def sparse(values, starts, columns, shape):
    rows = array_field(1, values, np.int64) + array_field(2, starts, np.int64)
    return bytes_field(2, rows + array_field(3, columns, np.int64)) + integer_field(3, INT64) + (
        packed_field(4, shape)
    )  # fmt: skip


def datum(tokens=(1, 2, 3), **tensors):
    inputs = {"target_tokens": tensor([2, 3, 4]), "weights": tensor([1, 1, 1], np.float32)}
    chunk = bytes_field(1, bytes_field(1, array_field(1, tokens, np.int32)))
    named = [map_entry(2, key, bytes_field(2, value)) for key, value in (inputs | tensors).items()]
    return bytes_field(3, chunk + b"".join(named))


def request(line, *data, loss="cross_entropy", **config):
    head = bytes_field(1, line.model) + integer_field(2, next(line.numbers))
    settings = [map_entry(5, key, b"\x11" + np.float64(value).tobytes()) for key, value in config]
    return head + b"".join(data) + bytes_field(4, loss) + b"".join(settings)


MALFORMED = {
    "a shape of three dimensions": (
        datum(target_tokens=tensor([], shape=[0, 2**50, 2**50])), "more than 2 dimensions",
    ),
    "a shape of 70 dimensions": (
        datum(target_tokens=tensor([1], shape=[1] * 70)), "more than 2 dimensions",
    ),
    "a huge size": (datum(target_tokens=tensor([], shape=[0, 2**69])), "each way"),
    "a huge size of a sparse one": (
        datum(target_tokens=sparse([], [0], [], [0, 2**62])), "each way",
    ),
    "rows that jump": (
        datum(target_tokens=sparse([1], [0, 2**63 - 1, -2, 1], [0], [3, 3])), "do not fit",
    ),
    "a shape of other numbers": (datum(target_tokens=tensor([1, 2], shape=[3])), "2 numbers"),
    "too many tokens": (datum([1] * 5000), "datum 0 has 5000 tokens; the model reads "),
    "a name of a megabyte": (datum(**{"x" * 2**20: tensor([1])}), "damaged or cut off"),
    "cut off": (datum()[:-3], "damaged or cut off"),
    "data without end": (b"\x1a\x00" * 2**17, "the request has more than 32,768 data"),
    "unknown fields without end": (b"\x40\x01" * 2**21, "more than 1,048,576 fields"),
}  # fmt: skip


def test_the_zeros_of_all_sparse_tensors_have_one_limit(ask, line, monkeypatch):
    monkeypatch.setattr("rfs.serve.messages.MAX_SIZE", 1000)
    half = datum(target_tokens=sparse([], [0, 0], [], [1, 500]))
    status, text = ask(f"{API}/forward_backward", request(line, half, half), **PROTOBUF)
    assert status == 200 and "inputs have shapes" in line.result(answer_of(text))[1]
    says = "the sparse tensors have more than 1,000 numbers, zeros included: send less at a time"
    check_refused(
        *ask(f"{API}/forward_backward", request(line, half, half, half), **PROTOBUF), says=says
    )
    line.check_goes_on()


@pytest.mark.parametrize("name", MALFORMED)
def test_what_cannot_be_read_as_data(ask, line, name):
    data, says = MALFORMED[name]
    check_refused(*ask(f"{API}/forward_backward", request(line, data), **PROTOBUF), says=says)
    line.check_goes_on()


LOSSES = {
    "no data": (dict(), (), "the request has no data"),
    "no targets": (
        dict(),
        (datum(), datum(target_tokens=tensor([], shape=[3, 0]),
                        weights=tensor([], np.float32, shape=[3, 0]))),
        "datum 1 has no targets: target_tokens has the shape",
    ),
    "a loss that is not here": (dict(loss="hinge"), (datum(),), "there is no loss"),
    "targets between two tokens": (
        dict(), (datum(target_tokens=tensor([2, 3.5, 4], np.float32)),), "not a whole number",
    ),
    "targets outside": (dict(), (datum(target_tokens=tensor([2, 3, 4096])),), "target outside"),
    "NaN as a target": (
        dict(), (datum(target_tokens=tensor([2, np.nan, 4], np.float32)),), "target",
    ),
    "NaN as a weight": (
        dict(), (datum(weights=tensor([1, np.nan, 1], np.float32)),), "not finite",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_data_that_means_nothing(ask, line, name):
    named, data, says = LOSSES[name]
    status, text = ask(f"{API}/forward_backward", request(line, *data, **named), **PROTOBUF)
    assert status == 200
    status, text = line.result(answer_of(text))
    assert status == 200 and answer_of(text)["category"] == "user" and says in text
    line.check_goes_on()


def test_a_number_that_is_none(ask, line):
    """In protobuf 0 is not the same as nothing."""
    body = bytes_field(1, line.model) + b"\x10\x00" + datum() + bytes_field(4, "cross_entropy")
    says = "seq_id is 0, but must be a whole number from 1"
    check_refused(*ask(f"{API}/forward_backward", body, **PROTOBUF), says=says)
    zero = {"model_id": line.model, "seq_id": 0}
    check_refused(*ask(f"{API}/optim_step", zero), says="seq_id is 0, but must be at least 1")
    line.check_goes_on()


# --- every key of every call, with values of every kind

VALUES = [json.dumps(value) for value in (
    None, True, -1, 0, 2.5, "x", "", "tiny", [], [1], ["a", 1], [[1]], {}, {"a": 1}, [{}], 2**63,
)] + [DIGITS_30, DIGITS_400, "NaN", "-1e999", "1e-38", '"\\ud800"']  # fmt: skip
ADAM_PARAMS = {"learning_rate": 0.0, "beta1": 0.9, "beta2": 0.9, "eps": 1e-8}
# A call of Tinker's, what makes a body that would be taken, and the keys that are tried.
TINKERS = {
    "optim_step": (lambda line: line.call(), "adam_params optimizer_params"),
    "save_weights": (
        lambda line: line.call(path="a", overwrite=True),
        "path overwrite ttl_seconds user_metadata",
    ),
    "save_weights_for_sampler": (
        lambda line: line.call(path="b"), "path kind ttl_seconds user_metadata",
    ),
    "save_weights_external": (
        lambda line: line.call(path="c"), "path age_encryption_recipients user_metadata",
    ),
    "load_weights": (lambda line: line.call(path="tinker://a/weights/b"), "path optimizer"),
    "asample": (
        lambda line: SAMPLE
        | {"sampling_session_id": line.sampler, "seq_id": next(line.samples)},
        "seq_id num_samples prompt sampling_params topk_sample_logprobs topk_prompt_logprobs "
        "target_prompt_logprobs prompt_alt_tokens_k prompt_logprobs prompt_logprobs_last_n",
    ),
    "weights_info": (lambda line: {"tinker_path": "tinker://a/weights/b"}, "tinker_path"),
    "create_session": (lambda line: {}, "display_name user_metadata"),
    "create_model": (
        lambda line: {"session_id": line.session, "model_seq_id": 0, "base_model": "tiny"},
        "session_id model_seq_id base_model lora_config optimizer_config user_metadata",
    ),
    "create_sampling_session": (
        lambda line: {"session_id": line.session, "sampling_session_seq_id": 0},
        "session_id sampling_session_seq_id base_model model_path",
    ),
    "retrieve_future": (lambda line: {"request_id": "x"}, "request_id"),
    "get_info": (lambda line: {"model_id": line.model}, "model_id"),
}  # fmt: skip
OPENAIS = {
    "/v1/completions": (
        COMPLETION, "model prompt max_tokens n temperature top_p top_k seed stop logprobs echo "
        "best_of stream stop_token_ids",
    ),
    "/v1/chat/completions": (
        CHAT, "model messages max_tokens n temperature top_p seed stop logprobs top_logprobs tools "
        "stream stream_options chat_template_kwargs",
    ),
    "/inference/v1/generate": (GENERATE, "model token_ids sampling_params"),
}  # fmt: skip


def with_value(body, key, text):
    """The body as text, with this text as the value of the key."""
    return json.dumps(body | {key: "<value>"}).replace('"<value>"', text)


def check_taken_or_refused(status, text):
    assert status < 500, text
    if status >= 400:
        answer = answer_of(text)
        assert "\n" not in answer["detail"] and "Traceback" not in answer["detail"]


@pytest.mark.parametrize("call", TINKERS)
def test_every_key_of_tinkers_calls(ask, line, call):
    make, keys = TINKERS[call]
    for key, value in product(keys.split(), VALUES):
        status, text = ask(f"{API}/{call}", with_value(make(line), key, value))
        check_taken_or_refused(status, text)
        told = answer_of(text)
        if status == 200 and told.get("request_id"):
            status, _ = line.result(told)
            assert status == 200, (key, value)
    line.check_goes_on()


@pytest.mark.parametrize("key", ["temperature", "top_p", "top_k", "max_tokens", "seed", "stop"])
def test_every_sampling_parameter(ask, line, key):
    for value in VALUES:
        params = with_value({"max_tokens": 2}, key, value)
        body = {"sampling_session_id": line.sampler, "seq_id": next(line.samples)} | SAMPLE
        status, text = ask(f"{API}/asample", with_value(body, "sampling_params", params))
        check_taken_or_refused(status, text)
        if status == 200:
            status, text = line.result(answer_of(text))
            assert status == 200 and "damaged" not in text, value


@pytest.mark.parametrize("path", OPENAIS)
def test_every_key_of_openais_calls(ask, path):
    good, keys = OPENAIS[path]
    for key, value in product(keys.split(), VALUES):
        check_taken_or_refused(*ask(path, with_value(good, key, value)))
    status, text = ask(path, good)
    assert status == 200 and "choices" in text


# --- one by one: what a call means, and what is left of it


@pytest.mark.parametrize(
    "path, body, says",
    [
        ("/v1/completions", COMPLETION | {"temperature": 1e-38}, "temperature is 1e-38, but must"),
        ("/inference/v1/generate", GENERATE | {"sampling_params": {"temperature": 1e-38}},
         "sampling_params.temperature is 1e-38"),
        ("/v1/completions", COMPLETION | {"prompt": "2 + 2 " * 500_000},
         "prompt 0 has 3,000,000 characters; the model reads "),
        ("/v1/chat/completions", CHAT | {"messages": [{"role": "user", "content": "2 " * 10**6}]},
         " characters; the model reads "),
        ("/v1/completions", COMPLETION | {"prompt": ["2"] * 10_000}, "10,000 prompts are too many"),
        ("/api/v1/asample", SAMPLE | {"sampling_session_id": "x", "seq_id": 0},
         "there is no sampler"),
    ],
)  # fmt: skip
def test_what_is_refused_for_its_size(ask, path, body, says):
    check_refused(*ask(path, body), wanted=404 if "asample" in path else 400, says=says)


@pytest.mark.parametrize("data", ["[9223372036854775808, 1]", "[-2, 1]", "[1024, 1]", "[0.5, 1]"])
def test_targets_of_a_prompt_are_tokens(ask, line, data):
    tensor = with_value({"shape": [1, 2]}, "data", data)
    body = {"sampling_session_id": line.sampler, "seq_id": next(line.samples)} | SAMPLE
    check_refused(
        *ask(f"{API}/asample", with_value(body, "target_prompt_logprobs", tensor)),
        says="target_prompt_logprobs.data",
    )


def test_no_token_is_drawn_if_none_is_wanted(ask, line):
    pytest.importorskip("tinker", reason="Tinker's client needs Python 3.11")
    from tinker.proto.response_conv import deserialize_sample_response

    body = {"sampling_session_id": line.sampler, "seq_id": next(line.samples)} | SAMPLE
    body |= {"sampling_params": {"max_tokens": 0}, "prompt_logprobs": True, "num_samples": 2}
    told = answer_of(ask(f"{API}/asample", body)[1])
    line.ask.connection.request("POST", f"{API}/retrieve_future", json.dumps(told))
    read = deserialize_sample_response(line.ask.connection.getresponse().read())
    assert [list(s.tokens) for s in read.sequences] == [[], []]
    assert read.prompt_logprobs[0] is None and read.prompt_logprobs[1] < 0
    echoed = COMPLETION | {"max_tokens": 0, "echo": True}
    answer = answer_of(ask("/v1/completions", echoed)[1])
    assert answer["choices"][0]["text"] == "2 + 2" and not answer["usage"]["completion_tokens"]
    for path, body in (
        ("/v1/chat/completions", CHAT | {"max_tokens": 0}),
        ("/inference/v1/generate", GENERATE | {"sampling_params": {"max_tokens": 0}}),
    ):
        check_refused(*ask(path, body), says="max_tokens is 0, but must be at least 1")


@pytest.mark.parametrize("inner", ["1,", "[],"])
def test_a_call_that_is_too_large_has_had_its_turn(ask, line, inner):
    """Its number is where Tinker's client writes it, before what is long."""
    call = json.dumps(line.call(path="a"))[:-1] + ', "user_metadata": {"a": [%s1]}}'
    text = call % (inner * (2**20 if inner == "1," else 2**18))
    check_refused(*ask(f"{API}/save_weights", text), wanted=413, says="the body has more than")
    line.check_goes_on()


def test_a_loss_request_that_is_too_large_has_had_its_turn(ask, line, monkeypatch):
    monkeypatch.setattr("rfs.serve.tinker.read_bytes", partial(read_bytes, max_bytes=200))
    large = request(line, datum(), datum())
    says = "the body has more than"
    check_refused(*ask(f"{API}/forward_backward", large, **PROTOBUF), wanted=413, says=says)
    line.check_goes_on()


def test_the_smallest_eps_keeps_a_step_finite(ask, server):
    """LoRA's A has a gradient of 0 at first: divided by an eps of 0, it would be no number."""
    line = Line(ask)
    status, text = ask(f"{API}/optim_step", line.call(adam_params={"eps": 0.0}))
    check_refused(status, text, says="adam_params.eps is 0.0, but must be at least 1e-30")
    _, text = ask(f"{API}/forward_backward", request(line, datum()), **PROTOBUF)
    line.result(answer_of(text))
    _, text = ask(f"{API}/optim_step", line.call(adam_params={"eps": 1e-30}))
    assert "update_ratio" in line.result(answer_of(text))[1]
    model = server.tinker.models.trained[line.model].policy.model
    assert all(weight.isfinite().all() for weight in model.parameters())


def test_no_answer_has_a_number_that_is_none(ask, server, monkeypatch):
    line = Line(ask)
    _, text = ask(f"{API}/optim_step", line.call())
    assert line.result(answer_of(text))[0] == 200
    policy = server.tinker.models.trained[line.model].policy
    moved = SimpleNamespace(finite=True, grad_norm=0.5, update_ratio=float("nan"))
    monkeypatch.setattr(policy, "optim_step", lambda *how: moved)
    status, text = line.result(answer_of(ask(f"{API}/optim_step", line.call())[1]))
    assert status == 200 and answer_of(text)["metrics"] == {"grad_norm:mean": 0.5}


@pytest.mark.parametrize("how", ["unloaded", "finished"])
def test_a_call_that_outlives_its_model_leaves_nothing(ask, server, how, monkeypatch):
    line, computing, ends = Line(ask), threading.Event(), threading.Event()
    scored = server.tinker.compute_loss

    def slowly(*given):
        computing.set()
        ends.wait(20)
        return scored(*given)

    monkeypatch.setattr(server.tinker, "compute_loss", slowly)
    for _ in range(2):
        assert ask(f"{API}/forward_backward", request(line, datum()), **PROTOBUF)[0] == 200
    computing.wait(20)
    path = {"unloaded": "unload_model", "finished": f"sessions/{line.session}/finish"}[how]
    ending = threading.Thread(
        target=Client(server.address), args=(f"{API}/{path}", {"model_id": line.model})
    )
    ending.start()
    while line.model in server.tinker.queues:
        assert ending.is_alive() or how == "unloaded"
        time.sleep(0.001)
    ends.set()
    ending.join()
    server.worker.submit(lambda: None).result(timeout=20)
    assert line.model not in server.tinker.recent_calls.calls
    assert line.model not in server.tinker.models.trained


def test_a_sampler_that_its_session_does_not_know_yet_goes_with_it(ask, server):
    line, models = Line(ask), server.tinker.models
    early = f"{line.session}:sample:1"
    models.add_sampler(early, 1, "tiny", None)
    assert ask(f"{API}/sessions/{line.session}/finish", {})[0] == 200
    assert not {early, line.sampler} & set(models.samplers)


class Looked:
    """A sampler; whenever somebody looks at it, another one arrives, as from another thread."""

    policy = None

    def __init__(self, samplers):
        self.samplers = samplers

    @property
    def id(self):
        self.samplers[f"x:sample:{len(self.samplers)}"] = SimpleNamespace(id="y:sample:0")
        return "x:sample:0"


def test_samplers_may_arrive_while_a_snapshot_is_made(ask, server, monkeypatch):
    line, samplers = Line(ask), {}
    samplers["x:sample:0"] = Looked(samplers)
    monkeypatch.setattr(server.tinker.models, "samplers", samplers)
    body = line.call(sampling_session_seq_id=5)
    status, text = ask(f"{API}/save_weights_for_sampler", body)
    status, text = line.result(answer_of(text))
    assert status == 200 and f"{line.session}:sample:5" in text and len(samplers) > 2


def test_a_policy_is_read_once_though_it_may_be_released_meanwhile(server):
    policies = iter(["a policy", None])

    class Released:
        policy = property(lambda self: next(policies))

    assert asyncio.run(server.tinker.policy_of(Released())) == "a policy"


def test_a_path_that_is_none_is_refused_for_that(ask, line):
    for path in ("/etc/passwd", "tinker://a/b", "tinker://a/weights/../../b"):
        says = f"{path!r} is not the path of a save, tinker://MODEL/KIND/NAME"
        check_refused(*ask(f"{API}/load_weights", line.call(path=path)), says=says)
    line.check_goes_on()


def test_a_model_that_was_unloaded_is_not_created_again(ask):
    line = Line(ask)
    assert ask(f"{API}/unload_model", {"model_id": line.model})[0] == 200
    body = {"session_id": line.session, "model_seq_id": 0, "base_model": "tiny"}
    says = f"{line.model} was unloaded: give a new model another model_seq_id"
    check_refused(*ask(f"{API}/create_model", body), says=says)
    status, text = ask(f"{API}/create_model", body | {"model_seq_id": 1})
    assert status == 200 and line.result(answer_of(text))[0] == 200


def test_calls_do_not_wait_forever_for_one_that_never_came(ask, server, monkeypatch):
    line = Line(ask)
    next(line.numbers)  # lost on its way
    told = [answer_of(ask(f"{API}/optim_step", line.call(adam_params={}))[1]) for _ in range(2)]
    queue = server.tinker.queues[line.model]
    queue.tidy()
    assert len(queue.waiting) == 2  # it may still come
    monkeypatch.setattr("rfs.serve.tinker.MISSING_CALL_TIMEOUT", 0.0)
    queue.tidy()
    for number, one in enumerate(told, start=2):
        status, text = line.result(one)
        assert f"call 1 of this model never arrived, so call {number} had no turn" in text
    line.check_goes_on()


def test_a_session_has_a_limit_of_requests_that_wait(ask, server, monkeypatch):
    monkeypatch.setattr("rfs.serve.tinker.MAX_WAITING", 3)
    line = Line(ask)
    going_on, pause = threading.Event(), threading.Event()
    server.worker.submit(lambda: (going_on.set(), pause.wait(20)))
    going_on.wait(20)
    body = {"sampling_session_id": line.sampler} | SAMPLE
    told = [ask(f"{API}/asample", body | {"seq_id": number}) for number in range(4)]
    pause.set()
    assert [status for status, _ in told] == [200, 200, 200, 429]
    assert "3 requests of this session wait" in told[-1][1]
    assert line.result(answer_of(told[0][1]))[0] == 200
    deadline = time.monotonic() + 20
    while ask(f"{API}/asample", body | {"seq_id": 3})[0] != 200:  # as clients try again
        assert time.monotonic() < deadline


def test_after_an_error_of_its_own_the_connection_is_still_good(ask, server, monkeypatch, caplog):
    monkeypatch.setattr(server.tinker, "sessions", None)  # what no client can do
    status, text = ask(f"{API}/sessions", method="GET")
    check_refused(status, text, 500, "the server failed (TypeError): see what it printed")
    monkeypatch.undo()
    assert ask(f"{API}/sessions", method="GET")[0] == 200
    assert len([r for r in caplog.records if r.exc_info]) == 1


# --- the server answers others while it reads

LONG = {
    "fields that mean nothing": (f"{API}/forward_backward", b"\x40\x01" * (10 * 2**20)),
    "data without end": (f"{API}/forward_backward", b"\x1a\x00" * (4 * 2**20)),
    "tokens": (f"{API}/asample", b'{"prompt": [' + b"123456, " * 900_000 + b"1]}"),
    "a list of lists": (f"{API}/create_session", b'{"user_metadata": [' + b"[]," * 2**20 + b"1]}"),
    "a long text": ("/v1/completions", json.dumps(COMPLETION | {"prompt": "2 + 2 " * 500_000})),
    "many texts": ("/v1/completions", json.dumps(COMPLETION | {"prompt": ["2 + 2"] * 500_000})),
    "a long note": (f"{API}/create_session", json.dumps({"user_metadata": {"a": [1.5] * 900_000}})),
}


@pytest.mark.parametrize("name", LONG)
def test_others_are_answered_while_a_long_request_is_read(server, name):
    path, body = LONG[name]
    long, short, status = Client(server.address), Client(server.address), []
    headers = PROTOBUF if "forward" in path else {}
    reading = threading.Thread(target=lambda: status.append(long(path, body, **headers)[0]))
    waits = []
    reading.start()
    while reading.is_alive() or len(waits) < 5:
        before = time.perf_counter()
        assert short(f"{API}/healthz", method="GET")[0] == 200
        waits.append(time.perf_counter() - before)
        time.sleep(0.002)
    assert status[0] in (400, 404, 413)
    # Mostly a few milliseconds, at most 100 on a machine of its own. Read in the event loop, the
    # long requests took seconds.
    assert sorted(waits)[len(waits) // 2] < 0.1 and max(waits) < 0.6
