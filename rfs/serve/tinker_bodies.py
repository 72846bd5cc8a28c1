"""The fields of each of Tinker's calls, under the names that Tinker's client sends. Keys that are
not here are ignored: they are the client's notes, or the default of something that is not done."""

import time
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, FailFast, Field, field_validator, model_validator

from reasoning_from_scratch.errors import UserError
from rfs.serve.body import BodyModel, Notes, Temperature, Text, Tokens, TopK, TopP
from rfs.serve.messages import MAX_SEQ_ID, NO_IMAGES
from rfs.serve.models import TRAINING, Adam, Lora, SaveName, parse_path
from rfs.serve.prompt_scores import MAX_NUMBERS

HOUR, TEN_YEARS = 3600, 10 * 366 * 24 * 3600
MAX_SAMPLES = 1024
LONGEST_STOP = 500  # characters
NO_ENCRYPTION = "saves are folders here: drop age_encryption_recipients"
Number = Annotated[int, Field(ge=0, le=10**9 - 1)]  # of a session's models, or of its samplers


def refuse_key(sentence: str) -> AfterValidator:
    """A key that a client may know and this server does not."""

    def refuse(_: Any) -> None:
        raise UserError(sentence)

    return AfterValidator(refuse)


# --- sessions


class OneSession(BodyModel):
    session_id: Text


class CreateSession(BodyModel):
    display_name: Text | None = None
    user_metadata: Notes | None = None


class SearchSessions(CreateSession):
    class Cursor(BodyModel):
        last_session_id: Text | None = None

    class Status(BodyModel):
        type: Text

    session_id: Text | None = None
    statuses: Annotated[list[Status], FailFast()] = []
    cursor: Cursor = Cursor()
    limit: Annotated[int, Field(ge=1, le=200)] = 50


# --- models


class Optimizer(BodyModel):
    type: Literal["adamw"] = "adamw"


class NewModel(OneSession):
    """The first call of a model. It also has a base, or the path of a save."""

    model_seq_id: Number
    optimizer_config: Optimizer = Optimizer()
    user_metadata: Notes | None = None


class CreateModel(NewModel):
    base_model: Text
    lora_config: Lora = Lora(rank=0)


class OneModel(BodyModel):
    model_id: Text


class Numbered(OneModel):
    """A call that changes a model, and its number among them."""

    seq_id: Annotated[int | None, Field(ge=1, le=MAX_SEQ_ID)] = None  # None: the next one

    @property
    def session_id(self) -> str:
        return self.model_id.partition(":")[0]


class OptimStep(Numbered):
    adam_params: Adam = Adam()
    optimizer_params: Annotated[Any, refuse_key("the only optimizer is AdamW: use AdamParams")] = (
        None
    )


# --- saves


class TimeToLive(BodyModel):
    ttl_seconds: Annotated[int | None, Field(ge=HOUR, le=TEN_YEARS)] = None

    @property
    def expires(self) -> float | None:
        return None if self.ttl_seconds is None else time.time() + self.ttl_seconds


class Save(Numbered, TimeToLive):
    path: SaveName = Field(default_factory=lambda: f"{time.time():.6f}")
    user_metadata: Notes | None = None

    @property
    def details(self) -> dict:
        """What is kept with it."""
        return {"expires": self.expires, "metadata": self.user_metadata}


class SaveForTraining(Save):
    overwrite: bool = False


class SaveForSampler(Save):
    """With a path a save, without one a sampler."""

    path: SaveName | None = None
    kind: Literal["snapshot", "inflight"] = "snapshot"  # which also does what inflight promises
    sampling_session_seq_id: Number | None = None

    @model_validator(mode="after")
    def has_a_name(self) -> "SaveForSampler":
        if self.path is None and self.sampling_session_seq_id is None:
            raise UserError("path is missing, and so is sampling_session_seq_id: give one of them")
        return self


class SaveExternal(Save):
    age_encryption_recipients: Annotated[Any, refuse_key(NO_ENCRYPTION)] = None


def for_training(path: str) -> str:
    if parse_path(path)[1] != TRAINING:
        raise UserError(f"{path} was saved for sampling, without an optimizer; use a /weights/")
    return path


class LoadWeights(BodyModel):
    """Into a model that exists, and then also a `Numbered`, or else a `NewModel`."""

    model_config = ConfigDict(extra="allow")

    path: Annotated[Text, AfterValidator(for_training)]
    optimizer: bool = False
    session_id: Text | None = None
    base_model: Text | None = None


class WeightsInfo(BodyModel):
    tinker_path: Text


# --- sampling


class CreateSampler(OneSession):
    sampling_session_seq_id: Number
    base_model: Text | None = None
    model_path: Text | None = None


class OneSampler(BodyModel):
    sampling_session_id: Text


class Chunk(BodyModel):
    type: str = "encoded_text"
    tokens: Tokens

    @field_validator("type")
    @classmethod
    def only_tokens(cls, kind: str) -> str:
        if kind != "encoded_text":
            raise UserError(NO_IMAGES)
        return kind


class Prompt(BodyModel):
    chunks: Annotated[list[Chunk], Field(max_length=100_000), FailFast()]

    @property
    def tokens(self) -> list[int]:
        return [token for chunk in self.chunks for token in chunk.tokens]


def tokens_or_texts(stop: Any) -> list[int] | list[str]:
    stops = stop if isinstance(stop, list) else [stop]
    kinds = {type(item) for item in stops}
    if not kinds <= {int} and not kinds <= {str} or len(stops) > 64 or "" in stops:
        raise ValueError("a text, or a list of at most 64 texts or tokens")
    if any(len(item) > LONGEST_STOP for item in stops if isinstance(item, str)):
        raise UserError(f"a text in stop has more than {LONGEST_STOP} characters")
    return stops


class SamplingParams(BodyModel):
    # None: as many as the context has room for.
    max_tokens: Annotated[int | None, Field(ge=0, le=2**31)] = None
    seed: Annotated[int | None, Field(ge=0, le=2**64 - 1)] = None
    # None: the model's own stop tokens. Else only these.
    stop: Annotated[Any, AfterValidator(tokens_or_texts)] = None
    temperature: Temperature = 1.0
    top_p: TopP = 1.0
    top_k: TopK = 0


Index = Annotated[int, Field(ge=0, le=MAX_NUMBERS)]
Indices = Annotated[list[Index], Field(max_length=MAX_NUMBERS + 1), FailFast()]


class Tensor(BodyModel):
    """Integers, dense or, with these indices, as the nonzero entries of its rows (CSR)."""

    data: Tokens
    shape: Tokens
    sparse_crow_indices: Indices = []
    sparse_col_indices: Indices = []


HowMany = Annotated[int, Field(ge=0, le=1000)]  # tokens in each place


class Sample(OneSampler):
    seq_id: Annotated[int, Field(ge=0, le=2**63 - 1)]
    num_samples: Annotated[int, Field(ge=1, le=MAX_SAMPLES)] = 1
    prompt: Prompt
    sampling_params: SamplingParams = SamplingParams()
    topk_sample_logprobs: HowMany = 0
    topk_prompt_logprobs: HowMany = 0
    prompt_alt_tokens_k: HowMany = 0
    target_prompt_logprobs: Tensor | None = None
    prompt_logprobs: bool = False
    prompt_logprobs_last_n: Annotated[int | None, Field(ge=1)] = None
    record_stability_info: bool = False


class OneRequest(BodyModel):
    request_id: Text
