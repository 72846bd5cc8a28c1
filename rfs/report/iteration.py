"""What was sampled at one step: a page for people, a tree and lines for machines."""

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from markupsafe import Markup

from reasoning_from_scratch.rollouts import Group
from reasoning_from_scratch.text import counted, json_line, percent, shorten

from .logtree import logtree
from .pages import render, write_unsynced
from .summaries import is_correct, summary_lines
from .tokens import SHADES, ShadedText, Shader

SHOWN_CHARACTERS = 20_000  # of a problem or prompt on a page
NO_NEXT_PAGE = Markup("<!-- the next page -->")  # replaced by a link to it


def write_iteration(
    folder: str | Path,
    split: str,
    iteration: int,
    groups: Sequence[Group],
    tokenizer: Any,
    num_groups_to_log: int = 4,
    in_folders: bool = False,
) -> None:
    """Write the page, the logtree and the summaries of one step's groups. With `in_folders` they
    get a second name as well, in a folder for the step, where Tinker's viewers look.

    split is "train" or "eval/<name>"; num_groups_to_log groups are written in full, for the others
    the logtree has only the numbers. With 0 there are only summaries.
    """
    folder = Path(folder)
    flat, nested = file_stems(split, iteration)
    shown = _choose_shown(groups, num_groups_to_log)
    lines = summary_lines(split, iteration, groups)
    contents = {"_rollout_summaries.jsonl": "".join([line + "\n" for line in lines])}
    if num_groups_to_log > 0:
        title = f"{split}, {step_label(split, iteration)}"
        now = datetime.now(timezone.utc).isoformat()
        tree = logtree(title, now, str(folder / f"{flat}.html"), groups, shown, tokenizer)
        contents["_logtree.json"] = json_line(tree)
        neighbor_steps = find_neighbor_steps(folder, split, iteration)
        page = iteration_page(folder, split, iteration, groups, shown, tokenizer, neighbor_steps)
        contents[".html"] = page
    folder.mkdir(parents=True, exist_ok=True)
    for ending, text in contents.items():
        write_unsynced(folder / f"{flat}{ending}", text)
        if in_folders:
            (folder / nested).parent.mkdir(exist_ok=True)
            _link_or_copy(folder / f"{flat}{ending}", folder / f"{nested}{ending}")
    if num_groups_to_log > 0 and neighbor_steps[0] is not None:
        add_next_link(folder, split, neighbor_steps[0], iteration)


def step_label(split: str, iteration: int) -> str:
    """Files count steps from 0, people from 1; an evaluation is named by the steps before it."""
    if split == "train":
        return f"step {iteration + 1}"
    return f"after {counted(iteration, 'step')}" if iteration else "before the first step"


def find_neighbor_steps(folder: Path, split: str, iteration: int) -> tuple[int | None, int | None]:
    """The steps before and after this one that have pages of the same kind."""
    prefix = file_stems(split, 0)[0].removesuffix("000000")
    suffixes = [path.stem.removeprefix(prefix) for path in folder.glob(f"{prefix}*.html")]
    steps = [int(number) for number in suffixes if number.isdecimal()]
    before = max((step for step in steps if step < iteration), default=None)
    after = min((step for step in steps if step > iteration), default=None)
    return before, after


def page_and_name(split: str, step: int) -> tuple[str, str]:
    return f"{file_stems(split, step)[0]}.html", step_label(split, step)


def next_link(split: str, step: int | None) -> Markup:
    if step is None:
        return NO_NEXT_PAGE
    return Markup(' · <a data-flat href="{}">{} →</a>').format(*page_and_name(split, step))


def add_next_link(folder: Path, split: str, step: int, next_step: int) -> None:
    """Adds to a page its link to the page after it, which did not exist before. The page may have a
    second name or none: a run can be resumed with other options."""
    page, nested_page = (folder / f"{stem}.html" for stem in file_stems(split, step))
    text = page.read_text("utf-8")
    if NO_NEXT_PAGE in text:
        write_unsynced(page, text.replace(NO_NEXT_PAGE, next_link(split, next_step)))
        if nested_page.exists():
            _link_or_copy(page, nested_page)


def _choose_shown(groups: Sequence[Group], count: int) -> dict[int, Any]:
    """The first groups with mixed rewards, which carry a signal, then the first others."""
    mixed_first = sorted(range(len(groups)), key=lambda i: not _has_mixed_rewards(groups[i]))
    return {number: groups[number] for number in sorted(mixed_first[:count])}


def file_stems(split: str, iteration: int) -> tuple[str, str]:
    """The names of a step's files without endings: side by side, and in a folder per step."""
    step = f"iteration_{iteration:06d}"
    if split == "train":
        return f"train_{step}", f"{step}/train"
    name = safe_name(split.removeprefix("eval/"))
    return f"eval_{name}_{step}", f"{step}/eval_{name}"


def safe_name(name: str) -> str:
    """Letters of any language, so that two sets stay two. A file name has at most 255 bytes; 100
    leave room for the rest of it."""
    name = re.sub(r"[^\w.-]+", "_", name)
    return name.encode()[:100].decode(errors="ignore").strip("._") or "unnamed"


