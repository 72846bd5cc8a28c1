"""The most recent forward_backward calls of each model, and the pages that show them."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import torch
from markupsafe import Markup, escape
from torch import Tensor

from reasoning_from_scratch.config import Loss
from reasoning_from_scratch.policy import batch_loss
from reasoning_from_scratch.rollouts import make_batch
from reasoning_from_scratch.sampling import Rollout
from reasoning_from_scratch.text import visible
from rfs.report.pages import templates, write_unsynced
from rfs.report.tokens import TokenTexts
from rfs.serve.data import LOSS_INPUTS, STAND_IN_NOTE
from rfs.serve.messages import LossRequest
from rfs.serve.models import TrainedModel

PAGE_EVERY = 20  # steps
MAX_CALLS = 50  # of a model
MAX_TOKENS = 200_000  # of a model's calls together
SHOWN_DATA = 64
SHOWN_TOKENS = 4000  # of a datum


@dataclass
class RecordedCall:
    """One forward_backward."""

    step: int  # optimizer steps before it
    request: LossRequest
    datum_rollouts: list[list[Rollout]]  # of each datum; mostly one
    logprobs: list[Tensor]  # (T,) for each rollout, by the weights of that time
    loss_value: float
    loss: Loss

    @property
    def loss_name(self) -> str:
        """As the client calls it; a loss that is not computed here has a stand-in."""
        name = self.request.loss
        return name if name in LOSS_INPUTS else f"{name}, {STAND_IN_NOTE}"

    @property
    def rollouts(self) -> list[Rollout]:
        return [rollout for rollouts in self.datum_rollouts for rollout in rollouts]

    @property
    def rollout_names(self) -> list[str]:
        """Of the rollouts; a datum may have several targets at each position."""
        return [
            f"Datum {number}" + (f", target {place}" if len(rollouts) > 1 else "")
            for number, rollouts in enumerate(self.datum_rollouts)
            for place in range(len(rollouts))
        ]

    @property
    def tokens(self) -> int:
        return sum(map(len, self.rollouts))


class RecentCalls:
    def __init__(self) -> None:
        self.calls: dict[str, deque[tuple[int, RecordedCall]]] = {}
        self.counts: dict[str, int] = {}

    def add(self, model_id: str, call: RecordedCall) -> None:
        calls = self.calls.setdefault(model_id, deque())
        number = self.counts[model_id] = self.counts.get(model_id, 0) + 1
        calls.append((number, call))
        while len(calls) > 1 and (
            len(calls) > MAX_CALLS or sum(call.tokens for _, call in calls) > MAX_TOKENS
        ):
            calls.popleft()

    def find(self, model_id: str, number: int) -> RecordedCall | None:
        return dict(self.calls.get(model_id, ())).get(number)

    def forget(self, model_id: str) -> None:
        self.calls.pop(model_id, None)
        self.counts.pop(model_id, None)

    def write_step_page(self, trained: TrainedModel) -> None:
        """In the worker's thread: writes a page for every twentieth step into the run's folder,
        with the loss before and after the step. `rfs report` lists these pages."""
        calls = self.calls.get(trained.id)
        step = trained.steps - 1
        if step % PAGE_EVERY or not calls or calls[-1][1].step != step:
            return
        number, call = calls[-1]
        values = call_page_values(trained, number, call, trained.policy.logprobs(call.rollouts))
        page = render_page("call.html", key="", linked=False, **values)
        write_unsynced(trained.folder / f"train_iteration_{step:06d}.html", page)


# --- as a page


def loss_from_logprobs(
    rollouts: Sequence[Rollout], logprobs: Sequence[torch.Tensor], loss
) -> float:
    """The loss at these log-probabilities."""
    total = 0.0
    for rollout, values in zip(rollouts, logprobs, strict=True):
        batch = make_batch([rollout])
        row = torch.cat([torch.zeros(len(rollout.prompt_ids)), values.float()])[None]  # (1, T)
        total += batch_loss(row, batch, loss, 1.0)[0].item()
    return total


def render_page(template: str, **values: Any) -> str:
    return templates("rfs.serve").get_template(template).render(**values)


def local_time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}"


def call_page_values(
    trained: TrainedModel, number: int, call: RecordedCall, now: Sequence[Tensor] | None = None
) -> dict:
    """What the page of a call shows. `now`: the log-probabilities under the current weights."""
    texts = TokenTexts(trained.base.tokenizer)
    weight_name = "weight" if call.request.loss == "cross_entropy" else "advantage"
    largest_weight = (
        max(float(rollout.token_advantages.abs().max()) for rollout in call.rollouts) or 1.0
    )
    tiles = [
        ("data", len(call.request.data)),
        ("tokens", f"{call.tokens:,}"),
        ("loss then", f"{call.loss_value:.5g}"),
    ]
    if now is not None:
        steps = trained.steps - call.step
        name = f"loss now, {steps} step{'' if steps == 1 else 's'} later"
        tiles.append((name, f"{loss_from_logprobs(call.rollouts, now, call.loss):.5g}"))
    shown = call.rollouts[:SHOWN_DATA]
    data = [
        {"name": call.rollout_names[i]}
        | datum_values(
            rollout, call.logprobs[i], now[i] if now else None, texts, weight_name, largest_weight
        )
        for i, rollout in enumerate(shown)
    ]
    return {
        "id": trained.id,
        "number": number,
        "step": call.step,
        "loss": call.loss_name,
        "tiles": tiles,
        "weighed": weight_name,
        "data": data,
        "more": len(call.rollouts) - len(shown),
    }


def datum_values(
    rollout: Rollout,
    then: Tensor,
    now: Tensor | None,
    texts: TokenTexts,
    weight_name: str,
    largest_weight: float,
) -> dict:
    weights = rollout.token_advantages
    counted = weights != 0
    sampler = sum(rollout.logprobs[i] for i in counted.nonzero()[:, 0].tolist())
    return {
        "tokens": len(rollout),
        "counted": int(counted.sum()),
        "weight": f"{float(weights.sum()):+.4g}",
        "sampler": f"{sampler:.3f}" if any(rollout.logprobs) else "",
        "then": f"{float(then[counted].sum()):.3f}",
        "now": f"{float(now[counted].sum()):.3f}" if now is not None else "",
        "html": colored_tokens(rollout, then, now, texts, weight_name, largest_weight),
    }


def colored_tokens(
    rollout: Rollout,
    then: Tensor,
    now: Tensor | None,
    texts: TokenTexts,
    weight_name: str,
    largest_weight: float,
) -> Markup:
    """The datum's text, each token with its numbers."""
    ids = [*rollout.prompt_ids, *rollout.response_ids][:SHOWN_TOKENS]
    first, *others = texts.texts_of(ids)
    parts = [f"<i class=q>{escape(visible(first))}</i>"]
    for i, text in enumerate(others):
        weight = float(rollout.token_advantages[i])
        if not weight:
            parts.append(f"<i class=q>{escape(visible(text))}</i>")
            continue
        tooltip = f"{weight_name} {weight:+.4g}"
        if rollout.logprobs[i]:
            tooltip += f"; log-probability of the sampler {rollout.logprobs[i]:.3f}"
        tooltip += f"; then {float(then[i]):.3f}"
        if now is not None:
            tooltip += f"; now {float(now[i]):.3f}"
        target = int(rollout.targets[i])
        if target != ids[i + 1]:
            tooltip += f"; target {texts.text_of(target)!r}"
        size = min(4, 1 + int(3.999 * abs(weight) / largest_weight))
        css_class = f"{'p' if weight > 0 else 'n'}{size}"
        title = escape(visible(tooltip))
        parts.append(f'<i class={css_class} title="{title}">{escape(visible(text))}</i>')
    if len(rollout) > SHOWN_TOKENS:
        parts.append(f"<b class=gap>{len(rollout) - SHOWN_TOKENS:,} further tokens</b>")
    return Markup("".join(parts))
