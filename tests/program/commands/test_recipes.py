"""`rfs recipes`: the table of recipes, without waiting for torch."""

from rfs.commands import cli
from tests.program.commands.test_start_up import until_torch


def test_recipes_are_listed(capsys):
    assert cli.main(["recipes"]) == 0
    out = capsys.readouterr().out
    assert "dapo" in out and "arXiv:2503.14476" in out and "clip_high=1.28" in out


def test_they_are_listed_without_torch():
    done = until_torch("recipes")
    assert done.returncode == 0 and "dapo" in done.stdout
