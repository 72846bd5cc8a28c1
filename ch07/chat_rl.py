"""nanochat's chat_rl on this package's trainer. It takes nanochat's flags and ours.

    uv run ch07/chat_rl.py                                  the tiny model, on a CPU
    uv run ch07/chat_rl.py --model base                     Qwen3-0.6B on GSM8K
    uv run ch07/chat_rl.py --model-tag RUN --model-step 60  go on from a step of a run
    torchrun --standalone --nproc_per_node=2 ch07/chat_rl.py -- --run=two

REINFORCE on the policy's own rollouts: the advantages are rewards minus the mean of their group,
every token of a step counts the same, and there is no ratio, clip or KL. Muon moves the matrices,
AdamW the rest; all learning rates fall linearly from a fraction of their value to zero. PRESETS
has the values that suit our models.
"""

import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.text import counted
from rfs.commands.cli import guarded, with_home
from rfs.commands.ending import say_end
from rfs.commands.other_words import flags_of, in_our_words
from rfs.commands.reading import read
from rfs.config import PLACES, RunConfig, replaced
from rfs.files.saved_models import read_index, which_weights
from rfs.run.folder import RunFolder, new_folder
from rfs.run.option_checks import flag
from rfs.run.options import configure, preset, resolved
from rfs.run.origin import with_whole_paths
from rfs.tasks.problem_sets import load_problems

PROMPT_TOKENS = 256  # of a long problem; with longer ones, a forward pass has fewer rows
RUNS = "runs"
MODEL_FOLDERS = ("checkpoints", RUNS)
STEP_FILE = re.compile(r"step(\d+)\.(?:pth|safetensors)$")

# nanochat's defaults: its models begin with embeddings of size 1 and answer in 256 tokens.
NANOCHAT: dict[str, Any] = {
    "problems": "gsm8k",
    "eval_problems": "gsm8k-test",
    "problem_limit": None,
    "dtype": "bfloat16",
    "problems_per_step": 16,
    "rollouts": 16,
    "max_new_tokens": 256,
    "embedding_lr": 0.2,
    "unembedding_lr": 0.004,
    "matrix_lr": 0.02,
    "eval_every": 60,
    "eval_limit": 400,
    "save_every": 60,
}
# What our models use where nanochat's defaults do not suit them.
PRESETS: dict[str, dict[str, Any]] = {
    # A minute or two on one CPU core: fewer problems and rollouts, float32. Its embeddings are
    # small numbers, so an update of 0.01 would wipe them out.
    "tiny": {
        "problems": "tiny",
        "eval_problems": "tiny-test",
        "problem_limit": 400,
        "dtype": "float32",
        "problems_per_step": 8,
        "rollouts": 8,
        "max_new_tokens": 128,
        "embedding_lr": 0.004,
        "unembedding_lr": 0.002,
        "matrix_lr": 0.04,
        "eval_every": 25,
        "eval_limit": 50,
    },
    # Qwen3's weights have size 0.02 and are well trained: learning rates as small as GRPO's.
    "qwen3": {
        "dtype": "auto",
        "max_new_tokens": 512,
        "embedding_lr": 2e-5,
        "unembedding_lr": 2e-5,
        "matrix_lr": 4e-4,
    },
}
# How problems are presented, and who judges the answers.
ANSWERS: dict[str, dict[str, str]] = {
    "boxed": {},
    "gsm8k": {"prompt": "question", "reward": "gsm8k"},
    "nanochat": {"prompt": "nanochat", "reward": "gsm8k"},
}


