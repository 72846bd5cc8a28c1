"""What a call may have: nothing is converted, null is nothing, what is wrong is one sentence."""

import json
import time

import pytest

pytest.importorskip("starlette", reason="needs the extra serve")

from rfs.serve.body import BadValues, validate
from rfs.serve.models import Adam, SaveRecord
from rfs.serve.openai_bodies import Chat, Completion, Generate
from rfs.serve.tinker_bodies import CreateModel, LoadWeights, OptimStep, Sample, SaveForSampler

COMPLETION = {"model": "tiny", "prompt": "2"}
CHAT = {"model": "tiny", "messages": []}
GENERATE = {"model": "tiny", "token_ids": [1]}
CREATE = {"session_id": "s", "model_seq_id": 0, "base_model": "tiny"}
SAMPLE = {"sampling_session_id": "s", "seq_id": 0, "prompt": {"chunks": [{"tokens": [1]}]}}
CALL = {"model_id": "s:train:0", "seq_id": 1}
SAVED = {"kind": "weights", "name": "a", "time": 1.0}


@pytest.mark.parametrize(
    "kind, good, bad, says",
    [
        # What Python or JavaScript would convert.
        (Completion, COMPLETION, {"n": "2"}, "n is '2', but must be a whole number"),
        (Completion, COMPLETION, {"n": 2.0}, "n is 2.0, but must be a whole number"),
        (Completion, COMPLETION, {"n": True}, "n is True, but must be a whole number"),
        (Completion, COMPLETION, {"top_p": "1"}, "top_p is '1', but must be a number"),
        (Completion, COMPLETION, {"top_p": True}, "top_p is True, but must be a number"),
        (Completion, COMPLETION, {"echo": 1}, "echo is 1, but must be true or false"),
        (Completion, COMPLETION, {"model": 5}, "model is 5, but must be a text"),
        (Generate, GENERATE, {"token_ids": [1, True]}, "token_ids[1] is True, but must be a whole"),
        (Generate, GENERATE, {"token_ids": {"0": 1}}, "token_ids is {'0': 1}, but must be a list"),
        (CreateModel, CREATE, {"lora_config": []}, "lora_config is [], but must be an object"),
        # Bounds, and what cannot be left out.
        (Completion, COMPLETION, {"n": 129}, "n is 129, but must be at most 128"),
        (Completion, COMPLETION, {"prompt": None}, "prompt is missing"),
        (CreateModel, CREATE, {"lora_config": {}}, "lora_config.rank is missing"),
        (Generate, GENERATE, {"sampling_params": {"n": 0}}, "sampling_params.n is 0, but must be"),
        (Sample, SAMPLE, {"prompt": {"chunks": [{}]}}, "prompt.chunks[0].tokens is missing"),
        (OptimStep, CALL, {"adam_params": {"eps": None}}, "adam_params.eps is None, but must be a"),
        (SaveForSampler, CALL, {}, "path is missing, and so is sampling_session_seq_id"),
        (LoadWeights, CALL, {"path": "/x"}, "'/x' is not the path of a save"),
        # Numbers that JSON does not have, in files.
        (SaveRecord, SAVED, {"time": float("nan")}, "time is nan, but must be a finite number"),
        (SaveRecord, SAVED, {"time": 10**400}, "but must be a number"),
        (SaveRecord, SAVED, {"metadata": {"a": float("inf")}}, "an object with finite numbers"),
        (
            SaveRecord,
            SAVED,
            {"name": "../x"},
            "name is '../x', but must be a name of at most 100 letters",
        ),
        # Keys that are not there.
        (Chat, CHAT, {"echo": False}, "echo is not supported"),
        (Generate, GENERATE, {"sampling_params": {"tempe": 1}}, "sampling_params.tempe is not sup"),
        (Completion, COMPLETION, {"x" * 10**6: 1}, "x is not supported"),
    ],
)
def test_what_is_wrong_is_one_sentence(kind, good, bad, says):
    with pytest.raises(BadValues) as error:
        validate(kind, good | bad)
    assert says in str(error.value) and len(str(error.value)) < 300
    assert error.value.values == good | bad  # which say whose turn it was


@pytest.mark.parametrize("kind, good", [
    (Completion, COMPLETION), (Chat, CHAT), (Generate, GENERATE), (CreateModel, CREATE),
    (Sample, SAMPLE), (SaveRecord, SAVED), (OptimStep, CALL),
])  # fmt: skip
def test_null_is_nothing(kind, good):
    optional = {key: None for key, field in kind.model_fields.items() if not field.is_required()}
    assert validate(kind, optional | good).model_dump() == validate(kind, good).model_dump()


def test_a_whole_number_is_a_number():
    found = validate(Completion, COMPLETION | {"temperature": 1, "top_k": -1})
    assert type(found.temperature) is float and found.top_k == 0
    assert validate(Adam, {"learning_rate": 0}).learning_rate == 0


@pytest.mark.parametrize("kind, good, key", [
    (Generate, GENERATE, "token_ids"), (Completion, COMPLETION, "stop_token_ids"),
    (Completion, COMPLETION, "prompt"), (Completion, COMPLETION, "stop"), (Chat, CHAT, "messages"),
    (Chat, CHAT, "tools"), (Sample, SAMPLE, "prompt"),
])  # fmt: skip
def test_a_list_without_anything_good_in_it_is_refused_at_its_first(kind, good, key):
    """Not after a million errors, which would take seconds."""
    bad = good | {key: [{}, 1.5, None] * 300_000}
    before = time.perf_counter()
    with pytest.raises(BadValues) as error:
        validate(kind, bad)
    assert time.perf_counter() - before < 0.5 and len(str(error.value)) < 300


def test_what_a_save_says_can_be_written_and_read():
    saved = SaveRecord(**SAVED, metadata={"a": [1, "x"]}, expires=None, batch=3)
    assert validate(SaveRecord, json.loads(json.dumps(saved.model_dump()))) == saved
