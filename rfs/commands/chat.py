"""`rfs chat`: talk to any model; its answer appears as it is generated."""

import io
import sys
from collections.abc import Callable, Iterable, Iterator

import torch

from reasoning_from_scratch.errors import PromptTooLong
from reasoning_from_scratch.problems import (
    PLACEHOLDER,
    apply_prompt_format,
    prompt_format_of,
    prompt_function,
    render_prompt,
)
from reasoning_from_scratch.qwen3 import KVCache, room_for_answer
from reasoning_from_scratch.sampling import (
    NOT_FINITE,
    NotFinite,
    Sampling,
    check_request,
    sample_next_token,
    stream_key,
    uniform_at,
)
from reasoning_from_scratch.text import visible
from reasoning_from_scratch.tiny.model import TINY_CONFIG
from reasoning_from_scratch.tiny.world import why_out_of_scope
from reasoning_from_scratch.tokenizer import model_stop_ids
from rfs.commands.options import ChatOptions
from rfs.config import part_of
from rfs.engine import FAST
from rfs.evaluation.evaluate import open_model

PROMPT_NAMES = {"math": "book"}  # what --prompt of other commands calls it
# A problem that training helps: tiny-base guesses its answer, tiny-grpo works it out.
EXAMPLE_PROBLEM = "Ana has 12 pens, buys 9 more and loses 5. How many pens does Ana have now?"
SMALL_WORLD = (
    "This tiny model was raised on school problems of one to six steps, in a few fixed wordings, "
    "and has read nothing else. Before training it guesses, after it shows its work. Try: "
    f"{EXAMPLE_PROBLEM}"
)
PLAYER = (
    "This tiny model only plays higher or lower; it cannot answer questions. Watch it play: "
    "rfs evaluate --model {} --environment guess --problems guess"
)
HELP = "An empty line or Ctrl-D quits, Ctrl-C stops an answer, /new starts a new conversation."


class Chat:
    """A model and, with the chat template, the conversation so far without its thinking."""

    def __init__(self, model, tokenizer, options: ChatOptions):
        self.model, self.tokenizer, self.options = model, tokenizer, options
        self.past: list[tuple[str, str]] = []  # questions and answers
        self.turns = 0
        self.template, stop = options.template, options.stop
        asked = prompt_format_of(tokenizer) if self.template == "auto" else None
        chats = asked is not None and asked.chat_template and asked.prompt == PLACEHOLDER
        if asked and not chats and asked.prompt != render_prompt(PLACEHOLDER):
            self.template = "as in training"
        elif self.template == "auto":
            chats = chats or getattr(tokenizer, "apply_chat_template", False)
            self.template = "chat" if chats else "math"
        self.render: Callable[[str], str] = str  # what is put into a chat template, if there is one
        if self.template == "as in training":
            self.render = apply_prompt_format(asked, tokenizer)
        elif self.template != "chat":
            self.render = prompt_function(PROMPT_NAMES.get(self.template, self.template), tokenizer)
        self.in_chat = self.template == "chat" or (asked is not None and asked.chat_template)
        stop = stop or (asked.stop if asked else None)
        if stop is not None:
            tokenizer.end_answers_at(stop)

    def prompt_ids(self, words: str) -> list[int]:
        """What the model reads. Only the chat template marks who said what, so only it includes
        earlier turns."""
        prompt = self.render(words)
        if not self.in_chat:
            return self.tokenizer.encode(prompt)
        if not self.past:
            return self.tokenizer.encode(prompt, chat_wrapped=True)
        conversation = self.tokenizer.wrap_chat(prompt, self.past)
        return self.tokenizer.encode(conversation, chat_wrapped=False)

    def answer(self, words: str) -> Iterator[str]:
        """The answer in pieces; together they are the whole text."""
        prompt, pieces = self.prompt_ids(words), []
        sampling = part_of(self.options, Sampling, seed=self.options.seed + self.turns)
        tokens = stream(self.model, prompt, sampling, model_stop_ids(self.tokenizer))
        stop = getattr(self.tokenizer, "stop_text", "")
        for piece in until_stop(stop, stream_text(self.tokenizer, tokens)):
            pieces.append(piece)
            yield piece
        self.turns += 1
        self.past.append((words, "".join(pieces)))


