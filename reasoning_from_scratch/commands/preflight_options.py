"""Options of `rfs preflight`."""

from dataclasses import dataclass
from typing import Literal

from reasoning_from_scratch.files.model_names import check_model_name
from reasoning_from_scratch.tasks.problem_sets import check_set


@dataclass
class PreflightOptions:
    """Options of `rfs preflight`; give those that training will have."""

    model: str = "tiny"
    """Model to start from: tiny, base, reasoning, a folder, a file, a run or RUN@SAVE."""
    problems: str | None = None
    """Problem set to train on, a .json or .jsonl file, or FILE.py:FUNCTION (default: what
    `rfs train` takes)."""
    prompt: str | None = None
    """How a problem is put to the model (default: what `rfs train` takes)."""
    reward: str | None = None
    """Verifier of your own, FILE.py:FUNCTION (default: our grader compares the box)."""
    num_problems: int = 16
    """How many problems to try, spread over the set; of each task, of a few of reasoning-gym."""
    rollouts: int = 8
    """Rollouts per problem."""
    problems_per_step: int = 8
    """Problems per training step, for the estimate of its time."""
    max_new_tokens: int | None = None
    """Longest answer in tokens (default: what `rfs train` takes)."""
    temperature: float = 1.0
    """Sampling temperature."""
    top_p: float = 1.0
    """Sample from the smallest set of tokens with this much mass; 1 keeps all."""
    top_k: int = 0
    """Sample from this many most likely tokens; 0 keeps all."""
    max_rows: int = 64
    """Rollouts sampled side by side."""
    device: str = "auto"
    """cpu, cuda, mps, or auto."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Number format of the weights; auto: float32 on CPU and MPS, bfloat16 on CUDA."""
    seed: int = 0
    """Seed of the rollouts."""

    def check(self) -> str:
        """Refuses what cannot be loaded, before torch is imported; the name of the model."""
        check_model_name(self.model)
        if self.problems is not None:
            check_set(self.problems)
        return self.model
