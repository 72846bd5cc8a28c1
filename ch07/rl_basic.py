"""The library way: Tinker's rl_basic on this machine.

    python ch07/rl_basic.py                       # the tiny model, on a CPU
    python ch07/rl_basic.py --model base --problems gsm8k --groups_per_batch 32 --group_size 16
    python ch07/rl_basic.py model_name=base loss_fn=ppo num_substeps=2 learning_rate=2e-6

Ratio times advantage, summed; reward 1 for a right answer, minus 0.1 for one without its form;
advantages are rewards minus the mean of their group. Words as on Tinker's command line, key=value,
may stand beside flags. Every other choice is a flag of `rfs train`, which knows Tinker's names too.
"""

import os
import re
import sys
from dataclasses import dataclass
from typing import Literal

from reasoning_from_scratch.commands.cli import run_script
from reasoning_from_scratch.commands.train import ALIASES
from reasoning_from_scratch.config import TrainConfig, replaced
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.run.folder import RunFolder
from reasoning_from_scratch.run.options import configure, resolved
from reasoning_from_scratch.run.origin import with_whole_paths
from reasoning_from_scratch.run.start import train

# The metrics that Tinker's documentation explains, in its order.
DOCUMENTED = (
    "progress/batch", "progress/done_frac", "reward/total", "env/all/correct", "env/all/format",
    "env/all/by_group/frac_mixed", "env/all/by_group/frac_all_good",
    "env/all/by_group/frac_all_bad", "ac_tokens_per_turn", "entropy", "kl_sample_train_v1",
    "kl_sample_train_v2", "kl_policy_base", "kl_pre_post_v1", "kl_pre_post_v2", "optim/lr",
    "time/total",
)  # fmt: skip

# Tinker's names of what a TrainConfig calls otherwise.
FIELDS = {flag.removeprefix("--").replace("-", "_"): name for name, flag in ALIASES.items()}
WEIGHTS = ("model", "load_checkpoint_path", "kl_reference")  # a run that goes on keeps its own


@dataclass
class Options:
    """What is None suits the model: see the presets in reasoning_from_scratch/run/options.py."""

    model: str = "tiny"
    """tiny, base (Qwen3-0.6B), reasoning, a folder, a file, a run (its best save) or RUN@SAVE;
    model_name is another name of this flag."""
    problems: str | None = None
    """tiny, gsm8k, math-train, a file, or FILE.py:FUNCTION."""
    eval_problems: list[str] | None = None
    """Problem sets to evaluate on, the main one first (default: what goes with the problems)."""
    evaluators: list[str] | None = None
    """Your own, FILE.py:FUNCTION(model, tokenizer) -> {name: number}, at each evaluation."""
    eval_limit: int = 100
    """Problems per evaluation, of each set."""
    steps: int = 60
    groups_per_batch: int = 8
    """Problems per step; batch_size is another name of this flag."""
    group_size: int = 8
    """Rollouts per problem."""
    few_shot: int = 0
    """Show so many solved problems before each question."""
    learning_rate: float | None = None
    lr_at_problems: int | None = None
    """Problems per step that the learning rate is meant for: it grows with the square root of the
    batch, so with 8 here and --groups_per_batch 32 it is twice what --learning_rate says."""
    max_tokens: int | None = None
    """Longest answer."""
    temperature: float = 1.0
    """Sampling temperature; 1 samples the policy itself."""
    loss_fn: Literal["importance_sampling", "ppo", "cispo", "dro"] = "importance_sampling"
    clip_low_threshold: float | None = None
    """Lower bound of the ratio in ppo (0.8) and cispo (0); needs --num_substeps above 1."""
    clip_high_threshold: float | None = None
    """Upper bound of the ratio in ppo (1.2) and cispo (4); needs --num_substeps above 1."""
    beta: float | None = None
    """Strength of the squared log-ratio in dro (0.05)."""
    num_substeps: int = 1
    """Optimizer steps per batch. For more than one, start with 2 to 4, and with --loss_fn ppo."""
    num_minibatches: int = 1
    """Train on so many parts of a substep as they come, while the rest is still sampled."""
    max_steps_off_policy: int = 0
    """Updates that a sampler beside the trainer may lag; 0 = take turns."""
    remove_constant_reward_groups: bool = True
    kl_penalty_coef: float = 0.0
    """Price of leaving the reference model, taken from each token's advantage: this times
    log p - log p_ref. (`rfs train --kl reward` takes the sum of it from the answer's reward.)"""
    kl_discount_factor: float = 0.0
    """How much of what later tokens pay falls on those before them; 0 = nothing, 1 = all."""
    kl_reference: str | None = None
    """Model that the penalty compares with (default: the one that is trained, as it starts)."""
    compute_post_kl: bool = False
    lora_rank: int = 0
    """0 trains all weights."""
    eval_every: int = 20
    save_every: int = 20
    num_groups_to_log: int = 4
    """Groups written in full to each step's page."""
    load_checkpoint_path: str | None = None
    """Weights to begin with."""
    seed: int = 0
    log_path: str = "runs/rl_basic"
    behavior_if_log_dir_exists: Literal["ask", "resume", "delete", "raise"] = "ask"
    """What to do with a run that is there: go on with it, with the flags of now; delete it; or
    end. Where nobody can be asked, ask ends too."""
    wandb_project: str | None = None
    """Also log to this Weights & Biases project."""


