"""A recorded decoding step computes what the model computes, whatever happens between two steps.

There is no GPU here. Steps are recorded by other means: called again, which shows that what was
asked is what is computed; or traced, which freezes every Python number as a GPU's recording does,
and fails where a number is fetched from a tensor.
"""

from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest
import torch
from small_model import (
    FAMILIES,
    drawn,
    read_prompts,
    several_steps,
    small_model,
    uneven,
    with_lora,
)
from torch.fx.experimental.proxy_tensor import make_fx

from reasoning_from_scratch.fast import decoding, graphs
from reasoning_from_scratch.fast.cut import cut_by_digits
from reasoning_from_scratch.fast.decoding import (
    Decoder,
    RecordingCache,
    decoder_for,
    draw_for,
    reason_against_graphs,
)
from reasoning_from_scratch.fast.graphs import GraphDecoder, GraphDraw, tensors_in
from reasoning_from_scratch.optim.lora import add_lora
from reasoning_from_scratch.sampling import (
    PLAIN_ENGINE,
    Partner,
    Sampling,
    SamplingEngine,
    generate,
    sample_next_token,
)
from rfs.engine import FAST


def again(step):
    """A recording that computes the step anew, from whatever it reads."""
    return step


def traced(step):
    """A recording in which all that Python computed is frozen, as on a GPU."""
    return make_fx(step)()


RECORDS = pytest.mark.parametrize("record", [again, traced])
POLICIES = [
    {"temperature": 0.0},
    {},
    {"temperature": 0.7, "top_p": 0.8},
    {"top_k": 4},
    {"top_p": 0.9, "top_k": 6, "keep_sampling_mask": True},
]


@pytest.fixture(autouse=True)
def narrow_recordings(monkeypatch):
    """So that rollouts of 40 tokens cross several widths, and outgrow what they were given."""
    monkeypatch.setattr(graphs, "WIDTH_STEP", 16)
    monkeypatch.setattr(graphs, "FIRST_CAPACITY", 16)
    monkeypatch.setattr(graphs, "GPU_CANDIDATES", 6)  # of 96 tokens
    graphs.warn_once.cache_clear()


@pytest.fixture
def gpu(monkeypatch):
    """A CPU plays one. The steps that it has recorded."""
    recorded = []
    monkeypatch.setattr(graphs, "FIRST_CAPACITY", 64)
    monkeypatch.setattr(decoding, "on_gpu", lambda model: True)
    monkeypatch.setattr(graphs, "Recorder", lambda device: lambda step: recorded.append(0) or step)
    return recorded


def model_of(**sizes):
    return uneven(small_model(96, **sizes)).requires_grad_(False)


def graph_decoder(model, record=again):
    return GraphDecoder(Decoder(model), record)


def graph_engine(record, made=None):
    """FAST with recorded steps and draws; `made` collects its decoders."""

    def decoder(model, rows, steps):
        found = graph_decoder(model, record)
        if made is not None:
            made.append(found)
        return found

    def draw(model, rows, steps, keeps):
        return partial(GraphDraw(record), keeps=keeps)

    return SamplingEngine(make_decoder=decoder, cut=cut_by_digits, make_draw=draw)


@RECORDS
@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize(
    "rows, sizes",
    [(1, {}), (5, {}), (8, {"tie_embeddings": True}), *((4, sizes) for sizes in FAMILIES.values())],
)
def test_the_same_logits(record, rows, sizes, lora):
    model = model_of(**sizes)
    if lora:
        with_lora(model, size=0.3).requires_grad_(False)
    assert reason_against_graphs(model) is None
    cache, tokens = read_prompts(model, rows)
    found = several_steps(graph_decoder(model, record), cache, tokens, 12)
    wanted = several_steps(model, cache, tokens, 12)  # in two widths
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "record, policy",
    [*((again, policy) for policy in POLICIES), (traced, POLICIES[2]), (traced, POLICIES[4])],
    ids=lambda given: getattr(given, "__name__", str(given)),
)
def test_the_same_rollouts(record, policy):
    """Prompts of several lengths, rows that are given to others and get fewer, widths that are
    outgrown: 12 rollouts of up to 40 tokens, 5 at a time."""
    model, made = model_of(), []
    ids, logprobs = drawn(model, 40, engine=graph_engine(record, made), **policy)
    wanted, wanted_logprobs = drawn(model, 40, engine=PLAIN_ENGINE, **policy)
    assert ids == wanted
    assert logprobs == pytest.approx(wanted_logprobs, abs=1e-4)
    (decoder,) = made
    assert not decoder.failed
    rows, widths = (set(numbers) for numbers in zip(*decoder.recordings, strict=True))
    assert len(rows) > 1 or policy == {"temperature": 0.0}
    assert len(widths) > 1


