"""What is written after each step: the page, the logtree, the summaries, and their links."""

import json
import re

import pytest
import torch
from report_groups import ByteTokenizer, make_groups, make_rollout
from toy import toy_tokenizer

from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.rollouts import Group, worked_rollout
from rfs.report import write_iteration
from rfs.report.iteration import safe_name
from tests.program.report.written import Page, summaries

SUM = Problem("sum/0", "What is 2 + 3?", "5")


def test_every_file_is_there_twice_and_stored_once(steps):
    pairs = {"train_iteration_000001": "train", "eval_my_test_iteration_000001": "eval_my_test"}
    for flat, nested in pairs.items():
        for ending in (".html", "_logtree.json", "_rollout_summaries.jsonl"):
            one, other = steps / (flat + ending), steps / "iteration_000001" / (nested + ending)
            assert one.samefile(other)


def test_a_step_has_three_files_and_no_folder_unless_it_is_asked_for(tmp_path):
    write_iteration(tmp_path, "train", 3, make_groups(), ByteTokenizer())
    endings = (".html", "_logtree.json", "_rollout_summaries.jsonl")
    names = {f"train_iteration_000003{ending}" for ending in endings}
    assert {path.name for path in tmp_path.iterdir()} == names


@pytest.mark.parametrize(
    "name, safe",
    [
        ("math-500", "math-500"),
        ("gsm8k test", "gsm8k_test"),
        ("../../etc", "etc"),
        ("%%%", "unnamed"),
        ("x" * 300, "x" * 100),
        ("задачи.jsonl", "задачи.jsonl"),
        ("x" * 99 + "数学", "x" * 99),
        ("\ud83d / \u202e", "unnamed"),
    ],
)
def test_evaluation_names_become_file_names(name, safe):
    assert safe_name(name) == safe


def test_the_page_says_everything_about_a_rollout(tmp_path):
    good = make_rollout(SUM, "\\boxed{5}", 1.0, 0.75)
    bad = make_rollout(SUM, "\\boxed{6}, \\boxed{7}", 0.0, -0.75, finished=False)
    write_iteration(tmp_path, "train", 0, [Group(SUM, [good, bad])], ByteTokenizer())
    page = Page((tmp_path / "train_iteration_000000.html").read_text("utf-8"))
    first, second = (re.sub(r"\s+", " ", text) for text in page.texts("p", "chips"))
    # In words and signs, not only in color.
    assert "✓ correct" in first and "✗ incorrect" in second
    assert "reward 1 " in first and "reward 0 " in second
    assert "advantage +0.750 ↑ made more likely" in first
    assert "advantage −0.750 ↓ made less likely" in second
    assert "10 tokens" in first and "ended on its own" in first
    assert "cut off at the limit" in second
    assert "correct 1 · format 1" in first and "correct 0 · format 0" in second
    assert page.texts("div", "text") == ["\\boxed{5}<|endoftext|>", "\\boxed{6}, \\boxed{7}"]
    assert page.texts("div", "problem") == ["What is 2 + 3?"]
    assert "Correct answer: 5" in " ".join(page.texts("p"))
    boxes = [attrs for tag, attrs, _ in page.elements if attrs.get("class") == "text ended"]
    assert len(boxes[0]["data-logprobs"].split()) == len(boxes[0]["data-entropies"].split()) == 10
    assert boxes[0]["tabindex"] == "0"


def test_a_kl_term_in_the_reward_pushes_what_the_reward_does_not(tmp_path):
    """Each token has its own advantage, and that of the whole answer is 0, as in distill."""
    pushes = {
        "advantage +0.100 on average, ↕ some tokens made more likely": [-0.1, 0.2, 0.2],
        "advantage −0.100 ↓ made less likely": [-0.1, -0.1, -0.1],
        "advantage 0 no push": [0.0, 0.0, 0.0],
    }
    rollouts = [make_rollout(SUM, "55") for _ in pushes]
    for rollout, advantages in zip(rollouts, pushes.values(), strict=True):
        rollout.token_advantages = torch.tensor(advantages)
    write_iteration(tmp_path, "train", 0, [Group(SUM, rollouts)], ByteTokenizer())
    page = Page((tmp_path / "train_iteration_000000.html").read_text("utf-8"))
    for said, push in zip(page.texts("p", "chips"), pushes, strict=True):
        assert push in re.sub(r"\s+", " ", said)


def test_a_worked_solution_is_not_shown_as_something_that_the_model_wrote(tmp_path):
    """The log-probabilities recorded in it are zeros: the page gave each token 100.0%."""
    problem = Problem("sum/0", "What is 2 + 3?", "5", solution="2 + 3 = 5\n\\boxed{5}")
    worked = Group(problem, [worked_rollout(problem, toy_tokenizer(tmp_path))])
    write_iteration(tmp_path / "run", "train", 0, [worked], ByteTokenizer())
    page = Page((tmp_path / "run" / "train_iteration_000000.html").read_text("utf-8"))
    assert page.texts("div", "text") == [worked.rollouts[0].text]
    assert not any("data-logprobs" in attrs for _, attrs, _ in page.elements)
    assert not page.texts("p", "legend")
    (about,) = page.texts("h1")
    assert "worked solutions" in about and "wrote" not in about


