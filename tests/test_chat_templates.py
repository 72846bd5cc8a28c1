"""Tokenizers and chat templates of other families than Qwen3, against transformers."""

import json

import pytest
import transformers
from tokenizers import AddedToken, processors

from reasoning_from_scratch.chat_templates import render_conversation
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.weights import load_tokenizer_only
from reasoning_from_scratch.problems import Problem, describe_prompt, problem_prompt, with_prompt
from reasoning_from_scratch.sampling import Rollout
from reasoning_from_scratch.tokenizer import answer_stops, answer_text, stop_ids_of
from rfs.commands import cli
from tests.conftest import build_tokenizer

# Written for these tests, in the manner of the families.
CHATML = (
    "{%- if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nBe helpful.<|im_end|>\\n' }}"
    "{% endif %}\n{%- for message in messages %}\n    {{- '<|im_start|>' + message.role + '\\n'"
    " + message.content + '<|im_end|>' + '\\n' }}\n{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"
)
LLAMA_3 = (
    "{{- bos_token }}{%- set date = strftime_now('%d %b %Y') if strftime_now is defined else '?' %}"
    "{{- '<|start_header_id|>system<|end_header_id|>\\n\\nToday: ' + date + '\\n\\n<|eot_id|>' }}"
    "{%- for message in messages %}{{- '<|start_header_id|>' + message['role'] + "
    "'<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
    "{%- endif %}"
)
LLAMA_2 = (
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate') }}{% endif %}"
    "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + message['content'].strip() + "
    "' [/INST]' }}{% else %}{% generation %}{{ ' ' + message['content'] + ' ' + eos_token }}"
    "{% endgeneration %}{% endif %}{% endfor %}"
)
# name: template, beginning of a text, end of an answer
FAMILIES = {
    "qwen2": (CHATML, None, "<|im_end|>"),
    "llama": (LLAMA_3, "<|begin_of_text|>", "<|eot_id|>"),
    "llama-2": (LLAMA_2, "<s>", "</s>"),
}
HEADERS = ["<|start_header_id|>", "<|end_header_id|>"]


def family_folder(folder, name, template_file=False, **changes):
    """Tokenizer files as the family has them; no weights."""
    template, begins, ends = FAMILIES[name]
    tokenizer = build_tokenizer()
    named = [token for token in (begins, ends, *HEADERS) if token]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in named])
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": ends}
    if begins:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{begins} $A", special_tokens=[(begins, tokenizer.token_to_id(begins))]
        )
        settings["bos_token"] = {"content": begins, "__type": "AddedToken"}
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    if template_file:
        (folder / "chat_template.jinja").write_text(template)
    else:
        settings["chat_template"] = template
    config = {"model_type": name.partition("-")[0], "eos_token_id": tokenizer.token_to_id(ends)}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | changes))
    return folder


@pytest.fixture(params=FAMILIES)
def both(request, tmp_path):
    folder = family_folder(tmp_path, request.param)
    return load_tokenizer_only(folder), transformers.AutoTokenizer.from_pretrained(folder)


def test_a_conversation_is_the_text_that_transformers_makes(both):
    ours, theirs = both
    assert ours.apply_chat_template
    past = [("What is 1 + 1?", " Two.\n"), ("And é?", "{{ bos_token }}")]
    for turns in ([], past[:1], past):
        messages = [
            {"role": role, "content": words}
            for turn in turns
            for role, words in zip(("user", "assistant"), turn, strict=True)
        ] + [{"role": "user", "content": "  Then?\n"}]
        expected = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert ours.wrap_chat("  Then?\n", turns) == expected
        ids = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        talk = ours.wrap_chat("  Then?\n", turns)
        assert ours.encode(talk, chat_wrapped=False) == ids
        assert turns or ours.encode("  Then?\n") == ids


def test_a_plain_prompt_begins_as_transformers_begins_it(both):
    ours, theirs = both
    ours.use_chat_template(False)
    assert ours.encode("13 + 24 =") == theirs("13 + 24 =")["input_ids"]
    part = theirs("13 + 24 =", add_special_tokens=False)["input_ids"]
    assert ours.encode("13 + 24 =", chat_wrapped=False) == part
    assert ours.eos_token_id == theirs.eos_token_id


def test_a_template_in_a_file_of_its_own(tmp_path):
    inside = load_tokenizer_only(family_folder(tmp_path / "a", "llama"))
    beside = load_tokenizer_only(family_folder(tmp_path / "b", "llama", template_file=True))
    assert inside.wrap_chat("Hi") == beside.wrap_chat("Hi")
    several = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": LLAMA_3}]
    named = family_folder(tmp_path / "c", "llama", chat_template=several)
    assert load_tokenizer_only(named).wrap_chat("Hi") == inside.wrap_chat("Hi")


def test_a_folder_without_a_template_is_plain(tmp_path):
    tokenizer = load_tokenizer_only(family_folder(tmp_path, "llama", chat_template=None))
    assert not tokenizer.apply_chat_template
    with pytest.raises(UserError, match="no chat template") as info:
        with_prompt([Problem("x", "Hi", "1")], "chat", tokenizer)
    assert "\n" not in str(info.value)


