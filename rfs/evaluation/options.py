"""Options of `rfs evaluate`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from reasoning_from_scratch.config import Device, Drawing, Turns
from reasoning_from_scratch.facts import AtLeast
from rfs.config import PromptChoice
from rfs.files.models import check_model_name
from rfs.tasks.own_task import check_functions
from rfs.tasks.problem_sets import source_of


@dataclass
class EvaluateOptions(Device, Turns, Drawing, PromptChoice):
    """Options of `rfs evaluate`."""

    FIRST = "model problems limit reward samples temperature max_new_tokens out_path".split()

    model: tuple[str, ...] = ("tiny",)
    """Measure one or several models: tiny, tiny-grpo, base, reasoning, a folder (of LoRA, too), a
    file, a run (its best save) or RUN@SAVE. A run is evaluated the way it was trained; a line says
    how."""
    problems: tuple[str, ...] | None = None
    """Measure on one or several sets: tiny-test, math-500, gym:TASK@held-out, hf:OWNER/NAME@test,
    ..., or a file, FILE.jsonl (default: the sets that a run was evaluated on, else tiny-test or
    math-500)."""
    limit: Annotated[int | None, AtLeast(1)] = None
    """Use only this many problems, the first ones (default: all)."""
    samples: Annotated[int, AtLeast(1)] = 1
    """Draw this many answers per problem; with k of them, pass@1 to pass@k and the majority vote
    are measured."""
    max_new_tokens: int = 512
    """End an answer after this many tokens."""
    temperature: float = 0.0
    """Sample at this temperature; 0 always takes the most probable token."""
    fallback: Literal["none", "number_only", "number_then_full"] = "none"
    """Read this where nothing is boxed; the book's scores use number_then_full."""
    reward: str | None = None
    """Replace the grader by your own verifier, FILE.py:FUNCTION, or by gsm8k, which reads the
    number after ####; a reward of 1 means correct."""
    out_path: Path | None = None
    """Write a JSON line per answer to this file, with a card beside it; a killed run goes on where
    it was, and a larger --limit adds to the file. Several models or sets have a file each:
    A-NAME.jsonl."""
    figure: Path | None = None
    """Draw pass@k for k from 1 to --samples into this picture; its numbers go into a .csv beside
    it."""
    sample_rows: Annotated[int, AtLeast(1)] = 64
    """Sample this many answers in parallel; lower it when memory runs out."""

    def check(self) -> str:
        """Refuses what cannot be loaded, before torch is imported; the names of the models."""
        for name in self.model:
            check_model_name(name)
        for name in self.problems or ():
            source_of(name).check()
        check_functions(self.reward)
        self.check_prompt_choice()
        return ", ".join(self.model)
