"""Text to token ids and back, and a conversation to text, as the model was trained on it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.stops import Stops, stop_text

END_OF_TEXT = "<|endoftext|>"
END_OF_TURN = "<|im_end|>"
ANSWER = "[the answer]"  # in a conversation made only to see what follows the answer
NO_ARGUMENTS = {"type": "object", "properties": {}}
EXAMPLE_TOOL = {  # to see whether a chat template has a place for tools
    "type": "function",
    "function": {"name": "look", "description": "Looks.", "parameters": NO_ARGUMENTS},
}


class ModelTokenizer:
    """The tokenizer.json of any model here, with the chat template of its folder."""

    def __init__(
        self,
        tokenizer_file_path: str | Path,
        eos_token: str | int,
        pad_token: str | None = None,
        chat_template: str = "",
        special_tokens: dict[str, str] | None = None,
    ):
        path = Path(tokenizer_file_path)
        self._tok = _read_tokenizer(path)
        self._special_tokens = {t.content for t in self._tok.get_added_tokens_decoder().values()}
        self.apply_chat_template = False
        self.chat_template = chat_template
        self.named_tokens = special_tokens or {}  # bos_token, eos_token, ... as templates know them
        self.eos_token_id = self._id_of(eos_token, path)
        self.pad_token_id = self._id_of(pad_token or self.eos_token_id, path)
        # A model may end its answers with other tokens, too; its generation_config.json lists them.
        self.other_stop_ids: frozenset[int] = frozenset()
        self.stops_from = ""  # the file that says which tokens end an answer
        self.stop_text = ""  # see `end_answers_at`
        # Tokenizer, chat template and generation config of the model's folder, byte for byte:
        # they are saved with the model, even if that folder is gone by then.
        self.files: dict[str, bytes] = {}

    def _id_of(self, token: str | int, path: Path) -> int:
        token_id = token if isinstance(token, int) else self._tok.token_to_id(token)
        if token_id is None or self._tok.id_to_token(token_id) is None:
            raise UserError(f"{path} has no token {token}: it is the tokenizer of another model")
        return token_id

    @property
    def eos_token(self) -> str:
        return self._tok.id_to_token(self.eos_token_id)

    @property
    def pad_token(self) -> str:
        return self._tok.id_to_token(self.pad_token_id)

    @property
    def vocab_size(self) -> int:
        """Number of ids; a model's embedding table may be longer (rounded up for speed)."""
        return self._tok.get_vocab_size()

    @cached_property
    def longest_token(self) -> int:
        """The most characters that a token may stand for."""
        return max(map(len, self._tok.get_vocab()))

    def encode(
        self, prompt: str, chat_wrapped: bool | None = None, begins: bool = False
    ) -> list[int]:
        """Token ids of `prompt`, as one user's turn if `chat_wrapped` (None: as constructed).

        Before a prompt that is not wrapped, the tokenizer adds what it puts before any text, for
        Llama a special token. With chat_wrapped=False it adds nothing, since the text may be part
        of a longer one, unless `begins` says that a text begins here.
        A prompt that is just a special token is never wrapped by default, so that
        `encode("</think>")` always gives its id.
        """
        if chat_wrapped is None:
            begins = prompt not in self._special_tokens
            chat_wrapped = self.apply_chat_template and begins
        text = self.wrap_chat(prompt) if chat_wrapped else prompt
        return self._tok.encode(text, add_special_tokens=begins and not chat_wrapped).ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; special tokens are kept, since rewards and readers look for them."""
        return self._tok.decode(ids, skip_special_tokens=False)

    def wrap_chat(
        self,
        prompt: str,
        past: Iterable[tuple[str, str]] = (),
        tools: Sequence[Mapping] | None = None,
    ) -> str:
        """A user's turn, after earlier questions and their answers, in the chat template. `tools`
        are what the model may call, as JSON schemas."""
        if not self.chat_template:
            raise UserError(
                "this model's folder has no chat template, so there is no conversation with it: "
                "use --prompt book or plain (rfs chat: --template math or plain)"
            )
        messages = [
            {"role": role, "content": words}
            for turn in past
            for role, words in zip(("user", "assistant"), turn, strict=True)
        ]
        messages.append({"role": "user", "content": prompt})
        return self._render(messages, tools=tools)

    def reply_turn(self, reply: str) -> str:
        """The text from the end of an answer, through a reply to it, up to the next answer.
        Without a chat template a reply is put in brackets."""
        if not self.apply_chat_template:
            return f"\n[{reply}]\n"
        return self._after_answer(self.wrap_chat(reply, [("", ANSWER)]))

    def results_turn(self, results: Sequence[tuple[str, str]]) -> str:
        """The same when tools reply: for each call the tool's name and its result."""
        tagged = [f"<tool_response>\n{result}\n</tool_response>" for _, result in results]
        if not self.apply_chat_template:
            return "\n" + "\n".join(tagged) + "\n"
        if not self.chat_template or not self.has_tools():  # Qwen3's own form is a user's turn
            return self.reply_turn("\n".join(tagged))
        replies = [{"role": "tool", "name": name, "content": result} for name, result in results]
        messages = [
            {"role": "user", "content": ""},
            {"role": "assistant", "content": ANSWER},
            *replies,
        ]
        return self._after_answer(self._render(messages))

    def _after_answer(self, conversation: str) -> str:
        """What follows the end of the answer in a conversation."""
        _, _, after = conversation.partition(ANSWER)
        _, end, reply = after.partition(self.eos_token)
        if not end:
            raise UserError(
                f"this model's chat template does not end an answer with {self.eos_token}, so no "
                "reply can follow it: use --prompt plain"
            )
        return reply

    def has_tools(self) -> bool:
        """Whether prompts are put into a chat template that has a place for tools."""
        if not self.apply_chat_template:
            return False
        return self.wrap_chat("", tools=[EXAMPLE_TOOL]) != self.wrap_chat("")

    def render_tool_call(self, name: str, arguments: Mapping) -> str:
        """The template's text of an answer that makes a tool call."""
        if not self.chat_template:
            call = json.dumps({"name": name, "arguments": arguments})
            return f"<tool_call>\n{call}\n</tool_call>"
        call_message = {
            "id": "call00001",  # some templates want nine characters
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": ""},
            {"role": "assistant", "content": "", "tool_calls": [call_message]},
        ]
        return self._render(messages, answer_follows=False, tools=[EXAMPLE_TOOL])

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        answer_follows: bool = True,
        tools: Sequence[Mapping] | None = None,
    ) -> str:
        # Imported late: few models need jinja2.
        from reasoning_from_scratch.chat_templates import render_conversation

        return render_conversation(
            self.chat_template, messages, self.named_tokens, answer_follows, tools
        )

    def template_ends_turns(self) -> bool:
        """Whether the template closes an answer with a token that ends the model's answers. Some
        base models have a template but were not trained on it: their answers end like a text."""
        if not self.chat_template:
            return False
        turns = [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}]
        text = self._render(turns, answer_follows=False)
        closing = text.rpartition("2")[2]
        return any(self._tok.id_to_token(stop) in closing for stop in model_stop_ids(self))

    def use_chat_template(self, enabled: bool) -> None:
        """Whether prompts are put into the chat template from here on."""
        if enabled:
            self.wrap_chat("")  # fails if there is none
        self.apply_chat_template = enabled

    def end_answers_at(self, text: str) -> None:
        """From here on an answer also ends with the token that completes this text."""
        self.stop_text = stop_text(text)