@pytest.mark.parametrize(
    "template, reason",
    [
        ("{{ raise_exception('only one turn') }}", "only one turn"),
        ("{% for", "tag name expected|unexpected"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "is unsafe"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{% for i in range(10**9) %}{% endfor %}", "[Rr]ange"),
    ],
)
def test_a_template_that_cannot_be_used_is_one_line(template, reason):
    with pytest.raises(UserError, match=reason) as info:
        render_conversation(template, [{"role": "user", "content": "Hi"}], {})
    assert "\n" not in str(info.value) and "chat template cannot be used" in str(info.value)


# ---- prompts from a file, and answers that end at a character


def test_a_prompt_from_a_file_is_put_as_it_is(tmp_path):
    tokenizer = load_tokenizer_only(family_folder(tmp_path / "m", "qwen2"))
    path = tmp_path / "shots.txt"
    path.write_text("1 + 1 = 2\n{problem} =\n")
    (problem,) = with_prompt([Problem("x", "{5} + 2", "7")], str(path), tokenizer)
    prompt = problem_prompt(problem)
    assert prompt == "1 + 1 = 2\n{5} + 2 ="  # without the end of the file's last line
    assert tokenizer.decode(tokenizer.encode(prompt)) == prompt
    path.write_text("no place")
    with pytest.raises(UserError, match=r"has no \{problem\} in it"):
        with_prompt([], str(path), tokenizer)
    with pytest.raises(UserError, match="did you mean 'plain'"):
        with_prompt([], "plian", tokenizer)


def test_a_prompt_file_in_a_chat_template_or_alone(tmp_path):
    """Alone it is all that the model reads, so it may bring the template's own tokens."""
    path = tmp_path / "mine.txt"
    path.write_text("Solve: {problem}\n")
    asked = [Problem("x", "3 + 4", "7")]
    sent = {}
    for kind in ("", "plain:", "chat:"):
        tokenizer = load_tokenizer_only(family_folder(tmp_path / f"m{len(sent)}", "qwen2"))
        prompt = problem_prompt(with_prompt(asked, f"{kind}{path}", tokenizer)[0])
        sent[kind] = tokenizer.decode(tokenizer.encode(prompt)), describe_prompt(tokenizer, prompt)
    assert sent[""] == sent["plain:"]
    assert sent[""][0] == "Solve: 3 + 4" and "without a chat template" in sent[""][1]
    assert sent["chat:"][0].endswith(
        "<|im_start|>user\nSolve: 3 + 4<|im_end|>\n<|im_start|>assistant\n"
    )
    assert "in a chat template, begins with '<|im_start|>" in sent["chat:"][1]
    assert sent["chat:"][1].endswith("ends with '<|im_start|>assistant'")
    path.write_text("<|im_start|>user\n{problem}<|im_end|>\n<|im_start|>assistant\n")
    (own,) = with_prompt(asked, str(path), tokenizer)
    text = "<|im_start|>user\n3 + 4<|im_end|>\n<|im_start|>assistant"
    assert tokenizer.decode(tokenizer.encode(problem_prompt(own))) == text
    with pytest.raises(UserError, match="would wrap it twice"):
        with_prompt(asked, f"chat:{path}", tokenizer)


@pytest.mark.parametrize(
    "stop, words, text",
    [
        (r"\n", " 37:\n", " 37:"),  # ":\n" is one token here
        ("\n", " 37\n", " 37"),
        (r"\n\n", " 37.\n\n", " 37."),
        ("Question:", " 37\nQuestion:", " 37\n"),
        ("é", " 37é", " 37"),  # two bytes, perhaps two tokens
        ("7", " 37", " 3"),
    ],
)
def test_an_answer_ends_with_the_token_that_completes_the_stop_text(tmp_path, stop, words, text):
    tokenizer = load_tokenizer_only(family_folder(tmp_path, "qwen2"))
    before = stop_ids_of(tokenizer)
    tokenizer.end_answers_at(stop)
    assert stop_ids_of(tokenizer) == before  # what a saved model says ends its answers
    ids, stops = tokenizer.encode(words, chat_wrapped=False), answer_stops(tokenizer)
    ends = [n for n in range(1, len(ids) + 1) if stops.reached(ids[:n])]
    assert ends[0] == len(ids)
    assert answer_text(tokenizer, Rollout(response_ids=ids, finished=True)) == text
    assert answer_text(tokenizer, Rollout(response_ids=ids)) == words
    ended = Rollout(response_ids=[*ids, tokenizer.eos_token_id], finished=True)
    assert answer_text(tokenizer, ended) == words
    # The same text earlier on was put there by a calculator or a partner, and ends nothing.
    later = tokenizer.encode(" and then", chat_wrapped=False)
    assert not any(stops.reached([*ids, *later[:n]]) for n in range(1, len(later) + 1))


def test_no_stop_text_is_refused_before_a_model_is_loaded(capsys):
    for words in ("chat", "train", "evaluate", "preflight"):
        assert cli.main([words, "--stop="]) == 2
        assert capsys.readouterr().err.startswith(f"rfs {words}: --stop is empty")
