"""Tinker's own client against the server: what it is told, and that the numbers are ours."""

import errno
import json
import math
import os
import shutil
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import httpx
import pytest
import torch

from reasoning_from_scratch import Sampling, generate, load_model_and_tokenizer
from reasoning_from_scratch.fast.packed import packed_logprobs
from reasoning_from_scratch.files.weights import shipped_checkpoint
from reasoning_from_scratch.optim.adamw import AdamW
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.problems import render_prompt
from reasoning_from_scratch.tokenizer import stop_ids_of
from rfs import load_problems
from rfs.serve import models
from rfs.serve.data import loss_of, rollouts_of
from rfs.serve.messages import Datum
from tests.conftest import ROOT

pytest.importorskip("starlette", reason="needs the extra serve")

from rfs.serve.tinker import is_from_here

tinker = pytest.importorskip("tinker", reason="Tinker's client needs Python 3.11")
types = tinker.types

MODEL, TOKENIZER = load_model_and_tokenizer("tiny")
PROMPTS = [TOKENIZER.encode(render_prompt(p.problem)) for p in load_problems("tiny", limit=4)]
ADAM = types.AdamParams(learning_rate=1e-3, beta1=0.8, beta2=0.9, eps=1e-7, grad_clip_norm=0.5)


@pytest.fixture
def service(server):
    client = tinker.ServiceClient(base_url=server.address, api_key="tml-test")
    yield client
    client.close("success").result()


@pytest.fixture
def sampler(service):
    return service.create_sampling_client(base_model="tiny").result()


@pytest.fixture
def client(service):
    return service.create_lora_training_client("tiny", rank=4).result()


def inputs(ids):
    return types.ModelInput.from_ints(ids)


def answers(sampler, count=2, prompts=PROMPTS, **params):
    """Sampled together; (prompt, sequence) for each."""
    asked = types.SamplingParams(max_tokens=60, **params)
    futures = [sampler.sample(inputs(prompt), count, asked) for prompt in prompts]
    found = [future.result().sequences for future in futures]
    return [(p, s) for p, many in zip(prompts, found, strict=True) for s in many]


def datum(prompt, tokens, logprobs, advantage):
    """As Tinker's loops build it: nothing to be learned from the prompt."""
    before = len(prompt) - 1
    return types.Datum(
        model_input=inputs([*prompt, *tokens[:-1]]),
        loss_fn_inputs={
            "target_tokens": [0] * before + list(tokens),
            "logprobs": [0.0] * before + list(logprobs),
            "advantages": [0.0] * before + [advantage] * len(tokens),
        },
    )


def rl_data(sampler, count=2):
    found = answers(sampler, count)
    return [
        datum(prompt, list(s.tokens), list(s.logprobs), (-1.0) ** number)
        for number, (prompt, s) in enumerate(found)
    ]


def learn(client, data=None):
    """One update."""
    client.forward_backward(data or [datum(PROMPTS[0], [5], [-1.0], 1.0)], "ppo").result()
    client.optim_step(ADAM).result()


def test_what_is_sampled_is_what_generate_samples(sampler):
    # The first sampler of a session, its requests 0, 1, ...: the streams (0, number).
    sampling = Sampling(60, rollouts=2, seed=0)
    groups = generate(MODEL, PROMPTS, sampling, stop_ids=stop_ids_of(TOKENIZER))
    expected = [rollout for group in groups for rollout in group]
    for (_, found), rollout in zip(answers(sampler), expected, strict=True):
        assert list(found.tokens) == rollout.response_ids
        assert list(found.logprobs) == pytest.approx(rollout.logprobs, abs=1e-4)
        assert found.stop_reason == rollout.stop_reason


def test_a_run_repeated_draws_the_same_whatever_the_timing(server, sampler):
    first = answers(sampler, 3)
    with tinker.ServiceClient(base_url=server.address, api_key="tml-test") as again:
        sampler = again.create_sampling_client(base_model="tiny").result()
        asked = types.SamplingParams(max_tokens=60)
        slowly = []
        for prompt in PROMPTS:
            slowly += sampler.sample(inputs(prompt), 3, asked).result().sequences
    assert [list(s.tokens) for _, s in first] == [list(s.tokens) for s in slowly]


def test_a_seed_gives_the_same_answer_again(sampler):
    found = [answers(sampler, seed=5, prompts=PROMPTS[:1]) for _ in range(2)]
    assert [list(s.tokens) for _, s in found[0]] == [list(s.tokens) for _, s in found[1]]


