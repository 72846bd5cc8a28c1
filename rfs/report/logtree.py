"""The rollouts as a tree of nodes, for programs that walk it."""

from collections.abc import Collection, Sequence
from typing import Any

from .summaries import extracted, stop_reason


def node(tag: str, *children, data: dict | None = None, **attrs) -> dict:
    result = {
        "tag": tag,
        "attrs": {key: str(value) for key, value in attrs.items()},
        "children": list(children),
    }
    return result if data is None else result | {"data": data}


def conversation(role: str, content: str) -> dict:
    messages = [{"role": role, "content": content}]
    data = {"type": "conversation", "messages": messages}
    return node("div", node("p", f"{role}: {content}"), data=data)


def logtree(
    title: str,
    started_at: str,
    path: str,
    groups: Sequence[Any],
    shown_in_full: Collection[int],
    tokenizer,
) -> dict:
    """All groups of a step. Those whose index is in `shown_in_full` have their prompts and answers,
    the others only their numbers; the summaries have the texts of all."""
    sections = [
        _group(index, group, tokenizer if index in shown_in_full else None)
        for index, group in enumerate(groups)
    ]
    root = node("body", node("h1", title), *sections)
    return {"title": title, "started_at": started_at, "path": path, "root": root}


def _group(group_idx: int, group, tokenizer) -> dict:
    problem, prompt = group.problem, ""
    paragraphs = [node("p", f"answer: {problem.answer}")]
    if tokenizer and group.rollouts:
        paragraphs.insert(0, node("p", f"problem: {problem.problem}"))
        prompt = tokenizer.decode(list(group.rollouts[0].prompt_ids))
    rollouts = []
    for traj_idx, rollout in enumerate(group.rollouts):
        messages = [conversation("user", prompt), conversation("assistant", rollout.text)]
        rollouts.append(_rollout(group_idx, traj_idx, rollout, messages if tokenizer else []))
    return node(
        "section",
        node("h2", f"Group {group_idx}: {problem.id}"),
        *paragraphs,
        *rollouts,
        group_idx=group_idx,
        problem_id=problem.id,
        in_full=tokenizer is not None,
    )


def _rollout(group_idx: int, traj_idx: int, rollout, messages: list[dict]) -> dict:
    """`messages`: the nodes of prompt and answer, if they are shown."""
    totals = {
        "reward": f"{rollout.reward:g}",
        "advantage": "" if rollout.advantage is None else f"{rollout.advantage:g}",
        "tokens": rollout.num_sampled,
        **({"forced": len(rollout.forced)} if rollout.forced else {}),
        "stop_reason": stop_reason(rollout),
    }
    extracted_answer = extracted(rollout)
    if extracted_answer is not None:
        totals["extracted"] = extracted_answer
    return node(
        "section",
        node("h3", f"Rollout {traj_idx}"),
        *messages,
        _table(rollout.rewards),
        # Its only turn: tokens of the prompt, tokens of the answer.
        _table({"ob_len": len(rollout.prompt_ids), "ac_len": len(rollout.response_ids)}),
        node("p", ", ".join(f"{name} {value}" for name, value in totals.items()), **totals),
        group_idx=group_idx,
        traj_idx=traj_idx,
    )


def _table(numbers: dict[str, float]) -> dict:
    rows = [
        node("tr", node("td", name), node("td", f"{value:g}")) for name, value in numbers.items()
    ]
    return node("table", *rows)
