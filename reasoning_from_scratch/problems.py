"""A problem whose answer can be checked, and the prompt: what the model is shown of it."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from reasoning_from_scratch.errors import UserError, unknown_name
from reasoning_from_scratch.text import counted, expanded, one_line


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


def show_examples(
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
    told = f"{problem.problem}\n\nA correct solution:\n{solution_text(problem)}\n\nAnswer likewise."
    before, _, after = problem_prompt(problem).rpartition(problem.problem)
    return before + told + after


def is_in_file(name: object) -> bool:
    """Whether a name is FILE.py:FUNCTION."""
    return isinstance(name, str) and ".py:" in name


def refuse_bare_file(name: str, what: str) -> None:
    """FILE.py alone does not say which of its functions or classes is meant."""
    if name.endswith(".py"):
        raise UserError(f"{name} is a file: name the {what} in it, as {name}:{what.upper()}")


# --- other prompts than the book's ---

PROMPTS = ("book", "question", "chat", "plain", "nanochat")
PLACE = "{problem}"
CHAT_TOKENS = ("<|bos|>", "<|user_start|>", "<|user_end|>", "<|assistant_start|>")
TEMPLATE_TOKEN = re.compile(r"<\|[^|]+\|>|\[INST\]|<start_of_turn>")
PROMPT_FILE = "prompt.json"  # in a trained model's folder: how it was asked


@dataclass(frozen=True)
class Asked:
    """How a model was asked in training, as its folder tells it."""

    prompt: str  # with {problem} in it
    chat_template: bool = False  # whether that was put into the model's chat template
    stop: str | None = None  # the text that also ended its answers

    def read_by(self, tokenizer, problem: str) -> str:
        """All that the model reads of a problem."""
        text = self.prompt.replace(PLACE, problem)
        return tokenizer.wrap_chat(text) if self.chat_template else text

    def to_json(self) -> bytes:
        return (json.dumps(vars(self), indent=2) + "\n").encode()


def read_asked(text: str | bytes, origin: object) -> Asked:
    """What a prompt.json says."""
    try:
        values = json.loads(text)
        asked = Asked(**{key: values[key] for key in ("prompt", "chat_template", "stop")})
        right = isinstance(asked.chat_template, bool) and isinstance(asked.stop, str | None)
    except (ValueError, TypeError, KeyError, RecursionError):
        right = False
    if not right or not isinstance(asked.prompt, str) or PLACE not in asked.prompt:
        raise UserError(
            f"{origin} does not say how the model was asked: it needs prompt, a text with {PLACE} "
            "in it, chat_template, true or false, and stop, a text or null"
        )
    return asked


def asked_of(model: str | Path) -> Asked | None:
    """How the model in that folder was asked in training, if the folder says so."""
    path = expanded(model) / PROMPT_FILE
    return read_asked(path.read_bytes(), path) if path.is_file() else None


def asked_by(tokenizer) -> Asked | None:
    """The same for the model of that tokenizer, which keeps the files of its folder."""
    content = getattr(tokenizer, "files", {}).get(PROMPT_FILE)
    return read_asked(content, PROMPT_FILE) if content else None


def remember_prompt(tokenizer, kind: str | None, problems: Sequence[Problem]) -> None:
    """From here on, the prompt goes with the model into every folder that it is saved to. If the
    problems bring prompts that differ in more than the question, there is none to remember."""
    kind = kind or suiting_prompt(problems)
    usual = prompt_of(kind, tokenizer)(PLACE)
    prompts = {own_prompt(p) or usual for p in problems} if kind == "book" else {usual}
    prompt, *others = prompts
    tokenizer.files.pop(PROMPT_FILE, None)
    if PLACE in prompt and not others:
        stop = getattr(tokenizer, "stop_text", "") or None
        asked = Asked(problems[0].prefix + prompt, tokenizer.apply_chat_template, stop)
        tokenizer.files[PROMPT_FILE] = asked.to_json()


def own_prompt(problem: Problem) -> str:
    """The prompt that a problem brings, if any, with {problem} where its question is."""
    before, question, after = problem.prompt.partition(problem.problem or PLACE)
    return before + PLACE + after if question else problem.prompt


def check_prompt(kind: str) -> None:
    """Refuse an unknown prompt before a model is loaded."""
    if kind not in PROMPTS:
        prompt_file(kind)


def prompt_of(kind: str, tokenizer) -> Callable[[str], str]:
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
    return prompt_as_asked(prompt_file(kind), tokenizer)


def prompt_as_asked(asked: Asked, tokenizer) -> Callable[[str], str]:
    if tokenizer.apply_chat_template != asked.chat_template:
        tokenizer.use_chat_template(asked.chat_template)
    return lambda problem: asked.prompt.replace(PLACE, problem)


def nanochat_prompt(tokenizer) -> Callable[[str], str]:
    if any(len(tokenizer.encode(token)) > 1 for token in CHAT_TOKENS):
        raise UserError(
            "--prompt nanochat needs a model whose tokenizer has nanochat's tokens, such as "
            "<|user_start|>; for this one use --prompt question"
        )
    bos, *around = CHAT_TOKENS
    return lambda problem: f"{bos}{around[0]}{problem}{around[1]}{around[2]}"


def suiting_prompt(problems: Sequence[Problem]) -> str:
    """The default prompt: the book's, which asks for a box that the grader can read. A set with
    rules of its own says in its questions what is required, so it is the bare question."""
    return "question" if problems[0].rules else "book"


def prompt_file(name: str) -> Asked:
    """The prompt in a file, without the newline that editors put at its end: a model that is shown
    "13 + 24 =" should continue on that line. It is all that the model reads, so it may bring a chat
    template's own tokens; chat:FILE puts it into the model's chat template, as a user's turn."""
    kind, rest = kind_and_file(name)
    path = expanded(rest)
    if not path.is_file():
        raise unknown_name("prompt", name, [*PROMPTS, f"a file with {PLACE} in it"])
    try:
        text = path.read_text(encoding="utf-8-sig")  # perhaps Windows has put a mark before it
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text; save the file as UTF-8") from None
    if path.name == PROMPT_FILE:
        return read_asked(text, path)
    if PLACE not in text:
        raise UserError(f"{path} has no {PLACE} in it: write it where the problem goes")
    text = text.removesuffix("\n")
    if kind == "chat:" and TEMPLATE_TOKEN.match(text):
        raise UserError(
            f"{path} begins with {TEMPLATE_TOKEN.match(text)[0]}, a chat template's own token, and "
            f"chat:{rest} would wrap it twice: use --prompt {rest}"
        )
    return Asked(text, chat_template=kind == "chat:")


def kind_and_file(name: str) -> tuple[str, str]:
    """chat:FILE in its two parts, "chat:" and FILE; for a FILE alone the first is empty."""
    kind, colon, rest = name.partition(":")
    return (f"{kind}:", rest) if colon and kind in ("chat", "plain") else ("", name)


def with_prompt(problems: Sequence[Problem], kind: str | None, tokenizer) -> Sequence[Problem]:
    """The problems, each with its prompt stored in it unless the book's prompt is used."""
    kind = kind or suiting_prompt(problems)
    render = prompt_of(kind, tokenizer)
    if kind == "book":
        return problems
    return [replace(problem, prompt=render(problem.problem)) for problem in problems]


def sent_prompt(tokenizer, prompt: str) -> str:
    """A line about the prompt as the model reads it."""
    lines = tokenizer.decode(tokenizer.encode(prompt)).splitlines() or [""]
    around = "in" if tokenizer.apply_chat_template else "without"
    first, last = (one_line(line, 60) for line in (lines[0], lines[-1]))
    return f"the prompt, {around} a chat template, begins with {first!r} and ends with {last!r}"
