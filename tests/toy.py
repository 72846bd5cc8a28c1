"""A world for tests of the trainer: 40 tokens, a model of two small layers, digits as answers."""

import os

import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from tokenizers.decoders import Fuse

from reasoning_from_scratch.config import Rewards, TrainConfig
from reasoning_from_scratch.files.weights import save_hf_folder
from reasoning_from_scratch.logprobs import padded_logprobs
from reasoning_from_scratch.optim.adamw import AdamW
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.recipes import get_recipe
from reasoning_from_scratch.rollouts import Group, Rollout, reward_groups
from reasoning_from_scratch.tokenizer import Qwen3Tokenizer

BOXES = [f"\\boxed{{{digit}}}" for digit in range(4)]
TOY_CONFIG = {
    "vocab_size": 40,
    "context_length": 512,
    "emb_dim": 32,
    "n_heads": 4,
    "n_layers": 2,
    "hidden_dim": 64,
    "head_dim": 8,
    "qk_norm": True,
    "n_kv_groups": 2,
    "rope_base": 10_000.0,
    "dtype": torch.float32,
    "tie_embeddings": False,
}


def toy_tokenizer(folder) -> Qwen3Tokenizer:
    """Letters and the four possible answers, each one token."""
    words = ["?", *"abcdefghijklmnopqrstuvwxyz "]
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="?"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    inner.decoder = Fuse()
    inner.add_tokens([AddedToken(box, normalized=False) for box in BOXES])
    inner.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    path, own = folder / "tokenizer-base.json", folder / f"tokenizer-{os.getpid()}.json"
    inner.save(str(own))
    own.replace(path)  # several ranks write it, and none may read half of it
    return Qwen3Tokenizer(path)


def toy_model(seed: int = 0, **changes) -> Qwen3Model:
    torch.manual_seed(seed)
    return Qwen3Model(TOY_CONFIG | changes)


def toy_problems(count: int = 16) -> list[Problem]:
    return [Problem(f"toy/{i}", "abcd"[i % 4] * 3, str(i % 4)) for i in range(count)]


def toy_config(folder, **changes) -> TrainConfig:
    values = dict(
        model="tiny-toy",
        steps=4,
        problems_per_step=4,
        rollouts=8,
        max_new_tokens=4,
        lr=1e-3,
        device="cpu",
        preflight=False,
        num_groups_to_log=1,
        log_path=str(folder),
    )
    return TrainConfig(**(values | changes))


def toy_policy(model, config=None, training_pass=padded_logprobs) -> LocalPolicy:
    return LocalPolicy(model, AdamW(model), config, training_pass)


def toy_world(folder, **changes) -> dict:
    """What `train` may be given instead of loading it."""
    return {
        "model": toy_model(**changes),
        "tokenizer": toy_tokenizer(folder),
        "problems": toy_problems(),
        "eval_problems": toy_problems(8),
    }


def score_parts(text: str, answer: str, finished: bool, **parts: float) -> dict[str, float]:
    """What an answer is paid for each part, as a run judges it."""
    rollout = Rollout(Problem("p", "", answer), text=text, finished=finished)
    weights = parts or {"correct": 1.0}
    reward_groups([Group(rollout.problem, [rollout])], Rewards(reward_parts=weights), None)
    return rollout.rewards


def toy_teacher(recipe: str, folder) -> dict[str, str]:
    """For a recipe that has a teacher, one that reads the same tokens as the toy model."""
    if "kl_reference" not in get_recipe(recipe).changes:
        return {}
    return {"kl_reference": str(save_hf_folder(toy_model(1), toy_tokenizer(folder), folder / "t"))}