@dataclass
class ChatRLOptions:
    """nanochat's flags, by our names where we have one; nanochat's are accepted, too. The model's
    preset chooses whatever is None."""

    run: str = "dummy"
    """Name the run: its folder under runs/, and in Weights & Biases where that is installed."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Compute on this: cpu, cuda, mps, or auto."""
    dtype: Literal["auto", "float32", "bfloat16"] | None = None
    """Store the weights in this number format (nanochat: bfloat16; tiny: float32; Qwen3: by
    device)."""
    model: str = "tiny"
    """Start from this model if no --model-tag is given: tiny, base, reasoning, a folder, a run or
    RUN@SAVE."""
    model_tag: str | None = None
    """Start from this folder under checkpoints/ or runs/."""
    model_step: int | None = None
    """Load this step from that folder (default: the last)."""
    num_epochs: int = 1
    """Pass over the training problems this many times."""
    problem_limit: int | None = None
    """Use only the first N training problems (nanochat: all; tiny: 400)."""
    device_batch_size: int = 8
    """Put at most this many rows into a forward pass; it is also the largest k of pass@k."""
    problems_per_step: int | None = None
    """Sample this many problems per step, on all devices together (nanochat: 16; tiny: 8)."""
    rollouts: int | None = None
    """Sample this many rollouts per problem (nanochat: 16; tiny: 8)."""
    max_new_tokens: int | None = None
    """End an answer after this many tokens (nanochat: 256; tiny: 128; Qwen3: 512)."""
    temperature: float = 1.0
    """Sample at this temperature."""
    top_k: int = 50
    """Sample only from this many most likely tokens; 0 keeps all."""
    embedding_lr: float | None = None
    """Let AdamW train the embedding at this rate (nanochat: 0.2; tiny: 0.004; Qwen3: 2e-5)."""
    unembedding_lr: float | None = None
    """Let AdamW train head and norms at this rate (nanochat: 0.004; tiny: 0.002; Qwen3: 2e-5)."""
    matrix_lr: float | None = None
    """Let Muon train the matrices at this rate (nanochat: 0.02; tiny: 0.04; Qwen3: 4e-4)."""
    weight_decay: float = 0.0
    """Let AdamW's weights decay by this."""
    init_lr_frac: float = 0.05
    """Begin the ramp down to zero at this fraction of the learning rates."""
    eval_every: int | None = None
    """Measure pass@k after every N steps (nanochat: 60; tiny: 25)."""
    eval_limit: int | None = None
    """Measure on this many problems (nanochat: 400; tiny: 50)."""
    save_every: int | None = None
    """Save after every N steps (nanochat: 60)."""
    answers: Literal["boxed", "gsm8k", "nanochat"] = "boxed"
    """Ask and judge this way. boxed: the book's prompt and a box; gsm8k: the question alone, and
    the number after ####; nanochat: the same in nanochat's chat tokens, for a model whose tokenizer
    has them."""
    calculator: bool = False
    """After <<48/2= in an answer, insert the result; it is not trained on (nanochat: always)."""
    resume: bool = False
    """Continue the run named --run; give the flags that it was started with."""
    overwrite: bool = False
    """Delete the old run of that name, once the new one is known to start."""


USED = "go on with it (--resume), delete it (--overwrite), or choose another --run"


def chat_rl(options: ChatRLOptions) -> int:
    """Trains, and prints pass@k for every k at each evaluation."""
    if options.run == "dummy" and (options.resume or options.overwrite):
        given = "--resume" if options.resume else "--overwrite"
        raise UserError(f"{given} needs the name of the run: add --run NAME")
    if options.resume and options.overwrite:
        raise UserError("--resume continues a run that --overwrite deletes: drop one of them")
    if options.run != "dummy" and not options.resume and "WORLD_SIZE" not in os.environ:
        # Before anything is downloaded. (Ranks that torchrun has restarted find their own run.)
        RunFolder(f"{RUNS}/{options.run}").refuse_used(options.overwrite, USED)
    model = tagged_model(options.model_tag, options.model_step) or options.model
    values = filled_in(options, model)
    problems = load_problems(values["problems"], limit=values["problem_limit"])
    config = chat_rl_config(values, model, problems)
    if options.run != "dummy" and not config.wandb and os.environ.get("RANK", "0") == "0":
        print("wandb is not installed, so nothing is logged there (uv sync --extra wandb)")
    from rfs.run.start import train

    result = train(
        same_run(config) if options.resume else config,
        if_used=USED,
        on_evaluation=print_pass_at,
    )
    tag = result.folder.relative_to(RUNS).as_posix()
    return say_end(result, f"done: {result.folder}; go on from it with --model-tag {tag}")


def filled_in(options: ChatRLOptions, model: str) -> dict[str, Any]:
    """The flags, completed by the model's preset, and then by nanochat's defaults."""
    kind = "tiny" if preset(model)["problems"] == "tiny" else "qwen3"
    given = {name: value for name, value in vars(options).items() if value is not None}
    return NANOCHAT | PRESETS[kind] | given


