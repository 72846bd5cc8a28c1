"""How answers are written: whole, or piece by piece as they are drawn; a class for each call.

TextChoice     a completion: text
ChatChoice     a conversation's next message: thought, content, tool calls
TokensChoice   tokens, whole only
"""

from collections.abc import Sequence

from reasoning_from_scratch.sampling import Rollout
from rfs.serve.answer_parts import GrowingAnswer, close_call, extract_tool_calls, split_thought
from rfs.serve.messages import Likely
from rfs.serve.openai_call import SamplingCall
from rfs.serve.worker import Stops

# A token, its log-probability, and the most likely tokens in its place.
Token = tuple[int, float, Sequence[tuple[int, float]]]


def newest(rollout: Rollout) -> Token:
    likely = rollout.likely[-1] if rollout.likely else ()
    return rollout.response_ids[-1], rollout.logprobs[-1], likely


class TextChoice:
    """A completion. As it grows: a character may take several tokens, and text that might begin a
    stop text is held back. Log-probabilities go with the next piece of text."""

    prefix, whole_name, piece_name = "cmpl", "text_completion", "text_completion"
    opening: dict | None = None  # the first piece, before anything is drawn

    def __init__(self, call: SamplingCall) -> None:
        self.call, self.tokenizer, self.stops = call, call.base.tokenizer, call.stops
        self.held_back = max([len(text) - 1 for text in self.stops.texts], default=0)
        self.ids: list[int] = []
        self.start = self.decoded_to = 0  # of the tokens: from `start` on they are decoded together
        self.text, self.sent = "", 0
        self.unsent: list[Token] = []  # whose log-probabilities have not been sent
        self.length = 0  # characters of the tokens whose log-probabilities have been sent

    @classmethod
    def head(cls, call: SamplingCall, name: str) -> dict:
        """What stands before the choices, in an answer and in each piece of a stream."""
        head = {"id": f"{cls.prefix}-{call.id}", "object": name, "created": call.created}
        return head | {"model": call.body.model}

    # -- whole

    def whole(self, rollout: Rollout, scores: tuple[list, Likely] | None) -> dict:
        """`scores`: how likely the prompt's tokens are, and what was most likely in their places,
        if the call wants to know."""
        text, reason = text_of(self.call, rollout)
        ids, logprobs = rollout.response_ids, rollout.logprobs
        likely: Likely = rollout.likely
        if self.call.prompts.echoed:
            text = self.tokenizer.decode(rollout.prompt_ids) + text
        if scores:
            ids = [*rollout.prompt_ids, *ids]
            logprobs, likely = [*scores[0], *logprobs], [*scores[1], *likely]
        answer_logprobs = self.logprobs(ids, logprobs, likely)
        return {"text": text, "logprobs": answer_logprobs, "finish_reason": reason}

    # -- piece by piece

    def add_token(self, token: Token) -> dict | None:
        """The next piece, if the newest token completes one."""
        self.unsent.append(token)
        text = self.read(token[0])
        return self.piece(text) if text else None

    def read(self, token: int) -> str:
        if token in self.stops.ids:
            return ""
        self.ids.append(token)
        before = self.tokenizer.decode(self.ids[self.start : self.decoded_to])
        whole = self.tokenizer.decode(self.ids[self.start :])
        if not whole.endswith("\ufffd"):
            self.text += whole[len(before) :]
            self.start, self.decoded_to = self.decoded_to, len(self.ids)
        return self.text_up_to(
            min(len(self.text) - self.held_back, end_of_answer(self.text, self.stops))
        )

    def text_up_to(self, end: int) -> str:
        """The text up to `end` that has not been sent."""
        before, self.sent = self.sent, max(self.sent, end)
        return self.text[before : self.sent]

    def rest(self, rollout: Rollout) -> list[tuple[dict, str | None]]:
        """What has not been sent, and why the answer ended."""
        whole, reason = text_of(self.call, rollout)
        return [(self.piece(whole[self.sent :]), reason)]

    def piece(self, text: str) -> dict:
        return {"text": text, "logprobs": self.unsent_logprobs()}

    def unsent_logprobs(self) -> dict | None:
        """Of the tokens since the last piece."""
        unsent, self.unsent = self.unsent, []
        return self.logprobs(
            [token for token, _, _ in unsent],
            [logprob for _, logprob, _ in unsent],
            [likely for _, _, likely in unsent],
        )

    # -- log-probabilities

    def logprobs(self, ids: list[int], logprobs: list, likely: Likely) -> dict | None:
        """As the call wants them, if it does."""
        if self.call.body.num_likely is None:
            return None
        return self.as_logprobs(ids, logprobs, likely or [[]] * len(ids))

    def as_logprobs(self, ids: list[int], logprobs: list, likely: Likely) -> dict:
        tokens, offsets = self.call.texts.texts_of(ids), list[int]()
        for text in tokens:
            offsets.append(self.length)
            self.length += len(text)
        places = zip(ids, tokens, logprobs, likely, strict=True)
        return {
            "tokens": tokens,
            "token_logprobs": logprobs,
            "top_logprobs": [
                None if logprob is None else self.by_text(token, text, logprob, others)
                for token, text, logprob, others in places
            ],
            "text_offset": offsets,
        }

    def by_text(
        self, token: int, text: str, logprob: float, others: Sequence[tuple[int, float]]
    ) -> dict[str, float]:
        """The most likely tokens, and the sampled one even if it is none of them. Several tokens
        may have the same text, such as parts of a character: the likeliest has it."""
        logprobs: dict[str, float] = {}
        for other, value in others[: self.call.body.num_likely]:
            logprobs.setdefault(text if other == token else self.call.texts.text_of(other), value)
        logprobs.setdefault(text, logprob)
        return logprobs