class Interrupts(Partner):
    """A partner that says two tokens after every fifth."""

    def hear(self, response_ids, stopped):
        return [7, 8] if len(response_ids) % 5 == 0 else []

    def leave(self, rollout):
        pass


@RECORDS
def test_forced_tokens_of_a_partner(record):
    ask = model_of(), [[1, 2], [3]], Sampling(30, rollouts=2)
    engines = (
        replace(engine, make_partner=lambda problem: Interrupts())
        for engine in (graph_engine(record), PLAIN_ENGINE)
    )
    found, wanted = (generate(*ask, stop_ids=set(), engine=engine) for engine in engines)
    for ours, theirs in zip(sum(found, []), sum(wanted, []), strict=True):
        assert ours.forced and ours.forced == theirs.forced
        assert ours.response_ids == theirs.response_ids


def test_what_lies_in_hidden_slots_and_unused_rows_does_not_count():
    model = model_of()
    cache, tokens = read_prompts(model, 6)
    wanted = several_steps(graph_decoder(model), cache, tokens, 12)

    class Dirty(GraphDecoder):
        def _adopt(self, cache):
            super()._adopt(cache)
            for store in (*self.keys, *self.values):
                for row, length in enumerate(cache.lengths.tolist()):
                    store[row, :, length:] = 1e4

    assert torch.equal(several_steps(Dirty(Decoder(model), again), cache, tokens, 12), wanted)
    fewer = cache.select_rows(torch.arange(6))
    decoder = Dirty(Decoder(model), again)
    decoder(tokens, cache=fewer)
    fewer.keep_first_rows(3)  # of 8 rows that are computed, 6 were in use and now 3 are
    other = cache.select_rows(torch.arange(6))
    model(tokens, cache=other)
    other.keep_first_rows(3)
    found, expected = decoder(tokens[:3], cache=fewer), model(tokens[:3], cache=other)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_row_that_outgrows_its_room_gets_more():
    model = model_of()
    cache, tokens = read_prompts(model, 3, width=5)
    cache.max_length = None
    decoder = graph_decoder(model, traced)
    found = several_steps(decoder, cache, tokens, 40)
    assert decoder.keys[0].shape[2] > graphs.FIRST_CAPACITY
    torch.testing.assert_close(found, several_steps(model, cache, tokens, 40), rtol=1e-4, atol=1e-4)


def test_a_run_keeps_its_recordings_and_sees_its_updates(gpu):
    """No tensor moves from step to step, nothing is recorded again, and new weights count."""
    model, recordings = model_of(), RecordingCache()
    add_lora(model, rank=2, alpha=4.0)
    places, found = set(), []

    @contextmanager
    def look(model):
        """Where all is that a recording on a GPU knows by its address."""
        decoder, _ = recordings.cached or (None, None)
        if decoder and decoder.keys:
            statics = decoder.tokens, decoder.lengths, decoder.cos, decoder.sin
            stores = (*decoder.keys, *decoder.values, *tensors_in(tuple(decoder.blocks)), *statics)
            places.add(tuple(x.data_ptr() for x in stores))
        yield

    engine = replace(
        FAST,
        make_decoder=recordings.decoder,
        make_draw=recordings.draw,
        cut=cut_by_digits,
        step_context=look,
    )
    for _ in range(3):
        found.append(drawn(model, 40, engine=engine, top_p=0.8))
        assert found[-1][0] == drawn(model, 40, engine=PLAIN_ENGINE, top_p=0.8)[0]
        for parameter in model.parameters():  # lora_B, too, which is 0 at first
            parameter.requires_grad_(False).add_(torch.full_like(parameter, 0.03))
    assert found[0] != found[1] != found[2]
    assert len(places) == 1
    decoder, draw = recordings.cached
    assert len(gpu) == len(decoder.recordings) + len(draw.recordings)
    model.tok_emb.weight.data = model.tok_emb.weight.data * 2  # elsewhere, as another model's
    doubled = drawn(model, 40, engine=engine, top_p=0.8)[0]
    assert doubled == drawn(model, 40, engine=PLAIN_ENGINE, top_p=0.8)[0] != found[2][0]
    assert recordings.free_memory() and not recordings.free_memory()
    assert drawn(model, 40, engine=engine, top_p=0.8) and recordings.cached is None


