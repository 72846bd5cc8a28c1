"""Numbers that are none, too large or missing: weights stay finite, people get one line."""

import itertools
import json
import math

import pytest
import torch
from toy import (
    LETTERS,
    resumed_run,
    toy_config,
    toy_model,
    toy_problems,
    toy_run,
    toy_tokenizer,
    toy_world,
    train,
)

from reasoning_from_scratch import rollouts
from reasoning_from_scratch.advantages import KINDS, advantages
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.optim.adamw import AdamW
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.recipes import RECIPES
from reasoning_from_scratch.rollouts import Group, Rollout, make_batch
from reasoning_from_scratch.text import read_lines
from reasoning_from_scratch.trainer import set_advantages, train_step
from rfs.config import replaced
from rfs.run.options import configure, resolved
from rfs.tasks.own_task import Verifier

BAD = [math.nan, math.inf, -math.inf]


def weights(model) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def pay(monkeypatch, reward_of):
    """What no verifier may pay: `reward_of` how many rewards there were before."""
    numbers = itertools.count()
    monkeypatch.setattr(rollouts, "total_reward", lambda *_: reward_of(next(numbers)))


def log_of(folder) -> str:
    return (folder / "logs.log").read_text()


# ---- logits


def test_a_run_whose_sampler_meets_nan_stops_with_a_save(tmp_path, monkeypatch):
    folder, forward = tmp_path / "run", Qwen3Model.forward

    def spoiled(model, *given, **named):
        """After three steps, the fourth row of what any model says is not finite."""
        logits = forward(model, *given, **named)
        if len(logits) > 3 and len(read_lines(folder / "metrics.jsonl")) >= 3:
            logits = logits.index_fill(0, torch.tensor(3), math.nan)
        return logits

    monkeypatch.setattr(Qwen3Model, "forward", spoiled)
    result = toy_run(folder, steps=8, save_every=2, eval_every=0, reward=LETTERS)
    assert len(result.rows) == 3 and weights(result.model).isfinite().all()
    assert "stopped after 3 of 8 steps, saved: the model's logits" in result.stopped
    assert "\n" not in result.stopped and result.stopped in log_of(folder)
    saves = [line["batch"] for line in read_lines(folder / "checkpoints.jsonl")]
    assert saves == [0, 2, 3]  # nothing before it was given up for the new one
    monkeypatch.undo()
    rest = resumed_run(folder)
    assert [row["step"] for row in rest.rows] == list(range(8)) and not rest.stopped


# ---- rewards and advantages


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("bad", BAD)
def test_a_reward_that_is_no_number_gives_no_advantage_that_is_one(kind, bad):
    """It must not pass for a good or bad answer: the update is then left out, and told."""
    for rewards in ([bad] * 4, [bad, 0.0, 1.0, 1.0]):
        values = advantages(torch.tensor(rewards), kind)
        assert not values.isfinite().all() or (values == 0).all()


def test_all_rewards_nan(tmp_path, monkeypatch):
    pay(monkeypatch, lambda number: math.nan)
    folder = tmp_path / "run"
    result = toy_run(folder, steps=20, eval_every=2)
    assert torch.equal(weights(result.model), weights(toy_model()))
    assert "not finite in 5 steps in a row" in result.stopped and len(result.rows) == 5
    assert result.rows[-1]["env/all/reward/total"] is None
    found = read_lines(folder / "nonfinite_step_000000.jsonl")
    assert len(found) == 32 and found[0]["reward"] is None and found[0]["text"]
    assert read_lines(folder / "checkpoints.jsonl")[-1]["batch"] == 5
    json.loads((folder / "metrics.jsonl").read_text().splitlines()[0], parse_constant=pytest.fail)


@pytest.mark.parametrize("bad", [math.nan, 1e300])
def test_one_bad_reward_costs_one_step(tmp_path, monkeypatch, bad):
    pay(monkeypatch, lambda number: bad if number == 40 else float(number % 3))
    result = toy_run(tmp_path / "run", steps=4, num_groups_to_log=0)
    assert len(result.rows) == 4 and not result.stopped
    assert [row["optim/nonfinite"] for row in result.rows] == [0, 1, 0, 0]
    assert weights(result.model).isfinite().all()
    assert log_of(tmp_path / "run").count("loss or gradient was not finite, so no update") == 1


@pytest.mark.parametrize("value", [1e300, 10**400, math.nan])
def test_a_verifier_that_pays_what_no_float32_holds(value):
    paid, why = Verifier(lambda text, problem: value)("1", toy_problems()[0])
    assert paid == 0 and "returned no finite number" in why


# ---- losses, rates


def test_bad_advantages_and_logprobs_never_reach_the_weights(tmp_path):
    """Where a number of a rollout enters the loss."""
    config = resolved(toy_config(tmp_path, objective="importance_sampling"))
    for name in ("logprobs", "reward"):
        for bad in BAD:
            model = toy_model()
            optimizer = AdamW(model)
            group = drawn_group(["a", "bb", "ccc", "d"])
            if name == "logprobs":
                group.rollouts[0].logprobs[0] = bad
            else:
                group.rollouts[0].reward = bad
            before = weights(model)
            train_step(LocalPolicy(model, optimizer, config), [group], config, 1e-2)
            assert weights(model).isfinite().all()
            assert all(state.isfinite().all() for state in optimizer.state.values())
            if bad != math.inf or name == "reward":  # a ratio of exp(-inf) = 0 is a number
                assert torch.equal(weights(model), before)


