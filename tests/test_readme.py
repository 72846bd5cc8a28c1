"""What the README says about the code is still so."""

import re
from pathlib import Path

from reasoning_from_scratch.metrics_table import metrics_glossary

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_metrics_glossary_is_the_one_in_the_code():
    _, shown = README.split("<!-- metrics glossary:", 1)
    shown = shown.split("-->", 1)[1].split("<!-- end of metrics glossary -->")[0]
    assert shown.strip() == metrics_glossary()


def test_links_lead_to_files():
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert len(targets) > 10
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_map_names_every_module():
    map_ = README.split("## The map")[1].split("## Commands")[0]
    named = set(re.findall(r"([a-z0-9_]+)\.py", map_)) | set(re.findall(r"([a-z_]+)/", map_))
    package = ROOT / "reasoning_from_scratch"
    modules = {path.stem for path in package.glob("*.py")} - {"__init__"}
    assert {name for name in named if name != "tiny_"} - modules <= {
        "reasoning_from_scratch", "grading", "report", "checkpoints", "benchmarks"
    }  # fmt: skip
