"""`--recipe sft`: worked solutions in place of sampled answers, through the same loop."""

import json
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from toy import (
    resumed_run,
    toy_config,
    toy_model,
    toy_problems,
    toy_tokenizer,
    toy_world,
    train,
    written,
)

from reasoning_from_scratch.config import SAMPLED, fields_marked
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.optim.adamw import AdamW
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.problems import Problem, problem_prompt
from reasoning_from_scratch.rollouts import worked_rollout
from reasoning_from_scratch.trainer import step_problems, train_step, worked_solutions
from rfs.config import RunConfig
from rfs.run.chosen_problems import problems_to_imitate
from rfs.run.options import configure, resolved

SFT = {"recipe": "sft", "objective": "cross_entropy", "aggregate": "token"}


@pytest.fixture
def world(tmp_path):
    return toy_world(tmp_path)


def cross_entropy(model, tokenizer, problems) -> torch.Tensor:
    """The mean over all answer tokens of PyTorch's own, each example by itself."""
    total, count = torch.zeros(()), 0
    for problem in problems:
        prompt = tokenizer.encode(problem_prompt(problem))
        answer = tokenizer.encode(" " + problem.solution) + [tokenizer.eos_token_id]
        ids = torch.tensor([prompt + answer])
        logits = model(ids[:, :-1])[0, len(prompt) - 1 :]
        total = total + F.cross_entropy(logits, torch.tensor(answer), reduction="sum")
        count += len(answer)
    return total / count


class Kept(AdamW):
    """Keeps the gradient in place of a step."""

    def step(self, lr: float) -> None:
        self.found = {name: parameter.grad.clone() for name, parameter in self.named_parameters}


def test_a_step_is_that_of_pytorchs_cross_entropy(tmp_path):
    model, tokenizer = toy_model(), toy_tokenizer(tmp_path)
    config = resolved(toy_config(tmp_path, **SFT, grad_clip=0.0))
    policy = LocalPolicy(model, Kept(model), config, tokenizer=tokenizer)
    problems = [
        Problem(f"p{i}", "ab" * (i + 1), "1", solution="c" * i + "\\boxed{1}") for i in range(4)
    ]
    groups = next(worked_solutions(policy, problems, config))
    numbers = train_step(policy, groups, config, lr=1.0)

    expected = cross_entropy(model, tokenizer, problems)
    model.zero_grad()
    expected.backward()
    assert numbers["optim/loss"] == pytest.approx(expected.item(), rel=1e-5)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(policy.optimizer.found[name], parameter.grad)
    # Nobody sampled: no ratio, nothing to clip, no gap.
    assert numbers["optim/ratio_mean"] == numbers["optim/ratio_max"] == 1
    assert numbers["optim/kl_sample_train_v1"] == numbers["optim/clip_frac"] == 0


def test_a_run_learns_reports_and_is_resumed(world, tmp_path):
    asked = SFT | {"steps": 12, "lr": 1e-2, "eval_every": 6, "eval_problems": ["tiny-test"]}
    whole = train(toy_config(tmp_path / "whole", **asked), quiet=True, **world)
    rows = whole.rows
    assert rows[0]["optim/loss"] > 2 * rows[-1]["optim/loss"]
    assert {"eval_acc", "tiny-test/env/all/correct"} <= rows[-1].keys()
    (held_out,) = [key for key in rows[0] if key.endswith("/loss") and "optim" not in key]
    assert rows[-1][held_out] == rows[-1]["eval_loss"] < rows[0]["eval_loss"]
    assert all(row["env/all/correct"] == row["advantage/mean"] == 1 for row in rows)
    for missing in ("by_group/frac_mixed", "optim/entropy", "perf/sample_tokens_per_sec"):
        assert not any(missing in key for key in rows[0])
    page = (whole.folder / "report.html").read_text()
    assert "<h3>Loss</h3>" in page and "<h3>Reward</h3>" not in page

    train(toy_config(tmp_path / "run", **(asked | {"steps": 6})), quiet=True, **world)
    resumed = resumed_run(tmp_path / "run", steps=12)
    losses = [[row["optim/loss"] for row in result.rows] for result in (whole, resumed)]
    assert losses[0] == losses[1] and resumed.rows[-1]["eval_loss"] == rows[-1]["eval_loss"]
    weights = [result.model.state_dict() for result in (whole, resumed)]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


def test_the_held_out_loss_is_that_of_pytorch(world, tmp_path):
    asked = SFT | {"steps": 1, "lr": 0.0, "eval_every": 1, "eval_problems": ["tiny-test"]}
    result = train(toy_config(tmp_path / "run", **asked), quiet=True, **world)
    expected = cross_entropy(world["model"], world["tokenizer"], world["eval_problems"])
    assert result.rows[0]["eval_loss"] == pytest.approx(expected.item(), rel=1e-5)


