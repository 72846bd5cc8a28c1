"""The log tree: found by walking, matched with its summary."""

import json

import pytest
from report_groups import ByteTokenizer, make_groups

from reasoning_from_scratch.report import write_iteration
from tests.report.written import summaries, write_steps


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_steps(tmp_path_factory.mktemp("run"))


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


def numbers_of(section):
    """The rows of its tables, and the attributes of its last line."""
    tables = [child for child in section["children"] if child["tag"] == "table"]
    cells = [
        [cell["children"][0] for cell in row["children"]] for t in tables for row in t["children"]
    ]
    return dict(cells) | section["children"][-1]["attrs"]


def test_the_documented_search_finds_every_conversation(run):
    tree = json.loads((run / "train_iteration_000001_logtree.json").read_text())
    assert set(tree) == {"title", "started_at", "path", "root"}
    assert tree["path"].endswith("train_iteration_000001.html")
    found = list(conversations(tree["root"]))
    shown = [rollout for group in make_groups(seed=1)[:4] for rollout in group.rollouts]
    assert [text for role, text in found if role == "assistant"] == [r.text for r in shown]
    prompts = [text for role, text in found if role == "user"]
    assert prompts == [ByteTokenizer().decode(r.prompt_ids) for r in shown]


def test_a_response_in_the_logtree_can_be_matched_with_its_summary(run):
    tree = json.loads((run / "train_iteration_000001_logtree.json").read_text())
    texts = {(r["group_idx"], r["traj_idx"]): r["text"] for r in summaries(run)}
    groups = [g for g in sections_of(tree["root"]) if g["attrs"]["in_full"] == "True"]
    sections = [section for group in groups for section in sections_of(group)]
    assert len(groups) == 4 and len(sections) == 16
    for section in sections:
        attrs = section["attrs"]
        assert all(isinstance(value, str) for value in attrs.values())
        place = int(attrs["group_idx"]), int(attrs["traj_idx"])
        assert ("assistant", texts[place]) in list(conversations(section))


def test_every_group_is_listed_with_its_turns_and_what_the_grader_read(run):
    """Also those that are not written in full; 4 of 6 are."""
    tree = json.loads((run / "train_iteration_000001_logtree.json").read_text())
    made = make_groups(seed=1)
    assert [g["attrs"]["group_idx"] for g in sections_of(tree["root"])] == [*"012345"]
    for section, group in zip(sections_of(tree["root"]), made, strict=True):
        full = section["attrs"]["in_full"] == "True"
        assert full == bool(list(conversations(section)))
        for part, rollout in zip(sections_of(section), group.rollouts, strict=True):
            numbers = numbers_of(part)
            assert numbers["ob_len"] == str(len(rollout.prompt_ids))
            assert numbers["ac_len"] == numbers["tokens"] == str(len(rollout.response_ids))
            assert numbers["reward"] == f"{rollout.reward:g}" and "correct" in numbers
            assert numbers["stop_reason"] == "stop"
            assert (numbers["extracted"] == group.problem.answer) == (rollout.reward == 1)


def test_without_a_box_or_with_a_verifier_of_ones_own_nothing_was_read(tmp_path):
    (group,) = make_groups(count=1, size=2)
    group.rollouts[0].text = "no box"
    group.rollouts[1].rewards["reward_failed"] = 0.0
    write_iteration(tmp_path, "train", 0, [group], ByteTokenizer())
    tree = json.loads((tmp_path / "train_iteration_000000_logtree.json").read_text())
    (section,) = sections_of(tree["root"])
    assert all("extracted" not in numbers_of(part) for part in sections_of(section))
    lines = summaries(tmp_path, "train_iteration_000000")
    assert all("extracted" not in line["steps"][0]["logs"] for line in lines)
