"""A policy for your own experiments, opened by a model's name: `Policy.load("tiny")`."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from torch import Tensor

from reasoning_from_scratch.config import Dtype, Loss, Sampling, TrainConfig
from reasoning_from_scratch.errors import UserError, unknown_name
from reasoning_from_scratch.fast.device import dtype_by_name, trusted_device
from reasoning_from_scratch.fast.engine import FAST
from reasoning_from_scratch.fast.memory import checkpoint_blocks, fitting_micro_batch
from reasoning_from_scratch.fast.packed import packed_logprobs
from reasoning_from_scratch.files.weights import load_model_and_tokenizer, save_hf_folder
from reasoning_from_scratch.optim.lora import add_lora, merge_lora
from reasoning_from_scratch.optim.muon import OPTIMIZERS
from reasoning_from_scratch.policy import LocalPolicy, LossSums
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.rollouts import Group, Judge, Rollout
from reasoning_from_scratch.text import expand_home

Engine = Literal["fast", "plain"]


class Policy(LocalPolicy):
    """A policy in one process: sample, forward_backward, optim_step. By default it uses the
    engines in fast/; `engine="plain"` uses the code that the chapters show."""

    sampling_engine = FAST

    @classmethod
    def load(
        cls,
        model: str,
        config: TrainConfig | None = None,
        device: str = "auto",
        lora_rank: int = 0,
        dtype: str = "auto",
        engine: Engine = "fast",
    ) -> "Policy":
        """`model` is a name such as tiny or smollm2, OWNER/NAME, a folder or a file. `config` says
        how it is computed and trained: the temperature of the trained log-probabilities, the
        optimizer, LoRA, the size of a micro-batch; and the device and number format, unless
        `device` and `dtype` name them."""
        if engine not in get_args(Engine):
            raise unknown_name("engine", engine, get_args(Engine))
        config = config or TrainConfig()
        if config.compile:
            raise UserError("only `rfs train` compiles: drop compile=True")
        chosen_device = trusted_device(config.device if device == "auto" else device)
        dtype_name = config.dtype if dtype == "auto" else dtype
        if dtype_name not in get_args(Dtype):
            raise unknown_name("number format", dtype_name, get_args(Dtype))
        loaded_model, tokenizer = load_model_and_tokenizer(
            model, chosen_device, dtype=partial(dtype_by_name, dtype_name, chosen_device)
        )
        if rank := lora_rank or config.lora_rank:
            add_lora(loaded_model, rank, config.lora_alpha, config.seed)
        if config.micro_batch_tokens is None:
            tokens = fitting_micro_batch(loaded_model, config, chosen_device)
            config = replace(config, micro_batch_tokens=tokens)
        if config.gradient_checkpointing:
            checkpoint_blocks(loaded_model)
        optimizer = OPTIMIZERS[config.optimizer].from_config(loaded_model, config, config.seed)
        if engine == "plain":
            return cls(loaded_model, optimizer, config, tokenizer=tokenizer)
        return cls(loaded_model, optimizer, config, packed_logprobs, tokenizer, cls.sampling_engine)

    def sample(
        self,
        problems: Sequence[Problem],
        config: Sampling,
        step: int = 0,
        places: Sequence[int] | None = None,
        judge: Judge | None = None,
    ) -> list[Group]:
        if config.keep_sampling_mask is None:  # as in a run: recorded if training needs it
            config = replace(config, keep_sampling_mask=config.cuts_tokens)
        return super().sample(problems, config, step, places, judge)

    def forward_backward(
        self,
        rollouts: Sequence[Rollout],
        config: Loss,
        denominator: float,
        logprobs_into: list[Tensor] | None = None,
    ) -> list[LossSums]:
        temperature = self.config.train_temperature
        if isinstance(config, TrainConfig) and config.train_temperature != temperature:
            raise UserError(
                f"this policy computes log-probabilities at temperature {temperature:g}, and the "
                f"answers were sampled at {config.train_temperature:g}: Policy.load(MODEL, config)"
            )
        return super().forward_backward(rollouts, config, denominator, logprobs_into)

    def sampling_policy(self, model: Qwen3Model) -> "Policy":
        """Of the same class, which also records what top-p and top-k kept."""
        return type(self)(model, None, self.config, self.training_pass, self.tokenizer, self.engine)

    def save(self, folder: str | Path) -> Path:
        """The weights in a folder that `load`, every command and transformers open."""
        return save_hf_folder(merge_lora(self.model), self.tokenizer, expand_home(folder))
