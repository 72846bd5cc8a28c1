"""An answer's text as OpenAI's messages have it: what the model thought, what it says, and which
tools it calls."""

import json
import re
import secrets

THOUGHT, THOUGHT_ENDS = "<think>", "</think>"
TOOL_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
CALL_BEGINS, CALL_ENDS = "<tool_call>\n", "</tool_call>"


def thinks_already(prompt: str) -> bool:
    """Whether a prompt ends within a thought: some chat templates open one."""
    return prompt.rstrip().endswith(THOUGHT)


def thought_and_answer(text: str, inside: bool = False, whole: bool = True) -> tuple[str, str]:
    """A text's thought and the answer after it. `inside`: the text begins within a thought.

    With `whole` False the text still grows, and what might turn out to be part of a tag is held
    back: both parts only ever get longer.
    """
    if not inside:
        rest = text.lstrip()
        if not rest.startswith(THOUGHT):
            undecided = not whole and THOUGHT.startswith(rest)
            return "", "" if undecided else text
        text = rest.removeprefix(THOUGHT)
    thought, ended, answer = text.partition(THOUGHT_ENDS)
    if not ended and not whole:
        thought = thought[: len(thought) - begun(thought, THOUGHT_ENDS)]
    return thought.strip("\n"), answer.lstrip("\n")


def begun(text: str, tag: str) -> int:
    """How many characters at the end of the text may be the beginning of the tag."""
    return next(n for n in range(len(tag) - 1, -1, -1) if text.endswith(tag[:n]))


def tool_calls(text: str) -> tuple[list[dict], str]:
    """Calls as Qwen's templates have them, an object with name and arguments between two tags; and
    the text around them. What is not such an object stays in the text."""
    calls = []

    def taken_out(written: re.Match) -> str:
        try:
            call = json.loads(written[1])
            function = {"name": str(call["name"]), "arguments": json.dumps(call["arguments"])}
        except (ValueError, KeyError, TypeError, RecursionError):
            return written[0]
        calls.append(
            {"id": f"call_{secrets.token_hex(8)}", "type": "function", "function": function}
        )
        return ""

    rest = TOOL_CALL.sub(taken_out, text)
    return calls, rest


def call_begun(tools: list[dict], inside: bool) -> str:
    """How an answer begins that must call one of these functions: up to its name, or, if there is
    only one, up to its first argument. The text ends where a token ends that models write: they
    have seldom seen another cut. A thought that the prompt has opened is closed first."""
    begun = '{"name": "'
    if len(tools) == 1:
        begun += json.dumps(tools[0]["name"])[1:] + ', "arguments": {'
        begun += '"' if (tools[0].get("parameters") or {}).get("properties") else ""
    return ("\n</think>\n\n" if inside else "") + CALL_BEGINS + begun


def with_call_ended(text: str) -> str:
    """A call that was begun for the model ends where the answer does, if not before."""
    return text if CALL_ENDS in text else text + CALL_ENDS


class Growing:
    """The thought and the answer of a text that grows."""

    def __init__(self, inside: bool) -> None:
        self.inside, self.text = inside, ""
        self.thought = self.answer = ""  # as far as they are known

    def add(self, text: str, whole: bool) -> dict[str, str]:
        """What is new in each; `whole`: this is the end of the text."""
        self.text += text
        thought, answer = thought_and_answer(self.text, self.inside, whole)
        new = {
            "reasoning_content": thought[len(self.thought) :],
            "content": answer[len(self.answer) :],
        }
        self.thought, self.answer = thought, answer
        return {part: text for part, text in new.items() if text}
