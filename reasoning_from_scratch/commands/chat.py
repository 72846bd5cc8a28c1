"""`rfs chat`: talk to any model; its answer appears as it is generated."""

import io
import sys
from collections.abc import Iterable, Iterator

import torch

from reasoning_from_scratch.commands.options import ChatOptions
from reasoning_from_scratch.config import part_of
from reasoning_from_scratch.errors import PromptTooLong
from reasoning_from_scratch.evaluation.evaluate import open_model
from reasoning_from_scratch.fast.engine import FAST
from reasoning_from_scratch.problems import prompt_of
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
from reasoning_from_scratch.tiny.world import beyond
from reasoning_from_scratch.tokenizer import model_stop_ids

KNOWN = {"math": "book"}  # what --prompt of other commands calls it
# A problem that training helps: tiny-base guesses its answer, tiny-grpo works it out.
WORKS = "Ana has 12 pens, buys 9 more and loses 5. How many pens does Ana have now?"
SMALL_WORLD = (
    "This tiny model was raised on school problems of one to six steps, in a few fixed wordings, "
    f"and has read nothing else. Before training it guesses, after it shows its work. Try: {WORKS}"
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
        self.template = options.template
        if self.template == "auto":
            wraps = getattr(tokenizer, "apply_chat_template", False)
            self.template = "chat" if wraps else "math"
        if self.template != "chat":
            self.render = prompt_of(KNOWN.get(self.template, self.template), tokenizer)
        if options.stop is not None:
            tokenizer.end_answers_at(options.stop)

    def prompt_ids(self, words: str) -> list[int]:
        """What the model reads. Only the chat template can say who said what, so only it
        includes earlier turns."""
        if self.template != "chat":
            return self.tokenizer.encode(self.render(words))
        if not self.past:
            return self.tokenizer.encode(words, chat_wrapped=True)
        talk = self.tokenizer.wrap_chat(words, self.past)
        return self.tokenizer.encode(talk, chat_wrapped=False)

    def answer(self, words: str) -> Iterator[str]:
        """The answer in pieces; together they are the whole text."""
        prompt = self.prompt_ids(words)
        spoken: list[int] = []
        for piece in stream_text(self.tokenizer, self.tokens(prompt, spoken)):
            before, ended = piece, ""
            if self.options.stop is not None:  # a token such as ").\n" may end the answer
                before, ended, _ = piece.partition(self.tokenizer.stop_text)
            yield before
            if ended:
                break
        self.turns += 1
        self.past.append((words, self.tokenizer.decode(spoken)))

    def tokens(self, prompt: list[int], spoken: list[int]) -> Iterator[int]:
        """Samples one token after another, and keeps them in `spoken`."""
        sampling = part_of(self.options, Sampling, seed=self.options.seed + self.turns)
        for token in stream(self.model, prompt, sampling, model_stop_ids(self.tokenizer)):
            spoken.append(token)
            yield token


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
    """Yields text once its characters are complete: one may be spread over several tokens."""
    waiting: list[int] = []
    for token in tokens:
        waiting.append(token)
        text = tokenizer.decode(waiting)
        if not text.endswith("\ufffd") or len(waiting) > 8:  # 8: it really is that character
            yield text
            waiting = []
    if waiting:
        yield tokenizer.decode(waiting)


def say(pieces: Iterable[str]) -> None:
    """Prints an answer as it comes. Control codes are spelled out, never sent to the terminal."""
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
    # Characters that the terminal cannot show become ?, and bytes that are no characters, too
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
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
            if in_small_world and (why := beyond(words)):
                print(f"Do not trust that answer: {why}. Try: {WORKS}\n", file=sys.stderr)
        except PromptTooLong as error:  # the conversation so far counts, too
            print(f"{error}; /new starts a new conversation\n", file=sys.stderr)
