"""The last forward_backward calls of each model, and how they are shown."""

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
from rfs.serve.data import INPUTS, STANDS_IN
from rfs.serve.messages import LossRequest
from rfs.serve.models import Trained

PAGE_EVERY = 20  # steps
MOST_CALLS = 50  # of a model
MOST_TOKENS = 200_000  # of a model's calls together
SHOWN_DATA = 64
SHOWN_TOKENS = 4000  # of a datum


@dataclass
class Call:
    """One forward_backward."""

    step: int  # optimizer steps before it
    asked: LossRequest
    parts: list[list[Rollout]]  # of each datum; mostly one
    logprobs: list[Tensor]  # (T,) for each rollout, by the weights of that time
    loss_value: float
    loss: Loss

    @property
    def loss_name(self) -> str:
        """As the client calls it; a loss that is not computed here has a stand-in."""
        name = self.asked.loss
        return name if name in INPUTS else f"{name}, {STANDS_IN}"

    @property
    def rollouts(self) -> list[Rollout]:
        return [rollout for part in self.parts for rollout in part]

    @property
    def names(self) -> list[str]:
        """Of the rollouts; a datum may have several targets at each position."""
        return [
            f"Datum {number}" + (f", target {place}" if len(part) > 1 else "")
            for number, part in enumerate(self.parts)
            for place in range(len(part))
        ]

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

    def after_step(self, trained: Trained) -> None:
        """In the worker's thread: writes a page for every twentieth step into the run's folder,
        with the loss before and after the step. `rfs report` lists these pages."""
        calls = self.calls.get(trained.id)
        step = trained.steps - 1
        if step % PAGE_EVERY or not calls or calls[-1][1].step != step:
            return
        number, call = calls[-1]
        values = call_values(trained, number, call, trained.policy.logprobs(call.rollouts))
        page = page_of("call.html", key="", linked=False, **values)
        write_unsynced(trained.folder / f"train_iteration_{step:06d}.html", page)


# --- as a page


def loss_at(rollouts: Sequence[Rollout], logprobs: Sequence[torch.Tensor], loss) -> float:
    """The loss at these log-probabilities."""
    total = 0.0
    for rollout, own in zip(rollouts, logprobs, strict=True):
        batch = make_batch([rollout])
        line = torch.cat([torch.zeros(len(rollout.prompt_ids)), own.float()])[None]  # (1, T)
        total += batch_loss(line, batch, loss, 1.0)[0].item()
    return total


def page_of(template: str, **values: Any) -> str:
    return templates("rfs.serve").get_template(template).render(**values)


def at(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}"


def call_values(
    trained: Trained, number: int, call: Call, now: Sequence[Tensor] | None = None
) -> dict:
    """What the page of a call shows. `now`: the log-probabilities under the current weights."""
    texts = TokenTexts(trained.base.tokenizer)
    weighed = "weight" if call.asked.loss == "cross_entropy" else "advantage"
    largest = max(float(one.token_advantages.abs().max()) for one in call.rollouts) or 1.0
    tiles = [
        ("data", len(call.asked.data)),
        ("tokens", f"{call.tokens:,}"),
        ("loss then", f"{call.loss_value:.5g}"),
    ]
    if now is not None:
        steps = trained.steps - call.step
        name = f"loss now, {steps} step{'' if steps == 1 else 's'} later"
        tiles.append((name, f"{loss_at(call.rollouts, now, call.loss):.5g}"))
    shown = call.rollouts[:SHOWN_DATA]
    data = [
        {"name": call.names[i]}
        | datum_values(rollout, call.logprobs[i], now[i] if now else None, texts, weighed, largest)
        for i, rollout in enumerate(shown)
    ]
    return {
        "id": trained.id,
        "number": number,
        "step": call.step,
        "loss": call.loss_name,
        "tiles": tiles,
        "weighed": weighed,
        "data": data,
        "more": len(call.rollouts) - len(shown),
    }


def datum_values(
    rollout: Rollout,
    then: Tensor,
    now: Tensor | None,
    texts: TokenTexts,
    weighed: str,
    largest: float,
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
        "html": marked(rollout, then, now, texts, weighed, largest),
    }


def marked(
    rollout: Rollout,
    then: Tensor,
    now: Tensor | None,
    texts: TokenTexts,
    weighed: str,
    largest: float,
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
        about = f"{weighed} {weight:+.4g}"
        if rollout.logprobs[i]:
            about += f"; log-probability of the sampler {rollout.logprobs[i]:.3f}"
        about += f"; then {float(then[i]):.3f}"
        if now is not None:
            about += f"; now {float(now[i]):.3f}"
        target = int(rollout.targets[i])
        if target != ids[i + 1]:
            about += f"; target {texts.text_of(target)!r}"
        size = min(4, 1 + int(3.999 * abs(weight) / largest))
        kind = f"{'p' if weight > 0 else 'n'}{size}"
        title = escape(visible(about))
        parts.append(f'<i class={kind} title="{title}">{escape(visible(text))}</i>')
    if len(rollout) > SHOWN_TOKENS:
        parts.append(f"<b class=gap>{len(rollout) - SHOWN_TOKENS:,} further tokens</b>")
    return Markup("".join(parts))