def _link_or_copy(source: Path, target: Path) -> None:
    """A second name for the same file; a copy where the file system has no links."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


@dataclass
class _ShownRollout:
    number: int
    is_correct: bool | None
    rollout: Any
    parts: list[tuple[str, float]]
    advantage: float  # the mean over its tokens
    push: str  # what the update does to this answer
    shaded: ShadedText | None
    text: str


@dataclass
class _GroupMark:
    number: int
    num_correct: int
    size: int
    mean_reward: float
    kind: str  # "good", "bad" or "mixed"


def iteration_page(
    folder: Path,
    split: str,
    iteration: int,
    groups: Sequence[Group],
    shown: dict[int, Any],
    tokenizer: Any,
    neighbor_steps: tuple[int | None, int | None] = (None, None),
) -> str:
    """The page as text, with links to the two `neighbor_steps`."""
    before, after = neighbor_steps
    shader = Shader(tokenizer)
    training = split == "train"
    return render(
        "iteration.html",
        script="iteration.js",
        run=Path(folder).resolve().name,
        split=split,
        when=step_label(split, iteration),
        training=training,
        worked=training and _are_worked_solutions(groups),
        iteration=iteration,
        previous=None if before is None else page_and_name(split, before),
        following=next_link(split, after),
        tiles=_group_tiles(groups),
        marks=[_group_mark(number, group) for number, group in enumerate(groups)],
        shown={number: _shown_group(group, shader, training) for number, group in shown.items()},
        single=all(len(group.rollouts) == 1 for group in groups),
        shades=SHADES,
        stem=file_stems(split, iteration)[0],
    )


def _shown_group(group, shader: Shader, training: bool) -> dict:
    prompt = shader.texts.decode(list(group.rollouts[0].prompt_ids)) if group.rollouts else ""
    return {
        "problem": group.problem,
        "text": shorten(group.problem.problem, SHOWN_CHARACTERS),
        "prompt": shorten(prompt, SHOWN_CHARACTERS),
        "rollouts": [
            _shown_rollout(number, rollout, shader, training)
            for number, rollout in enumerate(group.rollouts)
        ],
    }


def _shown_rollout(number: int, rollout, shader: Shader, training: bool) -> _ShownRollout:
    shaded = None
    if len(rollout.logprobs) == len(rollout.entropies) == len(rollout.response_ids) > 0:
        shaded = shader.shade(
            rollout.response_ids, rollout.logprobs, rollout.entropies, rollout.forced
        )
    advantages = _token_advantages(rollout)
    return _ShownRollout(
        number,
        is_correct(rollout),
        rollout,
        list(rollout.rewards.items()),
        sum(advantages) / len(advantages),
        _describe_push(advantages) if training else "",
        shaded,
        "" if shaded else shorten(rollout.text, SHOWN_CHARACTERS),
    )


def _are_worked_solutions(groups: Sequence[Group]) -> bool:
    """Whether these are worked solutions: they were not sampled, so they have no entropies."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    return bool(rollouts) and not any(rollout.entropies for rollout in rollouts)


def _token_advantages(rollout) -> list[float]:
    """With a KL term in the reward, one per sampled token; otherwise just the answer's."""
    if rollout.token_advantages is None:
        return [rollout.advantage]
    return rollout.select_sampled(rollout.token_advantages.tolist()) or [rollout.advantage]


def _describe_push(advantages: list[float]) -> str:
    if min(advantages) < 0 < max(advantages):
        return "on average, ↕ some tokens made more likely, others less"
    if max(advantages) > 0:
        return "↑ made more likely"
    return "↓ made less likely" if min(advantages) < 0 else "no push"


def _has_mixed_rewards(group) -> bool:
    """Whether its rewards differ; unlike `not group.uniform`, this works for an empty group."""
    return len(set(group.rewards)) > 1


def _group_mark(number: int, group) -> _GroupMark:
    rewards = group.rewards
    mean_reward = sum(rewards) / len(rewards) if rewards else 0.0
    verdicts = [is_correct(rollout) for rollout in group.rollouts]
    num_correct = sum(verdict is True for verdict in verdicts)
    # The reward may not count whether an answer is correct, as in distill.
    good_share = mean_reward if None in verdicts or not verdicts else num_correct / len(verdicts)
    kind_if_uniform = "good" if good_share >= 0.5 else "bad"
    kind = "mixed" if _has_mixed_rewards(group) else kind_if_uniform
    return _GroupMark(number, num_correct, len(rewards), mean_reward, kind)


def _group_tiles(groups: Sequence[Group]) -> list[tuple[str, str]]:
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    if not rollouts:
        return [("rollouts", "0")]
    count = len(rollouts)
    verdicts = [is_correct(rollout) for rollout in rollouts]
    mixed = sum(map(_has_mixed_rewards, groups))
    tiles = [("rollouts", f"{count:,}"), ("problems", f"{len(groups):,}")]
    if None not in verdicts:
        tiles.append(("correct", percent(sum(verdicts) / count)))
    tiles.append(("mean reward", f"{sum(r.reward for r in rollouts) / count:.3f}"))
    tiles.append(("tokens per answer", f"{sum(r.num_sampled for r in rollouts) / count:.1f}"))
    if forced := sum(len(r.forced) for r in rollouts):
        tiles.append(("read, not sampled", f"{forced / count:.1f}"))
    tiles.append(("cut off", percent(sum(not r.finished for r in rollouts) / count)))
    if count > len(groups):
        tiles.append(("mixed groups", f"{mixed} of {len(groups)}"))
    return tiles
