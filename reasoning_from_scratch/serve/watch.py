"""What travelled: the last calls of forward_backward of each model, for the page to show."""

from collections import deque
from dataclasses import dataclass

from torch import Tensor

from reasoning_from_scratch.config import Loss
from reasoning_from_scratch.sampling import Rollout
from reasoning_from_scratch.serve.messages import LossRequest

MOST_CALLS = 50  # of a model
MOST_TOKENS = 200_000  # of a model's calls together


@dataclass
class Call:
    """One forward_backward."""

    step: int  # steps of the optimizer before it
    asked: LossRequest
    rollouts: list[Rollout]
    logprobs: list[Tensor]  # (T,) of each, as the model was then
    loss_value: float
    loss: Loss

    @property
    def tokens(self) -> int:
        return sum(map(len, self.rollouts))


class Watch:
    def __init__(self) -> None:
        self.calls: dict[str, deque[tuple[int, Call]]] = {}
        self.counts: dict[str, int] = {}

    def note(self, model_id: str, call: Call) -> None:
        calls = self.calls.setdefault(model_id, deque())
        number = self.counts[model_id] = self.counts.get(model_id, 0) + 1
        calls.append((number, call))
        while len(calls) > 1 and (
            len(calls) > MOST_CALLS or sum(one.tokens for _, one in calls) > MOST_TOKENS
        ):
            calls.popleft()

    def find(self, model_id: str, number: int) -> Call | None:
        return dict(self.calls.get(model_id, ())).get(number)

    def forget(self, model_id: str) -> None:
        self.calls.pop(model_id, None)
        self.counts.pop(model_id, None)
