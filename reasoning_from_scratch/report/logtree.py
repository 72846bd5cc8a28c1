"""The rollouts as a tree of nodes, for machines that walk it."""

from typing import Any

from .summaries import stop_reason


def node(tag: str, *children, data: dict | None = None, **attrs) -> dict:
    made = {
        "tag": tag,
        "attrs": {key: str(value) for key, value in attrs.items()},
        "children": list(children),
    }
    return made if data is None else made | {"data": data}


def conversation(role: str, content: str) -> dict:
    messages = [{"role": role, "content": content}]
    data = {"type": "conversation", "messages": messages}
    return node("div", node("p", f"{role}: {content}"), data=data)


def logtree(title: str, started_at: str, path: str, groups: dict[int, Any], tokenizer) -> dict:
    """Of the groups that are written in full, by number; every rollout is in the summaries."""
    prompts: dict[tuple, str] = {}
    sections = [_group(index, group, tokenizer, prompts) for index, group in groups.items()]
    root = node("body", node("h1", title), *sections)
    return {"title": title, "started_at": started_at, "path": path, "root": root}


def _group(group_idx: int, group, tokenizer, prompts: dict) -> dict:
    problem = group.problem
    rollouts = []
    for traj_idx, rollout in enumerate(group.rollouts):
        ids = tuple(rollout.prompt_ids)
        if ids not in prompts:
            prompts[ids] = tokenizer.decode(list(ids))
        rollouts.append(_rollout(group_idx, traj_idx, rollout, prompts[ids]))
    return node(
        "section",
        node("h2", f"Group {group_idx}: {problem.id}"),
        node("p", f"problem: {problem.problem}"),
        node("p", f"answer: {problem.answer}"),
        *rollouts,
        group_idx=group_idx,
        problem_id=problem.id,
    )


def _rollout(group_idx: int, traj_idx: int, rollout, prompt: str) -> dict:
    parts = [
        node("tr", node("td", name), node("td", f"{value:g}"))
        for name, value in rollout.rewards.items()
    ]
    totals = {
        "reward": f"{rollout.reward:g}",
        "advantage": "" if rollout.advantage is None else f"{rollout.advantage:g}",
        "tokens": len(rollout.response_ids),
        "stop_reason": stop_reason(rollout),
    }
    return node(
        "section",
        node("h3", f"Rollout {traj_idx}"),
        conversation("user", prompt),
        conversation("assistant", rollout.text),
        node("table", *parts),
        node("p", ", ".join(f"{name} {value}" for name, value in totals.items()), **totals),
        group_idx=group_idx,
        traj_idx=traj_idx,
    )
