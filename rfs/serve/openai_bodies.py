"""The options of OpenAI's calls. Any other that would change an answer is refused, typos included:
silently ignoring an option gives answers that nobody wanted."""

from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    model_validator,
)
from pydantic_core import PydanticCustomError

from reasoning_from_scratch.errors import UserError, did_you_mean
from rfs.serve.body import UNSUPPORTED, BodyModel, Temperature, Text, Tokens, TopK, TopP

# Notes of the client about itself, and how the server is to go about it: no answer depends on them.
NO_EFFECT = {
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention", "cache_salt", "priority", "request_id", "include_obfuscation",
    "routed_experts_prompt_start",
}  # fmt: skip
# These have a value that asks for what is done anyway.
ONLY_VALUES: dict[str, tuple] = {
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "min_p": (0,),
    "typical_p": (1,),
    "min_tokens": (0,),
    "logit_bias": ({},),
    "suffix": ("",),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "functions": ([],),
    "ignore_eos": (False,),
    "use_beam_search": (False,),
    "bad_words": ([],),
    "allowed_token_ids": ([],),
    "logits_processors": ([],),
    "include_stop_str_in_output": (False,),
    "continuous_usage_stats": (False,),
    "skip_special_tokens": (False,),
    "spaces_between_special_tokens": (True, False),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
}
GRAMMAR = "no answer is forced into a form here: ask for the form in the prompt, and check"
THINKING = 'whether a model thinks is said as chat_template_kwargs, {"enable_thinking": false}'
ALTERNATIVES = {
    **dict.fromkeys(("guided_json", "guided_regex", "guided_choice", "guided_grammar"), GRAMMAR),
    **dict.fromkeys(("structured_outputs", "grammar", "response_format"), GRAMMAR),
    **dict.fromkeys(("thinking", "enable_thinking", "reasoning_effort", "reasoning"), THINKING),
    "truncate_prompt_tokens": "cut the prompt yourself",
    "chat_template": "a call does not bring its own template: render it, and use /v1/completions",
}
LONGEST_NAME = 100  # characters that are compared with the known names

S = TypeVar("S", bound="Options")


class Options(BodyModel):
    """Options of a call: those that its class has, and others that change nothing."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="after")
    def refuse_unknown(self: S) -> S:
        """Refuses the first that would have to change the answer and would not."""
        known_options = type(self).model_fields
        for key, value in (self.model_extra or {}).items():
            if key in NO_EFFECT or value in ONLY_VALUES.get(key, ()):
                continue
            guess = did_you_mean(key[:LONGEST_NAME], known_options)
            instead = f": {ALTERNATIVES[key]}" if key in ALTERNATIVES else guess
            sentence = f"{key[:LONGEST_NAME]} is not supported{instead}"
            raise PydanticCustomError(UNSUPPORTED, "{sentence}", {"sentence": sentence})
        return self


def as_list(stop: Any) -> list:
    """A text as a list of it, an empty one as none."""
    if not isinstance(stop, (str, list)):
        raise ValueError("a text, or a list of texts")
    return [stop] if stop and isinstance(stop, str) else list(stop)


StopText = Annotated[str, Field(min_length=1, max_length=500)]


class SamplingOptions(Options):
    """How answers are drawn."""

    n: Annotated[int, Field(ge=1, le=128)] = 1
    # None: as many as the context has room for.
    max_tokens: Annotated[int | None, Field(ge=1, le=2**31)] = None
    max_completion_tokens: Annotated[int | None, Field(ge=1, le=2**31)] = None  # its new name
    temperature: Temperature = 1.0
    top_p: TopP = 1.0
    top_k: TopK = 0
    seed: Annotated[int | None, Field(ge=-(2**63), le=2**64 - 1)] = None
    stop: Annotated[list[StopText], Field(max_length=64), FailFast(), BeforeValidator(as_list)] = []
    stop_token_ids: Annotated[list[int], Field(max_length=1000), FailFast()] = []

    @property
    def token_limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens


class StreamedCall(SamplingOptions):
    """A call whose answer may come piece by piece."""

    class StreamOptions(Options):
        include_usage: bool = False

    model: Text
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()

    @property
    def sampling(self) -> SamplingOptions:
        return self


def as_prompts(prompt: Any) -> list[str | list[int]]:
    """A text, a list of texts, of tokens, or of lists of tokens: as one list."""
    prompts = prompt if isinstance(prompt, list) and prompt else [prompt]
    if all(type(item) is int for item in prompts):
        prompts = [prompts]
    for item in prompts:
        tokens = isinstance(item, list) and all(type(token) is int for token in item)
        if not (tokens or isinstance(item, str)):
            raise ValueError("a text, tokens, or a list of these")
    return prompts


class Completion(StreamedCall):
    prompt: Annotated[Any, AfterValidator(as_prompts)]
    max_tokens: Annotated[int, Field(ge=0, le=2**31)] = 16
    logprobs: Annotated[int | None, Field(ge=0, le=20)] = None
    echo: bool = False
    best_of: int | None = None

    @model_validator(mode="after")
    def options_fit_together(self) -> "Completion":
        if self.token_limit == 0 and not self.echo:
            raise UserError("max_tokens is 0, but must be at least 1")
        if self.best_of not in (None, self.n):
            raise UserError("best_of is not supported: use n, and choose yourself")
        if self.echo and self.stream:
            raise UserError("a stream has no echo here: set stream to false")
        return self

    @property
    def num_likely(self) -> int | None:
        """How many of the most likely tokens to tell; None: no log-probabilities at all."""
        return self.logprobs


Messages = Annotated[list[dict[str, Any]], Field(max_length=10_000), FailFast()]


class Conversation(Options):
    """A conversation, and what goes into the chat template with it."""

    messages: Messages = []
    tools: Annotated[list[dict[str, Any]], Field(max_length=128), FailFast()] = []
    chat_template_kwargs: dict[str, Any] = {}

    @property
    def offered_tools(self) -> list[dict] | None:
        """What the model may call."""
        return self.tools or None


class Chat(StreamedCall, Conversation):
    messages: Messages
    tool_choice: Any = "auto"
    parallel_tool_calls: bool = True
    logprobs: bool = False
    top_logprobs: Annotated[int | None, Field(ge=0, le=20)] = None

    @property
    def offered_tools(self) -> list[dict] | None:
        return None if self.tool_choice == "none" else super().offered_tools

    @model_validator(mode="after")
    def options_fit_together(self) -> "Chat":
        if self.top_logprobs is not None and not self.logprobs:
            raise UserError("top_logprobs needs logprobs: true")
        return self

    @property
    def num_likely(self) -> int | None:
        return self.top_logprobs or 0 if self.logprobs else None


class Generate(Options):
    """Tokens in, tokens out, as the training client of verifiers expects."""

    class SamplingParams(SamplingOptions):
        logprobs: Annotated[int | None, Field(ge=0, le=20)] = None

    model: Text
    token_ids: Tokens
    sampling_params: SamplingParams = SamplingParams()
    stream: bool = False

    @model_validator(mode="after")
    def no_stream(self) -> "Generate":
        if self.stream:
            raise UserError("/inference/v1/generate has no stream")
        return self

    @property
    def sampling(self) -> SamplingOptions:
        return self.sampling_params

    @property
    def num_likely(self) -> int | None:
        return self.sampling_params.logprobs


class Tokenize(Conversation):
    model: Text
    prompt: Text | None = None
    add_special_tokens: bool = True


class Detokenize(Options):
    model: Text
    tokens: Tokens


Call = Completion | Chat | Generate
