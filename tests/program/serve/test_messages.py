"""The messages that are written and read by hand, against the message types of Tinker's client."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoning_from_scratch.errors import UserError
from rfs.serve.messages import LossRequest, SampleAnswer, dense_matrix, loss_answer

tinker = pytest.importorskip("tinker", reason="Tinker's client needs Python 3.11")


def request(data, loss="ppo", config=None, seq_id=7):
    from tinker.proto.request_conv import forward_backward_request_to_proto

    inner = tinker.types.ForwardBackwardInput(data=data, loss_fn=loss, loss_fn_config=config)
    asked = tinker.types.ForwardBackwardRequest(
        forward_backward_input=inner, model_id="s:train:0", seq_id=seq_id
    )
    return forward_backward_request_to_proto(asked).SerializeToString()


def datum(tokens, **inputs):
    return tinker.Datum(model_input=tinker.ModelInput.from_ints(tokens), loss_fn_inputs=inputs)


def read_by_server(message):
    return LossRequest().read(message, context=512)


def test_a_request_of_the_client_is_read():
    sent = datum([1, 2, 300], target_tokens=[2, 300, 0], advantages=[0.0, 1.5, -2.0])
    read = read_by_server(request([sent, sent], config={"clip_low_threshold": 0.5, "x": "y"}))
    assert (read.model_id, read.seq_id, read.loss) == ("s:train:0", 7, "ppo")
    assert read.config == {"clip_low_threshold": 0.5, "x": "y"} and not read.forward_only
    assert [d.tokens for d in read.data] == [[1, 2, 300]] * 2
    inputs = read.data[1].inputs
    assert inputs["target_tokens"].tolist() == [2, 300, 0]
    assert inputs["advantages"].tolist() == [0.0, 1.5, -2.0]


def test_a_sparse_matrix_is_read():
    torch = pytest.importorskip("torch")
    matrix = torch.zeros(6, 9, dtype=torch.long)
    matrix[1, 3], matrix[4, 0], matrix[4, 8] = 5, 6, 7
    (read,) = read_by_server(request([datum([1] * 6, target_tokens=matrix)])).data
    assert (read.inputs["target_tokens"] == matrix.numpy()).all()


def test_what_no_tokens_are_is_refused():
    picture = tinker.types.ImageChunk(data=b"x", format="png", expected_tokens=3)
    inputs = {"target_tokens": [1]}
    sent = tinker.Datum(model_input=tinker.ModelInput(chunks=[picture]), loss_fn_inputs=inputs)
    with pytest.raises(UserError, match="send tokens"):
        read_by_server(request([sent]))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 200))
def test_damaged_messages_are_refused_in_words(noise, place):
    whole = request([datum([1, 2], target_tokens=[1, 2], weights=[1.0, 0.0])])
    for message in (noise, whole[:place], whole[:place] + noise + whole[place:]):
        try:
            read_by_server(message)
        except UserError:
            pass


@pytest.mark.parametrize(
    "starts, columns, shape",
    [([0, 1], [0], [2, 2]), ([0, 2, 1], [0], [2, 2]), ([0, 1, 1], [2], [2, 2]),
     ([0, 1], [0], [1, 2**40]), ([1, 1, 1], [0], [2, 2]), ([0, 1], [0, 1], [1, 2])],
)  # fmt: skip
def test_indices_that_belong_to_no_matrix(starts, columns, shape):
    with pytest.raises(UserError, match="indices do not fit"):
        dense_matrix(np.array([1]), np.array(starts), np.array(columns), shape)


def test_the_answer_to_a_loss():
    from tinker.proto.response_conv import deserialize_forward_backward_output

    outputs = [np.float32([-1, -2, -3]), np.float32([[-1, -2], [-3, -4]]), np.float32([-5])]
    read = deserialize_forward_backward_output(loss_answer(outputs, {"loss:sum": -1.5}))
    assert read.metrics == {"loss:sum": -1.5} and len(read.loss_fn_outputs) == 3
    for found, sent in zip(read.loss_fn_outputs, outputs, strict=True):
        assert (found["logprobs"].to_numpy() == sent).all()


def test_the_answer_to_sampling():
    from tinker.proto.response_conv import deserialize_sample_response

    likely = [[(4, -0.5), (5, -1.5)], [(6, -0.25)]]
    answer = SampleAnswer(
        [(True, [1, 70000], [-0.5, -1.0], likely), (False, [3], [-2.0], None)],
        prompt_logprobs=[math.nan, -0.5],
        likely_in_prompt=likely,
        target_logprobs=np.float32([[-1, 0], [-3, -4]]),
        other_tokens=(np.array([[1], [2]]), np.float32([[-1], [-2]])),
    )
    read = deserialize_sample_response(bytes(answer))
    first, second = read.sequences
    assert list(first.tokens) == [1, 70000] and list(first.logprobs) == [-0.5, -1.0]
    assert (first.stop_reason, second.stop_reason) == ("stop", "length")
    assert first.topk_logprobs[0] == [(4, -0.5), (5, -1.5)] and second.topk_logprobs is None
    assert read.prompt_logprobs == [None, -0.5]
    assert read.topk_prompt_logprobs[1] == [(6, -0.25)]
    assert read.target_prompt_logprobs.to_numpy().tolist() == [[-1, 0], [-3, -4]]
    assert read.prompt_alt_tokens.tokens.to_numpy().tolist() == [[1], [2]]


def test_an_empty_sequence_is_one_too():
    from tinker.proto.response_conv import deserialize_sample_response

    (only,) = deserialize_sample_response(bytes(SampleAnswer([(True, [], [], None)]))).sequences
    assert list(only.tokens) == []
