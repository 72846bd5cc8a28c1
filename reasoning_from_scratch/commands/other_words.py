"""What other programs, and earlier versions of this one, call an option: for a hint to its name."""

from collections.abc import Collection, Sequence

from reasoning_from_scratch.errors import UserError

# By their words with underscores; of several names here the first that the command has.
NAMES_HERE: dict[str, tuple[str, ...]] = {
    # earlier versions of this project
    "data_path": ("problems",),
    "lr": ("lrs",),
    "tuning_seeds": ("choosing",),
    # the book's scripts
    "which_model": ("model",),
    "num_rollouts": ("rollouts",),
    "dataset_size": ("problem_limit", "limit"),
    "checkpoint_every": ("save_every",),
    "checkpoint_dir": ("log_path",),
    "checkpoint_path": ("model",),
    "kl_coeff": ("kl_coef",),
    "clip_eps": ("clip_high",),
    # Tinker's cookbook, beside the words that `rfs train` takes
    "model_name": ("model",),
    "batch_size": ("problems_per_step", "max_rows"),
    "groups_per_batch": ("problems_per_step",),
    "group_size": ("rollouts", "samples"),
    "max_tokens": ("max_new_tokens",),
    "max_steps": ("steps",),
    "num_steps": ("steps",),
    # nanochat
    "source": ("model",),
    "model_tag": ("model",),
    "device_type": ("device",),
    "device_batch_size": ("micro_batch_rows", "max_rows"),
    "num_samples": ("samples", "rollouts"),
    "examples_per_step": ("problems_per_step",),
    "eval_examples": ("eval_limit",),
    "max_problems": ("problem_limit", "limit"),
    # TRL and verl
    "model_name_or_path": ("model",),
    "dataset": ("problems",),
    "dataset_name": ("problems",),
    "output_dir": ("log_path", "out", "out_path"),
    "learning_rate": ("lr", "lrs"),
    "num_generations": ("rollouts", "samples"),
    "max_completion_length": ("max_new_tokens",),
    "per_device_train_batch_size": ("problems_per_step",),
    "resume_from_checkpoint": ("resume",),
    "save_steps": ("save_every",),
    "eval_steps": ("eval_every",),
}


def hint_at_other_words(words: Sequence[str], known: Collection[str]) -> None:
    """Refuses an option that is `known` by another name here, and says by which."""
    for word in words:
        if not word.startswith("--"):
            continue
        spelled = word.removeprefix("--").partition("=")[0]
        name = spelled.replace("-", "_")
        here = [other for other in NAMES_HERE.get(name, ()) if other in known]
        if name not in known and here:
            dashed = here[0].replace("_", "-")
            raise UserError(f"there is no option --{spelled} here: did you mean --{dashed}?")
