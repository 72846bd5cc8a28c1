"""The library way: Tinker's rl_basic on this machine.

    uv run ch07/rl_basic.py                       # the tiny model, on a CPU
    uv run ch07/rl_basic.py --model base --problems gsm8k --problems-per-step 32 --rollouts 16
    uv run ch07/rl_basic.py model_name=base loss_fn=ppo num_substeps=2 learning_rate=2e-6

The objective is ratio times advantage, summed. The reward is 1 for a correct answer, minus 0.1
without the format; advantages are rewards minus the mean of their group. This is `rfs train` with
the recipe importance_sampling and other defaults. It takes every flag of `rfs train`, under
Tinker's name or ours, as --flag or as key=value.
"""

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from reasoning_from_scratch.errors import UserError
from rfs.commands.cli import guarded, with_home
from rfs.commands.ending import say_end
from rfs.commands.other_words import as_flags, flags_of
from rfs.commands.train_options import TrainOptions
from rfs.config import RunConfig, part_of, replaced
from rfs.run.folder import RunFolder
from rfs.run.options import resolved
from rfs.run.origin import with_whole_paths
from rfs.run.start import train

# The metrics that Tinker's documentation explains, in its order.
DOCUMENTED = (
    "progress/batch", "progress/done_frac", "reward/total", "env/all/correct", "env/all/format",
    "env/all/by_group/frac_mixed", "env/all/by_group/frac_all_good",
    "env/all/by_group/frac_all_bad", "ac_tokens_per_turn", "entropy", "kl_sample_train_v1",
    "kl_sample_train_v2", "kl_policy_base", "kl_pre_post_v1", "kl_pre_post_v2", "optim/lr",
    "time/total",
)  # fmt: skip

WEIGHTS = ("model", "load_checkpoint_path", "kl_reference")  # a resumed run keeps its own
USED = (
    "continue it with --behavior_if_log_dir_exists resume, delete it with "
    "--behavior_if_log_dir_exists delete, or choose another --log_path"
)


@dataclass
class Flags(TrainOptions):
    """Those of `rfs train`, some with other defaults."""

    recipe: str = "importance_sampling"
    model: str = "tiny"
    steps: int = 60
    eval_every: int | None = 20
    save_every: int = 20
    log_path: str | None = "runs/rl_basic"
    iteration_folders: bool = True
    behavior_if_log_dir_exists: Literal["ask", "resume", "delete", "raise"] = "ask"
    """What to do with an existing run: resume it with the current flags, delete it, or stop with
    an error. Without a terminal, ask stops, too."""


def rl_basic(words: list[str]) -> int:
    config, behavior = configured(words)
    result = train(settled(config, behavior), if_used=USED)
    if result.writes and result.rows:  # under torchrun only rank 0 prints
        print_first_and_last(result.rows)
    return say_end(result, f"done: {result.folder}")


def print_first_and_last(rows: Sequence[dict]) -> None:
    print(f"\n{'':<32}{'first step':>12}{'last step':>12}")
    first, last = rows[0], rows[-1]
    tests = [name for name in last if re.match("(?!env/|before/).*/env/all/correct$", name)]
    for name in (*DOCUMENTED, *tests):
        if last.get(name) is not None:
            began = first.get(f"before/{name}", first.get(name))
            print(f"{name:<32}{number(began)}{number(last[name])}")


def configured(words: list[str]) -> tuple[RunConfig, str]:
    """The recipe importance_sampling, with everything that `words` set. Tinker's KL penalty is
    subtracted from each token's advantage: the coefficient times log p - log p_ref."""
    about = __doc__.partition("\n")[0]
    flags = Flags.read(as_flags(words, flags_of(Flags)), "rl_basic.py", about)
    config = part_of(flags, RunConfig)
    if config.kl_coef and "kl_coef" in config.given and config.kl == "none":
        if "kl" in config.given:
            raise UserError("--kl none and a kl_penalty_coef exclude each other: omit one of them")
        config = replaced(config, kl="token")
    return config, flags.behavior_if_log_dir_exists


def settled(config: RunConfig, behavior: str) -> RunConfig:
    """Decides what happens to a run that is already in the folder; `train` reports refusals."""
    folder = RunFolder(config.log_path)
    if not folder.used():
        return config
    if behavior == "ask":
        behavior = choice_for(config.log_path)
    if behavior == "resume":
        resolved(config)  # checks that no flag is void, which resuming does not
        saved, named = folder.read_config(), with_whole_paths(config)
        kept = {name: getattr(saved, name) for name in WEIGHTS if name not in config.given}
        return replaced(named, resume=config.log_path, **kept)
    return replaced(config, overwrite=behavior == "delete")


def choice_for(path: str) -> str:
    """The choice of whoever sits at the terminal; "raise" if nobody does."""
    answer = "" if sys.stdin.isatty() and "WORLD_SIZE" not in os.environ else "raise"
    while answer not in ("resume", "delete", "raise"):
        print(f"{path} already holds a run: resume, delete or raise? ", end="", flush=True)
        answer = sys.stdin.readline().strip() or "raise"
    return answer


def number(value: float | None) -> str:
    return f"{'-' if value is None else f'{value:.4g}':>12}"


if __name__ == "__main__":
    sys.exit(guarded("rl_basic.py", lambda: rl_basic(with_home(sys.argv[1:]))))
