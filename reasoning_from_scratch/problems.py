"""A problem whose answer can be checked, and the prompt: what the model is shown of it."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from reasoning_from_scratch.errors import UserError, unknown_name
from reasoning_from_scratch.text import counted, expand_home, one_line


@dataclass(frozen=True)
class Problem:
    id: str
    problem: str
    answer: str
    level: str = ""
    type: str = ""
    solution: str = ""
    prefix: str = ""  # solved problems that the model is shown before this one
    prompt: str = ""  # all that the model is shown, if it is not the usual prompt
    rules: str = ""  # the set whose rules say what is correct; "": the grader (rfs/tasks/source.py)
    facts: str = ""  # what those rules need to know about the problem, as JSON
    source: str = field(default="", compare=False)  # file and line that it was read from
    row: dict = field(default_factory=dict, compare=False, repr=False)  # all columns, as read there

    @property
    def where(self) -> str:
        """Its id, and where to find it: for messages."""
        return f"{self.id} ({self.source})" if self.source else self.id


def render_prompt(prompt):
    # The published checkpoints were trained on exactly this string.
    return (
        "You are a helpful math assistant.\n"
        "Answer the question and write the final result on a new line as:\n"
        "\\boxed{ANSWER}\n\n"
        f"Question:\n{prompt}\n\n"
        "Answer:"
    )


def render_chat_prompt(problem: str) -> str:
    """A user's turn, for models that were trained on chats; the tokenizer wraps it in the
    chat template."""
    return f"{problem}\n\nReason step by step and write the final result as \\boxed{{ANSWER}}."


def few_shot_prefix(examples: Iterable[Problem]) -> str:
    """Solved problems: for each one the prompt, and the answer that the model should give."""
    return "".join(f"{render_prompt(e.problem)}\n{solution_text(e)}\n\n\n" for e in examples)


def problem_prompt(problem: Problem, render: Callable[[str], str] = render_prompt) -> str:
    """What the model is shown for a problem, after solved examples if it has any."""
    return problem.prompt or problem.prefix + render(problem.problem)


def add_few_shot_examples(
    count: int, problems: Sequence[Problem], eval_problems: Sequence[Problem]
) -> tuple[list[Problem], list[Problem]]:
    """Both sets, with the first `count` training problems, solved, before each question. These
    examples are not trained on."""
    if count >= len(problems):
        raise UserError(
            f"--few-shot {count} of {counted(len(problems), 'problem')} leaves none to train on"
        )
    for problem in (*problems, *eval_problems):
        if problem.prompt:
            raise UserError(
                f"--few-shot shows solved problems before the question, and {problem.id} has a "
                "prompt of its own: omit --few-shot"
            )
    for problem in problems[:count]:
        if problem.rules and not problem.answer:
            raise UserError(
                f"--few-shot shows solved problems, and {problem.id} has no answer: omit --few-shot"
            )
    prefix = few_shot_prefix(problems[:count])
    shown = [replace(problem, prefix=prefix) for problem in (*problems[count:], *eval_problems)]
    split = len(problems) - count
    return shown[:split], shown[split:]


def solution_text(problem: Problem) -> str:
    """The solution as a model should write it: it ends with the answer in a box."""
    if "\\boxed{" in problem.solution:
        return problem.solution
    return f"{problem.solution}\n\\boxed{{{problem.answer}}}".lstrip()


def told_prompt(problem: Problem) -> str:
    """The prompt of a problem whose question is followed by a correct solution."""
    question = problem.problem
    with_solution = (
        f"{question}\n\nA correct solution:\n{solution_text(problem)}\n\nAnswer likewise."
    )
    before, _, after = problem_prompt(problem).rpartition(question)
    return before + with_solution + after


def is_file_function(name: object) -> bool:
    """Whether a name is FILE.py:FUNCTION."""
    return isinstance(name, str) and ".py:" in name


def refuse_bare_file(name: str, what: str) -> None:
    """FILE.py alone does not say which of its functions or classes is meant."""
    if name.endswith(".py"):
        raise UserError(f"{name} is a file: name the {what} in it, as {name}:{what.upper()}")


# --- other prompts than the book's ---

PROMPTS = ("book", "question", "chat", "plain", "nanochat")
PLACEHOLDER = "{problem}"
CHAT_TOKENS = ("<|bos|>", "<|user_start|>", "<|user_end|>", "<|assistant_start|>")
TEMPLATE_TOKEN = re.compile(r"<\|[^|]+\|>|\[INST\]|<start_of_turn>")
PROMPT_FILE = "prompt.json"  # in a trained model's folder: its PromptFormat


@dataclass(frozen=True)
class PromptFormat:
    """How a model was prompted in training, as stored in its folder."""

    prompt: str  # with {problem} in it
    chat_template: bool = False  # whether the prompt was put into the model's chat template
    stop: str | None = None  # a text that also ended its answers

    def render(self, tokenizer, problem: str) -> str:
        """The whole text that the model reads for a problem."""
        text = self.prompt.replace(PLACEHOLDER, problem)
        return tokenizer.wrap_chat(text) if self.chat_template else text

    def to_json(self) -> bytes:
        return (json.dumps(vars(self), indent=2) + "\n").encode()


def parse_prompt_format(text: str | bytes, origin: object) -> PromptFormat:
    """The content of a prompt.json."""
    try:
        values = json.loads(text)
        prompt_format = PromptFormat(
            **{key: values[key] for key in ("prompt", "chat_template", "stop")}
        )
        valid = isinstance(prompt_format.chat_template, bool) and isinstance(
            prompt_format.stop, str | None
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        valid = False
    if (
        not valid
        or not isinstance(prompt_format.prompt, str)
        or PLACEHOLDER not in prompt_format.prompt
    ):
        raise UserError(
            f"{origin} does not say how the model was asked: it needs prompt, a text with "
            f"{PLACEHOLDER} in it, chat_template, true or false, and stop, a text or null"
        )
    return prompt_format


def load_prompt_format(model: str | Path) -> PromptFormat | None:
    """The prompt format stored in a model's folder, if there is one."""
    path = expand_home(model) / PROMPT_FILE
    return parse_prompt_format(path.read_bytes(), path) if path.is_file() else None


