"""The run folders of the shipped models: a few of a run's pages, which lead to each other."""

import re
import shutil
import sys

import make_tiny_grpo
import pytest
from make_tiny_grpo import link_kept_pages

from tests.conftest import ROOT

CRUMBS = '<p class="crumbs"><a data-flat href="report.html">mine</a>{}</p>'


@pytest.mark.parametrize("name", ["tiny-grpo", "tiny-grpo-longer"])
def test_every_link_of_a_shipped_run_leads_somewhere(name):
    folder = ROOT / "checkpoints" / name / "run"
    pages = list(folder.glob("*.html"))
    assert len(pages) > 10
    for page in pages:
        text = re.sub(r"(?s)<(script|style)\b.*?</\1>", "", page.read_text(encoding="utf-8"))
        links = set(re.findall(r'\bhref="([^"#:]+)"', text))
        assert not {link for link in links if not (folder / link).exists()}, page


def test_a_kept_page_leads_to_the_kept_ones_around_it(tmp_path):
    beside = ' · <a data-flat href="train_iteration_000009.html">← step 10</a>'
    for step in (0, 10, 20):
        page = tmp_path / f"train_iteration_{step:06d}.html"
        page.write_text(CRUMBS.format(beside if step else "<!-- the next page -->"))
    (tmp_path / "eval_tiny-test_iteration_000000.html").write_text(CRUMBS.format(""))
    link_kept_pages(tmp_path)
    texts = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    links = {name: re.findall(r'href="(\w+\.html)">([^<]+)<', text) for name, text in texts.items()}
    assert texts["eval_tiny-test_iteration_000000.html"] == CRUMBS.format("")
    assert links["train_iteration_000000.html"][1:] == [
        ("train_iteration_000010.html", "step 11 →")
    ]
    assert links["train_iteration_000010.html"][1:] == [
        ("train_iteration_000000.html", "← step 1"),
        ("train_iteration_000020.html", "step 21 →"),
    ]
    assert links["train_iteration_000020.html"][1:] == [
        ("train_iteration_000010.html", "← step 11")
    ]


def test_a_run_that_lacks_a_file_is_refused_while_the_shipped_one_is_whole(
    tmp_path, monkeypatch, capsys
):
    shipped, run = tmp_path / "tiny-grpo", tmp_path / "mine"
    shutil.copytree(ROOT / "checkpoints" / "tiny-grpo" / "run", shipped / "run")
    monkeypatch.setattr(make_tiny_grpo, "TARGETS", {False: (shipped, 10)})
    monkeypatch.setattr(sys, "argv", ["make_tiny_grpo.py", "--from-run", str(run)])
    before = sorted(shipped.rglob("*"))
    for missing in ("checkpoints.jsonl", "probes.jsonl"):
        with pytest.raises(SystemExit) as end:
            make_tiny_grpo.main()
        assert end.value.code == 2 and f"it has no {missing}" in capsys.readouterr().err
        shutil.copytree(shipped / "run", run, dirs_exist_ok=True)
        (run / "probes.jsonl").unlink()
    assert sorted(shipped.rglob("*")) == before


def test_a_quickstart_that_was_interrupted_is_not_shipped(tmp_path, monkeypatch):
    """Its folder has all files, and the weights of an early step."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["make_tiny_grpo.py"])

    def interrupted(options):
        shutil.copytree(ROOT / "checkpoints" / "tiny-grpo" / "run", options.log_path)
        return 130

    monkeypatch.setattr(make_tiny_grpo, "quickstart", interrupted)
    assert make_tiny_grpo.main() == 130
    assert not (tmp_path / "checkpoints").exists()
