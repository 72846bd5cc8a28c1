"""decode.c and training.c for ARM, cross-compiled and emulated by qemu: what the tests of decoding,
of the draw and of attention ask of its code, and the tokens that this processor draws.

A program for another processor cannot be loaded into Python. So `Emulated` stands in for the
library: for each call it writes what the call's pointers point into to a file, runs on_arm.c on it,
and copies back what has changed.
"""

import ctypes
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

import pytest
import torch
from small_model import FAMILIES_IN_C, drawn, read_prompts, several_steps

from reasoning_from_scratch.fast import decoding, narrow_attention
from reasoning_from_scratch.fast.decode_library import (
    FLAGS_BY_DTYPE,
    OTHER_SOURCES,
    PORTABLE,
    SOURCE,
    TOLERANCE,
)
from reasoning_from_scratch.fast.decoding import (
    WIDE_VOCABULARY,
    CompiledDecoder,
    Layer,
    load_library,
    logit_differences,
)
from tests.fast import test_decoding, test_draw, test_narrow_attention

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
DRIVER = Path(__file__).with_name("on_arm.c")
PACKAGES = "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"


def packages_are_here():
    if not (shutil.which(COMPILER) and shutil.which(EMULATOR)):
        return False
    where = subprocess.run([COMPILER, "-print-file-name=libc.a"], capture_output=True, text=True)
    return Path(where.stdout.strip()).is_absolute()  # else it only repeats the name


pytestmark = pytest.mark.skipif(
    not packages_are_here(), reason=f"ARM is emulated with Debian's {PACKAGES}"
)

needs_compiler = test_decoding.needs_compiler

# Number format, instructions, and a processor that has just these. Cortex-A57 is of 2013. What
# "max" has beside that, Apple's M2 and Neoverse V1 have, too: products of bfloat16 and of 8 bits.
OLD, NEW = ("armv8-a", "cortex-a57"), ("armv8.6-a", "max")
PROCESSORS = {
    "float32, old": (torch.float32, *OLD),
    "float32, new": (torch.float32, *NEW),
    "bfloat16, old": (torch.bfloat16, *OLD),
    "bfloat16, new": (torch.bfloat16, *NEW),
}
FLOAT32 = [name for name in PROCESSORS if name.startswith("float32")]
BFLOAT16 = [name for name in PROCESSORS if name.startswith("bfloat16")]


class Memory:
    """What a call's pointers point into, as one piece, with places in it instead of addresses."""

    def __init__(self, tensors):
        self.tensors = tensors  # by their addresses
        self.bytes, self.pointers, self.places = bytearray(), [], {}

    def add(self, content):
        self.bytes += bytes(-len(self.bytes) % 64)
        self.bytes += content
        return len(self.bytes) - len(content)

    def place(self, address):
        """The place of a tensor; its whole storage is added once."""
        storage = self.tensors[address].untyped_storage()
        start, size = storage.data_ptr(), storage.nbytes()
        if start not in self.places:
            self.places[start] = self.add(ctypes.string_at(start, size)), size
        return self.places[start][0] + address - start

    def point(self, at, to):
        self.bytes[at : at + 8] = struct.pack("q", to)
        self.pointers.append(at)

    def structure(self, value):
        """The place of a copy of this structure or array, and of all that it points to."""
        at = self.add(bytes(value))
        self.follow(value, at)
        return at

    def follow(self, value, at):
        if isinstance(value, ctypes.Array):
            for i, element in enumerate(value):
                self.follow(element, at + i * ctypes.sizeof(element))
            return
        for name, kind in value._fields_:
            field, here = getattr(value, name), at + getattr(type(value), name).offset
            if isinstance(field, ctypes.Structure):
                self.follow(field, here)
            elif name == "layer":
                self.point(here, self.structure((Layer * value.layers).from_address(field)))
            elif kind is ctypes.c_void_p and field:
                self.point(here, self.place(field))

    def copy_back(self, content):
        for start, (place, size) in self.places.items():
            ctypes.memmove(start, content[place : place + size], size)


