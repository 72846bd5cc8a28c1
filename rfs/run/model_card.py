"""README.md of a save, for people who get only the weights: what they are, and how to use them.

Hugging Face shows it as the model's page, and finds it by the lines between the dashes.
"""

import shlex
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from reasoning_from_scratch.problems import PLACEHOLDER, is_file_function, split_prompt_name
from reasoning_from_scratch.scores import wilson_interval
from reasoning_from_scratch.text import percent, percent_range
from rfs.config import PLACES, Records, RunConfig
from rfs.run.options import configure, derived_values
from rfs.tasks.problem_sets import source_of

ON_THE_HUB = {
    "base": "Qwen/Qwen3-0.6B-Base",
    "reasoning": "Qwen/Qwen3-0.6B",
    "instruct": "Qwen/Qwen3-0.6B",
}
RL_TAGS = "reinforcement-learning, rlvr, "
# Always shown, in this order.
OPTIONS = "recipe model problems steps problems_per_step rollouts max_new_tokens lr seed".split()
# What a run records and where, and how much fits into memory: it changes no weights.
OMITTED = {item.name for item in fields(Records)} | {*PLACES}
OMITTED |= {"smoke", "micro_batch_tokens", "set_by"}


def model_card(
    config: RunConfig,
    run: str,
    batch: int,
    episodes: int,
    scores: Mapping[str, tuple[float, int]],
    prompt: str = "",
) -> str:
    """`episodes`: how many answers were sampled, or worked solutions learned. `scores`: of each
    held-out set that these weights have answered, the accuracy and the number of problems.
    `prompt`: all that the model reads, with {problem} for the problem."""
    origin = origin_text(config.load_checkpoint_path or config.model)
    base = f"base_model: {origin}\n" if origin.count("/") == 1 else ""
    names = [*OPTIONS, *other_options(config)]
    options = " ".join(option_text(name, getattr(config, name)) for name in names)
    accuracies = [score_text(name, *score) for name, score in scores.items()]
    problems = source_of(str(config.problems)).shown_name
    how, what, tags = "by reinforcement learning with verifiable rewards", "answers", RL_TAGS
    if config.is_supervised:
        how, what, tags = "on worked solutions", "worked solutions", ""
    return f"""---
library_name: transformers
pipeline_tag: text-generation
{base}tags: [{tags}{config.recipe}]
---
# {run}, after {batch} of {config.steps} steps

A language model trained {how}.

- It started from `{origin}`.
- Recipe `{config.recipe}`, on problems of `{problems}`: {episodes:,} {what}.
- Held-out accuracy: {"; ".join(accuracies) or "not measured at this step"}.

To train one like it with the package `reasoning_from_scratch`:

```bash
rfs train {options}
```

The run's `config.json` has all options, and `rfs train --resume RUN` continues it. This folder
alone is a model for `rfs chat --model`, for vLLM, and for transformers:

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")
model = AutoModelForCausalLM.from_pretrained(".")
prompt = {(prompt or PLACEHOLDER)!r}  # as in training
text = prompt.replace("{PLACEHOLDER}", "What is 6 * 7?")
ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")
answer = model.generate(**ids, max_new_tokens={config.max_new_tokens})
print(tokenizer.decode(answer[0, ids["input_ids"].shape[1]:]))
```
"""


def other_options(config: RunConfig) -> list[str]:
    """The other fields that matter and differ from the recipe's. A recipe in a file may not be
    where the card is read, so what it changes is listed, too."""
    recipe = "grpo" if is_file_function(config.recipe) else config.recipe
    usual = vars(configure(recipe)) | derived_values(config)
    names = [item.name for item in fields(config) if item.name not in {*OPTIONS, *OMITTED}]
    return [name for name in names if getattr(config, name) not in (None, usual[name])]


def option_text(name: str, value: object) -> str:
    """As on a command line, without the folders of the machine that it ran on."""
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return flag if value else f"--no-{flag[2:]}"
    if isinstance(value, dict):
        return " ".join([flag, *(f"{part}={weight:g}" for part, weight in value.items())])
    if isinstance(value, list):
        return " ".join([flag, *(shlex.quote(origin_text(str(item))) for item in value)])
    kind, file = split_prompt_name(str(value))
    is_set = name == "problems"
    text = source_of(str(value)).shown_name if is_set else kind + origin_text(file)
    return f"{flag} {shlex.quote(text.replace(chr(10), chr(92) + 'n'))}"


def score_text(name: str, accuracy: float, problems: int) -> str:
    low, high = wilson_interval(accuracy * problems, problems)
    return (
        f"{percent(accuracy)} of {problems} problems of `{name}` "
        f"(95% interval {percent_range(low, high)})"
    )


def origin_text(name: str) -> str:
    """A model or a file without the folders of the machine that the run was on."""
    parts = Path(ON_THE_HUB.get(name, name)).parts
    for part in parts:
        if part.startswith("models--"):  # a folder in Hugging Face's cache
            return part.removeprefix("models--").replace("--", "/", 1)
    if name in ON_THE_HUB or len(parts) < 2:
        return "/".join(parts)
    return f"{parts[-3]}@{parts[-1]}" if parts[-2] == "checkpoints" else parts[-1]