@pytest.mark.parametrize("correct, reward, mark", [(1.0, 0.0, "✓ 2/2"), (0.0, 0.5, "✗ 0/2")])
def test_a_mark_says_whether_answers_are_correct_whatever_their_reward(
    tmp_path, correct, reward, mark
):
    rollouts = [make_rollout(SUM, "5", reward) for _ in range(2)]
    for rollout in rollouts:
        rollout.rewards["correct"] = correct
    write_iteration(tmp_path, "eval/test", 0, [Group(SUM, rollouts)], ByteTokenizer())
    page = Page((tmp_path / "eval_test_iteration_000000.html").read_text("utf-8"))
    (shown,) = page.texts("a", "good" if correct else "bad")
    assert shown == mark


def test_groups_with_a_signal_are_written_before_others(tmp_path):
    """In their order and with their numbers, on the page and in the tree."""
    groups = make_groups(6)
    for number in (0, 1, 3):
        for rollout in groups[number].rollouts:
            rollout.reward = 1.0
    write_iteration(tmp_path, "train", 0, groups, ByteTokenizer(), num_groups_to_log=4)
    html = (tmp_path / "train_iteration_000000.html").read_text("utf-8")
    assert re.findall(r'<section class="card" id="g(\d)"', html) == ["0", "2", "4", "5"]
    assert re.findall(r'href="#g(\d)"', html) == ["0", "2", "4", "5"]
    assert [f"Problem {n} <" in html for n in range(6)] == [True, False, True, False, True, True]
    tree = json.loads((tmp_path / "train_iteration_000000_logtree.json").read_text("utf-8"))
    sections = [part for part in tree["root"]["children"] if part["tag"] == "section"]
    in_full = [p["attrs"]["group_idx"] for p in sections if p["attrs"]["in_full"] == "True"]
    assert in_full == ["0", "2", "4", "5"]
    assert sections[2]["children"][3]["attrs"]["group_idx"] == "2"


def test_an_empty_step_and_an_empty_answer_are_written(tmp_path):
    write_iteration(tmp_path, "train", 0, [], ByteTokenizer())
    empty = make_rollout(SUM, "", finished=False)
    write_iteration(tmp_path, "train", 1, [Group(SUM, [empty])], ByteTokenizer())
    assert summaries(tmp_path)[0]["trajectory_metrics"]["logprob_mean"] is None
    assert summaries(tmp_path, "train_iteration_000000") == []


def links_of(file) -> list[tuple[str, str]]:
    page = Page(file.read_text("utf-8"))
    found = [(attrs["href"], text) for tag, attrs, text in page.elements if "data-flat" in attrs]
    return [(href, "".join(text)) for href, text in found if href.endswith(".html")]


def test_a_page_leads_to_the_one_before_and_to_the_next(tmp_path):
    """Steps without a page are passed over; a step that is repeated keeps its links."""
    report = ("report.html", tmp_path.name)
    names = {step: f"train_iteration_{step:06d}.html" for step in (0, 1, 4)}
    for step in (0, 1, 4, 1):
        write_iteration(tmp_path, "train", step, make_groups(), ByteTokenizer(), in_folders=True)
        write_iteration(tmp_path, "eval/mine", step, make_groups(), ByteTokenizer())
    assert links_of(tmp_path / names[0]) == [report, (names[1], "step 2 →")]
    around = [report, (names[0], "← step 1"), (names[4], "step 5 →")]
    for name in (names[1], "iteration_000001/train.html"):
        assert links_of(tmp_path / name) == around
    assert links_of(tmp_path / names[4]) == [report, (names[1], "← step 2")]
    before, after = "eval_mine_iteration_000000.html", "eval_mine_iteration_000004.html"
    assert links_of(tmp_path / "eval_mine_iteration_000001.html") == [
        report,
        (before, "← before the first step"),
        (after, "after 4 steps →"),
    ]


@pytest.mark.parametrize("first", [False, True])
def test_folders_may_be_asked_for_later_and_no_longer(tmp_path, first):
    """A run is resumed with the option or without it: each page still leads to the next."""
    for step, in_folders in enumerate((first, not first)):
        write_iteration(tmp_path, "train", step, make_groups(), ByteTokenizer(), 1, in_folders)
    assert [(tmp_path / f"iteration_{step:06d}").exists() for step in (0, 1)] == [first, not first]
    onward = ("train_iteration_000001.html", "step 2 →")
    for name in ("train_iteration_000000.html", *["iteration_000000/train.html"] * first):
        assert onward in links_of(tmp_path / name)
