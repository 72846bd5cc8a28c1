"""Text to token ids and back, in Qwen3's own tokenizer format, with its chat template."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from reasoning_from_scratch.errors import UserError

END_OF_TEXT = "<|endoftext|>"
END_OF_TURN = "<|im_end|>"


class Qwen3Tokenizer:
    def __init__(
        self,
        tokenizer_file_path: str | Path = "tokenizer-base.json",
        apply_chat_template: bool = False,
        add_generation_prompt: bool = False,
        add_thinking: bool = False,
        *,
        eos_token: str | None = None,
    ):
        path = Path(tokenizer_file_path)
        self._tok = _read_tokenizer(path)
        self._special_tokens = {t.content for t in self._tok.get_added_tokens_decoder().values()}
        self.apply_chat_template = apply_chat_template
        self.add_generation_prompt = add_generation_prompt
        self.add_thinking = add_thinking
        self.eos_token_id = self._id_of(eos_token or _eos_token_by_file_name(path.name), path)
        self.pad_token_id = self._id_of(END_OF_TEXT, path)
        # A model may end its answers with other tokens, too; its generation_config.json lists them.
        self.other_stop_ids: frozenset[int] = frozenset()
        self.stops_from = ""  # the file that says which tokens end an answer
        # Tokenizer, chat template and generation config of the model's folder, byte for byte:
        # who saves the model hands them on, even where that folder is gone by then.
        self.files: dict[str, bytes] = {}

    def _id_of(self, token: str, path: Path) -> int:
        token_id = self._tok.token_to_id(token)
        if token_id is None:
            raise UserError(f"{path} has no token {token}: expected the tokenizer of a Qwen3 model")
        return token_id

    @property
    def eos_token(self) -> str:
        return self._tok.id_to_token(self.eos_token_id)

    @property
    def vocab_size(self) -> int:
        """Ids the tokenizer can produce; a model's table may be longer (rounded up for speed)."""
        return self._tok.get_vocab_size()

    def encode(self, prompt: str, chat_wrapped: bool | None = None) -> list[int]:
        """Token ids of `prompt`, as one user's turn if `chat_wrapped` (None: as constructed).

        A prompt that is just a special token is never wrapped by default, so that
        `encode("</think>")` is always the way to ask for its id.
        """
        if chat_wrapped is None:
            chat_wrapped = self.apply_chat_template and prompt not in self._special_tokens
        text = self.wrap_chat(prompt) if chat_wrapped else prompt
        return self._tok.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; special tokens are kept, since rewards and readers look for them."""
        return self._tok.decode(ids, skip_special_tokens=False)

    def wrap_chat(self, prompt: str) -> str:
        """Qwen3's chat template for one user turn.

        Qwen3 is told not to think by a thought that is already over: an empty think block at
        the start of its answer. With `add_thinking` it opens the block itself, if it wants to.
        """
        text = f"<|im_start|>user\n{prompt}<|im_end|>\n"
        if self.add_generation_prompt:
            text += "<|im_start|>assistant\n"
            if not self.add_thinking:
                text += "<think>\n\n</think>\n\n"
        return text

    def reply_turn(self, reply: str) -> str:
        """What follows the end of an answer where somebody replies to it, up to the next answer."""
        return "\n" + self.wrap_chat(reply) if self.apply_chat_template else f"\n[{reply}]\n"


def stop_ids_of(tokenizer) -> set[int]:
    """The ids that end an answer; a stand-in for a tokenizer may have `eos_token_id` alone."""
    return {tokenizer.eos_token_id, *getattr(tokenizer, "other_stop_ids", ())}


def past_turn(question: str, answer: str) -> str:
    """An earlier question and its answer in Qwen3's chat template, which drops the thinking."""
    said = answer.split("</think>")[-1].lstrip("\n")
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{said}<|im_end|>\n"


def _eos_token_by_file_name(name: str) -> str:
    """Base models end a text, reasoning models end a turn."""
    return END_OF_TEXT if "base" in name and "reasoning" not in name else END_OF_TURN


def _read_tokenizer(path: Path) -> Tokenizer:
    if not path.is_file():
        raise UserError(f"there is no tokenizer file {path}; download_qwen3_small fetches Qwen3's")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception for any file it cannot parse
        raise UserError(f"{path} is not a tokenizer in tokenizers' JSON format: {error}") from None
