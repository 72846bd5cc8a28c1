"""What the chapter notebooks show with: source code, and answers shaded token by token."""

import html
import inspect
import math
from collections.abc import Callable, Sequence

from reasoning_from_scratch.text import visible


def show_source(function: Callable) -> None:
    """Display the source of a function or class that is too long for a cell."""
    from IPython.display import Markdown, display  # only notebooks have it

    display(Markdown(f"```python\n{inspect.getsource(function).rstrip()}\n```"))


def show_tokens(tokenizer, token_ids: Sequence[int], logprobs: Sequence[float]) -> None:
    """Display tokens, each the darker the less probable it was; hover for the number."""
    from IPython.display import HTML, display

    display(HTML(tokens_html(tokenizer, token_ids, logprobs)))


def tokens_html(tokenizer, token_ids: Sequence[int], logprobs: Sequence[float]) -> str:
    """One <span> per token, everything that the model wrote escaped."""
    spans = []
    for token_id, logprob in zip(token_ids, logprobs, strict=True):
        text = visible(tokenizer.decode([token_id]))
        shown = html.escape(text).replace("\n", "↵<br>")
        probability = math.exp(logprob)
        style = f"background: rgba(217, 119, 6, {0.75 * (1 - probability):.2f})"
        label = html.escape(f"{text!r}: probability {probability:.3f}", quote=True)
        spans.append(f'<span style="{style}" title="{label}">{shown}</span>')
    return f'<div style="font-family: monospace; line-height: 1.7">{"".join(spans)}</div>'
