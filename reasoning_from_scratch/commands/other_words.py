"""What other programs, and earlier versions of this one, call an option: cli.py hints at ours."""

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
