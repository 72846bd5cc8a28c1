"""A world for tests of the trainer: 40 tokens, a model of two small layers, digits as answers."""

import json
import os
import zlib
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from tokenizers.decoders import Fuse

from reasoning_from_scratch.config import Rewards
from reasoning_from_scratch.files.weights import save_hf_folder
from reasoning_from_scratch.logprobs import padded_logprobs
from reasoning_from_scratch.optim.adamw import AdamW
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.recipes import get_recipe
from reasoning_from_scratch.rollouts import Group, Rollout, reward_groups
from reasoning_from_scratch.tokenizer import Qwen3Tokenizer
from rfs.config import RunConfig, replaced
from rfs.run import start
from rfs.run.options import resumed_config

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
    return [
        Problem(f"toy/{i}", "abcd"[i % 4] * 3, str(i % 4), solution=BOXES[i % 4])
        for i in range(count)
    ]


def toy_config(folder, **changes) -> RunConfig:
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
    return RunConfig(**(values | changes))


def toy_policy(model, config=None, training_pass=padded_logprobs, **given) -> LocalPolicy:
    return LocalPolicy(model, AdamW(model), config, training_pass, **given)


def train(config, model=None, tokenizer=None, problems=None, eval_problems=None, **how):
    """The package's `train`, on a model and problems that a test has made: they are saved beside
    the run, and the configuration names them. A run that is resumed knows its own."""
    if config.resume:
        return start.train(config, **how)
    return start.train(named(config, model, tokenizer, problems, eval_problems), **how)


def toy_run(folder, **changes):
    """A run in that folder, of the toy world; `problems`, a list, replaces its own."""
    world = toy_world(folder.parent)
    if "problems" in changes:
        world["problems"] = changes.pop("problems")
    return train(toy_config(folder, **changes), quiet=True, **world)


def resumed_run(folder, **changes):
    """The run goes on, with these changes."""
    return start.train(resumed_config(folder, **changes), quiet=True)


def named(config, model=None, tokenizer=None, problems=None, eval_problems=None):
    """The configuration, with the names of what is saved here."""
    changes = {}
    place = (
        next(path for path in Path(config.log_path).absolute().parents if path.is_dir()) / "toys"
    )
    if model is not None:
        changes["model"] = saved(model, tokenizer, place)
        if config.dtype == "auto":
            changes["dtype"] = str(model.tok_emb.weight.dtype).removeprefix("torch.")
    if problems is not None:
        changes["problems"] = written(problems, place, "problems.jsonl")
    if eval_problems is not None and config.eval_every != 0 and evaluates(config):
        first, *others = config.eval_problems or ["tiny-test"]
        changes["eval_problems"] = [written(eval_problems, place, Path(first).name), *others]
    return replaced(config, **changes)


def evaluates(config) -> bool:
    asked = ("eval_every", "eval_problems", "eval_limit", "eval_samples", "evaluators")
    return any(name in config.given for name in asked)


def saved(model, tokenizer, place) -> str:
    """A folder with the model; the same one for the same weights, whoever saves it."""
    crc = zlib.crc32(repr(model.cfg).encode())
    for weight in model.state_dict().values():
        crc = zlib.crc32(weight.contiguous().view(torch.uint8).numpy(), crc)
    return str(kept(place / f"tiny-toy-{crc:08x}", partial(save_hf_folder, model, tokenizer)))


def written(problems, place, name) -> str:
    """A file with the problems."""
    names = ("problem", "level", "type", "solution")
    rows = [
        {"unique_id": one.id, "answer": one.answer}
        | {key: value for key in names if (value := getattr(one, key))}
        for one in problems
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    folder = place / f"{zlib.crc32(text.encode()):08x}-{name}"

    def write(path):
        path.mkdir(parents=True)
        (path / name).write_text(text)

    return str(kept(folder, write) / name)


def kept(folder, write):
    """What `write` puts there, unless it is there already: several ranks may come at once."""
    if not folder.exists():
        own = folder.with_name(f"{folder.name}-{os.getpid()}")
        write(own)
        with suppress(OSError):  # another rank was first
            own.rename(folder)
    return folder


def toy_world(folder, **changes) -> dict:
    """A model, its tokenizer and problems, for `train` above."""
    return {
        "model": toy_model(**changes),
        "tokenizer": toy_tokenizer(folder),
        "problems": toy_problems(),
        "eval_problems": toy_problems(8),
    }


def timeless(rows: list[dict]) -> list[dict]:
    """What a run measured, but for times."""
    return [{k: v for k, v in row.items() if not k.startswith(("time/", "perf/"))} for row in rows]


def letters(text: str, problem: Problem) -> float:
    """A reward that random models have in most groups, and in some not."""
    return float(len(set(text)) % 2) * (problem.problem[0] != "b")


LETTERS = f"{__file__}:letters"  # for --reward


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