# ---- answers


def drawn_group(answers: list[str], eos: int = 37) -> Group:
    group = Group(Problem("p", "abc", "1"), [])
    for number, text in enumerate(answers):
        ids = [1 + ord(letter) - ord("a") for letter in text] + [eos] * (number % 2)
        numbers = {"logprobs": [-1.0] * len(ids), "entropies": [0.5] * len(ids)}
        rollout = Rollout(group.problem, [1, 2], ids, **numbers, text=text)
        rollout.finished, rollout.reward = bool(number % 2), float(number)
        rollout.rewards = {"correct": 0.0, "format": 0.0}
        group.rollouts.append(rollout)
    return group


@pytest.mark.parametrize("recipe", sorted(RECIPES))
def test_empty_answers_and_those_of_only_end_of_text(tmp_path, recipe):
    """Empty, only end of text, and a real one in one group: finite in every recipe."""
    changes = dict(log_path=str(tmp_path), device="cpu", max_new_tokens=20)
    config = resolved(configure(recipe, model="tiny", **changes))
    config = replaced(config, active_sampling=False)  # which would draw other groups
    model, group = toy_model(), drawn_group(["", "", "ab", "c"])
    assert [len(r.response_ids) for r in group.rollouts] == [0, 1, 2, 2]
    for rollout in group.rollouts:
        rollout.kept = [[] for _ in rollout.response_ids] if config.keep_sampling_mask else None
    set_advantages([group], config)
    policy = LocalPolicy(model, AdamW(model), config, tokenizer=toy_tokenizer(tmp_path))
    found = train_step(policy, [group], config, 1e-3, LocalPolicy(toy_model(1), None, config))
    assert found["optim/updates"] >= (not config.advantage_per_part)  # its parts are all equal
    assert found["optim/nonfinite"] == 0 and weights(model).isfinite().all()
    batch = make_batch(group.rollouts)
    assert batch.mask.sum(-1).tolist() == [0, 1, 2, 2]


def test_nothing_but_empty_answers(tmp_path):
    """No sampled token at all: the loss is 0 and has no gradient, nothing is divided by 0."""
    config, model = resolved(toy_config(tmp_path)), toy_model()
    group = drawn_group(["", "", "", ""])
    for rollout in group.rollouts:
        rollout.response_ids, rollout.logprobs, rollout.entropies = [], [], []
    set_advantages([group], config)
    before = weights(model)
    found = train_step(LocalPolicy(model, AdamW(model), config), [group], config, 1e-3)
    assert found["optim/loss"] == 0 and found["optim/nonfinite"] == 0
    assert torch.equal(weights(model), before)


@torch.no_grad()
def always_ends(model, eos):
    """All that its layers add is 0, so that it sees a 1 everywhere, and says one token."""
    for weight in model.parameters():
        weight.zero_()
    for weight in (model.tok_emb.weight, model.final_norm.scale, model.out_head.weight[eos]):
        weight.fill_(2.0)


def test_a_model_that_only_ends(tmp_path):
    """Its first token is always end of text: a run of such answers goes through to its end."""
    world = toy_world(tmp_path)
    always_ends(world["model"], world["tokenizer"].eos_token_id)
    config = toy_config(tmp_path / "run", steps=3, eval_every=1, num_groups_to_log=4)
    result = train(config, quiet=True, **world)
    assert len(result.rows) == 3 and not result.stopped
    assert result.rows[-1]["env/all/ac_tokens_per_turn"] == 1
    assert result.rows[-1]["optim/updates"] == 0 and result.rows[-1]["eval_acc"] == 0
    assert (tmp_path / "run" / "report.html").exists()


# ---- problems


def test_prompts_longer_than_the_context_are_left_out(tmp_path):
    problems = toy_problems(6) + [Problem(f"long/{n}", "a" * 600 * n, "1") for n in (1, 2)]
    toy_run(tmp_path / "run", steps=3, problems=problems)
    log = log_of(tmp_path / "run")
    assert "skipped 2 of 8 problems" in log and "context of 512 tokens, such as long/1" in log
    shown = "".join(p.read_text() for p in (tmp_path / "run").glob("*_rollout_summaries.jsonl"))
    assert "long/" not in shown and "toy/" in shown


@pytest.mark.parametrize("answer", ["\\frac{", "?"])
def test_problems_with_no_answer(tmp_path, answer):
    without = [Problem("none/1", "abc", answer), Problem("none/2", "abd", answer)]
    result = toy_run(tmp_path / "run", steps=2, problems=toy_problems(6) + without)
    assert len(result.rows) == 2
    log = log_of(tmp_path / "run")
    assert "skipped 2 of 8 problems" in log and "no answer that the grader" in log
    with pytest.raises(UserError, match="all problems have"):
        toy_run(tmp_path / "none", problems=without)