def prompt_format_of(tokenizer) -> PromptFormat | None:
    """The same, from a tokenizer, which keeps the files of its model's folder."""
    content = getattr(tokenizer, "files", {}).get(PROMPT_FILE)
    return parse_prompt_format(content, PROMPT_FILE) if content else None


def store_prompt_format(tokenizer, kind: str | None, problems: Sequence[Problem]) -> None:
    """From here on, every folder that the model is saved to contains its prompt format. If the
    problems bring prompts that differ in more than the question, there is none to store."""
    kind = kind or default_prompt_kind(problems)
    default = prompt_function(kind, tokenizer)(PLACEHOLDER)
    prompts = {prompt_template(p) or default for p in problems} if kind == "book" else {default}
    prompt, *others = prompts
    tokenizer.files.pop(PROMPT_FILE, None)
    if PLACEHOLDER in prompt and not others:
        stop = getattr(tokenizer, "stop_text", "") or None
        prompt_format = PromptFormat(
            problems[0].prefix + prompt, tokenizer.apply_chat_template, stop
        )
        tokenizer.files[PROMPT_FILE] = prompt_format.to_json()


def prompt_template(problem: Problem) -> str:
    """The prompt that a problem brings, if any, with {problem} in place of its question."""
    before, question, after = problem.prompt.partition(problem.problem or PLACEHOLDER)
    return before + PLACEHOLDER + after if question else problem.prompt


def check_prompt_kind(kind: str) -> None:
    """Refuse an unknown prompt before a model is loaded."""
    if kind not in PROMPTS:
        read_prompt_file(kind)


