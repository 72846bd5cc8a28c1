"""decode.c computes what the model computes, on every kind of registers, and steps aside for
what it does not know."""

import math
import platform
import shutil
import tempfile
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from small_model import (
    FAMILIES_IN_C,
    SIZES_IN_C,
    drawn,
    read_prompts,
    several_steps,
    small_model,
    uneven,
    with_lora,
)

from reasoning_from_scratch.fast.decode_library import (
    FLAGS,
    FLAGS_BY_DTYPE,
    compile_to,
    open_library,
)
from reasoning_from_scratch.fast.decoding import (
    CompiledDecoder,
    Decoder,
    decoder_for,
    has_lora,
    int8_decoder_for,
    load_library,
    reason_against_decode_c,
    torch_threads,
)
from reasoning_from_scratch.fast.memory import checkpoint_blocks
from reasoning_from_scratch.optim.lora import add_lora, lora_layers
from reasoning_from_scratch.qwen3 import FeedForward, KVCache
from reasoning_from_scratch.sampling import PLAIN_ENGINE, Sampling, SamplingEngine, generate

needs_compiler = pytest.mark.skipif(
    load_library(torch.float32) is None, reason="this machine has no C compiler"
)
DTYPES = [torch.float32, torch.bfloat16]
REGISTERS = {0: [], 8: ["-march=haswell"], 4: ["-march=x86-64"]}  # numbers in one; 0: as here


@pytest.fixture(params=REGISTERS, ids="registers of {}".format)
def flags(request):
    """A processor with wide registers can play one with narrow ones."""
    if request.param and platform.machine() != "x86_64":
        pytest.skip("these registers are those of x86-64")
    if request.param > load_library(torch.float32).lanes():
        pytest.skip("this processor's registers are narrower")
    return [*FLAGS, *REGISTERS[request.param]]


@cache
def compiled_with(dtype, *flags):
    folder = Path(tempfile.mkdtemp())
    compile_to(folder / "decode.so", ["cc", *flags, *FLAGS_BY_DTYPE[dtype]])
    library = open_library(folder / "decode.so")
    shutil.rmtree(folder)
    return library


def model_that_fits(dtype=torch.float32, vocab_size=96, **other):
    model = uneven(small_model(vocab_size, **{**SIZES_IN_C, "dtype": dtype, **other}))
    return model.requires_grad_(False)


@needs_compiler
@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("rows", [1, 12, 31])
@pytest.mark.parametrize("family", FAMILIES_IN_C)
def test_the_same_logits(family, rows, lora, flags):
    """Also with LoRA as it is trained."""
    model = model_that_fits(**FAMILIES_IN_C[family])
    if lora:
        with_lora(model, size=0.05)
    assert reason_against_decode_c(model) is None
    decoder = CompiledDecoder(model, compiled_with(torch.float32, *flags))
    cache, tokens = read_prompts(model, rows)
    found = several_steps(decoder, cache, tokens)
    # Qwen2.5's logits are up to 200 here: of that, 5e-5 are two roundings.
    assert torch.allclose(found, several_steps(model, cache, tokens), atol=5e-5)