def test_logprobs_of_a_prompt(sampler):
    ids = PROMPTS[0]
    logprobs = MODEL(torch.tensor([ids]))[0].log_softmax(-1).detach()  # (T, V)
    own = logprobs[:-1].gather(-1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()
    found = sampler.compute_logprobs(inputs(ids)).result()
    assert found[0] is None and found[1:] == pytest.approx(own, abs=1e-4)
    last = sampler.compute_logprobs(inputs(ids), prompt_logprobs_last_n=3).result()
    assert last[:-3] == [None] * (len(ids) - 3) and last[-3:] == pytest.approx(own[-3:], abs=1e-4)

    targets = torch.full((len(ids) - 1, 2), -1)
    targets[3, 0], targets[5, 1] = 7, 9
    params = types.SamplingParams(max_tokens=3, temperature=0)
    asked = dict(topk_prompt_logprobs=2, topk_sample_logprobs=3, prompt_alt_tokens_k=4)
    for tensor in (
        types.TensorData.from_torch(targets),
        types.TensorData.from_torch_sparse(targets, pad_value=-1),
    ):
        answer = sampler.sample(
            inputs(ids), 1, params, target_prompt_logprobs=tensor, **asked
        ).result()
        scored = answer.target_prompt_logprobs.to_torch()
        assert scored[3, 0] == pytest.approx(logprobs[3, 7].item(), abs=1e-4)
        assert scored[5, 1] == pytest.approx(logprobs[5, 9].item(), abs=1e-4)
        assert (scored != 0).sum() == 2
    best = logprobs[0].topk(2)
    assert answer.topk_prompt_logprobs[0] is None or not answer.topk_prompt_logprobs[0][0][1] > -9e4
    assert [token for token, _ in answer.topk_prompt_logprobs[1]] == best.indices.tolist()
    (sequence,) = answer.sequences
    assert [len(place) for place in sequence.topk_logprobs] == [3] * len(sequence.tokens)
    assert sequence.topk_logprobs[0][0][0] == sequence.tokens[0]  # greedy
    drawn, scores = answer.prompt_alt_tokens.tokens.to_torch(), answer.prompt_alt_tokens.logprobs
    assert scores.to_torch()[0, 0] == pytest.approx(logprobs[0, drawn[0, 0]].item(), abs=1e-4)


def test_stops(sampler):
    (_, whole) = answers(sampler, 1, PROMPTS[:1], seed=1)[0]
    text = TOKENIZER.decode(list(whole.tokens))
    assert whole.stop_reason == "stop" and whole.tokens[-1] in stop_ids_of(TOKENIZER)
    (_, short) = answers(sampler, 1, PROMPTS[:1], seed=1, stop=["\n"])[0]
    assert short.stop_reason == "stop"
    assert "\n" in TOKENIZER.decode(list(short.tokens))
    assert "\n" not in TOKENIZER.decode(list(short.tokens)[:-1]) and len(short.tokens) < len(text)
    (_, one) = answers(sampler, 1, PROMPTS[:1], seed=1, stop=[int(whole.tokens[3])])[0]
    assert list(one.tokens) == list(whole.tokens)[: len(one.tokens)] and len(one.tokens) <= 4
    (_, endless) = answers(sampler, 1, PROMPTS[:1], seed=1, stop=[])[0]
    assert endless.stop_reason == "length" and len(endless.tokens) == 60


def test_training_is_ours(service, sampler):
    """Three updates by the client are three updates of a policy in this process."""
    client = service.create_lora_training_client("tiny", rank=0).result()
    model, _ = load_model_and_tokenizer("tiny")
    optimizer = AdamW(model, ADAM.beta1, ADAM.beta2)
    optimizer.epsilon = ADAM.eps
    policy = LocalPolicy(model, optimizer, None, packed_logprobs)
    data = rl_data(sampler)
    ours = [
        Datum(d.model_input.to_ints(), {k: v.to_numpy() for k, v in d.loss_fn_inputs.items()})
        for d in data
    ]
    for name, config in (("importance_sampling", None), ("ppo", None), ("dro", {"beta": 0.1})):
        passed = client.forward_backward(data, name, config)
        stepped = client.optim_step(ADAM).result()
        parts = rollouts_of(ours, name, 1024, 512)
        sums = policy.forward_backward(
            [r for p in parts for r in p], loss_of(name, config or {}), 1
        )
        moved = policy.optim_step(ADAM.learning_rate, ADAM.grad_clip_norm)
        loss = sum(one["loss"].item() for one in sums)
        assert passed.result().metrics["loss:sum"] == pytest.approx(loss, abs=1e-5)
        assert stepped.metrics["grad_norm:mean"] == pytest.approx(moved.grad_norm, rel=1e-4)


@pytest.mark.parametrize("rank", [0, 8])
def test_the_client_goes_on_from_a_save_exactly(service, rank, sampler):
    client = service.create_lora_training_client("tiny", rank=rank, seed=3).result()
    data = rl_data(sampler)

    def step(client):
        passed = client.forward_backward(data, "importance_sampling")
        client.optim_step(ADAM).result()
        return passed.result()

    step(client)
    path = client.save_state("first").result().path
    after = [step(client).metrics["loss:sum"] for _ in range(3)]
    again = service.create_training_client_from_state_with_optimizer(path).result()
    assert again.get_info().lora_rank == (rank or None)
    assert [step(again).metrics["loss:sum"] for _ in range(3)] == after
    plain = service.create_training_client_from_state(path).result()
    losses = [step(plain).metrics["loss:sum"] for _ in range(3)]
    assert losses[0] == after[0] and losses[1:] != after[1:]


@pytest.mark.parametrize("rank", [0, 8])
def test_a_client_computes_as_much_at_a_time_as_fits(rank, server, service, sampler, monkeypatch):
    """The same rule as for a run; a client that goes on from a save splits as before."""
    monkeypatch.setattr(models, "fitting_micro_batch", lambda *given: 300)
    client = service.create_lora_training_client("tiny", rank=rank, seed=3).result()
    trained = server.tinker.models.trained[client.model_id]
    data = rl_data(sampler)
    rollouts = rollouts_of(
        [
            Datum(d.model_input.to_ints(), {k: v.to_numpy() for k, v in d.loss_fn_inputs.items()})
            for d in data
        ],
        "ppo",
        1024,
        512,
    )
    assert len(trained.policy.split_into_micro_batches([r for part in rollouts for r in part])) > 1
    client.forward_backward(data, "importance_sampling").result()
    client.optim_step(ADAM).result()
    path = client.save_state("split").result().path
    monkeypatch.setattr(models, "fitting_micro_batch", lambda *given: 8192)
    again = service.create_training_client_from_state_with_optimizer(path).result()
    for one in (client, again):
        folder = server.tinker.models.trained[one.model_id].folder
        assert json.loads((folder / "config.json").read_text())["micro_batch_tokens"] == 300
    losses = [
        one.forward_backward(data, "importance_sampling").result().metrics["loss:sum"]
        for one in (client, again)
    ]
    assert losses[0] == losses[1]


def test_forward_changes_nothing_and_a_custom_loss_trains(sampler, client):
    data = rl_data(sampler, 1)
    first = client.forward(data, "importance_sampling").result()
    assert client.optim_step(ADAM).result().metrics["grad_norm:mean"] == 0

    def loss(data, logprobs):
        return -sum(line.sum() for line in logprobs) / 100, {"lines:sum": float(len(data))}

    passed = client.forward_backward_custom(data, loss).result()
    assert passed.metrics["lines:sum"] == len(data)
    client.optim_step(ADAM).result()
    then, now = (
        sum(o["logprobs"].to_torch().sum() for o in result.loss_fn_outputs)
        for result in (first, client.forward(data, "importance_sampling").result())
    )
    assert now > then


def test_snapshots_stay_as_they_were(server, service, client):
    before = client.save_weights_and_get_sampling_client().result()
    data = rl_data(before, 1)
    ids = PROMPTS[0]
    was = before.compute_logprobs(inputs(ids)).result()
    learn(client, data)
    after = client.save_weights_and_get_sampling_client().result()
    named = client.save_weights_for_sampler("mine").result().path
    assert before.compute_logprobs(inputs(ids)).result() == was
    moved = after.compute_logprobs(inputs(ids)).result()
    assert moved != was
    saved = service.create_sampling_client(model_path=named).result()
    assert saved.get_base_model() == "tiny"
    found = saved.compute_logprobs(inputs(ids)).result()
    assert found[1:] == pytest.approx(moved[1:], abs=1e-3)
    for _ in range(3):  # the server keeps three
        client.save_weights_and_get_sampling_client().result()
    with pytest.raises(tinker.BadRequestError, match="were released: the newest 3 snapshots"):
        before.compute_logprobs(inputs(ids)).result()


def test_saves_are_listed_and_deleted(server, service, client):
    rest = tinker.RestClient(base_url=server.address, api_key="tml-test")
    kept = client.save_state("kept", ttl_seconds=7200, user_metadata={"a": "b"}).result().path
    gone = client.save_state("gone").result().path
    client.save_weights_for_sampler("for-sampling").result()
    with pytest.raises(tinker.RequestFailedError, match="use another name, or overwrite"):
        client.save_state("kept").result()
    found = {
        c.checkpoint_id: c for c in rest.list_checkpoints(client.model_id).result().checkpoints
    }
    assert set(found) == {"weights/kept", "weights/gone", "sampler_weights/for-sampling"}
    assert found["weights/kept"].expires_at and found["weights/kept"].user_metadata == {"a": "b"}
    assert found["weights/gone"].expires_at is None and found["weights/gone"].size_bytes > 1e5
    rest.delete_checkpoint_from_tinker_path(gone).result()
    rest.set_checkpoint_ttl_from_tinker_path(kept, None).result()
    left = rest.list_checkpoints(client.model_id).result().checkpoints
    assert {c.checkpoint_id for c in left} == set(found) - {"weights/gone"}
    assert all(c.expires_at is None for c in left)
    with pytest.raises(tinker.NotFoundError, match="there is no save"):
        service.create_training_client_from_state(gone).result()
    for path in (gone, gone.replace("train:0", "train:7"), "tinker://x/weights/y"):
        with pytest.raises(tinker.NotFoundError, match="there is no"):
            rest.delete_checkpoint_from_tinker_path(path).result()
    run = rest.get_training_run(client.model_id).result()
    assert run.is_lora and run.lora_rank == 4 and run.last_checkpoint.tinker_path == kept
    assert client.model_id in [
        r.training_run_id for r in rest.list_training_runs().result().training_runs
    ]


def test_a_save_is_downloaded_with_the_clients_command(server, client, tmp_path, monkeypatch):
    from click.testing import CliRunner
    from tinker.cli.__main__ import main_cli

    learn(client)
    path = client.save_state("kept").result().path
    monkeypatch.setenv("TINKER_BASE_URL", server.address)
    monkeypatch.setenv("TINKER_API_KEY", "tml-test")
    found = CliRunner().invoke(main_cli, ["checkpoint", "download", path, "-o", str(tmp_path)])
    assert found.exit_code == 0, found.output
    (config,) = tmp_path.rglob("config.json")
    model, _ = load_model_and_tokenizer(config.parent)
    sampler = client.save_weights_and_get_sampling_client().result()
    logprobs = model(torch.tensor([PROMPTS[0]]))[0].log_softmax(-1).detach()
    own = logprobs[:-1].gather(-1, torch.tensor(PROMPTS[0][1:])[:, None])[:, 0].tolist()
    theirs = sampler.compute_logprobs(inputs(PROMPTS[0])).result()[1:]
    assert theirs == pytest.approx(own, abs=1e-4)
    name = path.removeprefix("tinker://").partition("/")[0]
    missing = f"api/v1/training_runs/{name}/checkpoints/weights/kept/files/..%2Fconfig.json"
    assert httpx.get(f"{server.address}/{missing}").status_code == 404


def test_open_sessions_are_found(server):
    search = f"{server.address}/api/v1/sessions/search"
    with (
        tinker.ServiceClient(
            base_url=server.address,
            api_key="tml-test",
            display_name="My nightly run",
            user_metadata={"a": "b"},
        ) as named,
        tinker.ServiceClient(base_url=server.address, api_key="tml-test") as other,
    ):
        for one in (named, other):  # a session begins with what is first asked of it
            one.create_sampling_client(base_model="tiny").result()
        rest = tinker.RestClient(base_url=server.address, api_key="tml-test")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = [
                rest.search_sessions(types.SessionSearchRequest(**asked)).result()
                for asked in (
                    dict(display_name="NIGHTLY my"),
                    dict(user_metadata={"a": "b"}),
                    dict(display_name="daily"),
                    dict(user_metadata={"a": "c"}),
                    dict(statuses=[{"type": "failed"}]),
                )
            ]
        names = [[session.display_name for session in page.sessions] for page in found]
        assert names == [["My nightly run"]] * 2 + [[]] * 3
        assert found[0].sessions[0].status.type == "active"
        everything = httpx.post(search, json={}).json()["sessions"]
        one_by_one, cursor = [], None
        while cursor or not one_by_one:
            page = httpx.post(search, json={"limit": 1, "cursor": cursor}).json()
            one_by_one += page["sessions"]
            cursor = page["next_cursor"]
        assert one_by_one == everything and len(everything) > 1


def test_a_save_expires(server, client):
    path = client.save_state("soon", ttl_seconds=3600).result().path
    models = server.tinker.models
    models.expire(path, time.time() - 1)
    place = models.folder_of(client.model_id) / "checkpoints" / "000000"
    assert place.exists()
    models.delete_expired()
    assert not place.exists() and not models.saves_of(client.model_id)


def test_what_is_wrong_reaches_the_client_as_a_sentence(service, sampler, client):
    with pytest.raises(tinker.NotFoundError, match="did you mean 'tiny'"):
        service.create_lora_training_client("tini").result()
    with pytest.raises(tinker.BadRequestError, match="LoRA goes on attention, on the MLP"):
        service.create_lora_training_client("tiny", train_mlp=False, train_attn=False).result()
    for ids, message in (([5000], "outside of the model's vocabulary"), ([], "has no tokens"),
                         ([1] * 2100, "2100 tokens; the model reads 2048")):  # fmt: skip
        with pytest.raises(tinker.BadRequestError, match=message):
            sampler.sample(inputs(ids), 1, types.SamplingParams()).result()
    data = rl_data(sampler, 1)
    for loss, message in (
        ("gspo", "there is no loss 'gspo'"),
        ("cross_entropy", "needs target_tok"),
    ):
        with pytest.raises(tinker.RequestFailedError, match=message):
            client.forward_backward(data, loss).result()
    # What failed has used up its number, and those that follow do not wait.
    assert client.forward_backward(data, "ppo").result().metrics


def with_an_image():
    image = types.ImageChunk(data=b"x", format="png", expected_tokens=4)
    targets = {"target_tokens": [1, 2, 3, 4], "weights": [1.0] * 4}
    return types.Datum(model_input=types.ModelInput(chunks=[image]), loss_fn_inputs=targets)


@pytest.mark.parametrize(
    "refused",
    [
        lambda client: client.save_state("step 10"),
        lambda client: client.save_state("b", ttl_seconds=60),
        lambda client: client.save_weights_for_sampler("x y"),
        lambda client: client.load_state("tinker://a/sampler_weights/x"),
        lambda client: client.optim_step(types.AdamParams(learning_rate=-1.0)),
        lambda client: client.optim_step(types.AdamParams(learning_rate=math.nan)),
        lambda client: client.forward_backward([with_an_image()], "cross_entropy"),
    ],
)
def test_after_a_refused_call_the_next_ones_do_not_wait_for_it(refused, client):
    with pytest.raises((tinker.BadRequestError, tinker.RequestFailedError)):
        refused(client).result(timeout=60)
    learned = datum(PROMPTS[0], [5, 6], [-1.0, -1.0], 1.0)
    assert client.forward_backward([learned], "ppo").result(timeout=60).metrics


@pytest.mark.parametrize("other", [dict(rank=8), dict(train_mlp=False), dict(train_attn=False)])
def test_a_save_is_loaded_only_where_all_of_it_fits(service, other):
    saved = service.create_lora_training_client("tiny", rank=4).result().save_state("a").result()
    client = service.create_lora_training_client("tiny", **(dict(rank=4) | other)).result()
    with pytest.raises(tinker.RequestFailedError, match="has LoRA of rank 4"):
        client.load_state(saved.path).result()


def test_most_likely_tokens_are_those_of_the_distribution_drawn_from(sampler):
    asked = types.SamplingParams(max_tokens=20, top_p=0.8, seed=1)
    call = sampler.sample(inputs(PROMPTS[0]), 1, asked, topk_sample_logprobs=5).result()
    (found,) = call.sequences
    places = zip(found.tokens, found.logprobs, found.topk_logprobs, strict=True)
    for token, logprob, likely in places:
        values = dict(likely)
        assert values[token] == pytest.approx(logprob, abs=1e-5)
        assert sum(math.exp(value) for value in values.values()) < 1 + 1e-5


def test_parts_of_one_call_may_come_in_any_order(service, monkeypatch, sampler):
    client = service.create_lora_training_client("tiny", rank=0).result()
    data = rl_data(sampler)
    whole = client.forward_backward(data, "importance_sampling").result()
    few = client.holder._client_config.model_copy(update={"fwdbwd_max_chunk_len": 2})
    monkeypatch.setattr(client.holder, "_client_config", few)
    parts = client.forward_backward(data, "importance_sampling").result()
    assert parts.metrics["loss:sum"] == pytest.approx(whole.metrics["loss:sum"], abs=1e-4)
    for one, other in zip(whole.loss_fn_outputs, parts.loss_fn_outputs, strict=True):
        assert torch.allclose(one["logprobs"].to_torch(), other["logprobs"].to_torch(), atol=1e-4)


def test_what_is_sent_twice_is_computed_once(server, client):
    call = {"model_id": client.model_id, "seq_id": 1, "adam_params": {}}
    found = [httpx.post(f"{server.address}/api/v1/optim_step", json=call).json() for _ in range(3)]
    assert found[0] == found[1] == found[2]
    httpx.post(f"{server.address}/api/v1/retrieve_future", json=found[0])
    assert server.tinker.models.trained[client.model_id].weights_version == 1


def test_many_at_once_share_a_batch(server, sampler):
    futures = [
        sampler.sample(inputs(PROMPTS[i % 4]), 1, types.SamplingParams(max_tokens=40))
        for i in range(48)
    ]
    most = 0
    while not all(future.future().done() for future in futures):
        most = max(most, server.worker.in_progress)
        time.sleep(0.002)
    assert most > 24 and all(len(f.result().sequences[0].tokens) for f in futures)


def test_several_clients_train_at_once(service, sampler):
    clients = [service.create_lora_training_client("tiny", rank=r).result() for r in (0, 4, 4)]
    data = rl_data(sampler, 1)

    def steps(client):
        found = []
        for _ in range(3):
            passed = client.forward_backward(data, "importance_sampling")
            client.optim_step(ADAM).result()
            found.append(passed.result().metrics["loss:sum"])
        return found

    with ThreadPoolExecutor(3) as pool:
        losses = list(pool.map(steps, clients))
    assert losses[1] == losses[2] != losses[0]  # of one seed; nobody sees the others' weights


def test_what_cannot_be_saved_is_kept_and_tried_again(server, caplog):
    models = server.tinker.models
    service = tinker.ServiceClient(base_url=server.address, api_key="tml-test")
    clients = [service.create_lora_training_client("tiny", rank=4).result() for _ in range(2)]
    for client in clients:
        learn(client)
    bad, good = (client.model_id for client in clients)
    in_the_way = server.folder / bad.replace(":", "-") / "checkpoints"
    in_the_way.write_text("no folder")
    with pytest.raises(tinker.BadRequestError, match=f"not saved yet.*{bad}: could not save"):
        service.close("success").result()
    assert f"{bad} is not saved yet, again when the server stops" in caplog.text
    assert good not in models.trained and models.saves_of(good)
    server.tinker.save_all()
    assert server.tinker.unsaved.keys() == {bad}
    in_the_way.unlink()
    server.tinker.save_all()
    assert not server.tinker.unsaved and models.saves_of(bad)
    models.release(bad)
    clients[0].holder.close()  # the refused close left its heartbeats running


def test_a_session_that_ends_frees_what_it_held(server):
    models = server.tinker.models
    with tinker.ServiceClient(base_url=server.address, api_key="tml-test") as service:
        client = service.create_lora_training_client("tiny", rank=4).result()
        client.save_weights_and_get_sampling_client().result()
        learn(client)
        model_id = client.model_id
    assert model_id not in models.trained
    session = model_id.partition(":")[0]
    assert not [id for id in models.samplers if id.startswith(session)]
    assert not [id for id in server.tinker.promises.by_id if id.startswith(session)]
    # It was not saved, so it is when it goes.
    assert [saved.name for saved in models.saves_of(model_id)] == ["last"]


def test_a_refused_call_leaves_the_gradient_of_those_before_it(server, service, sampler):
    """exp of 1e4 is not finite: the whole sum would not be, and the next step would drop it."""
    clients = [service.create_lora_training_client("tiny", rank=4).result() for _ in range(2)]
    data = rl_data(sampler, 1)
    for client, also in zip(clients, (True, False), strict=True):
        client.forward_backward(data, "importance_sampling").result()
        if also:
            with pytest.raises(tinker.RequestFailedError, match="the loss is not a finite number"):
                bad = datum(PROMPTS[0], [5], [-1e4], 1.0)
                client.forward_backward([bad], "importance_sampling").result()
        client.forward_backward(data[:2], "ppo").result()
    norms = [client.optim_step(ADAM).result().metrics["grad_norm:mean"] for client in clients]
    assert norms[0] == norms[1] > 0
    trained = server.tinker.models.trained[clients[0].model_id]
    lines = (trained.folder / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["data"] == len(data) + 2


@pytest.mark.parametrize("how", ["deleted", "expired", "will expire"])
def test_what_was_learned_is_saved_if_no_other_save_keeps_it(server, how):
    models = server.tinker.models
    rest = tinker.RestClient(base_url=server.address, api_key="tml-test")
    with tinker.ServiceClient(base_url=server.address, api_key="tml-test") as service:
        client = service.create_lora_training_client("tiny", rank=4).result()
        learn(client)
        ttl = 3600 if how == "will expire" else None
        path = client.save_state("only", ttl_seconds=ttl).result().path
        if how == "expired":
            models.expire(path, time.time() - 1)
            models.delete_expired()
        elif how == "deleted":
            rest.delete_checkpoint_from_tinker_path(path).result()
        model_id = client.model_id
    assert "last" in {saved.name for saved in models.saves_of(model_id)}
    with tinker.ServiceClient(base_url=server.address, api_key="tml-test") as service:
        again = service.create_training_client_from_state(f"tinker://{model_id}/weights/last")
        assert again.result().get_info().lora_rank == 4


def test_what_was_loaded_is_saved_if_it_was_deleted_since(server):
    rest = tinker.RestClient(base_url=server.address, api_key="tml-test")
    with tinker.ServiceClient(base_url=server.address, api_key="tml-test") as service:
        client = service.create_lora_training_client("tiny", rank=4).result()
        learn(client)
        path = client.save_state("only").result().path
    found = {}
    with tinker.ServiceClient(base_url=server.address, api_key="tml-test") as service:
        for deletes in (False, True):
            again = service.create_training_client_from_state(path).result()
            if deletes:
                rest.delete_checkpoint_from_tinker_path(path).result()
            assert httpx.post(
                f"{server.address}/api/v1/unload_model", json={"model_id": again.model_id}
            ).is_success
            server.worker.submit(lambda: None).result()
            found[deletes] = [s.name for s in server.tinker.models.saves_of(again.model_id)]
    assert found == {False: [], True: ["last"]}


def test_a_save_that_stays_is_enough(server):
    with tinker.ServiceClient(base_url=server.address, api_key="tml-test") as service:
        client = service.create_lora_training_client("tiny", rank=4).result()
        learn(client)
        client.save_state("mine").result()
        model_id = client.model_id
    assert [saved.name for saved in server.tinker.models.saves_of(model_id)] == ["mine"]


def test_a_listing_skips_and_names_what_it_cannot_read(server, client, caplog):
    client.save_state("good").result()
    about = json.loads(
        (server.folder / client.model_id.replace(":", "-") / "config.json").read_text()
    )
    served = about["served"]
    strange = {
        "a-train-1": 5,
        "a-train-2": served | {"id": "a:train:2", "time": None},
        "a-train-3": served,
        "a-train-4": served | {"id": "a:train:4", "lora": {"rank": "x"}},
        "a-train-5": served | {"id": "a:train:5", "metadata": {"a": math.nan}},
        "a-train-6": served | {"id": "a:train:6", "base": 7},
    }
    for name, value in strange.items():
        (server.folder / name).mkdir()
        (server.folder / name / "config.json").write_text(json.dumps({"served": value}))
    (server.folder / "a-train-7").mkdir()
    (server.folder / "a-train-7" / "config.json").write_text("[" * 5000)  # not one of ours
    try:
        rest = tinker.RestClient(base_url=server.address, api_key="tml-test")
        runs = rest.list_training_runs(limit=100).result().training_runs
        assert client.model_id in [run.training_run_id for run in runs]
        listed = rest.list_user_checkpoints(limit=100).result().checkpoints
        assert f"tinker://{client.model_id}/weights/good" in [c.tinker_path for c in listed]
        for call in ("training_runs", "checkpoints"):
            told = httpx.get(f"{server.address}/api/v1/{call}").json()["unreadable"]
            for name in strange:
                assert [name in sentence for sentence in told].count(True) == 1
                assert f"{name}/config.json: served" in caplog.text
    finally:
        for name in [*strange, "a-train-7"]:
            shutil.rmtree(server.folder / name)


def test_a_save_that_cannot_be_read_is_skipped(server, client, caplog):
    """NaN in its metadata, as an earlier server wrote it, or whatever somebody changed."""
    client.save_state("good").result()
    learn(client)
    client.save_state("other").result()
    folder = server.tinker.models.trained[client.model_id].folder
    lines = [json.loads(line) for line in (folder / "checkpoints.jsonl").read_text().splitlines()]
    good = lines[1]["saved_as"][0]
    lines[1]["saved_as"] += [
        good | {"name": "nan", "metadata": {"a": math.nan}}, good | {"name": "../x"}, 5,
        good | {"kind": "x"}, good | {"time": "x"}, good | {"expires": math.inf, "time": None},
    ]  # fmt: skip
    lines += [{"batch": [1]}]
    (folder / "checkpoints.jsonl").write_text("\n".join(map(json.dumps, lines)))
    names = [saved.name for saved in server.tinker.models.saves_of(client.model_id)]
    assert names == ["good", "other"] and "it is skipped" in caplog.text
    assert httpx.get(f"{server.address}/api/v1/checkpoints").status_code == 200
    client.save_state("third").result()
    names = [saved.name for saved in server.tinker.models.saves_of(client.model_id)]
    assert names == ["good", "other", "nan", "third"]  # written anew, its NaN has become null


def test_a_full_disk_is_told_in_words_that_help_here(server, service, client, monkeypatch, caplog):
    def full(path, *_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    learn(client)
    monkeypatch.setattr("rfs.run.checkpoints.write_atomically", full)
    with pytest.raises(
        tinker.RequestFailedError, match="No space left.*make room, then save again"
    ):
        client.save_state("a").result()
    monkeypatch.setattr("rfs.serve.models.write_atomically", full)
    with pytest.raises(tinker.RequestFailedError, match="cannot create .*No space left.*make room"):
        service.create_lora_training_client("tiny", rank=4).result()
    # A step is made even if nothing can be recorded about it.
    monkeypatch.setattr("rfs.serve.models.append", full)
    monkeypatch.setattr("rfs.serve.recent_calls.write_unsynced", full)
    monkeypatch.setattr("rfs.serve.recent_calls.PAGE_EVERY", 1)
    learn(client)
    assert server.tinker.models.trained[client.model_id].weights_version == 2
    assert f"the metrics of {client.model_id} cannot be written: No space left" in caplog.text
    assert f"a page about {client.model_id} cannot be written" in caplog.text
    monkeypatch.undo()
    client.save_state("a").result()


def test_a_model_that_could_not_be_loaded_does_not_train_on_from_its_base(server, service, client):
    path = client.save_state("a").result().path
    folder = server.tinker.models.trained[client.model_id].folder
    (folder / "training_state" / "000000" / "optimizer.safetensors").write_bytes(b"x")
    before = set(server.tinker.models.trained)
    with pytest.raises(tinker.RequestFailedError, match="is damaged"):
        service.create_training_client_from_state(path).result()
    assert set(server.tinker.models.trained) == before


def test_a_save_of_its_own_stays_when_a_client_leaves(server):
    """Whatever its name."""
    models = server.tinker.models
    with tinker.ServiceClient(base_url=server.address, api_key="tml-test") as service:
        client = service.create_lora_training_client("tiny", rank=4).result()
        client.save_state("last").result()
        learn(client)
        model_id = client.model_id
    saved = {save.name: save.batch for save in models.saves_of(model_id)}
    assert saved == {"last": 0, "last_": 1}


def test_a_sampling_client_never_answers_with_other_weights(service, client):
    path = client.save_weights_for_sampler("a").result().path
    sampler = service.create_sampling_client(model_path=path).result()
    before = sampler.compute_logprobs(inputs(PROMPTS[0])).result()
    client.save_weights_for_sampler("a").result()  # the same weights
    assert sampler.compute_logprobs(inputs(PROMPTS[0])).result() == before
    learn(client)
    client.save_weights_for_sampler("a").result()
    with pytest.raises(tinker.BadRequestError, match="was saved anew"):
        sampler.compute_logprobs(inputs(PROMPTS[0])).result()
    again = service.create_sampling_client(model_path=path).result()
    assert again.compute_logprobs(inputs(PROMPTS[0])).result() != before


def test_a_call_whose_turn_never_comes_ends_with_the_model(server, client):
    api, asked = f"{server.address}/api/v1", {"model_id": client.model_id}
    late = httpx.post(f"{api}/optim_step", json=asked | {"seq_id": 5, "adam_params": {}}).json()
    assert httpx.post(f"{api}/unload_model", json=asked).is_success
    told = httpx.post(f"{api}/retrieve_future", json=late, timeout=30)
    assert "was unloaded" in told.text


def stable(service):
    """What the cookbook's rl_loop does by default, with one rewarded answer: its loss."""
    client = service.create_lora_training_client("tiny", rank=0).result()
    sampler = client.save_weights_and_get_sampling_client(record_stability_info=True).result()
    asked = types.SamplingParams(max_tokens=20)
    (found,) = sampler.sample(inputs(PROMPTS[0]), 1, asked).result().sequences
    tokens, logprobs = list(found.tokens), list(found.logprobs)
    read = [
        types.PromptProvenanceSpan(sequence_id=found.sequence_id, length=len(PROMPTS[0])),
        types.SampledProvenanceSpan(sequence_id=found.sequence_id, length=len(tokens) - 1),
    ]
    learned = [
        types.PromptProvenanceSpan(
            sequence_id=found.sequence_id, offset=1, length=len(PROMPTS[0]) - 1
        ),
        types.SampledProvenanceSpan(sequence_id=found.sequence_id, length=len(tokens)),
    ]
    one = datum(PROMPTS[0], tokens, logprobs, 1.0)
    losses = [
        client.forward_backward([data], loss).result().metrics["loss:sum"]
        for data, loss in (
            (one.with_provenance(model_input=read, loss_fn_inputs=learned), "stable_reinforce"),
            (one, "importance_sampling"),
        )
    ]
    return client.model_id, losses


def test_stable_reinforce_names_its_remedy_or_has_a_stand_in(server, service, monkeypatch):
    with pytest.raises(tinker.BadRequestError, match="set loss_fn=importance_sampling in your pro"):
        stable(service)
    assert "stable_reinforce" not in httpx.get(server.address).text
    monkeypatch.setattr(server.tinker, "replace_stable_reinforce", True)
    model_id, (found, expected) = stable(service)
    assert found == pytest.approx(expected, abs=1e-6)
    page = httpx.get(f"{server.address}/models/{model_id}/calls/1").text
    named = "stable_reinforce, computed as importance_sampling (--stability importance)"
    assert named in page and "computed as importance_sampling" in httpx.get(server.address).text
    assert named not in httpx.get(f"{server.address}/models/{model_id}/calls/2").text


def test_its_tokenizer_is_the_folder_for_who_can_open_it(server, client):
    pytest.importorskip("transformers")
    assert client.get_tokenizer().encode("What is 3 * 14?") == TOKENIZER.encode("What is 3 * 14?")
    folder = shipped_checkpoint("tiny").absolute()
    assert client.get_info().model_data.tokenizer_id == str(folder)
    elsewhere = SimpleNamespace(client=SimpleNamespace(host="192.0.2.1"))
    assert not is_from_here(elsewhere)


def test_a_sampling_client_finds_the_tokenizer_of_a_model_served_by_its_path(
    server, service, monkeypatch
):
    """It asks no server, and takes the model's name for a folder."""
    pytest.importorskip("transformers")
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    where = "checkpoints/tiny-base"
    bases = server.tinker.models.bases
    monkeypatch.setitem(bases, where, replace(bases["tiny"], name=where, source=where))
    trained = service.create_lora_training_client(where, rank=4).result()
    path = trained.save_weights_for_sampler("a").result().path
    words = TOKENIZER.encode("What is 3 * 14?")
    for asked in ({"base_model": where}, {"model_path": path}):
        sampler = service.create_sampling_client(**asked).result()
        assert sampler.get_tokenizer().encode("What is 3 * 14?") == words
        assert sampler.get_base_model() == where


def test_a_gradient_does_not_outlive_the_weights_it_is_of(client):
    path = client.save_state("a").result().path
    client.forward_backward([datum(PROMPTS[0], [5], [-1.0], 1.0)], "ppo").result()
    client.load_state(path).result()
    assert client.optim_step(ADAM).result().metrics["grad_norm:mean"] == 0


def test_openais_calls_take_the_path_of_a_save(server, client):
    path = client.save_weights_for_sampler("a").result().path
    asked = {"prompt": PROMPTS[0], "max_tokens": 8, "temperature": 0}
    found = [
        httpx.post(f"{server.address}/v1/completions", json=asked | {"model": model}).json()
        for model in ("tiny", path)
    ]
    texts = [one["choices"][0]["text"] for one in found]
    assert texts[0] == texts[1] != ""  # nothing has been learned yet
