"""Where an answer ends: at each stop token of its model, and where the model's context is full;
the same on every path that samples."""

import json
import pickle
import shutil

import pytest
import torch
from small_model import IN_BURSTS
from toy import toy_config, toy_model, toy_problems, toy_tokenizer, train

from reasoning_from_scratch import ch02, ch03, ch04, ch06
from reasoning_from_scratch.errors import PromptTooLong
from reasoning_from_scratch.fast.decoding import CompiledDecoder, decoder_for, load_library
from reasoning_from_scratch.files.weights import load_tokenizer_only, save_hf_folder
from reasoning_from_scratch.problems import Problem, render_prompt
from reasoning_from_scratch.rollouts import sample_groups
from reasoning_from_scratch.sampling import PLAIN_ENGINE, Sampling, generate, greedy
from reasoning_from_scratch.tokenizer import stop_ids_of
from rfs.commands.chat import Chat, ChatOptions, stream
from rfs.engine import FAST
from rfs.evaluation.evaluate import evaluate
from rfs.files.models import load_model_and_tokenizer
from rfs.report.probes import record_probes
from rfs.run.options import resumed_config

TURN, TEXT = "<|im_end|>", "<|endoftext|>"
WORDS = [f"<{i}>" for i in range(35, 64)]  # the rest of a vocabulary that decode.c can compute
PROBLEM = Problem("p", "abc", "1")
LIMIT = 60


@pytest.fixture
def folder(tmp_path):
    """A random chat model like Qwen3: config.json names one id, and none is listed yet."""
    tokenizer = toy_tokenizer(tmp_path)
    tokenizer._tok.add_tokens(WORDS)
    tokenizer.eos_token_id = tokenizer._tok.token_to_id(TURN)
    model = toy_model(vocab_size=64, head_dim=16)
    return save_hf_folder(model, tokenizer, tmp_path / "chat")


def list_ends(folder, *ids):
    path = folder / "generation_config.json"
    path.write_text(json.dumps({"eos_token_id": list(ids), "temperature": 0.6}))


# --- every path that samples: a prompt -> its ids, and the text of the answer


def by_generate(model, tokenizer, folder, engine=FAST, **policy):
    prompt = tokenizer.encode("abc")
    sampling = Sampling(LIMIT, rollouts=1, **policy)
    stop_ids = stop_ids_of(tokenizer)
    ((sample,),) = generate(model, [prompt], sampling, stop_ids=stop_ids, engine=engine)
    assert (
        sample.finished
        == (sample.stop_reason == "stop")
        == (sample.response_ids[-1] != 0 and sample.response_ids[-1] in stop_ids)
    )
    return prompt, tokenizer.decode(sample.text_ids)


def by_decode_c(model, tokenizer, folder):
    if load_library(torch.float32) is None:
        pytest.skip("this machine has no C compiler")
    assert isinstance(decoder_for(model, 1, LIMIT), CompiledDecoder)
    return by_generate(model, tokenizer, folder)


def by_torch(model, tokenizer, folder):
    model.register_forward_hook(lambda *_: None)  # decode.c steps aside
    return by_generate(model, tokenizer, folder)


def by_torch_a_few_at_a_time(model, tokenizer, folder):
    return by_generate(model, tokenizer, folder, IN_BURSTS)


def by_stream(model, tokenizer, folder):
    prompt = tokenizer.encode("abc")
    ids = stream(model, prompt, Sampling(LIMIT), stop_ids_of(tokenizer))
    return prompt, tokenizer.decode(list(ids))


def in_training(model, tokenizer, folder):
    tokenizer = pickle.loads(pickle.dumps(tokenizer))  # as it travels to Ray's samplers
    config = toy_config(folder, max_new_tokens=LIMIT, rollouts=2)
    rollout = sample_groups(model, tokenizer, [PROBLEM], config, 0)[0].rollouts[1]
    return rollout.prompt_ids, rollout.text


def in_evaluation(model, tokenizer, folder):
    result = evaluate(model, tokenizer, [PROBLEM], greedy(LIMIT))
    return tokenizer.encode(render_prompt("abc")), result.rows[0]["generated_text"]


def in_probes(model, tokenizer, folder):
    record_probes(folder, 0, model, tokenizer, [PROBLEM], max_new_tokens=LIMIT)
    line = next(folder.glob("*probes*")).read_text().splitlines()[-1]
    return tokenizer.encode(render_prompt("abc")), json.loads(line)["probes"][0]["text"]


def in_chat(model, tokenizer, folder):
    talk = Chat(model, tokenizer, ChatOptions(max_new_tokens=LIMIT, temperature=1.0))
    return tokenizer.encode("abc"), "".join(talk.answer("abc"))


def in_chapter_3(model, tokenizer, folder):
    text = ch03.generate_text_stream_concat(model, tokenizer, "abc", "cpu", LIMIT)
    return tokenizer.encode("abc"), text


def in_chapter_4(model, tokenizer, folder):
    torch.manual_seed(0)
    how = {"temperature": 1.0, "generate_func": ch04.generate_text_top_p_stream_cache}
    text = ch04.generate_text_stream_concat_flex(model, tokenizer, "abc", "cpu", LIMIT, **how)
    return tokenizer.encode("abc"), text


