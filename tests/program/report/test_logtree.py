"""The log tree: found by walking, matched with its summary."""

import json

from report_groups import ByteTokenizer, make_groups

from tests.program.report.written import summaries


def conversations(node):
    """The documented way to find them: a walk over whatever is a dict or a list."""
    if isinstance(node, dict):
        if isinstance(node.get("data"), dict) and node["data"].get("type") == "conversation":
            for message in node["data"]["messages"]:
                yield message["role"], message["content"]
        for child in node.get("children", []):
            yield from conversations(child)


def sections_of(node):
    return [child for child in node["children"] if child["tag"] == "section"]


def test_the_documented_search_finds_every_conversation(steps):
    tree = json.loads((steps / "train_iteration_000001_logtree.json").read_text())
    assert set(tree) == {"title", "started_at", "path", "root"}
    assert tree["path"].endswith("train_iteration_000001.html")
    found = list(conversations(tree["root"]))
    shown = [rollout for group in make_groups(seed=1)[:4] for rollout in group.rollouts]
    assert [text for role, text in found if role == "assistant"] == [r.text for r in shown]
    prompts = [text for role, text in found if role == "user"]
    assert prompts == [ByteTokenizer().decode(r.prompt_ids) for r in shown]


def test_a_response_in_the_logtree_can_be_matched_with_its_summary(steps):
    tree = json.loads((steps / "train_iteration_000001_logtree.json").read_text())
    texts = {(r["group_idx"], r["traj_idx"]): r["text"] for r in summaries(steps)}
    groups = [g for g in sections_of(tree["root"]) if g["attrs"]["in_full"] == "True"]
    sections = [section for group in groups for section in sections_of(group)]
    assert len(groups) == 4 and len(sections) == 16
    for section in sections:
        attrs = section["attrs"]
        assert all(isinstance(value, str) for value in attrs.values())
        place = int(attrs["group_idx"]), int(attrs["traj_idx"])
        assert ("assistant", texts[place]) in list(conversations(section))
