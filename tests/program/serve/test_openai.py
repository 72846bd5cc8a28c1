"""OpenAI's own client against the server; and tokens in, tokens out."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import httpx
import pytest
import torch

pytest.importorskip("starlette", reason="needs the extra serve")

from reasoning_from_scratch import Sampling, generate
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.weights import load_tokenizer_only
from reasoning_from_scratch.problems import render_prompt
from reasoning_from_scratch.tokenizer import EXAMPLE_TOOL, stop_ids_of
from rfs import load_problems
from rfs.files.models import load_model_and_tokenizer
from rfs.serve.answer_parts import extract_tool_calls
from rfs.serve.choices import TextChoice
from rfs.serve.openai_bodies import Completion, Conversation
from rfs.serve.openai_call import Prompts, SamplingCall, conversation_prompt
from rfs.serve.worker import Stops

openai = pytest.importorskip("openai", reason="needs OpenAI's client")

MODEL, TOKENIZER = load_model_and_tokenizer("tiny")
PROMPTS = [render_prompt(p.problem) for p in load_problems("tiny", limit=3)]
IDS = [TOKENIZER.encode(prompt) for prompt in PROMPTS]


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="x", max_retries=0) as one:
        yield one


def ours(count=1, max_new_tokens=60, **settings):
    sampling = Sampling(max_new_tokens, rollouts=count, **settings)
    return [r for g in generate(MODEL, IDS, sampling, stop_ids=stop_ids_of(TOKENIZER)) for r in g]


def test_models(client):
    assert [model.id for model in client.models.list()] == ["tiny"]
    found = client.models.retrieve("tiny")
    assert found.id == "tiny" and found.max_model_len == MODEL.cfg["context_length"]
    with pytest.raises(openai.NotFoundError, match="unknown model 'tini': did you mean 'tiny'"):
        client.models.retrieve("tini")


@pytest.mark.parametrize("as_tokens", [False, True])
def test_completions_are_what_generate_gives(client, as_tokens):
    found = client.completions.create(
        model="tiny", prompt=IDS if as_tokens else PROMPTS, n=2, seed=7, max_tokens=60, logprobs=2
    )
    expected = ours(2, seed=7)
    assert [c.index for c in found.choices] == list(range(6))
    for choice, rollout in zip(found.choices, expected, strict=True):
        assert choice.text == TOKENIZER.decode(rollout.text_ids)
        assert choice.finish_reason == rollout.stop_reason
        assert choice.logprobs.token_logprobs == pytest.approx(rollout.logprobs, abs=1e-4)
        assert "".join(choice.logprobs.tokens) == TOKENIZER.decode(rollout.response_ids)
        logprobs = choice.logprobs
        for token, best in zip(logprobs.tokens, logprobs.top_logprobs, strict=True):
            assert token in best and 2 <= len(best) <= 3  # the sampled one too, as OpenAI has it
    assert found.usage.prompt_tokens == sum(map(len, IDS))
    assert found.usage.completion_tokens == sum(len(r.response_ids) for r in expected)


def test_greedy_and_one_at_a_time(client):
    for prompt, rollout in zip(PROMPTS, ours(temperature=0.0), strict=True):
        asked = dict(model="tiny", prompt=prompt, temperature=0, max_tokens=60)
        found = client.completions.create(**asked).choices[0]
        assert found.text == TOKENIZER.decode(rollout.text_ids)
        pieces = list(client.completions.create(**asked, stream=True))
        assert "".join(piece.choices[0].text for piece in pieces) == found.text
        assert pieces[-1].choices[0].finish_reason == found.finish_reason and len(pieces) > 3


def test_stops(client):
    asked = dict(model="tiny", prompt=PROMPTS[0], temperature=0, max_tokens=60)
    whole = client.completions.create(**asked).choices[0].text
    stop, long = whole[5:9], whole[8:30]
    for stops in ([stop], ["never", stop], [long], ["a text that never comes", stop]):
        found = client.completions.create(**asked, stop=stops).choices[0]
        assert found.text == whole[: whole.index(stops[-1])] and found.finish_reason == "stop"
        pieces = client.completions.create(**asked, stop=stops, stream=True)
        assert "".join(piece.choices[0].text for piece in pieces) == found.text


def test_further_tokens_may_end_an_answer(client):
    asked = dict(model="tiny", prompt=PROMPTS[0], temperature=0, max_tokens=60, logprobs=0)
    tokens = client.completions.create(**asked).choices[0].logprobs.tokens
    (stop,) = TOKENIZER.encode(tokens[3])
    asked["extra_body"] = {"stop_token_ids": [stop]}
    found = client.completions.create(**asked).choices[0]
    assert found.text == "".join(tokens[: tokens.index(tokens[3])])
    assert found.finish_reason == "stop"
    pieces = list(client.completions.create(**asked, stream=True))
    assert "".join(piece.choices[0].text for piece in pieces) == found.text


def test_what_no_answer_depends_on_may_be_sent(client):
    """What clients send with every call, and options with the value that changes nothing."""
    asked = dict(model="tiny", prompt=PROMPTS[0], temperature=0, max_tokens=9)
    plain = client.completions.create(**asked).choices[0].text
    more = dict(user="me", presence_penalty=0, logit_bias={}, suffix=None)
    extra = {"cache_salt": "a", "min_p": 0.0, "repetition_penalty": 1.0, "response_format": None}
    found = client.completions.create(**asked, **more, extra_body=extra).choices[0].text
    assert found == plain


def test_without_a_seed_each_call_draws_anew(client):
    asked = dict(model="tiny", prompt=PROMPTS[0], max_tokens=60, temperature=2)
    texts = {client.completions.create(**asked).choices[0].text for _ in range(4)}
    assert len(texts) == 4


def test_echo_scores_a_prompt(client):
    """As lm-eval asks for the likelihood of a text."""
    found = client.completions.create(
        model="tiny", prompt=IDS[0], max_tokens=0, echo=True, logprobs=1
    ).choices[0]
    logprobs = MODEL(torch.tensor([IDS[0]]))[0].log_softmax(-1).detach()
    own = logprobs[:-1].gather(-1, torch.tensor(IDS[0][1:])[:, None])[:, 0].tolist()
    assert found.text == PROMPTS[0] and found.logprobs.token_logprobs[0] is None
    assert found.logprobs.token_logprobs[1:] == pytest.approx(own, abs=1e-4)
    best = found.logprobs.top_logprobs[1]
    assert next(iter(best)) == TOKENIZER.decode([int(logprobs[0].argmax())])
    assert set(best) <= {next(iter(best)), TOKENIZER.decode([IDS[0][1]])}
    assert found.logprobs.top_logprobs[0] is None


def test_a_conversation(client):
    words = load_problems("tiny", limit=1)[0].problem
    asked = dict(model="tiny", temperature=0, messages=[{"role": "user", "content": words}])
    found = client.chat.completions.create(**asked, max_completion_tokens=60, logprobs=True,
                                           top_logprobs=2)  # fmt: skip
    (rollout, *_) = ours(temperature=0.0)
    (choice,) = found.choices
    assert choice.message.content == TOKENIZER.decode(rollout.text_ids)
    assert [t.logprob for t in choice.logprobs.content] == pytest.approx(rollout.logprobs, abs=1e-4)
    assert choice.logprobs.content[0].top_logprobs[0].token == choice.logprobs.content[0].token
    pieces = list(
        client.chat.completions.create(
            **asked, max_tokens=60, stream=True, stream_options={"include_usage": True}
        )
    )
    assert pieces[0].choices[0].delta.role == "assistant"
    text = "".join(p.choices[0].delta.content or "" for p in pieces if p.choices)
    assert text == choice.message.content and pieces[-1].usage == found.usage
    talk = [{"role": "developer", "content": "Be brief."}, *asked["messages"]]
    talk += [{"role": "assistant", "content": "4"}, *asked["messages"]]
    longer = client.chat.completions.create(model="tiny", messages=talk, max_tokens=5)
    prompt = "Be brief.\n\n" + PROMPTS[0] + "4<|endoftext|>" + PROMPTS[0]
    assert longer.usage.prompt_tokens == len(TOKENIZER.encode(prompt))
    told = [
        ("tools", [EXAMPLE_TOOL], "tiny's chat template has no place for tools: leave them out")
    ]
    told += [("messages", [{"role": "tool", "content": "4"}], "no place for the role tool")]
    for key, value, message in told:
        with pytest.raises(openai.BadRequestError, match=message):
            client.chat.completions.create(**(asked | {key: value}))


def test_a_stream_has_the_same_logprobs(client):
    chat = dict(model="tiny", temperature=0, max_tokens=40, logprobs=True, top_logprobs=2)
    chat["messages"] = [{"role": "user", "content": "What is 3 * 14?"}]
    whole = client.chat.completions.create(**chat, stop="4").choices[0].logprobs.content
    pieces = [p.choices[0] for p in client.chat.completions.create(**chat, stop="4", stream=True)]
    assert [one for p in pieces if p.logprobs for one in p.logprobs.content] == whole and whole
    text = dict(model="tiny", prompt=PROMPTS[0], temperature=0, max_tokens=40, logprobs=2)
    whole = client.completions.create(**text).choices[0].logprobs
    pieces = [p.choices[0].logprobs for p in client.completions.create(**text, stream=True)]
    for part in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert sum((getattr(piece, part) for piece in pieces), []) == getattr(whole, part)
    assert len(pieces) > 3


def test_calls_of_vllms(server, client):
    assert httpx.get(f"{server.address}/health").status_code == 200
    call = {"model": "tiny", "prompt": PROMPTS[0]}
    found = httpx.post(f"{server.address}/tokenize", json=call).json()
    assert found == {"count": len(IDS[0]), "max_model_len": 2048, "tokens": IDS[0]}
    talk = {"model": "tiny", "messages": [{"role": "user", "content": "2 + 2"}]}
    found = httpx.post(f"{server.address}/tokenize", json=talk).json()
    assert found["tokens"] == TOKENIZER.encode(render_prompt("2 + 2"))
    call = {"model": "tiny", "tokens": IDS[0]}
    found = httpx.post(f"{server.address}/detokenize", json=call).json()
    assert found == {"prompt": PROMPTS[0]}


@pytest.mark.parametrize(
    "path, call, message",
    [
        ("v1/completions", {"prompt": "2"}, "unknown model 'tini': did you mean 'tiny'"),
        ("v1/chat/completions", {"messages": []}, "unknown model 'tini'"),
        ("inference/v1/generate", {"token_ids": [1]}, "unknown model 'tini'"),
        ("tokenize", {"prompt": "2"}, "unknown model 'tini'"),
        ("detokenize", {"tokens": [2]}, "unknown model 'tini'"),
        ("v1/embeddings", {"input": "2"}, "these models write text and give no embeddings"),
        ("v1/responses", {"input": "2"}, "use /v1/chat/completions"),
    ],
)
def test_what_is_not_there(server, path, call, message):
    answer = httpx.post(f"{server.address}/{path}", json={"model": "tini"} | call)
    assert answer.status_code == 404 and message in answer.json()["error"]["message"]


def test_a_prompt_that_leaves_no_room_is_told(server):
    call = {"model": "tiny", "token_ids": [5] * 2048, "sampling_params": {}}
    found = httpx.post(f"{server.address}/inference/v1/generate", json=call).json()
    assert "the prompt has 2048 tokens; the model reads 2048" in found["detail"]
    call = {"model": "tiny", "prompt": [[5, 6], [5] * 2048], "max_tokens": 2}
    for stream in (False, True):  # a stream is refused before it begins
        found = httpx.post(f"{server.address}/v1/completions", json=call | {"stream": stream})
        assert found.status_code == 400 and "the prompt has 2048 tokens" in found.json()["detail"]
    call |= {"max_tokens": 0, "echo": True, "logprobs": 0}
    found = httpx.post(f"{server.address}/v1/completions", json=call).json()["choices"]
    assert len(found[1]["logprobs"]["token_logprobs"]) == 2048  # to score it needs no room


def test_tokens_in_tokens_out(server):
    how = {"seed": 0, "max_tokens": 60}
    call = {"model": "tiny", "token_ids": IDS[0], "sampling_params": how}
    found = httpx.post(f"{server.address}/inference/v1/generate", json=call).json()
    (rollout, *_) = ours()
    (choice,) = found["choices"]
    assert choice["token_ids"] == rollout.response_ids
    assert choice["finish_reason"] == rollout.stop_reason
    content = choice["logprobs"]["content"]
    assert [one["token"] for one in content] == [f"token_id:{i}" for i in rollout.response_ids]
    assert [one["logprob"] for one in content] == pytest.approx(rollout.logprobs, abs=1e-4)
    assert {len(one["top_logprobs"]) for one in content} == {0}
    call["sampling_params"] = how | {"temperature": 0, "logprobs": 3}
    found = httpx.post(f"{server.address}/inference/v1/generate", json=call).json()
    for one in found["choices"][0]["logprobs"]["content"]:
        first, second, third = one["top_logprobs"]
        assert first.keys() == one.keys() - {"top_logprobs"}
        assert first["token"] == one["token"]  # it is greedy
        assert first["logprob"] == pytest.approx(one["logprob"], abs=1e-5)
        assert first["logprob"] >= second["logprob"] >= third["logprob"]


def test_the_three_calls_sample_alike(server):
    """A prompt as a text, as tokens, and as a question: the same answers."""
    words = load_problems("tiny", limit=1)[0].problem
    how = {"n": 2, "seed": 5, "max_tokens": 30, "temperature": 0.7, "top_k": 20}
    asked = {"messages": [{"role": "user", "content": words}], "logprobs": True}
    found = []
    for path, call in (
        ("v1/completions", {"prompt": PROMPTS[0], "logprobs": 1} | how),
        ("v1/chat/completions", asked | how),
        ("inference/v1/generate", {"token_ids": IDS[0], "sampling_params": how}),
    ):
        answer = httpx.post(f"{server.address}/{path}", json={"model": "tiny"} | call).json()
        assert [choice["index"] for choice in answer["choices"]] == [0, 1]
        assert answer["usage"]["prompt_tokens"] == len(IDS[0])
        kept = [choice["logprobs"] for choice in answer["choices"]]
        lists = [k.get("token_logprobs") or [t["logprob"] for t in k["content"]] for k in kept]
        found.append([logprob for one in lists for logprob in one])
    assert len(found[0]) > 8 and found[1:] == [pytest.approx(found[0], abs=1e-4)] * 2


@pytest.mark.parametrize(
    "call, message",
    [
        (dict(model="tini"), "unknown model 'tini'"),
        (dict(prompt=""), "prompt 0 has no tokens"),
        (dict(prompt=[[1, 99999]]), "outside of the model's vocabulary"),
        (dict(prompt={"a": 1}), "prompt is .* but must be a text"),
        (dict(prompt="1" * 2100), "the model reads 2048"),
        (dict(temperature=-1), "temperature is -1"),
        (dict(top_p=0), "top_p is 0"),
        (dict(n=0), "n is 0"),
        (dict(stop=[""]), "stop.0. is '', but must be"),
        (dict(presence_penalty=1), "presence_penalty is not supported"),
        (dict(suffix="x"), "suffix is not supported"),
        (
            dict(extra_body={"stop_token_ids": ["a"]}),
            "stop_token_ids.0. is 'a', but must be a whole number",
        ),
        *[
            (dict(extra_body={key: value}), f"{key} is not supported")
            for key, value in (
                ("guided_regex", "a+"),
                ("guided_choice", ["a"]),
                ("structured_outputs", {}),
                ("grammar", "x"),
                ("length_penalty", 2),
                ("use_beam_search", True),
                ("typical_p", 0.5),
                ("truncate_prompt_tokens", 3),
                ("thinking", {"type": "on"}),
                ("messages", []),
                ("logit_bias", {"5": 100}),
            )
        ],
        (dict(extra_body={"temprature": 0.5}), "not supported: did you mean 'temperature'"),
        (dict(extra_body={"guided_regex": "a"}), "no answer is forced into a form here"),
        (dict(echo=True, stream=True), "a stream has no echo here"),
    ],
)
def test_what_cannot_be_asked(client, call, message):
    with pytest.raises((openai.BadRequestError, openai.NotFoundError), match=message):
        client.completions.create(**(dict(model="tiny", prompt="2 + 2") | call))


def test_whoever_hangs_up_frees_the_rows(server):
    call = {"model": "tiny", "prompt": "1", "max_tokens": 2000, "n": 128, "stop_token_ids": []}
    call |= {"temperature": 3.0, "stream": True}
    with httpx.stream("POST", f"{server.address}/v1/completions", json=call) as answer:
        next(answer.iter_lines())
        drawn = [one for batch, _ in server.worker.batches.values() for one in batch.rollouts]
        assert len(drawn) > 20
    deadline = time.monotonic() + 60
    while server.worker.in_progress:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert not any(len(rollout.response_ids) == 2000 for rollout in drawn)


def test_many_streams_at_once(server):
    def whole_and_streamed(number):
        call = {"model": "tiny", "prompt": IDS[number % 3], "seed": number, "max_tokens": 40}
        whole = httpx.post(f"{server.address}/v1/completions", json=call, timeout=60).json()
        lines = httpx.post(
            f"{server.address}/v1/completions", json=call | {"stream": True}, timeout=60
        ).text.split("\n\n")
        pieces = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        text = "".join(piece["choices"][0]["text"] for piece in pieces)
        return whole["choices"][0]["text"], text

    with ThreadPoolExecutor(12) as pool:
        for whole, streamed in pool.map(whole_and_streamed, range(12)):
            assert whole == streamed


def choice_of_bytes(stops=(), **asked):
    """Each byte is a token."""
    of_bytes = SimpleNamespace(decode=lambda ids: bytes(ids).decode(errors="replace"))
    base, stops = SimpleNamespace(tokenizer=of_bytes), Stops(frozenset(), stops)
    body = Completion(model="x", prompt="1", **asked)
    return TextChoice(SamplingCall(body, base, None, Prompts([[1]]), [[1]], stops))


@pytest.mark.parametrize(
    "sampled, wanted, expected",
    [
        (b"c", 3, {"a": -0.1, "\ufffd": -2.0, "c": -4.0}),  # two bytes read the same
        (b"c", 1, {"a": -0.1, "c": -4.0}),
        (b"a", 1, {"a": -0.1}),
        (b"c", 0, {"c": -4.0}),
    ],
)
def test_likely_tokens_are_named_by_their_text_and_the_sampled_one_is_among_them(
    sampled, wanted, expected
):
    likely = [(ord("a"), -0.1), (0x80, -2.0), (0x81, -3.0)][: max(1, wanted)]
    logprob = -0.1 if sampled == b"a" else -4.0
    found = choice_of_bytes(logprobs=wanted).as_logprobs([*sampled], [logprob], [likely])
    assert found["top_logprobs"] == [expected]
    assert list(found["top_logprobs"][0]) == list(expected)  # the likeliest first


def test_characters_of_several_tokens_come_whole():
    choice = choice_of_bytes(("END",))
    pieces = [choice.read(byte) for byte in "für €5 EN und".encode()]
    assert "".join(pieces) == "für €5 EN und"[:-2] and "\ufffd" not in "".join(pieces)


def test_calls_of_tools():
    text = 'So: <tool_call>\n{"name": "add", "arguments": {"a": [1, {"b": 2}]}}\n</tool_call>'
    broken = "<tool_call>{broken}</tool_call>"
    (call,), rest = extract_tool_calls(text + broken)
    assert rest == "So: " + broken
    assert call["function"]["name"] == "add"
    assert json.loads(call["function"]["arguments"]) == {"a": [1, {"b": 2}]}


def test_a_conversation_is_put_as_the_model_was_trained():
    tokenizer = load_tokenizer_only("tiny-reasoning")

    def put(*messages, **more):
        said = [{"role": role, "content": content} for role, content in messages]
        base = SimpleNamespace(name="tiny-reasoning", tokenizer=tokenizer)
        return conversation_prompt(Conversation(messages=said, **more), base)

    one = [{"type": "text", "text": "1 + "}, {"type": "text", "text": "1"}]
    assert put(("user", one)) == tokenizer.wrap_chat("1 + 1")
    talk = put(("user", "1 + 1"), ("assistant", "<think>x</think>2"), ("user", "2 + 2"))
    assert talk == tokenizer.wrap_chat("2 + 2", [("1 + 1", "<think>x</think>2")])
    assert put(("system", "Be brief."), ("user", "1")).startswith("<|im_start|>system\nBe brief.")
    quiet = put(("user", "1"), chat_template_kwargs={"enable_thinking": False})
    assert quiet.endswith("<think>\n\n</think>\n\n")


ONE_MESSAGE = [{"role": "user", "content": "1"}]


@pytest.mark.parametrize("key", ["template", "messages", "named_tokens", "tools", "eos_token"])
def test_a_template_gets_its_conversation_from_the_call_alone(key):
    talk = Conversation(messages=ONE_MESSAGE, chat_template_kwargs={key: 1})
    with pytest.raises(UserError, match=f"chat_template_kwargs has {key}, which the call itself"):
        conversation_prompt(talk, with_template("{{ messages }}"))


def with_template(template):
    tokenizer = SimpleNamespace(chat_template=template, named_tokens={})
    return SimpleNamespace(name="x", tokenizer=tokenizer)


def test_calls_come_back_as_the_model_wrote_them():
    """Hermes' and Qwen2.5's templates write a call's arguments as JSON, and so expect an object."""
    template = "{% for m in messages %}{% for c in m.tool_calls or [] %}"
    template += "{{ c.function | tojson }}{% endfor %}{% endfor %}"
    written = '{"name": "find", "arguments": {"word": "thé", "n": 2}}'
    calls, _ = extract_tool_calls(f"<tool_call>{written}</tool_call>")
    strange = {"type": "function", "function": {"name": "find", "arguments": "no JSON"}}
    said = [{"role": "assistant", "content": None, "tool_calls": [*calls, strange]}]
    found = conversation_prompt(Conversation(messages=said), with_template(template))
    assert found == written + '{"name": "find", "arguments": "no JSON"}'


def test_tools_reach_the_template():
    base = with_template("{% for tool in tools %}{{ tool | tojson }}{% endfor %}")
    talk = Conversation(messages=ONE_MESSAGE, tools=[{"name": "add"}])
    assert json.loads(conversation_prompt(talk, base)) == {"name": "add"}