class Emulated:
    """The library's functions, by an emulated processor."""

    def __init__(self, program, processor, tensors):
        self.run = [EMULATOR, "-cpu", processor, str(program)]
        self.folder, self.tensors = program.parent, tensors

    def lanes(self):
        return self.call("lanes")

    def pack(self, *arguments, name="pack"):
        matrix, outputs, inputs, packed, *where = arguments
        places = ctypes.c_void_p(matrix), ctypes.c_void_p(packed)
        self.call(name, places[0], outputs, inputs, places[1], *where)

    def pack_int8(self, *arguments):
        self.pack(*arguments, name="pack_int8")

    def attention_gradient(self, call):
        return self.call("attention", call._obj)

    def decode(self, model, step):
        return self.call("decode", model._obj, step._obj)

    def draw(self, drawing):
        return self.call("draw", drawing._obj)

    def call(self, name, *arguments):
        memory = Memory(self.tensors)
        at = memory.add(bytes(8 * len(arguments)))
        for here, argument in enumerate(arguments):
            if isinstance(argument, int):
                memory.bytes[at + 8 * here : at + 8 * here + 8] = struct.pack("q", argument)
            elif isinstance(argument, ctypes.c_void_p):
                memory.point(at + 8 * here, memory.place(argument.value))
            else:
                memory.point(at + 8 * here, memory.structure(argument))
        pointers, size = memory.pointers, len(memory.bytes)
        head = struct.pack("16s4q", name.encode(), at, 0, len(pointers), size)
        places = struct.pack(f"{len(pointers)}q", *pointers)
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:  # threads may call at once
            file = Path(folder) / "memory"
            file.write_bytes(head + places + memory.bytes)
            subprocess.run([*self.run, str(file)], check=True, capture_output=True)
            content = file.read_bytes()
        memory.copy_back(content[len(head) + len(places) :])
        return struct.unpack_from("16s4q", content)[2]


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """on_arm.c with decode.c, compiled for each of PROCESSORS as decode_library.py compiles it."""
    folder, found = tmp_path_factory.mktemp("arm"), {}
    for name, (dtype, instructions, _) in PROCESSORS.items():
        found[name] = folder / name.replace(", ", "-")
        command = [COMPILER, *PORTABLE, f"-march={instructions}", *FLAGS_BY_DTYPE[dtype], "-Wall"]
        included = [f"-include{file}" for file in (SOURCE, *OTHER_SOURCES) if file.suffix == ".c"]
        command += ["-Werror", "-static", *included, str(DRIVER)]
        subprocess.run([*command, "-o", str(found[name]), "-lm", "-lpthread"], check=True)
    return found


@pytest.fixture
def emulated(programs, monkeypatch):
    """What makes the library of one of PROCESSORS. It knows the tensors whose addresses it is
    given, because these are remembered when they are asked for."""
    tensors, address_of = {}, torch.Tensor.data_ptr

    def remembered(tensor):
        tensors[address_of(tensor)] = tensor
        return address_of(tensor)

    monkeypatch.setattr(torch.Tensor, "data_ptr", remembered)
    return lambda name: Emulated(programs[name], PROCESSORS[name][2], tensors)


def there(monkeypatch, library):
    """The tests of decoding and of the draw use this library."""
    monkeypatch.setattr(test_decoding, "compiled_with", lambda *_: library)
    monkeypatch.setattr(decoding, "load_library", lambda _: library)


@pytest.mark.parametrize("name", PROCESSORS)
def test_a_mac_would_keep_the_library(name, emulated):
    """It is compared with torch before it is kept."""
    library = emulated(name)
    assert library.lanes() == 4
    for form, difference in logit_differences(library, PROCESSORS[name][0]).items():
        assert difference <= TOLERANCE[form]


@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("family", FAMILIES_IN_C)
def test_the_same_logits(family, lora, emulated, monkeypatch):
    there(monkeypatch, emulated("float32, old"))
    test_decoding.test_the_same_logits(family, 13, lora, [])


