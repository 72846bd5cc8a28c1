"""Options of the commands that load a model. They do not need torch, so `rfs` reads and checks them
before it spends seconds on importing it."""

from dataclasses import dataclass
from typing import Annotated

from reasoning_from_scratch.config import Device, Drawing
from reasoning_from_scratch.errors import unknown_name
from reasoning_from_scratch.facts import AtLeast
from reasoning_from_scratch.problems import PROMPTS
from reasoning_from_scratch.stops import stop_text
from reasoning_from_scratch.text import expand_home
from rfs.files.models import check_model_name
from rfs.run.option_checks import UNMET_NEEDS_GREEDY, check_needs

TEMPLATES = ("auto", "math", "chat", "plain")


@dataclass
class ChatOptions(Device, Drawing):
    """Options of `rfs chat`."""

    model: str = "tiny"
    """Talk to this model: tiny, tiny-grpo, base, reasoning, a folder (of LoRA, too), a file, a run
    (its best save) or RUN@SAVE."""
    template: str = "auto"
    """Surround your words with this: math (the book's prompt), chat (the model's own template),
    plain (nothing), or a text FILE with {problem} in their place; auto is chat, or else math."""
    stop: str | None = None
    """End an answer at this text, too, such as "\\n\\n" or "Question:" for a base model."""
    max_new_tokens: int = 2048
    """End an answer after this many tokens; the model's context limits it, too."""
    temperature: float = 0.0
    """Sample at this temperature; 0 always takes the most probable token, higher values vary
    more."""

    def check(self) -> str:
        """Refuses a model that cannot be loaded; returns the name of one that can."""
        if self.template not in (*TEMPLATES, *PROMPTS) and not expand_home(self.template).is_file():
            known = [*TEMPLATES, "a file with {problem} in it"]
            raise unknown_name("template", self.template, known)
        if self.stop is not None:
            stop_text(self.stop)
        check_needs(self, vars(self), UNMET_NEEDS_GREEDY)
        check_model_name(self.model)
        return self.model


@dataclass
class QuickstartOptions:
    """Options of `rfs quickstart`; it needs none."""

    longer: bool = False
    """Make the second run, which takes minutes: the model of the first run learns longer
    problems."""
    steps: Annotated[int | None, AtLeast(1)] = None
    """Train for this many steps (default: 90, with --longer 450); fewer only show that it runs."""
    seed: int = 0
    """Draw other problems and rollouts with another seed."""
    log_path: str | None = None
    """Write the run into this folder (default: runs/quickstart-TIME)."""

    def check(self) -> str:
        """Refuses what cannot be trained; returns the name of the model to load."""
        return "tiny-grpo" if self.longer else "tiny-base"


class NeedsTorch:
    """Loads no model, or one that it names itself; importing torch is what takes time."""

    def check(self) -> str:
        return "torch"


@dataclass
class PlaygroundOptions:
    """Options of `rfs playground`."""

    models: tuple[str, ...] = ("tiny-base", "tiny-grpo", "tiny-grpo-longer")
    """Put these models on the page: names, folders or runs. The first one can be trained there."""
    players: tuple[str, ...] = ("tiny-player", "tiny-player-grpo")
    """Add these models that guess numbers; the first one can be trained. With no name there is no
    game."""
    run: str | None = None
    """Add a slider over the training of this run, which needs saved steps."""
    out: str = "playground.html"
    """Write the page here."""

    def check(self) -> str:
        """Refuses models that cannot be loaded; returns the names of those that can."""
        for name in (*self.models, *self.players):
            check_model_name(name)
        return ", ".join(self.models)


@dataclass
class BookOptions(NeedsTorch):
    """Options of `rfs book`."""

    out: str = "book"
    """Write the site into this folder; its first page is index.html."""


@dataclass
class DoctorOptions(NeedsTorch):
    """Options of `rfs doctor`."""

    network: bool = True
    """Also check whether the Hugging Face Hub responds (at most 3 s)."""
