"""docs/metrics.md explains each metric of a run, in a table."""

import fnmatch
import re

from toy import toy_run

from tests.metrics_page import metric_names, metric_rows


def known_patterns() -> list[str]:
    """Globs of all names in the table: <eval> is anything; "a/x, y" means a/x and a/y."""
    names = []
    for line in metric_names():
        first, *others = line.split(", ")
        folder = first.rpartition("/")[0]
        names += [first, *others, *(f"{folder}/{other}" for other in others)]
    return [re.sub(r"<\w+>", "*", name) for name in names]


def test_the_page_explains_every_metric_of_a_run(tmp_path):
    evaluations = {"eval_every": 1, "eval_samples": 2}
    rows = toy_run(tmp_path / "run", steps=2, kl="k3", kl_coef=0.1, **evaluations).rows
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


def test_each_line_has_a_meaning_and_says_what_is_healthy():
    rows = metric_rows()
    assert len(rows) > 30 and all(len(row) == 3 and all(row) for row in rows)
