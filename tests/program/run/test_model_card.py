"""README.md of a save: what it says, what it does not tell, and that people may change it."""

import json
import shlex

import pytest
from toy import toy_run

from reasoning_from_scratch.problems import Problem, PromptFormat, problem_prompt
from reasoning_from_scratch.text import percent
from rfs.commands.train_options import TrainOptions
from rfs.config import RunConfig
from rfs.files.models import load_model_and_tokenizer
from rfs.run.model_card import model_card
from rfs.run.options import configure


def test_the_card_of_a_save(run, tmp_path):
    final = run.folder / "checkpoints" / "000006" / "README.md"
    accuracy = run.rows[-1]["eval_acc"]
    text = final.read_text()
    assert text.startswith("---\nlibrary_name: transformers\n") and "base_model" not in text
    assert "# run, after 6 of 6 steps" in text and "It started from `tiny-toy-" in text
    assert f"Held-out accuracy: {percent(accuracy)} of 8 problems of" in text
    assert "95% interval" in text
    assert "rfs train --recipe grpo --model tiny-toy-" in text and str(tmp_path) not in text
    assert "not measured at this step" in model_card(RunConfig(steps=9), "mine", 3, 24, {})


def test_the_card_names_every_setting_that_changes_weights():
    config = configure(
        "dr_grpo",
        reward="/home/me/tasks/mine.py:reward",
        reward_parts={"correct": 1.0, "format": 0.5},
        prompt="shots.txt",
        stop="\n\n",
        temperature=0.8,
        drop_uniform_groups=False,
        eval_every=5,
        save_every=7,
        log_path="runs/x",
    )
    text = model_card(config, "mine", 3, 24, {}, prompt="Q: {problem}\nA:")
    (command,) = [line for line in text.splitlines() if line.startswith("rfs train --recipe")]
    for words in (
        "--recipe dr_grpo",
        "--reward mine.py:reward",
        "--reward-parts correct=1 format=0.5",
        "--prompt shots.txt",
        r"--stop '\n\n'",
        "--temperature 0.8",
        "--no-drop-uniform-groups",
    ):
        assert words in command
    for words in ("/home/me", "--advantage", "--eval-every", "--save-every", "--log-path"):
        assert words not in command  # a folder, what the recipe sets, what is only recorded
    parsed = TrainOptions.read(shlex.split(command.replace("shots.txt", "plain"))[2:])
    assert (parsed.stop, parsed.temperature) == (r"\n\n", 0.8)


@pytest.mark.parametrize(
    "problems, named",
    [
        ("hf:openai/gsm8k:main@train", "hf:openai/gsm8k:main@train"),  # not the package's gsm8k
        ("gym:chain_sum?min_terms=3", "gym:chain_sum?min_terms=3"),
        ("/home/me/mine.jsonl", "mine.jsonl"),
        ("/home/me/tasks/mine.py:problems", "mine.py:problems"),
        ("math-train", "math-train"),
    ],
)
def test_the_card_names_the_problems_as_others_can_find_them(problems, named):
    text = model_card(configure("grpo", problems=problems), "mine", 3, 24, {})
    (command,) = [line for line in text.splitlines() if line.startswith("rfs train --recipe")]
    assert TrainOptions.read(shlex.split(command)[2:]).problems == named
    assert f"on problems of `{named}`" in text and "/home/me" not in text


@pytest.mark.parametrize("kind", ["", "chat:", "plain:"])
def test_the_card_names_a_prompt_s_file_and_how_it_is_put(kind):
    text = model_card(configure("grpo", prompt=f"{kind}/home/me/p.txt"), "mine", 3, 24, {})
    (command,) = [line for line in text.splitlines() if line.startswith("rfs train --recipe")]
    assert f" --prompt {kind}p.txt" in command and "/home/me" not in text


def test_the_example_on_the_card_asks_as_in_training(run, tmp_path, monkeypatch, capsys):
    place = run.folder / "checkpoints" / "000006"
    code = (place / "README.md").read_text().partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(place)
    made: dict = {}
    exec(code, made)
    asked = PromptFormat(**json.loads((place / "prompt.json").read_text()))
    assert made["text"] == asked.prompt.replace("{problem}", "What is 6 * 7?")
    _, tokenizer = load_model_and_tokenizer(place)
    ours = tokenizer.encode(problem_prompt(Problem("", "What is 6 * 7?", "")))
    assert made["ids"]["input_ids"][0].tolist() == ours
    assert capsys.readouterr().out.strip()


def test_the_card_counts_what_was_sampled_or_learned(tmp_path):
    result = toy_run(tmp_path / "run", steps=2, active_sampling=True)
    text = (tmp_path / "run/checkpoints/000002/README.md").read_text()
    answers = sum(row["env/all/total_episodes"] for row in result.rows)
    assert f": {answers:,} answers." in text and answers > 2 * 4 * 4
    text = model_card(RunConfig(recipe="sft", objective="cross_entropy"), "mine", 3, 24, {})
    assert "trained on worked solutions" in text and ": 24 worked solutions." in text
    assert "tags: [sft]" in text


def test_the_card_learns_what_these_weights_score(tmp_path):
    """A save comes before the evaluation of its weights; the best of them is only one of them."""
    run = tmp_path / "run"
    result = toy_run(run, steps=3, save_every=1, eval_every=1)
    for row in result.rows[1:]:
        text = (run / "checkpoints" / f"{row['step']:06d}" / "README.md").read_text()
        accuracy = row.get("before/eval_acc", row["eval_acc"])
        assert f"Held-out accuracy: {percent(accuracy)} of 8 problems" in text
