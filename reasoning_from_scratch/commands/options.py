"""Options of the commands that load a model. They do not need torch, so `rfs` reads and checks them
before it spends seconds on importing it."""

from dataclasses import dataclass

from reasoning_from_scratch.config import Device, Drawing
from reasoning_from_scratch.errors import UserError, unknown_name
from reasoning_from_scratch.files.model_names import check_model_name
from reasoning_from_scratch.problems import PROMPTS
from reasoning_from_scratch.stops import stop_text
from reasoning_from_scratch.text import expanded

TEMPLATES = ("auto", "math", "chat", "plain")


@dataclass
class ChatOptions(Device, Drawing):
    """Options of `rfs chat`."""

    model: str = "tiny"
    """Model to talk to: tiny, tiny-grpo, base, reasoning, a folder (of LoRA, too), a file, a run
    (its best save) or RUN@SAVE."""
    template: str = "auto"
    """What surrounds your words: math (the book's prompt), chat (the model's own template), plain
    (nothing), or a text FILE with {problem} in their place; auto: chat, or else math."""
    stop: str | None = None
    """End an answer at this text, too, such as "\\n\\n" or "Question:" for a base model."""
    max_new_tokens: int = 2048
    """Longest answer in tokens; the model's context limits it, too."""
    temperature: float = 0.0
    """0 always takes the most probable token; higher values vary more."""

    def check(self) -> str:
        """Refuses a model that cannot be loaded; returns the name of one that can."""
        if self.template not in (*TEMPLATES, *PROMPTS) and not expanded(self.template).is_file():
            known = [*TEMPLATES, "a file with {problem} in it"]
            raise unknown_name("template", self.template, known)
        if self.stop is not None:
            stop_text(self.stop)
        check_model_name(self.model)
        return self.model


@dataclass
class QuickstartOptions:
    """Options of `rfs quickstart`; it needs none."""

    longer: bool = False
    """The second run, which takes minutes: the model of the first run learns longer problems."""
    steps: int | None = None
    """Training steps (default: 90, with --longer 450); fewer only show that it runs."""
    seed: int = 0
    """Another seed draws other problems and rollouts."""
    log_path: str | None = None
    """Run folder (default: runs/quickstart-TIME)."""

    def check(self) -> str:
        """Refuses what cannot be trained; returns the name of the model to load."""
        if self.steps is not None and self.steps < 1:
            raise UserError(f"--steps is {self.steps}, but must be at least 1")
        return "tiny-grpo" if self.longer else "tiny-base"