class ChatChoice(TextChoice):
    """A message: its thought, what it says, and which tools it calls."""

    prefix, whole_name, piece_name = "chatcmpl", "chat.completion", "chat.completion.chunk"
    opening = {"delta": {"role": "assistant", "content": ""}, "logprobs": None}

    def __init__(self, call: SamplingCall) -> None:
        super().__init__(call)
        self.growing = GrowingAnswer(call.prompts.in_thought)

    def whole(self, rollout: Rollout, scores: tuple[list, Likely] | None) -> dict:
        message, reason = as_message(self.call, *text_of(self.call, rollout))
        answer_logprobs = self.logprobs(rollout.response_ids, rollout.logprobs, rollout.likely)
        return {"message": message, "logprobs": answer_logprobs, "finish_reason": reason}

    def read(self, token: int) -> str:
        text = super().read(token)
        # With tools, only the end of the answer shows whether it is a call.
        return "" if self.call.prompts.max_tool_calls else text

    def piece(self, text: str, complete: bool = False) -> dict | None:
        delta = self.growing.add(text, complete)
        return {"delta": delta, "logprobs": self.unsent_logprobs()} if delta or complete else None

    def rest(self, rollout: Rollout) -> list[tuple[dict, str | None]]:
        text, reason = text_of(self.call, rollout)
        if not self.call.prompts.max_tool_calls:
            return [(self.piece(text[self.sent :], complete=True), reason)]
        message, reason = as_message(self.call, text, reason)
        calls = [call | {"index": i} for i, call in enumerate(message.get("tool_calls", []))]
        delta = {"content": message["content"]} | ({"tool_calls": calls} if calls else {})
        if "reasoning_content" in message:
            delta["reasoning_content"] = message["reasoning_content"]
        last: dict = {"delta": {}, "logprobs": None}
        return [({"delta": delta, "logprobs": self.unsent_logprobs()}, None), (last, reason)]

    def as_logprobs(self, ids: list[int], logprobs: list, likely: Likely) -> dict:
        def one(token: int, logprob: float) -> dict:
            text = self.call.texts.text_of(token)
            return {"token": text, "logprob": logprob, "bytes": list(text.encode(errors="replace"))}

        content = [
            one(token, logprob) | {"top_logprobs": [one(*other) for other in others]}
            for token, logprob, others in zip(ids, logprobs, likely, strict=True)
        ]
        return {"content": content, "refusal": None}


class TokensChoice(TextChoice):
    @classmethod
    def head(cls, call: SamplingCall, name: str) -> dict:
        return {"request_id": call.id, "model": call.body.model, "prompt_logprobs": None}

    def whole(self, rollout: Rollout, scores: tuple[list, Likely] | None) -> dict:
        def one(token: int, logprob: float) -> dict:
            return {"token": f"token_id:{token}", "logprob": logprob, "bytes": None}

        likely = rollout.likely or [[]] * len(rollout.response_ids)
        content = [
            one(token, logprob) | {"top_logprobs": [one(*other) for other in others]}
            for token, logprob, others in zip(
                rollout.response_ids, rollout.logprobs, likely, strict=True
            )
        ]
        answer = {"token_ids": rollout.response_ids, "logprobs": {"content": content}}
        return answer | {"finish_reason": rollout.stop_reason}


def end_of_answer(text: str, stops: Stops) -> int:
    """Where the first stop text begins, else the end of the text."""
    places = [text.find(stop) for stop in stops.texts]
    return min([place for place in places if place >= 0], default=len(text))


def text_of(call: SamplingCall, rollout: Rollout) -> tuple[str, str]:
    """The answer without what ended it, and why it ended."""
    stops, ids = call.stops, rollout.response_ids
    if ids and ids[-1] in stops.ids:
        ids = ids[:-1]
    text = call.base.tokenizer.decode(ids)
    return call.prompts.answer_start + text[: end_of_answer(text, stops)], rollout.stop_reason


def as_message(call: SamplingCall, text: str, reason: str) -> tuple[dict, str]:
    """What the assistant thinks and says, and which tools it calls."""
    thought, answer = split_thought(text, call.prompts.in_thought)
    message: dict = {"role": "assistant", "content": answer, "refusal": None}
    if thought:
        message["reasoning_content"] = thought
    calls: list[dict] = []
    if call.prompts.max_tool_calls:
        calls, rest = extract_tool_calls(
            close_call(answer) if call.prompts.answer_start else answer
        )
    if calls:
        message["content"] = rest.strip() or None
        message["tool_calls"] = calls[: call.prompts.max_tool_calls]
        reason = "tool_calls"
    return message, reason


def usage(call: SamplingCall, rollouts: Sequence[Rollout]) -> dict:
    read = sum(map(len, call.prompts.ids))
    written = sum(len(rollout.response_ids) for rollout in rollouts)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
