"""`rfs chat`: whole characters, no control codes, the right template, a clean end."""

import io

import pytest
from report_groups import Llama2Tokenizer
from small_model import small_model
from toy import saved, toy_model, toy_tokenizer

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.problems import PLACEHOLDER, PROMPT_FILE, PromptFormat, render_prompt
from reasoning_from_scratch.sampling import Sampling, generate
from reasoning_from_scratch.tokenizer import render_past_turn
from rfs.commands import chat
from rfs.commands.chat import Chat, ChatOptions, say, stream_text


class ByteTokenizer:
    """Token i is byte i, so that one character may need several tokens; 0 ends."""

    eos_token_id, apply_chat_template = 0, False

    def encode(self, text, chat_wrapped=None):
        text = f"<user>{text}</user>" if chat_wrapped else text
        return list(text.encode())

    def use_chat_template(self, wraps):
        self.apply_chat_template = wraps

    def decode(self, ids):
        return bytes(ids).decode("utf-8", errors="replace")


class WrappingTokenizer(ByteTokenizer):
    apply_chat_template = True

    def wrap_chat(self, prompt, past=()):
        return "".join(render_past_turn(*turn) for turn in past) + f"<user>{prompt}</user>"


@pytest.fixture
def scripted(monkeypatch):
    """Tokens of a text instead of a model's; the prompts are kept."""

    def install(*texts):
        prompts, left = [], list(texts)

        def stream(model, prompt, sampling, stop_ids):
            prompts.append((bytes(prompt).decode(), sampling, stop_ids))
            yield from left.pop(0).encode()

        monkeypatch.setattr(chat, "stream", stream)
        return prompts

    return install


@pytest.mark.parametrize("text", ["abc", "né 日本 🙂!", "", "🙂"])
def test_characters_come_whole(text):
    pieces = list(stream_text(ByteTokenizer(), text.encode()))
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)
    assert pieces == list(text)


def test_words_keep_their_spaces_with_a_tokenizer_that_drops_a_texts_first_one():
    tokenizer, ids = Llama2Tokenizer(), [0, 1, 2, 0, 3, 4, 5, 6, 1]
    pieces = list(stream_text(tokenizer, ids))
    assert pieces == ["the", " cat", "s", " the", " ", "  ", "é", " cat"]
    assert "".join(pieces) == tokenizer.decode(ids)


def test_control_codes_are_spelled_out(capsys):
    say(["red \x1b[31m", "bell \x07", "title \x1b]0;x\x07", "c1 \x9b", "bidi \u202e", " a\nb\tc"])
    out = capsys.readouterr().out
    assert not set(out) & {"\x1b", "\x07", "\x9b", "\u202e"}
    assert "\\x1b[31m" in out and " a\nb\tc" in out


def test_ctrl_c_stops_an_answer_only(capsys):
    def interrupted():
        yield "so far"
        raise KeyboardInterrupt

    say(interrupted())
    assert capsys.readouterr().out == "so far [stopped]\n\n"


def test_templates(scripted):
    prompts = scripted("1", "2", "3", "4")
    for template, tokenizer in (
        ("auto", ByteTokenizer()),
        ("plain", ByteTokenizer()),
        ("chat", ByteTokenizer()),
        ("auto", WrappingTokenizer()),
    ):
        list(Chat(None, tokenizer, ChatOptions(template=template)).answer("Hi"))
    plain, wrapped = "Hi", "<user>Hi</user>"
    assert [prompt for prompt, *_ in prompts] == [render_prompt("Hi"), plain, wrapped, wrapped]


@pytest.mark.parametrize("tokenizer", [ByteTokenizer, WrappingTokenizer])
def test_a_model_that_was_trained_on_the_bare_question_is_asked_it(tokenizer, scripted):
    """By --prompt question, plain or chat, or on a task that asks in its own words."""
    prompts = scripted("1", "2")
    for in_chat in (False, True):
        asked = tokenizer()
        asked.files = {PROMPT_FILE: PromptFormat(PLACEHOLDER, chat_template=in_chat).to_json()}
        list(Chat(None, asked, ChatOptions()).answer("Hi"))
    assert [prompt for prompt, *_ in prompts] == ["Hi", "<user>Hi</user>"]


