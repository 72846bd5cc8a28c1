"""README.md of a save: what it says, what it does not tell, and that people may change it."""

from toy import toy_run

from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.run.model_card import model_card


def test_the_card_of_a_save(run, tmp_path):
    final = run.folder / "checkpoints" / "000006" / "README.md"
    accuracy = run.rows[-1]["eval_acc"]
    text = final.read_text()
    assert text.startswith("---\nlibrary_name: transformers\n") and "base_model" not in text
    assert "# run, after 6 of 6 steps" in text and "It started from `tiny-toy-" in text
    assert f"Held-out accuracy: {accuracy:.1%} of 8 problems of" in text and "95 % interval" in text
    assert "rfs train --recipe grpo --model tiny-toy-" in text and str(tmp_path) not in text
    assert "not measured at this step" in model_card(TrainConfig(steps=9), "mine", 3, 24, {})


def test_the_card_counts_what_was_sampled_or_learned(tmp_path):
    result = toy_run(tmp_path / "run", steps=2, active_sampling=True)
    text = (tmp_path / "run/checkpoints/000002/README.md").read_text()
    answers = sum(row["env/all/total_episodes"] for row in result.rows)
    assert f": {answers:,} answers." in text and answers > 2 * 4 * 4
    text = model_card(TrainConfig(recipe="sft", objective="cross_entropy"), "mine", 3, 24, {})
    assert "trained on worked solutions" in text and ": 24 worked solutions." in text
    assert "tags: [sft]" in text


def test_the_card_learns_what_these_weights_score(tmp_path):
    """A save comes before the evaluation of its weights; the best of them is only one of them."""
    run = tmp_path / "run"
    result = toy_run(run, steps=3, save_every=1, eval_every=1)
    for row in result.rows[1:]:
        text = (run / "checkpoints" / f"{row['step']:06d}" / "README.md").read_text()
        accuracy = row.get("before/eval_acc", row["eval_acc"])
        assert f"Held-out accuracy: {accuracy:.1%} of 8 problems" in text