def test_two_batches_of_a_model_at_once_do_not_share_their_keys(gpu):
    model, recordings = model_of(), RecordingCache()
    decoder, (cache, tokens) = recordings.decoder(model, 4, 60), read_prompts(model, 4)
    other, other_tokens = read_prompts(model, 4, seed=1)
    wanted = [several_steps(model, *pair) for pair in ((cache, tokens), (other, other_tokens))]
    found = [[], []]
    pairs = [
        (cache.select_rows(torch.arange(4)), tokens),
        (other.select_rows(torch.arange(4)), other_tokens),
    ]
    for _ in range(3):
        for i, (own, next_tokens) in enumerate(pairs):  # in turn, as where one waits half-way
            logits = recordings.decoder(model, 4, 60)(next_tokens, cache=own)[:, -1].clone()
            pairs[i] = own, logits.argmax(-1, keepdim=True)
            found[i].append(logits)
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(torch.stack(ours), theirs[:3], rtol=1e-4, atol=1e-4)
    assert recordings.cached[0] is decoder


def test_only_who_keeps_the_sets_gets_the_weights():
    logits = torch.randn(3, 96, generator=torch.Generator().manual_seed(0))
    draw, policy = GraphDraw(again), (1.0, 0.9, 0, cut_by_digits)
    u = torch.tensor([0.1, 0.5, 0.9])
    assert draw(logits, u, *policy).weights is None
    kept = draw(logits, u, *policy, keeps=True)
    assert kept.kept_ids() == sample_next_token(logits, u, *policy).kept_ids()
    assert sorted(few for _, _, few in draw.recordings) == [False, True]


def test_a_recording_finds_memory_that_torch_holds_for_others(monkeypatch):
    """Within a recording, torch cannot give it back."""
    said = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: said.append("given back"))
    monkeypatch.setattr(graphs, "recording_stream", too_old)  # far enough
    for free in (graphs.FREE_BYTES, graphs.FREE_BYTES - 1):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, 2**34))
        with pytest.raises(RuntimeError, match="not supported"):
            graphs.Recorder(torch.device("cuda"))(lambda: None)
    assert said == ["given back"]


def no_memory(step):
    raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 5 GiB.\nMore lines")


def too_old(step):
    raise RuntimeError("CUDA error: operation not supported\nCUDA kernel errors might be ...")


@pytest.mark.parametrize("record", [no_memory, too_old])
def test_what_cannot_be_recorded_is_computed_after_one_warning(record, caplog):
    model = model_of()
    for _ in range(2):
        found = drawn(model, 40, engine=graph_engine(record), top_p=0.8)
    assert found[0] == drawn(model, 40, engine=PLAIN_ENGINE, top_p=0.8)[0]
    decoder = graph_decoder(model, record)
    cache, tokens = read_prompts(model, 3)
    decoder(tokens, cache=cache)
    assert decoder.failed and not (decoder.keys or decoder.blocks or decoder.outer_weights), (
        "let go of"
    )
    steps, draws = [line.getMessage() for line in caplog.records]
    assert steps.startswith("decoding steps cannot be recorded") and draws.startswith("draws")
    assert "\n" not in steps + draws and ("memory" in steps or "not supported" in steps)