@needs_compiler
@pytest.mark.parametrize("shared", [0, 16, 37, 64])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_all_rows_begin_with_may_be_read_from_the_first_one(dtype, shared, flags):
    """To the last bit, wherever the beginning ends, also if only the first row still has it."""
    model = model_that_fits(dtype)
    decoder = CompiledDecoder(model, compiled_with(dtype, *flags))
    torch.manual_seed(0)
    ids = torch.randint(96, (5, 90))  # (B, T)
    ids[:, :64] = ids[0, :64]
    cache = KVCache(len(model.trf_blocks), 100)
    model.fill_cache(ids, cache, torch.arange(90) < torch.tensor([65, 90, 70, 81, 77])[:, None])
    alone = cache.select_rows(torch.arange(5))
    for store in (*cache.keys, *cache.values):
        store[1:, :, : shared // 16 * 16] = torch.nan
    cache.shared_slots = shared
    found, wanted = (several_steps(decoder, c, ids[:, :1]) for c in (cache, alone))
    assert torch.equal(found, wanted)


@needs_compiler
def test_the_sampler_says_how_much_all_prompts_share():
    model, seen = model_that_fits(vocab_size=96), []
    start = [i % 96 for i in range(80)]

    def decoder(model, rows, steps):
        inner = CompiledDecoder(model, load_library(torch.float32))
        decode = inner.decode
        inner.decode = lambda ids, cache: (seen.append(cache.shared_slots), decode(ids, cache))[1]
        return inner

    prompts, sampling = [[*start, i] for i in (1, 2, 3)], Sampling(20, rollouts=2)
    engine = SamplingEngine(make_decoder=decoder)
    found = generate(model, prompts, sampling, stop_ids=(), engine=engine)
    assert set(seen) == {80}
    plain = generate(model, prompts, sampling, stop_ids=(), engine=PLAIN_ENGINE)
    for ours, theirs in zip(sum(found, []), sum(plain, []), strict=True):
        assert ours.response_ids == theirs.response_ids


@needs_compiler
@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("n_layers", [2, 6])
@pytest.mark.parametrize("family", FAMILIES_IN_C)
def test_in_bfloat16_as_near_to_float64_as_torch_is(family, n_layers, lora, flags):
    """Their roundings differ, and so may a greedy choice, but only between tokens that are nearer
    to each other than torch's own error."""
    sizes = {**FAMILIES_IN_C[family], "n_layers": n_layers}
    model, exact = model_that_fits(torch.bfloat16, **sizes), model_that_fits(torch.float64, **sizes)
    if lora:
        with_lora(model, size=0.05), with_lora(exact, size=0.05)
    exact.load_state_dict(model.state_dict())
    decoder = CompiledDecoder(model, compiled_with(torch.bfloat16, *flags))
    cache, tokens = read_prompts(model, 31)
    caches = [cast(cache, dtype) for dtype in (torch.bfloat16, torch.bfloat16, torch.float64)]
    steps = []
    for _ in range(12):  # all three read the tokens that float64 chooses
        decoders = zip((decoder, model, exact), caches, strict=True)
        steps.append([decode(tokens, cache=own)[:, -1].double() for decode, own in decoders])
        tokens = steps[-1][-1].argmax(dim=-1, keepdim=True)
    in_c, in_torch, truth = map(torch.stack, zip(*steps, strict=True))  # (steps, B, V)
    errors_in_c, errors_in_torch = (in_c - truth).abs(), (in_torch - truth).abs()
    assert errors_in_c.mean() < 1.05 * errors_in_torch.mean()
    assert errors_in_c.max() < 1.25 * errors_in_torch.max()
    best, second = truth.topk(2).values.unbind(-1)  # (steps, B)
    chosen_otherwise = in_c.argmax(-1) != in_torch.argmax(-1)
    assert (best - second)[chosen_otherwise].lt(2 * errors_in_torch.max()).all()


def cast(cache, dtype):
    copy = cache.select_rows(torch.arange(len(cache.lengths)))
    copy.keys, copy.values = ([x.to(dtype) for x in some] for some in (copy.keys, copy.values))
    return copy


@needs_compiler
@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_to_the_last_bit_whatever_else_is_in_the_batch_and_with_any_threads(dtype, int8, flags):
    model = model_that_fits(dtype)
    decoder = CompiledDecoder(model, compiled_with(dtype, *flags), int8)
    cache, tokens = read_prompts(model, 30)
    together = several_steps(decoder, cache, tokens)
    for some in ([4], [29, 3], list(range(7, 20))):
        rows = torch.tensor(some)
        alone = several_steps(decoder, cache.select_rows(rows), tokens[rows])
        assert torch.equal(alone, together[:, rows])
    for count in (1, 3, 8):
        with torch_threads(count):
            assert torch.equal(several_steps(decoder, cache, tokens), together)


@needs_compiler
@pytest.mark.parametrize("settings", [{"temperature": 0.0}, {}, {"top_p": 0.8}, {"top_k": 4}])
def test_the_same_tokens(settings):
    model = model_that_fits()
    assert isinstance(decoder_for(model, 5, 60), CompiledDecoder)
    ids, logprobs = drawn(model, 60, **settings)
    other_ids, other_logprobs = drawn(model, 60, engine=PLAIN_ENGINE, **settings)
    assert ids == other_ids
    if settings != {"temperature": 0.0}:  # rows ended at different times, and were refilled
        assert len({len(x) for x in ids}) > 3
    assert logprobs == pytest.approx(other_logprobs, abs=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("before", [0, 3])
def test_prompts_are_read_without_their_padding(side, before):
    """After nothing, and after a start that all share; also where a row has nothing to read."""
    model, lengths = model_that_fits(), torch.tensor([[7], [0], [2], [5]])
    steps = torch.arange(7)
    mask = steps >= 7 - lengths if side == "left" else steps < lengths
    ids = torch.randint(0, 96, (4, 7), generator=torch.Generator().manual_seed(1))
    caches = [KVCache(model.cfg["n_layers"]) for _ in range(2)]
    widths = []
    hook = model.trf_blocks[0].ff.register_forward_hook(lambda _, x, y: widths.append(y.shape[1]))
    for reader, filled in zip((Decoder(model), model), caches, strict=True):
        if before:
            model.fill_cache(ids[:, :before], filled)
        reader.fill_cache(ids, filled, mask)
    hook.remove()
    assert lengths.sum() in widths
    found, expected = caches
    assert found.lengths.tolist() == expected.lengths.tolist() == (before + lengths[:, 0]).tolist()
    for pair, wanted in zip(found.get_all(), expected.get_all(), strict=True):
        for row, length in enumerate(found.lengths):
            for tensor, other in zip(pair, wanted, strict=True):
                assert torch.allclose(tensor[row, :, :length], other[row, :, :length], atol=1e-5)


@needs_compiler
def test_an_update_is_seen_by_the_next_decoder():
    model = model_that_fits()
    cache, tokens = read_prompts(model, 4)
    before = several_steps(decoder_for(model, 4, 60), cache, tokens)
    model.trf_blocks[1].ff.fc2.weight.mul_(2)
    after = several_steps(decoder_for(model, 4, 60), cache, tokens)
    assert not torch.allclose(before, after, atol=1e-2)
    assert torch.allclose(after, several_steps(model, cache, tokens), atol=2e-5)


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("places", [("att",), ("ff",)])
def test_lora_on_some_matrices_is_seen_after_each_update_though_the_rest_is_packed_once(
    dtype, places
):
    model = model_that_fits(dtype)
    add_lora(model, 4, 16.0, places=places)
    cache, tokens = read_prompts(model, 4)
    packed = []
    for seed in range(2):
        torch.manual_seed(seed)
        for layer in lora_layers(model).values():
            layer.lora_B.data.normal_(std=0.1)
        decoder = decoder_for(model, 4, 60)
        packed.append(decoder.layers[0].qkv.weights)
        found, wanted = several_steps(decoder, cache, tokens), several_steps(model, cache, tokens)
        assert torch.allclose(found, wanted, atol=5e-5 if dtype == torch.float32 else 0.2)
    assert packed[0] == packed[1]
    model.trf_blocks[0].att.W_key.weight.mul_(2)  # as a snapshot that is written over
    assert decoder_for(model, 4, 60).layers[0].qkv.weights != packed[0]


@needs_compiler
def test_weights_made_in_inference_mode_are_packed_each_time():
    """Nothing counts their changes."""
    with torch.inference_mode():
        model = model_that_fits()
        assert drawn(model, 60)[0] == drawn(model, 60, engine=PLAIN_ENGINE)[0]
        model.trf_blocks[1].ff.fc2.weight.mul_(2)
    cache, tokens = read_prompts(model, 4)
    found = several_steps(decoder_for(model, 4, 60), cache, tokens)
    assert torch.allclose(found, several_steps(model, cache, tokens), atol=2e-5)


@needs_compiler
@pytest.mark.parametrize("make_decoder", [decoder_for, int8_decoder_for])
def test_damaged_weights_stay_visible(make_decoder):
    for value in (torch.nan, torch.inf):
        model = model_that_fits()
        cache, tokens = read_prompts(model, 4)
        model.trf_blocks[1].att.W_key.weight[3] = value
        decoder = make_decoder(model, 4, 60)
        assert isinstance(decoder, CompiledDecoder)
        assert not several_steps(decoder, cache, tokens)[1].isfinite().any()


# ---- in 8 bits

# The sizes of a block: 32, 64 or 128 inputs. Each with what else a model may have.
BLOCKS = {
    32: {},
    64: {"emb_dim": 192, "hidden_dim": 320, "n_heads": 2, "tie_embeddings": True},
    128: {"emb_dim": 256, "hidden_dim": 384, "n_heads": 8, "qk_norm": False, "qkv_bias": True},
}
# As if the processor had no instruction for sums of products in 8 bits: plain C computes them.
PLAIN_C = [
    f"-U{name}"
    for name in (
        "__AVX512VNNI__",
        "__AVXVNNI__",
        "__AVX2__",
        "__AMX_INT8__",
        "__ARM_FEATURE_DOTPROD",
    )
]


@needs_compiler
@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_in_8_bits_every_instruction_set_finds_the_same_whole_numbers(dtype, block, lora):
    """They are added up in one order, so the logits are the same to the last bit, too."""
    model = model_that_fits(dtype, **BLOCKS[block])
    if lora:
        with_lora(model, size=0.05)
    cache, tokens = read_prompts(model, 37)
    narrow = ["-mno-avx512f"] if dtype == torch.float32 and platform.machine() == "x86_64" else []
    for flags in ([], narrow):
        libraries = [compiled_with(dtype, *FLAGS, *flags, *more) for more in ([], PLAIN_C)]
        here, in_plain_c = (
            several_steps(CompiledDecoder(model, library, int8=True), cache, tokens)
            for library in libraries
        )
        assert torch.equal(here, in_plain_c)


def in_8_bits(numbers):
    """Rounded to 127 steps of the largest of each block, on either side of 0."""
    blocks = numbers.unflatten(-1, (-1, math.gcd(numbers.shape[-1], 128)))
    scales = blocks.abs().amax(-1, keepdim=True) / 127
    return (blocks / scales).round().mul(scales).flatten(-2)


def as_in_8_bits(model):
    """Each matrix of layers and head multiplies what is rounded to 8 bits; LoRA does not."""

    def rounded(part, inputs, output):
        x, weight = inputs[0], part.weight
        return output - F.linear(x, weight) + F.linear(in_8_bits(x), in_8_bits(weight))

    for part in model.modules():
        if isinstance(part, torch.nn.Linear) or has_lora(part):
            part.register_forward_hook(rounded)
    return model


@needs_compiler
@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("block", BLOCKS)
def test_in_8_bits_it_rounds_what_it_says_and_nothing_else(block, lora, flags):
    """A number on the border between two may be rounded otherwise: by far the most are not."""
    model, reference = (model_that_fits(**BLOCKS[block]) for _ in range(2))
    if lora:
        with_lora(model, size=0.05), with_lora(reference, size=0.05)
    cache, tokens = read_prompts(model, 31)
    decoder = CompiledDecoder(model, compiled_with(torch.float32, *flags), int8=True)
    found = several_steps(decoder, cache, tokens, steps=1)
    exact = several_steps(model, cache, tokens, steps=1)
    rounded = several_steps(as_in_8_bits(reference), cache, tokens, steps=1)
    assert (found - rounded).abs().mean() < 0.1 * (rounded - exact).abs().mean()


@needs_compiler
@pytest.mark.parametrize("n_layers", [2, 6])
@pytest.mark.parametrize("family", FAMILIES_IN_C)
def test_in_8_bits_it_is_about_as_near_as_bfloat16(family, n_layers):
    """On average within three times of what torch rounds away in bfloat16."""
    sizes = {**FAMILIES_IN_C[family], "n_layers": n_layers}
    model, exact = model_that_fits(torch.bfloat16, **sizes), model_that_fits(torch.float64, **sizes)
    exact.load_state_dict(model.state_dict())
    cache, tokens = read_prompts(model, 31)
    decoder = CompiledDecoder(model, compiled_with(torch.bfloat16, *FLAGS), int8=True)
    found, in_torch = (
        several_steps(decode, cache, tokens, steps=1).double() for decode in (decoder, model)
    )
    truth = several_steps(exact, cast(cache, torch.float64), tokens, steps=1)
    assert (found - truth).abs().mean() < 3 * (in_torch - truth).abs().mean()


@needs_compiler
def test_in_8_bits_frozen_weights_are_packed_once_until_others_want_them_as_they_are():
    model = model_that_fits()
    add_lora(model, 4, 16.0)
    cache, tokens = read_prompts(model, 4)
    first, second = (int8_decoder_for(model, 4, 60) for _ in range(2))
    assert first.layers[0].qkv.int8 == second.layers[0].qkv.int8
    assert not first.layers[0].qkv.weights
    found = several_steps(first, cache, tokens)
    evaluated = several_steps(decoder_for(model, 4, 60), cache, tokens)
    assert torch.allclose(evaluated, several_steps(model, cache, tokens), atol=5e-5)
    assert torch.equal(found, several_steps(int8_decoder_for(model, 4, 60), cache, tokens))
    assert not torch.allclose(found, evaluated, atol=5e-3)


def test_only_what_it_computes_fits_decode_c():
    assert reason_against_decode_c(model_that_fits()) is None
    assert reason_against_decode_c(model_that_fits(tie_embeddings=True)) is None
    checkpointed = model_that_fits()
    checkpoint_blocks(checkpointed)
    assert reason_against_decode_c(checkpointed) is None
    for other in (
        {"vocab_size": 97},
        {"emb_dim": 72},
        {"hidden_dim": 40},
        {"head_dim": 8},
        {"dtype": torch.float64},
    ):
        assert reason_against_decode_c(model_that_fits(**other)), other
    lora, biased, shifted, uneven, mixed, elsewhere = (model_that_fits() for _ in range(6))
    add_lora(lora, rank=2, alpha=4.0)
    assert reason_against_decode_c(lora) is None
    lora.trf_blocks[1].att.W_key.alpha = 8.0  # with W_query and W_value it is one product
    biased.trf_blocks[0].ff.fc1.bias = torch.nn.Parameter(torch.ones(160))
    shifted.final_norm.shift = torch.nn.Parameter(torch.ones(64))
    uneven.final_norm.eps = 1e-3
    mixed.out_head.to(torch.bfloat16)
    other = model_that_fits()
    other.trf_blocks[0].ff.__class__ = type("WithAnotherActivation", (FeedForward,), {})
    for model in (lora, biased, shifted, uneven, mixed, other, elsewhere.to("meta")):
        assert reason_against_decode_c(model)


@pytest.mark.parametrize("part", ["", "trf_blocks.0.att.q_norm"])
def test_a_hook_is_called_and_what_it_changes_counts(part):
    model = model_that_fits()
    with_hook = model_that_fits()
    with_hook.get_submodule(part).register_forward_hook(lambda part, inputs, output: 2 * output)
    assert reason_against_decode_c(with_hook) and type(decoder_for(with_hook, 5, 60)) is Decoder
    assert drawn(model, 60) != drawn(with_hook, 60)


NO_MEMORY = """
#include <stdlib.h>
static long taken;
static void *refused(size_t bytes) { return taken++ %s ? NULL : malloc(bytes); }
#define malloc refused
"""


@needs_compiler
@pytest.mark.parametrize("when", ["< 1", "> 5"])
def test_a_step_without_memory_is_torchs(when, tmp_path, caplog):
    """The first, and one after two that went well: torch goes on where it stood."""
    header = tmp_path / "no_memory.h"
    header.write_text(NO_MEMORY % when)
    library = compiled_with(torch.float32, *FLAGS, "-include", str(header))
    model = model_that_fits()
    cache, tokens = read_prompts(model, 4)
    decoder = CompiledDecoder(model, library)
    found = several_steps(decoder, cache, tokens)
    assert torch.allclose(found, several_steps(model, cache, tokens), atol=2e-5)
    assert not decoder.uses_c and caplog.text.count("found no memory") == 1