def chat_rl_config(values: dict[str, Any], model: str, problems: Sequence[Problem]) -> RunConfig:
    """nanochat's flags, translated into our configuration."""
    least = {"problems_per_step": 1, "num_epochs": 1, "rollouts": 2, "device_batch_size": 1}
    if values["eval_every"]:
        least["eval_limit"] = 1
    for name, smallest in least.items():
        if values[name] < smallest:
            raise UserError(f"{flag(name)} is {values[name]}; choose {smallest} or more")
    if not values["init_lr_frac"] > 0:
        raise UserError(f"--init-lr-frac is {values['init_lr_frac']}; choose a number above 0")
    steps = len(problems) // values["problems_per_step"] * values["num_epochs"]
    if steps < 1:
        raise UserError(
            f"there are only {counted(len(problems), 'problem')}; lower "
            f"--problems-per-step {values['problems_per_step']}"
        )
    rows = values["device_batch_size"]
    named = values["run"] != "dummy"
    same = (
        "problems",
        "max_new_tokens",
        "temperature",
        "top_k",
        "dtype",
        "embedding_lr",
        "unembedding_lr",
        "matrix_lr",
        "weight_decay",
        "eval_every",
        "save_every",
        "calculator",
    )
    asked = (
        {}
        if not values["eval_every"]
        else {
            "eval_problems": values["eval_problems"],
            "eval_limit": values["eval_limit"],
            "eval_samples": rows,
        }
    )
    return configure(
        "reinforce",
        **{key: values[key] for key in same},
        **ANSWERS[values["answers"]],
        model=model,
        steps=steps,
        problem_limit=len(problems),
        problems_per_step=values["problems_per_step"],
        rollouts=values["rollouts"],
        sample_rows=rows,
        micro_batch_rows=rows,
        micro_batch_tokens=rows * (PROMPT_TOKENS + values["max_new_tokens"]),
        optimizer="muon",
        lr=values["init_lr_frac"],
        lr_schedule="linear",
        beta1=0.8,
        grad_clip=0.0,
        **asked,
        device=values["device"],
        log_path=f"{RUNS}/{values['run']}" if named else new_folder(f"chat_rl-{Path(model).name}"),
        overwrite=values["overwrite"],
        wandb="chat_rl" if named and importlib.util.find_spec("wandb") else None,
    )


# What may change when a run is resumed, and the flags whose names differ from their fields'.
FREE = (*PLACES, "steps", "device", "wandb")
FLAGS = {
    "sample_rows": "device_batch_size",
    "lr": "init_lr_frac",
}


def same_run(config: RunConfig) -> RunConfig:
    """The configuration that resumes the run in its folder, which must have had the same flags."""
    folder = RunFolder(config.log_path)
    config = with_whole_paths(resolved(replaced(config, resume=config.log_path)))
    for name, value in folder.changes(config).items():
        if name not in FREE:
            before = getattr(folder.read_config(), name)
            raise UserError(
                f"{folder.path} was begun with {flag(FLAGS.get(name, name))} {before}, and now it "
                f"is {value}: give the flags that it was begun with, or change it with rfs train "
                f"--resume {folder.path}"
            )
    return config


def print_pass_at(measured: dict) -> None:
    """One line per evaluation, as nanochat prints it."""
    found = {int(name.partition("/pass@")[2]): name for name in measured if "/pass@" in name}
    shown = ", ".join(f"Pass@{k}: {measured[found[k]]:.4f}" for k in sorted(found))
    print(f"Step {measured['eval_step']} | {shown}", flush=True)


# --- finding a model


def tagged_model(tag: str | None, step: int | None) -> str | None:
    """The folder or file of a tag and step; None without a tag."""
    if tag is None:
        if step is not None:
            raise UserError("--model-step needs --model-tag, the folder that has the step")
        return None
    places = [Path(folder) / tag for folder in MODEL_FOLDERS]
    found = [place for place in places if place.is_dir()]
    if not found:
        raise UserError(f"--model-tag {tag}: there is no {' and no '.join(map(str, places))}")
    if len(found) > 1:
        both = " and ".join(map(str, found))
        raise UserError(f"--model-tag {tag} may be {both}: name one of them with --model")
    folder = found[0]
    if (folder / "checkpoints.jsonl").exists():
        return saved_step(folder, step)
    files = {
        int(found[1]): path
        for path in sorted(folder.iterdir())
        if (found := STEP_FILE.search(path.name))
    }
    if files:
        return str(files[chosen_step(folder, files, step)])
    if step is not None:
        raise UserError(f"{folder} holds one model and no steps; drop --model-step")
    return str(folder)


def saved_step(run: Path, step: int | None) -> str:
    """The weights that a run of ours saved after `step` steps."""
    batches = {save.batch: save for save in read_index(run)}
    return which_weights(f"{run}@{chosen_step(run, batches, step)}")


def chosen_step(folder: Path, steps: dict[int, Any], step: int | None) -> int:
    if not steps:
        raise UserError(f"{folder} has saved nothing yet")
    if step is None:
        return max(steps)
    if step not in steps:
        known = ", ".join(map(str, sorted(steps)))
        raise UserError(f"{folder} has no step {step}; it has {known}")
    return step


def chat_rl_command(argv: Sequence[str] | None = None) -> int:
    args = with_home(sys.argv[1:] if argv is None else argv)

    def call() -> int:
        words = in_our_words(args, flags_of(ChatRLOptions))
        return chat_rl(read(ChatRLOptions, words, prog="chat_rl", about=__doc__))

    return guarded("chat_rl", call)


if __name__ == "__main__":
    sys.exit(chat_rl_command())
