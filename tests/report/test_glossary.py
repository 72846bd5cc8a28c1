"""The glossary explains each metric, in a table."""

import fnmatch
import re

from toy import toy_config, toy_world

from reasoning_from_scratch.report.glossary import METRICS, metrics_glossary
from reasoning_from_scratch.run.start import train


def known_patterns() -> list[str]:
    """Globs of all names in the glossary: <eval> is anything; "a/x, y" means a/x and a/y."""
    names = []
    for metric in METRICS:
        first, *others = metric.name.split(", ")
        folder = first.rpartition("/")[0]
        names += [first, *others, *(f"{folder}/{other}" for other in others)]
    return [re.sub(r"<\w+>", "*", name) for name in names]


def test_glossary_explains_every_metric_of_a_run(tmp_path):
    config = toy_config(
        tmp_path / "run", steps=2, eval_every=1, eval_samples=2, kl="k3", kl_coef=0.1
    )
    rows = train(config, quiet=True, **toy_world(tmp_path)).rows
    known = [pattern for pattern in known_patterns() if pattern != "*/*"]  # of an evaluator
    patterns = [*known, "step", "eval_acc", "*/env/all/*"]
    unknown = [
        name
        for row in rows
        for name in row
        if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    ]
    assert unknown == []
    assert {"tiny-test/pass@1", "tiny-test/pass@2"} <= set(rows[0])
    assert "kl_policy_base" in rows[1]


def test_glossary_is_a_markdown_table():
    lines = metrics_glossary().splitlines()
    assert lines[1] == "|---|---|---|" and len(lines) == len(METRICS) + 2
    assert all(re.sub(r"\\\|", "", line).count("|") == 4 for line in lines)