class Qwen3Tokenizer(ModelTokenizer):
    """The same for Qwen3, whose chat template is known: it needs no folder."""

    def __init__(
        self,
        tokenizer_file_path: str | Path = "tokenizer-base.json",
        apply_chat_template: bool = False,
        add_generation_prompt: bool = False,
        add_thinking: bool = False,
        *,
        eos_token: str | None = None,
    ):
        ends = eos_token or _eos_token_by_file_name(Path(tokenizer_file_path).name)
        super().__init__(tokenizer_file_path, ends, END_OF_TEXT)
        self.apply_chat_template = apply_chat_template
        self.add_generation_prompt = add_generation_prompt
        self.add_thinking = add_thinking

    def use_chat_template(self, enabled: bool) -> None:
        self.apply_chat_template = self.add_generation_prompt = self.add_thinking = enabled

    def wrap_chat(
        self,
        prompt: str,
        past: Iterable[tuple[str, str]] = (),
        tools: Sequence[Mapping] | None = None,
    ) -> str:
        """Qwen3's chat template for one user turn.

        An empty think block at the start of its answer tells Qwen3 not to think. With
        `add_thinking` Qwen3 opens the block itself, if it wants to.
        """
        earlier = render_tools_turn(tools) if tools else ""
        earlier += "".join(render_past_turn(*turn) for turn in past)
        text = f"{earlier}<|im_start|>user\n{prompt}<|im_end|>\n"
        if self.add_generation_prompt:
            text += "<|im_start|>assistant\n"
            if not self.add_thinking:
                text += "<think>\n\n</think>\n\n"
        return text