@torch.no_grad()
def stream(model, prompt: list[int], sampling: Sampling, stop_ids: set[int]) -> Iterator[int]:
    """Yields the tokens of one rollout as they are sampled, without the stop token: the same
    tokens as in the first rollout of generate(model, [prompt], ...)."""
    check_request(model, [prompt], sampling)
    limit = room_for_answer(model, len(prompt), sampling.max_new_tokens)
    device = model.tok_emb.weight.device
    u = uniform_at(stream_key(sampling.seed, 0, 0, 0), torch.arange(limit)).to(device)
    policy = (sampling.temperature, sampling.top_p, sampling.top_k)
    cache = KVCache(model.cfg["n_layers"], len(prompt) + limit)
    hidden = model.hidden_states(torch.tensor([prompt], device=device), cache=cache)
    logits = model.out_head(hidden[:, -1])
    for position in range(limit):
        draw = sample_next_token(logits, u[position : position + 1], *policy, FAST.cut)
        if not draw.logprobs.isfinite().item():
            raise NotFinite(f"{NOT_FINITE} (after {position} sampled tokens)")
        token = int(draw.tokens)
        if token in stop_ids:
            return
        yield token
        logits = model(draw.tokens[:, None], cache=cache)[:, -1]


def stream_text(tokenizer, tokens: Iterable[int]) -> Iterator[str]:
    """Yields text once its characters are complete: one may be spread over several tokens. A piece
    is decoded after the one before it, because Llama 2's tokenizer drops a text's first space."""
    before: list[int] = []
    waiting: list[int] = []
    text = ""
    for token in tokens:
        waiting.append(token)
        text = tokenizer.decode(before + waiting)[len(tokenizer.decode(before)) :]
        if not text.endswith("\ufffd") or len(waiting) > 8:  # 8: it really is that character
            yield text
            before, waiting = waiting, []
    if waiting:
        yield text


def until_stop(stop: str, pieces: Iterable[str]) -> Iterator[str]:
    """The pieces up to a stop text, if there is one. What may be its beginning is held back."""
    waiting = ""
    for piece in pieces:
        waiting, ended, _ = (waiting + piece).partition(stop) if stop else (piece, "", "")
        if ended:
            break
        held = next((n for n in range(len(stop) - 1, 0, -1) if waiting.endswith(stop[:n])), 0)
        if complete := waiting[: len(waiting) - held]:
            yield complete
        waiting = waiting[len(waiting) - held :]
    if waiting:
        yield waiting


def say(pieces: Iterable[str]) -> None:
    """Prints an answer as it is generated. Control codes are spelled out, for safety."""
    try:
        for piece in pieces:
            print(visible(piece), end="", flush=True)
    except KeyboardInterrupt:
        print(" [stopped]", end="")
    print("\n")


def chat(options: ChatOptions) -> None:
    """Reads lines and prints answers, until an empty line or the end of the input."""
    model, tokenizer = open_model(options.model, options.device, options.dtype)
    conversation = Chat(model, tokenizer, options)
    if isinstance(sys.stdin, io.TextIOWrapper):  # bytes that are no characters become ?
        sys.stdin.reconfigure(errors="replace")
    print(f"{options.model}, template {conversation.template}. {HELP}", file=sys.stderr)
    size = model.cfg["vocab_size"], model.cfg["emb_dim"]
    in_small_world = size == (TINY_CONFIG["vocab_size"], TINY_CONFIG["emb_dim"])
    if size[0] == TINY_CONFIG["vocab_size"]:
        about = SMALL_WORLD if in_small_world else PLAYER.format(options.model)
        print(about, file=sys.stderr)
    print(file=sys.stderr)
    while True:
        try:
            words = input("> " if sys.stdin.isatty() else "").strip()
        except (EOFError, KeyboardInterrupt):
            return
        if not words:
            return
        if words == "/new":
            conversation = Chat(model, tokenizer, options)
            continue
        try:
            say(conversation.answer(words))
            if in_small_world and (why := why_out_of_scope(words)):
                print(f"Do not trust that answer: {why}. Try: {EXAMPLE_PROBLEM}\n", file=sys.stderr)
        except PromptTooLong as error:  # the conversation so far counts, too
            print(f"{error}; /new starts a new conversation\n", file=sys.stderr)
