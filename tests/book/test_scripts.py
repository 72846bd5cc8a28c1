"""The chapters' scripts: from any folder, with --help, without logic of their own."""

import ast
import json
import re
import runpy
import subprocess
import sys
from unittest.mock import Mock

import pytest

from reasoning_from_scratch.files import downloads
from reasoning_from_scratch.files.weights import save_model
from rfs.commands.other_words import SYNONYMS, in_our_words, option_name
from rfs.files.models import load_model_and_tokenizer
from rfs.tasks.problem_sets import load_problems
from tests.conftest import ROOT
from tests.program.commands.test_reading import is_sentence

SCRIPTS = """
    ch06/train_grpo.py ch06/evaluate_math500.py ch06/inference_scaling.py ch06/plot_metrics.py
    ch07/train_recipe.py ch07/compare_recipes.py ch07/use_checkpoint.py
""".split()


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs a script in this process, in a folder that is not the repository: (code, out, err)."""
    monkeypatch.chdir(tmp_path)

    def run_script(script, *args):
        monkeypatch.setattr(sys, "argv", [str(ROOT / script), *map(str, args)])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(ROOT / script), run_name="__main__")
        return end.value.code, *capsys.readouterr()

    return run_script


def test_starts_in_a_python_of_its_own(tmp_path):
    """Once for real; the other tests save the time."""
    command = [sys.executable, ROOT / "ch07/use_checkpoint.py", "--list"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "9000" in done.stdout, done.stderr
    assert list(tmp_path.iterdir()) == []


def own_options(script):
    """A script's options and what help says of each, from its text: some scripts import what is not
    installed here."""
    found = {}
    for item in ast.parse(script.read_text(encoding="utf-8")).body:
        if isinstance(item, ast.ClassDef) and re.fullmatch(r"Config|\w*Options", item.name):
            for one, after in zip(item.body, [*item.body[1:], None], strict=True):
                match one, after:
                    case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                        found[name] = " ".join(text.split())
                    case ast.AnnAssign(ast.Name(name)), _:
                        found[name] = ""
    return found


@pytest.mark.parametrize("script", sorted(ROOT.glob("ch0*/*.py")), ids=lambda path: path.name)
def test_what_a_script_says_of_an_option_is_a_sentence(script):
    texts = own_options(script).values()
    assert [text for text in texts if text and not is_sentence(text)] == []


@pytest.mark.parametrize("script", sorted(ROOT.glob("ch0*/*.py")), ids=lambda path: path.name)
def test_a_script_has_no_other_word_for_what_rfs_has_a_name_for(script):
    """Other programs' names, and earlier ones of ours, are accepted, and are not what help shows.
    In chat_rl a run is a name, not a model."""
    names = {option_name(name) for name in own_options(script)} - {"run"}
    assert not names & SYNONYMS.keys()


EARLIER = {
    "ch06/evaluate_math500.py": "which_model dataset_size batch_size out_path",
    "ch06/inference_scaling.py": "which_model dataset_size batch_size out_path num_samples",
    "ch06/plot_metrics.py": "save_as",
    "studies/real_model.py": "every",
    "studies/binary_search.py": "every pay kl",
    "ch07/chat_rl.py": "device_type examples_per_step num_samples eval_examples device_batch_size",
    "ch07/rl_client.py": "groups_per_batch group_size learning_rate max_tokens test_limit",
    "ch07/rl_loop.py": "groups_per_batch group_size learning_rate max_tokens test_limit log_path",
    "ch07/rl_verifiers.py": "groups_per_batch group_size learning_rate max_tokens",
    "ch07/use_checkpoint.py": "out_dir",
    "studies/experiment.py": "every",
}


@pytest.mark.parametrize("script", EARLIER)
def test_the_words_of_before_are_accepted(script):
    names = {option_name(name) for name in own_options(ROOT / script)}
    for word in EARLIER[script].split():
        (ours,) = in_our_words([f"--{word}"], names)
        assert ours.removeprefix("--").replace("-", "_") in names


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_and_a_wrong_flag(script, run):
    code, out, _ = run(script, "--help")
    assert code == 0 and "--" in out
    code, _, err = run(script, "runs/first", "--no-such-flag")
    assert code == 2 and "no-such-flag" in err


def test_evaluate_the_tiny_model_and_a_checkpoint(run, tmp_path):
    sizes = ["--dataset_size", 3, "--max_new_tokens", 32, "--device", "cpu"]
    code, out, _ = run("ch06/evaluate_math500.py", *sizes, "--verbose")
    assert code == 0
    assert "accuracy" in out and "mean length" in out and re.search(r"time +\d+\.\d s", out)
    lines = [json.loads(line) for line in open(tmp_path / "runs" / "tiny-test-tiny.jsonl")]
    test_set = load_problems("tiny-test", limit=3)
    assert [row["problem"] for row in lines] == [problem.problem for problem in test_set]
    assert all(row["generated_text"].strip() in out for row in lines)

    model, _ = load_model_and_tokenizer("tiny")
    for weight in model.parameters():
        weight.data.zero_()  # every token is equally likely, so the answer is token 0, repeated
    path = save_model(model, tmp_path / "zeros.pth")
    code, out, _ = run(
        "ch06/evaluate_math500.py",
        "tiny",
        *sizes,
        "--checkpoint_path",
        path,
        "--out_path",
        "zeros.jsonl",
    )
    assert code == 0 and "zeros" in out
    zeros = [json.loads(line) for line in open(tmp_path / "zeros.jsonl")]
    assert len({row["generated_text"] for row in zeros}) == 1


SMALL = ["--dataset_size", 3, "--max_new_tokens", 16, "--max_critique_tokens", 8, "--device", "cpu"]


def test_methods_side_by_side_and_graded_again(run, tmp_path):
    methods = ["--method", "greedy", "vote_logprob", "refine", "--samples", 2, 3]
    models = ["--which_model", "tiny-base", "tiny-grpo"]
    code, out, err = run("ch06/inference_scaling.py", *methods, *models, *SMALL)
    assert code == 0, err
    table = [line.split(" | ") for line in out.splitlines() if line.startswith("| tiny-")]
    labels = ["greedy", "vote_logprob_2", "vote_logprob_3", "refine"]
    assert [row[1] for row in table] == 2 * labels
    files = {path.name for path in (tmp_path / "runs").glob("*.jsonl")}
    assert files == {f"tiny-test-{model}-{label}.jsonl" for model in models[1:] for label in labels}
    accuracy = next(line for line in out.splitlines() if line.startswith("  accuracy"))
    stored = "runs/tiny-test-tiny-base-greedy.jsonl"
    code, out, _ = run("ch06/inference_scaling.py", "--method", "rescore", "--answers", stored)
    assert code == 0 and accuracy in out and "changed     0 verdicts" in out


@pytest.mark.parametrize("argument", ["metrics.csv", "."])
def test_plot_a_file_or_a_run_folder(run, tmp_path, argument):
    (tmp_path / "metrics.csv").write_text("step,reward_avg,eval_acc\n1,0.5,\n2,0.75,0.5\n")
    code, out, _ = run("ch06/plot_metrics.py", argument, "--save_as", "curves.png")
    assert code == 0 and out.strip() == "curves.png"
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_checkpoint_is_asked(run, tmp_path, monkeypatch):
    """The tiny model stands in for what would be downloaded."""
    model, _ = load_model_and_tokenizer("tiny")
    download = Mock(return_value=save_model(model, tmp_path / "step00100.pth"))
    monkeypatch.setattr(downloads, "published_checkpoint", download)
    words = "--grpo_type kl --step 100 --max_new_tokens 48 --device cpu --question".split()
    code, out, _ = run("ch07/use_checkpoint.py", *words, "What is 7 * 8 + 4?")
    assert code == 0 and "boxed" in out
    download.assert_called_once_with("kl", 100, ROOT / "checkpoints")