def in_chapter_6(model, tokenizer, folder):
    torch.manual_seed(0)
    ids, length, text = ch06.sample_response(model, tokenizer, "abc", "cpu", LIMIT, 1.0, 1.0)
    assert text == tokenizer.decode(ids[length:].tolist())
    ends = ids[-1].item() in stop_ids_of(tokenizer)  # chapter 6 keeps the stop token
    return ids[:length].tolist(), tokenizer.decode(ids[length : len(ids) - ends].tolist())


PATHS = [
    by_decode_c, by_torch, by_torch_a_few_at_a_time, by_stream, in_training, in_evaluation,
    in_probes, in_chat, in_chapter_3, in_chapter_4, in_chapter_6,
]  # fmt: skip
every_path = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)


# --- stop tokens


@every_path
def test_an_answer_ends_with_each_token_that_the_model_lists(folder, path):
    _, whole = path(*load_model_and_tokenizer(folder), folder)
    stop = next(word for word in WORDS if word in whole[4:] and not whole.startswith(word))
    model, tokenizer = load_model_and_tokenizer(folder)
    list_ends(folder, tokenizer.eos_token_id, tokenizer._tok.token_to_id(stop))
    _, text = path(*load_model_and_tokenizer(folder), folder)
    assert 0 < len(text) < len(whole) and text == whole.split(stop)[0]


@pytest.mark.parametrize("path", [in_training, in_evaluation, in_probes, in_chat])
def test_an_answer_ends_at_a_text_of_the_users_choice(folder, path):
    _, whole = path(*load_model_and_tokenizer(folder), folder)
    stop = whole[7:12]  # parts of several tokens
    model, tokenizer = load_model_and_tokenizer(folder)
    tokenizer.end_answers_at(stop)
    _, text = path(model, tokenizer, folder)
    assert text == whole.partition(stop)[0] != whole


@pytest.mark.parametrize("changes", [{}, {"lora_rank": 2}], ids=["weights", "lora"])
def test_a_run_hands_on_the_tokenizers_files_wherever_they_came_from(folder, tmp_path, changes):
    """The user's folder, gone by the time of the save; then, resumed, the run's own first save."""
    given = json.loads((folder / "tokenizer_config.json").read_text())
    given |= {"model_max_length": 4096, "chat_template": "{{ tools }}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(given))
    turn = load_tokenizer_only(folder).eos_token_id
    list_ends(folder, turn, 40)
    names = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")
    before = {name: (folder / name).read_bytes() for name in names}
    world = {"problems": toy_problems(), "eval_problems": toy_problems(4)}
    run = tmp_path / "run"
    config = toy_config(run, model=str(folder), steps=1, report_every=0, **changes)
    train(config, quiet=True, **world)
    shutil.rmtree(folder)
    train(resumed_config(run, steps=2), quiet=True, **world)
    saves = sorted((run / "checkpoints").iterdir())
    assert [place.name for place in saves] == ["000000", "000001", "000002"]
    for place in saves:
        assert {name: (place / name).read_bytes() for name in names} == before
    said = (run / "logs.log").read_text().splitlines()[:3]
    assert any("answers end with" in line for line in said), said
    assert f"<|im_end|> ({turn}) or <40> (40), as generation_config.json says" in " ".join(said)


# --- the context


@every_path
def test_an_answer_ends_where_the_context_is_full(folder, path):
    room = 9
    prompt, whole = path(*load_model_and_tokenizer(folder), folder)
    model, tokenizer = load_model_and_tokenizer(folder)
    model.cfg["context_length"] = len(prompt) + room
    _, text = path(model, tokenizer, folder)
    ids = tokenizer.encode(whole, chat_wrapped=False)
    assert len(ids) > room and text == tokenizer.decode(ids[:room])


@every_path
def test_a_prompt_that_leaves_no_room_is_refused(folder, path):
    model, tokenizer = load_model_and_tokenizer(folder)
    prompt, _ = path(model, tokenizer, folder)
    for context in (len(prompt), len(prompt) - 1):
        model, tokenizer = load_model_and_tokenizer(folder)
        model.cfg["context_length"] = context
        says = f"has {len(prompt)} tokens; the model reads {context}, the answer included"
        with pytest.raises(PromptTooLong, match=says):
            path(model, tokenizer, folder)


def test_prompts_of_different_lengths_have_different_room(folder):
    model, _ = load_model_and_tokenizer(folder)
    prompts = [[1] * length for length in (3, 17, 29, 11)]
    whole = generate(model, prompts, Sampling(40, rollouts=2, sample_rows=3), stop_ids={34})
    model.cfg["context_length"] = 30
    for engine in (PLAIN_ENGINE, IN_BURSTS):
        sampling = Sampling(20, rollouts=2, sample_rows=3)
        found = generate(model, prompts, sampling, stop_ids={34}, engine=engine)
        for prompt, cut, full in zip(prompts, found, whole, strict=True):
            for one, other in zip(cut, full, strict=True):
                assert one.response_ids == other.response_ids[: min(20, 30 - len(prompt))]
                assert one.stop_reason == ("stop" if one.response_ids[-1] == 34 else "length")


@pytest.mark.parametrize("function", [ch02.generate_text_basic, ch02.generate_text_basic_cache])
def test_the_generators_of_chapter_2(folder, function):
    model, _ = load_model_and_tokenizer(folder)
    model.cfg["context_length"] = 12
    assert function(model, torch.ones(1, 7, dtype=torch.long), 100).shape == (1, 5)
    with pytest.raises(PromptTooLong, match="model reads 12"):
        function(model, torch.ones(1, 12, dtype=torch.long), 100)