def main(options: Options) -> None:
    try:
        result = train(settled(configured(options), options))
    except UserError as error:
        raise UserError(in_these_words(str(error))) from error
    if not result.writes:  # under torchrun rank 0 speaks
        return
    print(f"\n{'':<32}{'first step':>12}{'last step':>12}")
    first, last = result.rows[0], result.rows[-1]
    tests = [name for name in last if re.match("(?!env/|before/).*/env/all/correct$", name)]
    for name in (*DOCUMENTED, *tests):
        if last.get(name) is not None:
            began = first.get(f"before/{name}", first.get(name))
            print(f"{name:<32}{number(began)}{number(last[name])}")
    print(result.stopped or f"done: {result.folder}")


def configured(options: Options) -> TrainConfig:
    """The recipe importance_sampling, with all that is given here."""
    given = {name: value for name, value in vars(options).items() if value is not None}
    del given["behavior_if_log_dir_exists"]
    changes = {FIELDS.get(name, name): value for name, value in given.items()}
    if options.kl_penalty_coef:
        changes["kl"] = "token"
    return configure("importance_sampling", iteration_folders=True, **changes)


def settled(config: TrainConfig, options: Options) -> TrainConfig:
    """What becomes of a run that is in the folder already. What is refused, `train` says."""
    folder, behavior = RunFolder(config.log_path), options.behavior_if_log_dir_exists
    if not folder.used():
        return config
    if behavior == "ask":
        behavior = asked(config.log_path)
    if behavior == "resume":
        resolved(config)  # what would do nothing is refused here; a resumed run is not asked
        saved, named, usual = folder.read_config(), with_whole_paths(config), Options()
        unsaid = [name for name in WEIGHTS if getattr(options, name) == getattr(usual, name)]
        kept = {name: getattr(saved, name) for name in unsaid}
        return replaced(named, resume=config.log_path, **kept)
    return replaced(config, overwrite=behavior == "delete")


def asked(path: str) -> str:
    """By whoever sits at the terminal, if anybody does."""
    answer = "" if sys.stdin.isatty() and "WORLD_SIZE" not in os.environ else "raise"
    while answer not in ("resume", "delete", "raise"):
        print(f"{path} already holds a run: resume, delete or raise? ", end="", flush=True)
        answer = sys.stdin.readline().strip() or "raise"
    return answer


def in_these_words(text: str) -> str:
    """A sentence about flags of `rfs train`, about those of this script."""
    behavior = "--behavior_if_log_dir_exists"
    text = re.sub(r"rfs train --resume \S+?(?=[ ,;]|$)", f"{behavior} resume", text)
    text = text.replace("--overwrite", f"{behavior} delete")
    text = re.sub("--kl (token|with --kl-coef)", "--kl_penalty_coef", text)
    ours = {FIELDS.get(name, name).replace("_", "-"): name for name in vars(Options())}
    return re.sub(r"--([a-z-]+)", lambda flag: "--" + ours.get(flag[1], flag[1]), text)


def number(value: float | None) -> str:
    return f"{'-' if value is None else f'{value:.4g}':>12}"


if __name__ == "__main__":
    sys.exit(run_script(main, words=True))