def test_nothing_is_recorded_on_a_cpu():
    model = model_of()
    assert not isinstance(decoder_for(model, 5, 60), GraphDecoder)
    assert draw_for(model, 5, 60) is sample_next_token


def test_who_is_recorded_on_a_gpu(gpu):
    """A model that graphs.py knows, for a job that is long enough."""
    model = model_of()
    assert isinstance(decoder_for(model, 5, 60), GraphDecoder)
    assert isinstance(draw_for(model, 5, 60).func, GraphDraw)
    assert type(decoder_for(model, 5, decoding.MIN_STEPS - 1)) is Decoder
    assert draw_for(model, 5, decoding.MIN_STEPS - 1) is sample_next_token
    assert decoder_for(model, 5, 60, compiled=True).compiled
    model.register_forward_hook(lambda *_: None)
    assert type(decoder_for(model, 5, 60)) is Decoder
    assert FAST.make_decoder is decoder_for and FAST.make_draw is draw_for


def test_what_graphs_do_not_know_is_left_to_the_model():
    hooked, foreign, shifted, mixed, partly = (model_of() for _ in range(5))
    hooked.trf_blocks[1].ff.register_forward_pre_hook(lambda *_: None)
    foreign.trf_blocks[0].ff.fc1 = torch.nn.Sequential(foreign.trf_blocks[0].ff.fc1)
    shifted.final_norm.shift = torch.nn.Parameter(torch.ones(24))
    mixed.out_head.to(torch.bfloat16)
    add_lora(partly, rank=2, alpha=4.0)
    ff = partly.trf_blocks[0].ff
    ff.fc1 = torch.nn.Linear(24, 32, bias=False)
    subclass = type("Other", (type(model_of()),), {})
    other = model_of()
    other.__class__ = subclass
    for model in (hooked, foreign, shifted, mixed, partly, other):
        assert reason_against_graphs(model)


def wide_rows(rows, spread):
    """Logits of so many rows: the larger `spread`, the fewer tokens have most of the mass."""
    generator = torch.Generator().manual_seed(rows)
    logits = spread * torch.randn(rows, 96, generator=generator)
    return logits, torch.rand(rows, generator=generator)


@RECORDS
@pytest.mark.parametrize("spread, made", [(6.0, {True}), (0.3, {True, False})])
@pytest.mark.parametrize("policy", [(0.9, 0), (0.9, 5), (1.0, 5)])
def test_a_draw_looks_at_the_largest_first_and_at_all_where_these_do_not_suffice(
    record, spread, made, policy
):
    draw = GraphDraw(record)
    logits, u = wide_rows(5, spread)
    found = draw(logits, u, 1.0, *policy, cut_by_digits, keeps=True)
    wanted = sample_next_token(logits, u, 1.0, *policy, cut_by_digits)
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert not draw.failed
    few = {few for _, _, few in draw.recordings}
    assert few == ({True} if policy[1] else made)  # the five largest are among six


def test_rows_that_nobody_looks_at_cost_no_second_draw():
    draw = GraphDraw(again)
    (sure, u), (unsure, _) = wide_rows(3, 6.0), wide_rows(1, 0.1)
    logits, u = torch.cat([sure, unsure]), torch.cat([u, torch.zeros(1)])
    found = draw(logits, u, 1.0, 0.9, 0, cut_by_digits)
    wanted = sample_next_token(logits, u, 1.0, 0.9, 0, cut_by_digits)
    assert found.tokens[:3].tolist() == wanted.tokens[:3].tolist()
    assert {few for _, _, few in draw.recordings} == {True}


def test_a_recording_that_failed_is_not_tried_again():
    tries = []

    def fails(step):
        tries.append(step)
        too_old(step)

    draw, (logits, u) = GraphDraw(fails), wide_rows(3, 6.0)
    for _ in range(3):
        found = draw(logits, u, 1.0, 0.9, 0, cut_by_digits)
    assert found.tokens.equal(sample_next_token(logits, u, 1.0, 0.9, 0, cut_by_digits).tokens)
    assert len(tries) == 1
