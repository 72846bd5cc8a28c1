"""A policy for your own experiments, opened by a model's name: `Policy.load("tiny")`."""

from pathlib import Path

from reasoning_from_scratch.config import Optim, TrainConfig
from reasoning_from_scratch.fast.device import default_dtype, trusted_device
from reasoning_from_scratch.fast.engine import FAST
from reasoning_from_scratch.fast.packed import packed_logprobs
from reasoning_from_scratch.files.weights import load_model_and_tokenizer, save_hf_folder
from reasoning_from_scratch.optim.adamw import AdamW
from reasoning_from_scratch.optim.lora import add_lora, merged
from reasoning_from_scratch.policy import LocalPolicy


class Policy(LocalPolicy):
    """A policy in one process, with the fast engine: sample, forward_backward, optim_step."""

    @classmethod
    def load(
        cls, model: str, config: TrainConfig | None = None, device: str = "auto", lora_rank: int = 0
    ) -> "Policy":
        """`model` is what --model takes: tiny, smollm2, OWNER/NAME, a folder, a run. `config` sets
        the temperature of the trained log-probabilities, and the size of a micro-batch."""
        place = trusted_device(device)
        weights, tokenizer = load_model_and_tokenizer(model, place, dtype=default_dtype(place))
        if lora_rank:
            add_lora(weights, lora_rank, Optim().lora_alpha)
        return cls(weights, AdamW(weights), config, packed_logprobs, tokenizer, FAST)

    def save(self, folder: str | Path) -> Path:
        """The weights in a folder that `load`, every command and transformers open."""
        return save_hf_folder(merged(self.model), self.tokenizer, Path(folder))