def prompt_function(kind: str, tokenizer) -> Callable[[str], str]:
    """The function that turns a problem into a prompt of this kind. For chat, plain and prompt
    files it also switches the tokenizer's chat template on or off, from here on."""
    if kind == "book":
        return render_prompt
    if kind == "question":
        return str
    if kind == "nanochat":
        return nanochat_prompt(tokenizer)
    if kind in ("chat", "plain"):
        tokenizer.use_chat_template(kind == "chat")
        return str
    return apply_prompt_format(read_prompt_file(kind), tokenizer)


def apply_prompt_format(prompt_format: PromptFormat, tokenizer) -> Callable[[str], str]:
    if tokenizer.apply_chat_template != prompt_format.chat_template:
        tokenizer.use_chat_template(prompt_format.chat_template)
    return lambda problem: prompt_format.prompt.replace(PLACEHOLDER, problem)


def nanochat_prompt(tokenizer) -> Callable[[str], str]:
    if any(len(tokenizer.encode(token)) > 1 for token in CHAT_TOKENS):
        raise UserError(
            "--prompt nanochat needs a model whose tokenizer has nanochat's tokens, such as "
            "<|user_start|>; for this one use --prompt question"
        )
    bos, user_start, user_end, assistant_start = CHAT_TOKENS
    return lambda problem: f"{bos}{user_start}{problem}{user_end}{assistant_start}"


def default_prompt_kind(problems: Sequence[Problem]) -> str:
    """The default prompt: the book's, which asks for a box that the grader can read. A set with
    rules of its own says in its questions what is required, so it is the bare question."""
    return "question" if problems[0].rules else "book"


def read_prompt_file(name: str) -> PromptFormat:
    """The prompt in a file, without the newline that editors put at its end: a model that is shown
    "13 + 24 =" should continue on that line. It is all that the model reads, so it may bring a chat
    template's own tokens; chat:FILE puts it into the model's chat template, as a user's turn."""
    kind, rest = split_prompt_name(name)
    path = expand_home(rest)
    if not path.is_file():
        raise unknown_name("prompt", name, [*PROMPTS, f"a file with {PLACEHOLDER} in it"])
    try:
        text = path.read_text(encoding="utf-8-sig")  # perhaps Windows has put a mark before it
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text; save the file as UTF-8") from None
    if path.name == PROMPT_FILE:
        return parse_prompt_format(text, path)
    if PLACEHOLDER not in text:
        raise UserError(f"{path} has no {PLACEHOLDER} in it: write it where the problem goes")
    text = text.removesuffix("\n")
    if kind == "chat:" and TEMPLATE_TOKEN.match(text):
        raise UserError(
            f"{path} begins with {TEMPLATE_TOKEN.match(text)[0]}, a chat template's own token, and "
            f"chat:{rest} would wrap it twice: use --prompt {rest}"
        )
    return PromptFormat(text, chat_template=kind == "chat:")


def split_prompt_name(name: str) -> tuple[str, str]:
    """chat:FILE in its two parts, "chat:" and FILE; for a FILE alone the first is empty."""
    kind, colon, rest = name.partition(":")
    return (f"{kind}:", rest) if colon and kind in ("chat", "plain") else ("", name)


def with_prompt(problems: Sequence[Problem], kind: str | None, tokenizer) -> Sequence[Problem]:
    """The problems, each with its prompt stored in it unless the book's prompt is used."""
    kind = kind or default_prompt_kind(problems)
    render = prompt_function(kind, tokenizer)
    if kind == "book":
        return problems
    return [replace(problem, prompt=render(problem.problem)) for problem in problems]


def describe_prompt(tokenizer, prompt: str) -> str:
    """A line about the prompt as the model reads it."""
    lines = tokenizer.decode(tokenizer.encode(prompt)).splitlines() or [""]
    relation = "in" if tokenizer.apply_chat_template else "without"
    first, last = (one_line(line, 60) for line in (lines[0], lines[-1]))
    return f"the prompt, {relation} a chat template, begins with {first!r} and ends with {last!r}"
