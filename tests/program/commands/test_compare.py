"""Comparing recipes: equal budgets, a table whose numbers can be checked, runs that are kept."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from command_world import contents
from toy import saved, toy_model, toy_tokenizer

from reasoning_from_scratch.errors import UserError
from rfs.commands import cli, compare
from rfs.commands.compare import (
    ENTROPY,
    CompareOptions,
    choose_best_rate,
    compare_command,
    markdown,
    plot_bands,
    summary,
    table_row,
    trial_config,
)
from rfs.commands.other_words import as_option
from rfs.run.study import Trial
from tests.program.run.test_interrupts import press_at

# The problems to train on are those to evaluate on.
TOYS = """
def problems():
    return [{"problem": "abcd"[i % 4] * 3, "answer": i % 4} for i in range(8)]

test_problems = problems
"""


def options(tmp_path, **changes):
    (tmp_path / "toys.py").write_text(TOYS)
    values = dict(
        model=saved(toy_model(), toy_tokenizer(tmp_path), tmp_path),
        problems=f"{tmp_path}/toys.py:problems",
        recipes=("grpo", "dr_grpo"),
        seeds=2,
        steps=3,
        problems_per_step=2,
        rollouts=4,
        max_new_tokens=2,
        eval_every=2,
        jobs=1,
        log_path=str(tmp_path / "out"),
    )
    return CompareOptions(**(values | changes))


def test_two_recipes_two_seeds(tmp_path, capsys):
    compare_command(options(tmp_path))
    out = tmp_path / "out"
    said = capsys.readouterr()
    assert "4 of 4: dr_grpo, seed 1: " in said.out
    assert "4 runs of " in said.err and "training: " in said.err  # not silent until the first ends
    runs = {path.name for path in out.iterdir() if path.is_dir()}
    assert runs == {"grpo-seed0", "grpo-seed1", "dr_grpo-seed0", "dr_grpo-seed1"}
    with open(out / "compare.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["recipe"] for row in rows] == ["grpo", "dr_grpo"]
    assert float(rows[0]["start"]) == float(rows[1]["start"])  # the same model and problems
    assert float(rows[0]["gain"]) == 0 == float(rows[0]["gain_error"])  # compared with itself
    assert "seeds 0 to 1" in (out / "compare.md").read_text()
    assert (out / "compare.png").read_bytes().startswith(b"\x89PNG")
    with open(out / "runs.csv", newline="") as file:
        runs = [(row["recipe"], row["seed"], row["lr"]) for row in csv.DictReader(file)]
    seeds = [("grpo", "0"), ("dr_grpo", "0"), ("grpo", "1"), ("dr_grpo", "1")]
    assert runs == [(*pair, "0.0001") for pair in seeds]
    times = {path: path.stat().st_mtime_ns for path in out.glob("*/metrics.jsonl")}
    compare_command(options(tmp_path))  # nothing is run again
    assert times == {path: path.stat().st_mtime_ns for path in out.glob("*/metrics.jsonl")}


def refused(given, words):
    """The comparison is refused, and nothing on the disk has changed."""
    before = contents(Path(given.log_path))
    with pytest.raises(UserError, match=words):
        compare_command(given)
    assert contents(Path(given.log_path)) == before


ASKED = {
    "model": "tiny-grpo",
    "steps": 4,
    "problems_per_step": 1,
    "rollouts": 2,
    "max_new_tokens": 3,
    "problems": "tiny-longer-train",
    "eval_every": 1,
    "eval_limit": 5,
    "reward": "gsm8k",
    "temperature": 0.5,
    "weight_decay": 0.5,
    "prompt": "plain",
}


def test_a_run_with_any_other_setting_is_not_taken(tmp_path):
    compare_command(options(tmp_path, seeds=1))
    for name, value in ASKED.items():
        other = options(tmp_path, seeds=1, **{name: value})
        refused(other, f"grpo-seed0 was run with {name} .*, not {value}; choose another --out")
    # The first recipe has no run yet; it is not begun before it is known that all fit.
    refused(options(tmp_path, seeds=1, recipes=("rloo", "dr_grpo"), steps=4), "dr_grpo-seed0 was")


def test_a_run_is_not_taken_once_a_file_that_it_names_has_changed(tmp_path):
    own = tmp_path / "own.py"
    own.write_text("def mine(rewards): return rewards\n\nrecipe = {'advantage': mine}\n")
    asked = options(tmp_path, recipes=(f"{own}:recipe",), seeds=1, steps=1, eval_every=1)
    compare_command(asked)
    compare_command(asked)
    for file in (own, tmp_path / "toys.py"):
        before = file.read_text()
        file.write_text(before.replace("return rewards", "return -rewards") + "\n")
        refused(asked, f"own-recipe-seed0 was run before {file} was changed; choose another --out")
        file.write_text(before)
    own.write_text(own.read_text() + "\n")
    (tmp_path / "out" / "own-recipe-seed0" / "named_files.json").unlink()  # of an earlier version
    compare_command(asked)


def test_two_trials_do_not_share_a_folder(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "r.py").write_text("recipe = {'lr': 1e-4}\n")
    recipes = tuple(f"{tmp_path}/{name}/r.py:recipe" for name in "ab")
    says = f"{recipes[0]} and {recipes[1]} would share the folder r-recipe-seed0: rename one"
    refused(options(tmp_path, recipes=recipes), says)
    close = options(tmp_path, recipes=("grpo",), lrs=(1e-4, 1.00000001e-4))
    refused(close, "--lrs 0.0001 and 0.000100000001 would share the folder grpo-lr0.0001-seed0")


def test_an_interrupted_comparison_goes_on(tmp_path, monkeypatch, capsys):
    asked = options(tmp_path, seeds=1)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        # In the second step of the second run.
        press_at("reasoning_from_scratch.trainer.train_step", 5, patch)
        compare_command(asked)
    assert "run the same command again" in capsys.readouterr().err
    compare_command(asked)
    compare_command(options(tmp_path, seeds=1, log_path=str(tmp_path / "whole")))
    with_minutes = [(tmp_path / out / "compare.csv").read_text() for out in ("out", "whole")]
    tables = [[line.rsplit(",", 1)[0] for line in text.splitlines()] for text in with_minutes]
    assert tables[0] == tables[1] and len(tables[0]) == 3


def test_rates_baseline_and_the_same_algorithm(tmp_path, capsys):
    """With one update per batch no ratio leaves 1, and gspo is grpo."""
    asked = options(
        tmp_path, recipes=("rloo", "grpo", "gspo"), lrs=(1e-3, 1e-2), baseline="grpo", rollouts=16
    )
    compare_command(asked)
    out = tmp_path / "out"
    assert len(list(out.glob("*-lr0.01-seed?"))) == 6
    with open(out / "compare.csv", newline="") as file:
        rows = {row["recipe"]: row for row in csv.DictReader(file)}
    assert rows["gspo"]["same_as"] == "grpo" and rows["rloo"]["same_as"] == ""
    assert float(rows["grpo"]["gain"]) == 0
    assert {row["lr"] for row in rows.values()} <= {"0.001", "0.01"}
    text = (out / "compare.md").read_text()
    assert "in all seeds): gspo = grpo." in text and "greedy vs grpo" in text
    assert (out / "forest.png").read_bytes().startswith(b"\x89PNG")


def test_a_first_step_does_not_show_that_two_are_the_same(tmp_path):
    """All recipes sample it with the same weights."""
    asked = options(tmp_path, recipes=("rloo", "grpo"), steps=1, seeds=1, eval_every=1)
    compare_command(asked)
    with open(tmp_path / "out" / "compare.csv", newline="") as file:
        assert [row["same_as"] for row in csv.DictReader(file)] == ["", ""]


def test_a_comparison_in_two_processes(tmp_path, capsys):
    """Each writes a run of its own."""
    compare_command(options(tmp_path, recipes=("grpo",), jobs=2, steps=1, eval_every=1))
    assert "2 of 2: grpo, seed " in capsys.readouterr().out
    assert len((tmp_path / "out" / "runs.csv").read_text().splitlines()) == 3


def test_the_rate_is_chosen_by_the_rollouts():
    slow, fast = {0: run(0.1, 0.9, correct=0.2)}, {0: run(0.1, 0.4, correct=0.6)}
    assert choose_best_rate({1e-4: slow, 1e-3: fast}) == (1e-3, fast)


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"recipes": ("nope",)}, "unknown recipe"),
        ({"recipes": ("grpo", "sft")}, "sft learns from worked solutions"),
        ({"recipes": ("grpo", "grpo")}, "each once"),
        ({"lrs": (1e-4, 1e-4)}, "--lrs"),
        ({"baseline": "rloo"}, "--baseline rloo"),
    ],
)
def test_bad_requests(changes, says):
    with pytest.raises(UserError, match=says):
        CompareOptions(**changes).check()


def test_what_rfs_train_takes_holds_for_all_runs(capsys):
    """But not what each of them has for itself."""
    asked = CompareOptions.read("--lora-rank 4 --epochs 2 --prompt plain --lrs 0.1".split())
    assert asked.check() == "tiny-base"
    for recipe in asked.recipes:
        config = trial_config(asked, Trial(recipe, 0.1, 1))
        assert (config.recipe, config.lr, config.seed) == (recipe, 0.1, 1)
        assert (config.lora_rank, config.epochs, config.prompt) == (4, 2, "plain")
        assert (config.steps, config.eval_limit, config.rolling_every) == (60, 200, 10)
        assert not config.preflight and config.log_path.startswith("runs/compare/")
    text = markdown([table("grpo", [run(0.1)], [run(0.1)])], asked, 12)
    assert " Given: --prompt plain --epochs 2 --lora-rank 4. vs grpo" in text
    assert "Given" not in markdown([table("grpo", [run(0.1)], [run(0.1)])], CompareOptions(), 12)


@pytest.mark.parametrize("name, instead", CompareOptions.DECIDES.items())
def test_what_a_comparison_decides_is_no_option(name, instead, capsys):
    assert cli.main(["compare", as_option(name)]) == 2
    assert f"there is no option {as_option(name)} here: {instead}\n" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["compare", "--help-all"])
    assert f"{as_option(name)} " not in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, says",
    [
        ("--recipes dapo --clip-high 1.5 --epochs 2", "dapo sets clip_high to 1.28.* or drop --cl"),
        ("--recipes grpo dro --clip-high 1.5 --epochs 2", "^dro: --clip-high 1.5 does nothing in"),
        ("--objective cross_entropy", "learns from worked solutions"),
        ("--few-shot 2 --prompt chat", "^grpo: --few-shot shows solved problems"),
    ],
)
def test_an_option_that_a_recipe_cannot_train_with_is_refused(words, says):
    with pytest.raises(UserError, match=says):
        CompareOptions.read(words.split()).check()


OWN = """
reward = lambda text, problem: 0.5
half = {"reward": f"{__file__}:reward", "lr": 3e-3, "max_new_tokens": 3}
many = {"rollouts": 64}
elsewhere = {"problems": "tiny"}
"""


def test_what_a_recipe_of_your_own_sets(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    own = [f"{tmp_path}/own.py:{name}" for name in ("half", "many", "elsewhere")]
    asked = options(tmp_path, recipes=own[:1], max_new_tokens=None)
    config = trial_config(asked, Trial(own[0], None, 0))
    assert config.reward == f"{tmp_path}/own.py:reward"
    assert (config.lr, config.max_new_tokens, config.rollouts) == (3e-3, 3, 4)
    assert trial_config(asked, Trial(own[0], 0.1, 0)).lr == 0.1  # of --lrs
    with pytest.raises(UserError, match="many sets rollouts to 64, .* --rollouts"):
        replace(asked, recipes=own[1:2]).check()
    with pytest.raises(UserError, match="elsewhere sets problems to tiny"):
        replace(asked, recipes=own[2:]).check()


def run(*accuracies, correct=0.5):
    return [
        {
            "step": i,
            "eval_acc": a,
            "env/all/correct": correct,
            "time/total": 30,
            "env/all/total_ac_tokens": 100,
            "optim/lr": 5e-5,
            ENTROPY: 0.5,
        }
        for i, a in enumerate(accuracies)
    ]


def cells(text, recipe):
    """The cells of a recipe's line in the Markdown table."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {recipe} ")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def table(recipe, runs, baseline):
    """A row of runs that have the default rate, with seeds 0, 1, ..."""
    return table_row(recipe, None, dict(enumerate(runs)), dict(enumerate(baseline)))