def model_stop_ids(tokenizer) -> set[int]:
    """The ids that end the model's answers; a stand-in for a tokenizer may have `eos_token_id`
    alone."""
    return {tokenizer.eos_token_id, *getattr(tokenizer, "other_stop_ids", ())}


stop_ids_of = model_stop_ids  # the chapters' name for it


def answer_stops(tokenizer) -> Stops:
    """What ends an answer: the model's stop tokens, and the user's stop text."""
    text = getattr(tokenizer, "stop_text", "")
    return Stops(frozenset(model_stop_ids(tokenizer)), (text,) if text else (), tokenizer)


def answer_text(tokenizer, rollout) -> str:
    """The text of a rollout's answer, up to what ended it."""
    if rollout.finished:
        return text_before_stop(tokenizer, rollout.response_ids)
    return tokenizer.decode(rollout.response_ids)


def text_before_stop(tokenizer, ids: Sequence[int]) -> str:
    """The text of an answer, or of a turn, that its last token has ended. A token such as ").\\n"
    may end it with its newline; what comes before the newline belongs to the answer."""
    stops = answer_stops(tokenizer)
    if ids[-1] in stops.ids:
        return tokenizer.decode(ids[:-1])
    return tokenizer.decode(ids)[: stops.find_stop_text(ids)]


def render_past_turn(question: str, answer: str) -> str:
    """An earlier question and its answer in Qwen3's chat template, which drops the thinking."""
    spoken = answer.split("</think>")[-1].lstrip("\n")
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{spoken}<|im_end|>\n"


def render_tools_turn(tools: Sequence[Mapping]) -> str:
    """The system turn of Qwen3's chat template that names the tools, in the words that the model
    was trained on."""
    signatures = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    return (
        "<|im_start|>system\n# Tools\n\n"
        "You may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n"
        f"<tools>\n{signatures}\n</tools>\n\n"
        "For each function call, return a json object with function name and arguments within "
        "<tool_call></tool_call> XML tags:\n"
        '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
        "<|im_end|>\n"
    )


def _eos_token_by_file_name(name: str) -> str:
    """Base models end a text, reasoning models end a turn."""
    return END_OF_TEXT if "base" in name and "reasoning" not in name else END_OF_TURN


def _read_tokenizer(path: Path) -> Tokenizer:
    if not path.is_file():
        raise UserError(
            f"there is no tokenizer file {path}: copy tokenizer.json from the model that this one "
            "was trained from (download_qwen3_small fetches Qwen3's)"
        )
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception for any file it cannot parse
        raise UserError(f"{path} is not a tokenizer in tokenizers' JSON format: {error}") from None
    # The file may store how a fine-tuning script truncated and padded its texts; we do neither.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