def test_the_held_out_loss_is_that_of_the_first_set(world, tmp_path):
    """Even if it has no solutions, and the second one has."""
    with_solutions, without = toy_problems(4), [replace(p, solution="") for p in toy_problems(4)]
    sets = [written(without, tmp_path, "a.jsonl"), written(with_solutions, tmp_path, "b.jsonl")]
    del world["eval_problems"]
    asked = SFT | {"steps": 1, "eval_every": 1, "eval_problems": sets}
    (row,) = train(toy_config(tmp_path / "run", **asked), quiet=True, **world).rows
    assert row["b.jsonl/loss"] > 0 and "eval_loss" not in row and "eval_acc" in row


def test_a_solution_follows_the_prompt_as_an_answer_would(tmp_path):
    tokenizer = toy_tokenizer(tmp_path)
    for prompt, start in (("ab", " c"), ("ab ", "c")):
        problem = Problem("p", "ab", "1", solution="c\\boxed{1}", prompt=prompt)
        rollout = worked_rollout(problem, tokenizer)
        assert tokenizer.decode(rollout.prompt_ids) == prompt
        assert rollout.text == start + "\\boxed{1}" and rollout.finished
        assert rollout.response_ids[-1] == tokenizer.eos_token_id
    problem = Problem("p", "ab", "1", solution="c", prompt="ab ")  # the box is added
    assert worked_rollout(problem, tokenizer).text.endswith("\\boxed{1}")


def test_solutions_that_cannot_be_learned_are_left_out_and_counted(tmp_path, caplog):
    tokenizer = toy_tokenizer(tmp_path)
    problems = [
        Problem("fits", "a", "1", solution="c\\boxed{1}"),
        Problem("none", "a", "1"),
        Problem("long", "a", "1", solution="c" * 20 + "\\boxed{1}"),
    ]
    with caplog.at_level("WARNING", "reasoning_from_scratch"):
        left = problems_to_imitate(problems, tokenizer, 8, 512)
    assert [problem.id for problem in left] == ["fits"]
    words = " ".join(record.getMessage() for record in caplog.records)
    assert "1 of 3 problems, which have no worked solution" in words
    assert "longer than --max-new-tokens 8" in words
    with pytest.raises(UserError, match="no worked solution .* such as none"):
        problems_to_imitate(problems[1:2], tokenizer, 8, 512)


GIVEN = {
    "rollouts": 4,
    "keep_sampling_mask": True,
    "environment": "retry",
    "reward_parts": {"correct": 1.0, "format": 1.0},
    "overlong_penalty": 4,
    "advantage": "mean",
    "kl": "k3",
    "kl_coef": 0.1,
    "truncate_importance": 2.0,
    "mask_importance": 2.0,
    "max_steps_off_policy": 1,
    "sampler": "ray",
    "num_minibatches": 2,
    "num_substeps": 2,
    "train_rollouts": 2,
    "sampling_weights": "int8",
}


@pytest.mark.parametrize("name", [n for n in fields_marked(RunConfig, SAMPLED) if n != "epochs"])
def test_what_is_for_sampled_answers_is_refused(name):
    default = getattr(resolved(configure("sft")), name)
    value = GIVEN.get(name, not default)
    needed = {"top_p": 0.9, "eval_samples": 2} if name == "keep_sampling_mask" else {}
    needed |= {"reward_parts": GIVEN["reward_parts"]} if name == "conditional_format" else {}
    needed |= {"kl_coef": 0.1} if name == "kl" else {}
    with pytest.raises(UserError, match="does nothing|do not|needs|drop"):
        resolved(configure("sft", **({name: value} | needed)))


def test_epochs_and_temperature_are_refused_in_words():
    with pytest.raises(UserError, match="--epochs 2 does nothing"):
        resolved(configure("sft", epochs=2))
    with pytest.raises(UserError, match="--temperature 0.5 does nothing without --eval-samples"):
        resolved(configure("sft", temperature=0.5))
    config = resolved(configure("sft", temperature=0.5, eval_samples=4))
    assert config.train_temperature == 1.0


def test_the_learning_rate_that_suits():
    rates = {model: resolved(configure("sft", model=model)).lr for model in ("tiny", "base")}
    assert rates == {"tiny": 1e-4, "base": 1e-5}
    assert resolved(configure("sft", model="base", lora_rank=8)).lr == pytest.approx(1e-4)
    assert resolved(configure("sft", model="base", lr=3e-6)).lr == 3e-6


def test_a_file_with_question_answer_and_solution(world, tmp_path):
    rows = [
        {"question": p.problem, "answer": p.answer, "solution": p.solution} for p in toy_problems()
    ]
    path = tmp_path / "worked.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    del world["problems"], world["eval_problems"]
    config = toy_config(tmp_path / "run", **SFT, problems=str(path), steps=2)
    result = train(config, quiet=True, **world)
    assert [row["env/all/correct"] for row in result.rows] == [1, 1]


def test_every_example_once_in_each_pass(tmp_path):
    problems, config = toy_problems(16), toy_config(tmp_path, **SFT)
    taught = [one.id for step in range(4) for one in step_problems(problems, config, step)]
    assert sorted(taught) == sorted(one.id for one in problems)
