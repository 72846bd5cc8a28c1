"""The text of a rollout, token by token, shaded by how likely each token was."""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from reasoning_from_scratch.text import visible

SHADES = (0.9, 0.7, 0.5, 0.2, 0.05, 0.01)  # a token of lower probability gets the next darker shade
_BOUNDS = (0.1054, 0.3567, 0.6931, 1.6094, 2.9957, 4.6052)  # minus the logarithms of SHADES
TOOL = -1  # instead of a shade: a tool wrote the token, the model did not sample it
SHOWN_TOKENS = 4000  # of one rollout on a page; all of it is in the summaries


@dataclass
class ShadedText:
    html: Markup  # one <i> per token
    logprobs: str  # numbers for the script, separated by spaces, in the order of the tokens
    entropies: str


class TokenTexts:
    """Decodes single tokens; a character that takes several tokens appears at its last one."""

    def __init__(self, tokenizer) -> None:
        self.decode = tokenizer.decode
        self._text_by_id: dict[int, str] = {}

    def text_of(self, token_id: int) -> str:
        text = self._text_by_id.get(token_id)
        if text is None:
            text = self.decode([token_id])
            # Llama 2's tokenizer drops a space at the beginning of a text, so also of a lone token.
            if self.decode([token_id, token_id]) == f"{text} {text}":
                text = f" {text}"
            self._text_by_id[token_id] = text
        return text

    def texts_of(self, ids: Sequence[int]) -> list[str]:
        texts: list[str] = []
        open_ids: list[int] = []  # tokens that so far are only part of a character
        for token_id in ids:
            text = self.text_of(token_id)
            if "\ufffd" not in text:
                if open_ids:
                    texts[-1] = self.decode(open_ids)
                    open_ids = []
                texts.append(text)
                continue
            open_ids.append(token_id)
            joined = self.decode(open_ids)
            done = "\ufffd" not in joined or len(open_ids) == 4  # UTF-8 takes 4 bytes at most
            texts.append(joined if done else "")
            open_ids = [] if done else open_ids
        if open_ids:
            texts[-1] = self.decode(open_ids)
        return texts


class Shader:
    """Writes the tokens of many rollouts; each distinct token is escaped once per shade."""

    def __init__(self, tokenizer) -> None:
        self.texts = TokenTexts(tokenizer)
        self._spans: dict[tuple[str, int], str] = {}

    def shade(
        self, ids: Sequence[int], logprobs: Sequence[float], entropies, forced: Sequence[int] = ()
    ) -> ShadedText:
        """`forced`: the positions in `ids` that a tool wrote."""
        shades = [bisect.bisect_left(_BOUNDS, -logprob) for logprob in logprobs]
        for position in forced:
            shades[position] = TOOL
        head = ids if len(ids) <= SHOWN_TOKENS else ids[: SHOWN_TOKENS * 3 // 4]
        tail = ids[len(ids) - SHOWN_TOKENS // 4 :] if len(ids) > SHOWN_TOKENS else ids[:0]
        num_omitted = len(ids) - len(head) - len(tail)
        html = self._write(head, shades)
        if num_omitted:
            html += f'<b class="gap">{num_omitted:,} tokens omitted</b>'
            html += self._write(tail, shades[len(ids) - len(tail) :])
        return ShadedText(
            Markup(html),
            _joined_numbers(logprobs, len(head), len(tail)),
            _joined_numbers(entropies, len(head), len(tail)),
        )

    def _write(self, ids: Sequence[int], shades: Sequence[int]) -> str:
        spans, parts = self._spans, []
        for key in zip(self.texts.texts_of(ids), shades):  # noqa: B905 (shades go on)
            span = spans.get(key)
            if span is None:
                span = spans[key] = _span(*key)
            parts.append(span)
        return "".join(parts)


def _span(text: str, shade: int) -> str:
    opening = {0: "<i>", TOOL: "<i class=tool>"}.get(shade, f"<i class=s{shade}>")
    return f"{opening}{escape(visible(text))}</i>"


def _joined_numbers(values: Sequence[float], head: int, tail: int) -> str:
    shown = [*values[:head], *values[len(values) - tail :]]
    return " ".join([f"{round(value, 3) + 0.0:.3f}" for value in shown])  # not -0.000
