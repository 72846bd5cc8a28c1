"""Splits an answer's text as OpenAI's messages do: thought, content, tool calls."""

import json
import re
import secrets

THOUGHT, THOUGHT_END = "<think>", "</think>"
TOOL_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
CALL_START, CALL_END = "<tool_call>\n", "</tool_call>"


def opens_thought(prompt: str) -> bool:
    """Whether a prompt ends within a thought: some chat templates open one."""
    return prompt.rstrip().endswith(THOUGHT)


def split_thought(text: str, in_thought: bool = False, complete: bool = True) -> tuple[str, str]:
    """A text's thought and the answer after it. `in_thought`: the text begins inside one.

    If it is not `complete`, the text still grows, and what might be part of a tag is held
    back: both parts only ever get longer.
    """
    if not in_thought:
        rest = text.lstrip()
        if not rest.startswith(THOUGHT):
            undecided = not complete and THOUGHT.startswith(rest)
            return "", "" if undecided else text
        text = rest.removeprefix(THOUGHT)
    thought, ended, answer = text.partition(THOUGHT_END)
    if not ended and not complete:
        thought = thought[: len(thought) - partial_tag_length(thought, THOUGHT_END)]
    return thought.strip("\n"), answer.lstrip("\n")


def partial_tag_length(text: str, tag: str) -> int:
    """How many characters at the end of the text may be the beginning of the tag."""
    return next(n for n in range(len(tag) - 1, -1, -1) if text.endswith(tag[:n]))


def extract_tool_calls(text: str) -> tuple[list[dict], str]:
    """Calls as Qwen's templates have them, an object with name and arguments between two tags; and
    the text around them. What is not such an object stays in the text."""
    calls = []

    def collect(match: re.Match) -> str:
        try:
            call = json.loads(match[1])
            function = {"name": str(call["name"]), "arguments": json.dumps(call["arguments"])}
        except (ValueError, KeyError, TypeError, RecursionError):
            return match[0]
        calls.append(
            {"id": f"call_{secrets.token_hex(8)}", "type": "function", "function": function}
        )
        return ""

    rest = TOOL_CALL.sub(collect, text)
    return calls, rest


def start_of_call(tools: list[dict], in_thought: bool) -> str:
    """How an answer begins that must call one of these functions: up to its name, or, if there is
    only one, up to its first argument. The text ends where a token ends that models write: they
    have seldom seen another cut. A thought that the prompt has opened is closed first."""
    beginning = '{"name": "'
    if len(tools) == 1:
        beginning += json.dumps(tools[0]["name"])[1:] + ', "arguments": {'
        beginning += '"' if (tools[0].get("parameters") or {}).get("properties") else ""
    return ("\n</think>\n\n" if in_thought else "") + CALL_START + beginning


def close_call(text: str) -> str:
    """The answer with its call closed: a call that was begun for the model ends with the answer."""
    return text if CALL_END in text else text + CALL_END


class GrowingAnswer:
    """The thought and the answer of a text that grows."""

    def __init__(self, in_thought: bool) -> None:
        self.in_thought, self.text = in_thought, ""
        self.thought = self.answer = ""  # the parts that can no longer change

    def add(self, text: str, complete: bool) -> dict[str, str]:
        """What is new in each; `complete`: this is the end of the text."""
        self.text += text
        thought, answer = split_thought(self.text, self.in_thought, complete)
        new = {
            "reasoning_content": thought[len(self.thought) :],
            "content": answer[len(self.answer) :],
        }
        self.thought, self.answer = thought, answer
        return {part: text for part, text in new.items() if text}
