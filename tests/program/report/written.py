"""Runs as several tests of the report read them, written by hand, and a page as they read it."""

import json
from html.parser import HTMLParser

from report_groups import ByteTokenizer, make_groups, make_rollout

from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.rollouts import Group
from rfs.report import write_iteration


def metrics_line(step: int, **values) -> str:
    row = {"step": step, "env/all/reward/total": step / 10, "optim/grad_norm": 1.0, **values}
    return json.dumps(row) + "\n"


def write_eval(
    folder, step: int, right: list[bool], name: str = "test", of_id: str = "p{}"
) -> None:
    groups = []
    for number, good in enumerate(right):
        problem = Problem(of_id.format(number), f"Problem {number}?", "1")
        rollout = make_rollout(problem, "\\boxed{1}" if good else "\\boxed{2}", float(good))
        groups.append(Group(problem, [rollout]))
    write_iteration(folder, f"eval/{name}", step, groups, ByteTokenizer())


def write_run(folder):
    """Four steps, pages of two of them, and three evaluations."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"recipe": "grpo", "model": "tiny", "steps": 4}))
    (folder / "metrics.jsonl").write_text("".join(metrics_line(step) for step in range(4)))
    for step in (2, 3):
        groups = make_groups(seed=step)
        write_iteration(folder, "train", step, groups, ByteTokenizer(), in_folders=True)
    for step, right in ((0, "1000"), (2, "1100"), (4, "0110")):
        write_eval(folder, step, [mark == "1" for mark in right])
    return folder


def write_steps(folder):
    """Two training steps and an evaluation."""
    steps = (("train", 0, {}), ("train", 1, {"seed": 1}), ("eval/my test!", 1, {"size": 1}))
    for split, step, changes in steps:
        groups = make_groups(**changes)
        write_iteration(folder, split, step, groups, ByteTokenizer(), in_folders=True)
    return folder


def summaries(folder, stem="train_iteration_000001"):
    lines = (folder / f"{stem}_rollout_summaries.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


class Page(HTMLParser):
    """Collects (tag, attributes, text directly inside) in document order."""

    def __init__(self, html: str):
        super().__init__()
        self.elements: list[tuple[str, dict, list[str]]] = []
        self._open: list[int] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), []))
        if tag not in ("meta", "link", "input", "br", "line", "circle", "path", "rect"):
            self._open.append(len(self.elements) - 1)

    def handle_endtag(self, tag):
        while self._open and self.elements[self._open.pop()][0] != tag:
            pass

    def handle_data(self, data):
        for place in self._open:
            self.elements[place][2].append(data)

    def texts(self, tag: str, cls: str = "") -> list[str]:
        return [
            "".join(text)
            for name, attrs, text in self.elements
            if name == tag and cls in (attrs.get("class") or "").split() + [""]
        ]