def test_table_by_hand():
    runs = [run(0.1, 0.4), run(0.3, 0.8, correct=0.7)]
    row = table("dapo", runs, [run(0.1, 0.3, correct=0.3), run(0.3, 0.6, correct=0.4)])
    assert row.accuracy == pytest.approx(0.6) and row.start == pytest.approx(0.2)
    assert row.error == pytest.approx(0.2)  # stdev 0.2 * sqrt(2), over sqrt(2)
    assert row.accuracy_gain == pytest.approx(0.15)  # .1, .2
    assert row.accuracy_gain_error == pytest.approx(0.05)
    assert row.sampled == pytest.approx(0.6) and row.sampled_error == pytest.approx(0.1)
    assert row.gain == pytest.approx(0.25) and row.gain_error == pytest.approx(0.05)  # .2, .3
    assert (row.tokens, row.minutes, row.lr) == (200, 1, 5e-5)
    alone = table("grpo", [run(0.1, 0.4)], [run(0.1, 0.4)])
    text = markdown([alone, row], CompareOptions(recipes=("grpo", "dapo")), 12)
    assert "accuracy on 12 held-out problems" in text
    assert text.index("| dapo") < text.index("| grpo")  # best first
    names = "recipe, lr, before, greedy, greedy vs grpo, rollouts, rollouts vs grpo"
    assert cells(text, "recipe") == [*names.split(", "), "tokens", "minutes"]  # all different
    shares = ["60.0 ± 20.0%", "+15.0 ± 5.0", "60.0 ± 10.0%", "+25.0 ± 5.0"]
    assert cells(text, "dapo") == ["dapo", "5e-05", "20.0%", *shares, "200", "1.0"]
    assert cells(text, "grpo")[2:7] == ["10.0%", "40.0%", "", "50.0%", ""]
    printed = summary([alone, row], CompareOptions(recipes=("grpo", "dapo")))
    assert cells(printed, "dapo") == ["dapo", "5e-05", *shares[:3]]
    assert max(map(len, printed.splitlines())) <= 90
    (line,) = run(0.4)  # of an only step: its line has both evaluations
    one_step = [line | {"eval_step": 1, "before/eval_acc": 0.1, "before/eval_step": 0}]
    both = table("grpo", [one_step], [one_step])
    assert (both.start, both.accuracy) == (0.1, 0.4)
    assert len({len(line) for line in text.splitlines() if line.startswith("|")}) == 1


def test_noise_does_not_look_like_learning(tmp_path, monkeypatch):
    """Two points on an axis from 4.4 to 6.0% filled the picture."""
    saved = []
    monkeypatch.setattr(compare, "save_picture", lambda figure, path: saved.append(figure))
    plot_bands({"grpo": [run(0.044, 0.06), run(0.05, 0.045)]}, tmp_path)
    ((panel, _),) = (figure.axes for figure in saved)
    assert panel.get_ylim() == (0, 0.2)
    assert panel.yaxis.get_major_formatter()(0.1) == "10%"