def test_an_unknown_template_is_refused_before_the_model_is_loaded(tmp_path):
    with pytest.raises(UserError, match="unknown template 'mat': did you mean 'math'"):
        ChatOptions(template="mat").check()
    (tmp_path / "mine.txt").write_text("{problem}")
    assert ChatOptions(template=str(tmp_path / "mine.txt")).check() == "tiny"


def test_chat_template_remembers_what_was_said(scripted):
    prompts = scripted("Hello.", "Yes.")
    talk = Chat(None, WrappingTokenizer(), ChatOptions(seed=5, temperature=0.5))
    assert list(talk.answer("Hi")) == list("Hello.")
    list(talk.answer("Again?"))
    before = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n"
    assert prompts[1][0] == before + "<user>Again?</user>"
    assert [sampling.seed for _, sampling, _ in prompts] == [5, 6]
    assert prompts[0][2] == {0} and prompts[0][1].temperature == 0.5


def test_what_was_thought_is_not_remembered(scripted):
    """As Qwen3's own template: of earlier answers it shows what follows the thought."""
    first, second = "<think>\nHm.\n</think>\n\nFour.", "<think>\n\n</think>\n\nSix."
    prompts = scripted(first, second, "<think>\nStill at", "Done.")
    talk = Chat(None, WrappingTokenizer(), ChatOptions())
    assert "".join(talk.answer("2 + 2?")) == first  # the reader sees the thought
    for question in ("3 + 3?", "4 + 4?", "And?"):
        list(talk.answer(question))
    turn = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n{}<|im_end|>\n".format
    history = turn("2 + 2?", "Four.") + turn("3 + 3?", "Six.")
    assert prompts[2][0] == history + "<user>4 + 4?</user>"
    unfinished = turn("4 + 4?", "<think>\nStill at")  # a thought without end is no thought to it
    assert prompts[3][0] == history + unfinished + "<user>And?</user>"


def test_a_conversation_that_fills_the_context_can_begin_anew(monkeypatch, capsys, tmp_path):
    model = saved(toy_model(), toy_tokenizer(tmp_path), tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{'x' * 600}\n/new\nWho?\n"))
    chat.chat(ChatOptions(model=model, template="plain", max_new_tokens=3))
    captured = capsys.readouterr()
    assert "has 600 tokens; the model reads 512" in captured.err
    assert "/new starts a new conversation\n" in captured.err and captured.out


def test_stream_gives_what_generate_gives():
    model = small_model(13)
    for policy in (dict(temperature=0.0), dict(temperature=0.8, top_p=0.9), dict(top_k=3)):
        sampling = Sampling(15, rollouts=1, seed=4, **policy)
        for prompt in ([1, 2, 3], [4], [5, 6, 7, 8, 9, 10]):
            ((rollout,),) = generate(model, [prompt], sampling, stop_ids={7, 12})
            assert list(chat.stream(model, prompt, sampling, {7, 12})) == rollout.text_ids


@pytest.mark.parametrize(
    "model, answer", [("tiny", "21"), ("tiny-grpo", "16"), ("tiny-grpo-longer", "16")]
)
def test_a_tiny_model_says_what_it_has_read_and_training_helps_with_it(
    model, answer, monkeypatch, capsys
):
    asked = [chat.EXAMPLE_PROBLEM, "What is the capital of France?", "What is 6 * 7?"]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(asked)))
    chat.chat(ChatOptions(model=model))
    captured = capsys.readouterr()
    assert captured.out.partition("\n\n")[0].endswith(f"\\boxed{{{answer}}}")
    assert (
        "raised on school problems" in captured.err
        and f"Try: {chat.EXAMPLE_PROBLEM}" in captured.err
    )
    assert captured.err.count("Do not trust that answer") == 2
    assert 'it has not learned "capital"' in captured.err
    assert 'it has read nothing like "is 6 * 7?"' in captured.err


def test_bytes_that_are_no_text_are_read_as_question_marks(monkeypatch, capsys):
    monkeypatch.setattr(
        "sys.stdin", io.TextIOWrapper(io.BytesIO(b"Compute \xff 1 + 2.\n"), "utf-8")
    )
    chat.chat(ChatOptions(model="tiny"))
    assert "boxed" in capsys.readouterr().out