@pytest.mark.parametrize("name", BFLOAT16)
@pytest.mark.parametrize("family, lora", [("Qwen3", False), ("Qwen2.5", True), ("Llama 3", True)])
def test_in_bfloat16_as_near_to_float64_as_torch_is(family, lora, name, emulated, monkeypatch):
    there(monkeypatch, emulated(name))
    test_decoding.test_in_bfloat16_as_near_to_float64_as_torch_is(family, 2, lora, [])


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("name", PROCESSORS)
def test_to_the_last_bit_whatever_else_is_in_the_batch_and_with_any_threads(
    name, int8, emulated, monkeypatch
):
    there(monkeypatch, emulated(name))
    test_decoding.test_to_the_last_bit_whatever_else_is_in_the_batch_and_with_any_threads(
        PROCESSORS[name][0], int8, []
    )


@pytest.mark.parametrize("block", test_decoding.BLOCKS)
def test_in_8_bits_with_and_without_the_instruction(block, emulated, monkeypatch):
    """The same whole numbers, and those of torch."""
    new, old = emulated("float32, new"), emulated("float32, old")
    there(monkeypatch, new)
    test_decoding.test_in_8_bits_it_rounds_what_it_says_and_nothing_else(block, True, [])
    model = test_decoding.model_that_fits(**test_decoding.BLOCKS[block])
    cache, tokens = read_prompts(model, 37)
    found, plain = (
        several_steps(CompiledDecoder(model, library, int8=True), cache, tokens, steps=2)
        for library in (new, old)
    )
    assert torch.equal(found, plain)


@pytest.mark.parametrize("name", BFLOAT16)
def test_attentions_gradient(name, emulated, monkeypatch):
    monkeypatch.setattr(narrow_attention, "load_library", lambda _: emulated(name))
    test_narrow_attention.compare_gradients([3, 40], 20, 60, heads=6, groups=2, size=32)


@pytest.mark.parametrize("settings", test_draw.SETTINGS.values(), ids=test_draw.SETTINGS)
@pytest.mark.parametrize("name", [FLOAT32[0], BFLOAT16[0]])
def test_the_draw(name, settings, emulated, monkeypatch):
    there(monkeypatch, emulated(name))
    dtype = PROCESSORS[name][0]
    test_draw.test_tokens_log_probabilities_and_entropies_are_torchs(dtype, settings)


@needs_compiler
@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("name", PROCESSORS)
def test_a_step_and_its_draw_bring_the_tokens_that_they_bring_here(name, int8, emulated):
    """Rounding to bfloat16, or to 8 bits, moves the border between two tokens: nearly always."""
    dtype, library = PROCESSORS[name][0], emulated(name)
    exact = dtype == torch.float32 and not int8
    model = test_decoding.model_that_fits(dtype, vocab_size=WIDE_VOCABULARY)
    cache, tokens = read_prompts(model, 40)
    found = []
    for other in (load_library(dtype), library):
        again = cache.select_rows(torch.arange(40))
        logits = CompiledDecoder(model, other, int8)(tokens, cache=again)[:, -1]
        found.append((logits.float(), drawn_by(other, logits)))
    (wanted, here), (logits, there) = found
    assert torch.allclose(logits, wanted, atol=5e-5 if exact else 0.3)
    assert (here == there).float().mean() >= (1 if exact else 0.9)


def drawn_by(library, logits):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "load_library", lambda _: library)
        return decoding.draw_in_c(logits, test_draw.uniform(len(logits)), 1.0, 0.95, 0, None).tokens


@needs_compiler
def test_whole_answers_are_those_of_this_processor(emulated, monkeypatch):
    """Sampled in float32: prompts, steps, draws, and rows that are refilled."""
    model = test_decoding.model_that_fits(vocab_size=WIDE_VOCABULARY, tie_embeddings=True)
    ids, logprobs = drawn(model, 32)
    there(monkeypatch, emulated("float32, old"))
    other_ids, other_logprobs = drawn(model, 32)
    assert ids == other_ids
    assert logprobs == pytest.approx(other_logprobs, abs=1e-4)


@pytest.mark.parametrize("number_format, instruction", [("bfloat16", "bfdot"), ("float32", "sdot")])
def test_a_new_processors_products_are_made_of_its_instructions(
    number_format, instruction, programs
):
    for age, taken in (("old", False), ("new", True)):
        program = programs[f"{number_format}, {age}"]
        command = ["aarch64-linux-gnu-objdump", "-d", str(program)]
        code = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert (f"\t{instruction}\t" in code) == taken
