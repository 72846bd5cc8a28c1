"""The trainer's numbers: same answer two ways, no signal no step, bad numbers no update."""

import math
from dataclasses import replace
from itertools import combinations
from statistics import fmean, pvariance

import pytest
import torch
from toy import (
    LETTERS,
    toy_config,
    toy_model,
    toy_policy,
    toy_problems,
    toy_run,
    toy_teacher,
    toy_world,
    train,
)

from reasoning_from_scratch import ch06
from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.recipes import RECIPES
from reasoning_from_scratch.rollouts import Group, Rollout, reward_groups, sample_groups
from reasoning_from_scratch.trainer import (
    prepare_update,
    select_training_groups,
    set_advantages,
    step_learning_rate,
    train_step,
)
from rfs.config import replaced
from rfs.run.options import configure, resolved, resumed_config


@pytest.fixture
def world(tmp_path):
    return toy_world(tmp_path)


def sampled(world, config, step=0) -> list[Group]:
    groups = sample_groups(world["model"], world["tokenizer"], toy_problems(8), config, step)
    reward_groups(groups, config, world["tokenizer"])
    for number, group in enumerate(groups):  # random models are rarely right: pay for letters
        for rollout in group.rollouts:
            rollout.reward = float(len(set(rollout.response_ids)) % 3) * (number % 4 != 3)
            rollout.rewards["correct"] = rollout.reward
    set_advantages(groups, config)
    return groups


def gradients(model) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def add_gradient(policy, groups, config, reference=None) -> list:
    """Of one update of all groups; the micro-batches' sums."""
    rollouts, denominator = prepare_update(policy, reference, groups, config)
    return policy.forward_backward(rollouts, config, denominator)


# ---- the same gradient, however the step is split


@pytest.mark.parametrize("aggregate", ["sum", "constant", "sequence", "token"])
@pytest.mark.parametrize("tokens", [1, 400, 1500])
def test_micro_batches_give_the_gradient_of_one_batch(world, tmp_path, aggregate, tokens):
    config = resolved(toy_config(tmp_path, aggregate=aggregate, kl="k3", kl_coef=0.1))
    model, reference = world["model"], toy_model(seed=1)
    groups = sampled(world, config)
    found = []
    for budget in (10**9, tokens):
        model.zero_grad()
        asked = replaced(config, micro_batch_tokens=budget)
        add_gradient(toy_policy(model, asked), groups, asked, toy_policy(reference, asked))
        found.append(gradients(model))
    whole, split = found
    assert whole.norm() > 0
    assert (whole - split).norm() <= 1e-6 * whole.norm()


@pytest.mark.parametrize("kl", ["none", "reward", "token", "k2", "k3"])
def test_dropping_uniform_groups_changes_nothing_but_the_time(world, tmp_path, kl):
    """A uniform group has no policy gradient, but a KL term pulls at it as at any other."""
    config = resolved(toy_config(tmp_path, kl=kl, kl_coef=0.1 * (kl != "none")))
    groups, reference = sampled(world, config), toy_policy(toy_model(seed=1), config)
    live = sum(group.live for group in groups)
    assert 0 < live < len(groups)
    found = []
    for drop in (True, False):
        asked, model = replaced(config, drop_uniform_groups=drop), toy_model()
        policy = toy_policy(model, asked)
        rollouts, denominator = prepare_update(policy, reference, groups, asked)
        assert len(rollouts) == 8 * (live if drop and kl == "none" else len(groups))
        policy.forward_backward(rollouts, asked, denominator)
        found.append(gradients(model))
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kl", ["reward", "token", "k2", "k3"])
def test_a_step_without_signal_still_feels_its_kl(world, tmp_path, kl):
    config = resolved(toy_config(tmp_path, kl=kl, kl_coef=0.1))
    groups = sampled(world, config)
    for group in groups:
        for rollout in group.rollouts:
            rollout.advantage = rollout.reward = 0.0
    policy = toy_policy(toy_model(), config)
    metrics = train_step(policy, groups, config, 1e-3, toy_policy(toy_model(seed=1), config))
    assert metrics["optim/updates"] == 1 and metrics["kl_policy_base"] > 0
    assert metrics["optim/grad_norm"] > 0 and (metrics["optim/kl_loss"] > 0) == (kl in ("k2", "k3"))
    off = replaced(config, kl="none", kl_coef=0.0)
    assert train_step(policy, groups, off, 1e-3)["optim/updates"] == 0


def test_bfloat16_gradients_of_many_micro_batches_are_added_up_in_float32(world, tmp_path):
    """64 micro-batches, one rollout each. Each is computed in bfloat16 either way; what is compared
    is how they are added up: exactly, and in float32 up to the optimizer."""
    config = resolved(toy_config(tmp_path, aggregate="token", micro_batch_tokens=1))
    groups = sampled(world, config)
    model = toy_model().bfloat16()
    asked = replaced(config, drop_uniform_groups=False)
    policy = toy_policy(model, asked)
    optimizer = policy.optimizer
    rollouts, denominator = prepare_update(policy, None, groups, asked)
    exact = torch.zeros(sum(p.numel() for p in model.parameters()), dtype=torch.float64)
    for rollout in rollouts:
        optimizer.zero_grad()
        policy.forward_backward([rollout], config, denominator)
        exact += torch.cat([gradient.flatten() for gradient in optimizer.gradients()]).double()
    optimizer.zero_grad()
    assert len(policy.forward_backward(rollouts, config, denominator)) == 64
    found = torch.cat([gradient.flatten() for gradient in optimizer.gradients()])
    assert found.dtype == torch.float32
    assert (found.double() - exact).norm() <= 1e-6 * exact.norm()
    assert optimizer.clip_gradient(0) == pytest.approx(float(exact.norm()), rel=1e-6)


# ---- sampler and trainer


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"temperature": 0.7},
        {"top_p": 0.8, "keep_sampling_mask": True},
        {"top_k": 5, "temperature": 1.3, "keep_sampling_mask": True},
    ],
)
def test_trainer_computes_the_log_probabilities_that_the_sampler_recorded(world, tmp_path, changes):
    config = resolved(toy_config(tmp_path, **changes))
    groups = sampled(world, config)
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    for rollout, found in zip(
        rollouts, toy_policy(world["model"], config).logprobs(rollouts), strict=True
    ):
        torch.testing.assert_close(found, torch.tensor(rollout.logprobs), rtol=0, atol=2e-6)


def test_the_engine_computes_what_chapter_6_computes(world, tmp_path, monkeypatch):
    """compute_grpo_loss, one rollout at a time, and the engine's batch: loss and gradient."""
    config = resolved(configure("ch06", model="tiny", max_new_tokens=4, log_path=str(tmp_path)))
    (group,) = groups = sampled(world, config)[:1]
    drawn = iter(
        [
            (torch.tensor(r.prompt_ids + r.response_ids), len(r.prompt_ids), r.text)
            for r in group.rollouts
        ]
    )
    rewards = iter(group.rewards)
    monkeypatch.setattr(ch06, "sample_response", lambda **_: next(drawn))
    monkeypatch.setattr(ch06, "reward_rlvr", lambda *_: next(rewards))
    example = {"problem": group.problem.problem, "answer": group.problem.answer}
    model, tokenizer = world["model"], world["tokenizer"]
    plain = ch06.compute_grpo_loss(model, tokenizer, example, "cpu", num_rollouts=8)
    plain["loss_tensor"].backward()
    expected = gradients(world["model"])
    world["model"].zero_grad()
    sums = add_gradient(toy_policy(world["model"], config), groups, config)
    assert [rollout.advantage for rollout in group.rollouts] == pytest.approx(
        plain["advantages"], abs=1e-6
    )
    assert sum(float(s["loss"]) for s in sums) == pytest.approx(plain["loss"], rel=1e-5)
    assert (gradients(world["model"]) - expected).norm() <= 1e-5 * expected.norm()


# ---- when there is nothing to learn, or nothing finite


def test_without_a_signal_nothing_moves(world, tmp_path):
    """Momentum included: a first update fills it, a step of uniform groups must not use it."""
    config, model = resolved(toy_config(tmp_path)), world["model"]
    policy = toy_policy(model, config)
    train_step(policy, sampled(world, config), config, lr=1e-2)
    before = [p.clone() for p in model.parameters()]
    groups = sampled(world, config)
    for group in groups:
        for rollout in group.rollouts:
            rollout.reward = 0.1
    set_advantages(groups, config)
    metrics = train_step(policy, groups, config, lr=1e-2)
    assert metrics["optim/updates"] == 0 and metrics["optim/kl_sample_train_v1"] is None
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_non_finite_loss_skips_the_update(world, tmp_path):
    config = resolved(toy_config(tmp_path, objective="importance_sampling"))
    model, groups = world["model"], sampled(world, config)
    live = next(group for group in groups if group.live)
    live.rollouts[0].logprobs[0] = -math.inf
    before = [p.clone() for p in model.parameters()]
    metrics = train_step(toy_policy(model, config), groups, config, lr=1e-2)
    assert metrics["optim/nonfinite"] == 1 and metrics["optim/updates"] == 0
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert all(p.grad is None for p in model.parameters())


# ---- advantages part by part


PARTS_OF_TWO_GROUPS = [
    [
        {"correct": 1.0, "format": 1.0, "overlong": 0.0},
        {"correct": 1.0, "format": 0.0, "overlong": -0.5},
        {"correct": 0.0, "format": 1.0, "overlong": 0.0},
        {"correct": 0.0, "format": 1.0, "overlong": -1.0},
    ],
    [
        {"correct": 0.0, "format": 1.0, "overlong": 0.0},
        {"correct": 0.0, "format": 0.0, "overlong": 0.0},
        {"correct": 1.0, "format": 0.0, "overlong": 0.0},
        {"correct": 0.0, "format": 0.0, "overlong": 0.0},
    ],
]


@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("overlong", [0, 2])
def test_gdpo_by_hand_with_conditional_format_and_a_length_penalty(conditional, overlong, tmp_path):
    """Each part z-scored in its group: format as it is paid, the penalty as one more part."""
    config = resolved(
        toy_config(
            tmp_path,
            advantage_per_part=True,
            conditional_format=conditional,
            overlong_penalty=overlong,
            reward_parts={"correct": 1.0, "format": 0.5},
        )
    )
    (problem,) = toy_problems(1)
    groups = [
        Group(problem, [Rollout(problem, [1], [2], [-1.0], rewards=parts) for parts in group])
        for group in PARTS_OF_TWO_GROUPS
    ]
    set_advantages(groups, config)
    expected = []
    for group in PARTS_OF_TWO_GROUPS:
        correct = torch.tensor([parts["correct"] for parts in group])
        form = torch.tensor([parts["format"] for parts in group])
        columns = [(1.0, correct), (0.5, form * correct if conditional else form)]
        if overlong:
            columns.append((1.0, torch.tensor([parts["overlong"] for parts in group])))
        expected.append(sum(w * (c - c.mean()) / (c.std() + 1e-4) for w, c in columns))
    expected = torch.cat(expected)
    expected = (expected - expected.mean()) / (expected.std() + 1e-4)
    found = [rollout.advantage for group in groups for rollout in group.rollouts]
    torch.testing.assert_close(torch.tensor(found), expected)


# ---- sub-steps, epochs, active sampling


def test_epochs_and_substeps_take_their_steps(world, tmp_path):
    config = resolved(toy_config(tmp_path, epochs=3, num_substeps=2, problems_per_step=8))
    policy = toy_policy(world["model"], config)
    metrics = train_step(policy, sampled(world, config), config, lr=1e-2)
    assert metrics["optim/updates"] == policy.optimizer.updates == 6
    assert metrics["optim/ratio_max"] > 1.001  # later passes see a moved policy
    assert metrics["optim/kl_sample_train_v2"] < 1e-6  # the first pass does not


@pytest.mark.parametrize("schedule, left", [("constant", 1.0), ("linear", 0.5), ("cosine", 0.5)])
def test_the_kl_term_is_let_go(schedule, left, world, tmp_path):
    """The first step of two has all of it, so the second begins with the same weights."""
    config = toy_config(
        tmp_path / schedule, steps=2, kl="k2", kl_coef=0.1, kl_schedule=schedule, lr=1e-2
    )
    rows = train(config, quiet=True, **toy_world(tmp_path)).rows
    whole = replace(config, kl_schedule="constant", log_path=str(tmp_path / "whole"))
    held = train(whole, quiet=True, **toy_world(tmp_path)).rows
    assert rows[0]["optim/kl_loss"] == held[0]["optim/kl_loss"]
    assert rows[1]["optim/kl_loss"] == pytest.approx(held[1]["optim/kl_loss"] * left)
    assert held[1]["optim/kl_loss"] > 0


def test_active_sampling_trains_on_the_first_live_groups(world, tmp_path):
    config = resolved(toy_config(tmp_path, active_sampling=True, problems_per_step=3))
    groups = sampled(world, config)
    chosen = select_training_groups(groups, config)
    assert len(chosen) == 3 and all(group.live for group in chosen)
    assert [groups.index(group) for group in chosen] == sorted(map(groups.index, chosen))


def test_the_rollouts_that_are_kept_are_the_group(world, tmp_path):
    """The gradient of a step is that of groups in which the others were never sampled; the others
    keep their reward, and get no advantage."""
    config = resolved(toy_config(tmp_path, train_rollouts=4, aggregate="token"))
    groups = sampled(world, config)
    for rollout in (rollout for group in groups for rollout in group.rollouts):
        rollout.advantage = 0.0
    kept = select_training_groups(groups, config)
    assert [len(group.rollouts) for group in kept] == [4] * len(groups)
    assert [group.uniform for group in kept] == [group.uniform for group in groups]
    for of_all, group in zip(groups, kept, strict=True):
        spreads = [pvariance(rewards) for rewards in combinations(of_all.rewards, 4)]
        assert pvariance(group.rewards) == max(spreads)
    smaller = [
        Group(group.problem, [replace(rollout) for rollout in group.rollouts]) for group in kept
    ]
    plain = replace(config, train_rollouts=0)
    found = []
    for asked, of in ((config, groups), (plain, smaller)):
        chosen, model = select_training_groups(of, asked), toy_model()
        set_advantages(chosen, asked)
        add_gradient(toy_policy(model, asked), chosen, asked)
        found.append(gradients(model))
    assert found[0].norm() > 0 and torch.equal(*found)
    trained = {rollout.place for group in kept for rollout in group.rollouts}
    others = [r for group in groups for r in group.rollouts if r.place not in trained]
    assert len(others) == 4 * len(groups) and all(r.advantage == 0 for r in others)


def test_a_run_that_keeps_some_measures_all_and_resumes_to_the_bit(tmp_path):
    changes = {"train_rollouts": 3, "reward": LETTERS, "lr": 1e-2}
    plain = toy_run(tmp_path / "plain", steps=4, **changes)
    assert [row["env/all/total_episodes"] for row in plain.rows] == [4 * 8] * 4
    first = toy_run(tmp_path / "run", steps=2, **changes)
    resumed = train(resumed_config(first.folder, steps=4), quiet=True)
    pairs = zip(plain.model.parameters(), resumed.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert plain.rows[0]["optim/updates"] == 1


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"train_rollouts": 1}, "must be at least 2"),
        ({"train_rollouts": -1}, "must be at least 0"),
        ({"train_rollouts": 8}, "leaves out none of --rollouts 8"),
        ({"recipe": "pods", "train_rollouts": 4, "rollouts": 4}, "leaves out none"),
        ({"recipe": "sft", "objective": "cross_entropy", "train_rollouts": 4}, "sampled for"),
        (
            {
                "train_rollouts": 4,
                "reward_parts": {"correct": 0.0},
                "kl": "token",
                "kl_coef": 1.0,
                "kl_reference": "tiny-grpo",
            },
            "rewards nothing",
        ),
    ],
)
def test_keeping_all_or_none_or_by_nothing_is_refused(changes, says, tmp_path):
    with pytest.raises(UserError, match=says):
        resolved(toy_config(tmp_path, **changes))


@pytest.mark.parametrize("recipe", sorted(RECIPES))
def test_every_recipe_trains(recipe, world, tmp_path):
    values = vars(toy_config(tmp_path / "run", steps=2))
    defaults = vars(toy_config(tmp_path / "run")).keys() - RECIPES[recipe].changes.keys()
    names = "model steps problems_per_step rollouts max_new_tokens lr device preflight log_path"
    asked = {name: values[name] for name in names.split() if name in defaults}
    asked |= toy_teacher(recipe, tmp_path)
    result = train(configure(recipe, **asked), quiet=True, **world)
    assert len(result.rows) == 2 and not result.stopped


def test_distilling_without_any_reward_comes_nearer_to_the_teacher(world, tmp_path):
    values = {"steps": 12, "lr": 3e-3, "rollouts": 8, "length_constant": None}
    row = RECIPES["distill"].changes | toy_teacher("distill", tmp_path)
    result = train(toy_config(tmp_path / "run", **values | row), quiet=True, **world)
    kl = [metrics["kl_policy_base"] for metrics in result.rows]
    assert fmean(kl[-3:]) < 0.7 * fmean(kl[:3])
    assert all(metrics["env/all/reward/total"] == 0 for metrics in result.rows)


def test_reward_rises(world, tmp_path):
    """The whole loop learns: from one in ten right to most."""
    config = toy_config(
        tmp_path / "run",
        steps=20,
        lr=2e-2,
        problems_per_step=1,
        rollouts=32,
        max_new_tokens=2,
        advantage="mean",
        num_groups_to_log=0,
    )
    world["problems"] = toy_problems(4)[:1]
    rows = train(config, quiet=True, **world).rows
    assert rows[0]["env/all/correct"] < 0.3
    assert rows[-1]["env/all/correct"] > 0.8


def test_solved_problems_before_each_question(tmp_path, world):
    """In training and in evaluation alike, and never trained on themselves."""
    config = toy_config(tmp_path / "run", steps=2, few_shot=2, eval_every=1, problems_per_step=2)
    world = world | {"problems": toy_problems(4), "eval_problems": toy_problems(1)}
    train(config, quiet=True, **world)
    for name in ("train_iteration_000001", "eval_tiny-test_iteration_000001"):
        lines = (tmp_path / f"run/{name}_logtree.json").read_text()
        first, second = lines.index("boxed{0}"), lines.index("boxed{1}")  # the toy answers
        assert lines.index("aaa") < first < lines.index("bbb") < second
    rows = (tmp_path / "run/train_iteration_000001_rollout_summaries.jsonl").read_text()
    assert "toy/2" in rows and "toy/3" in rows and "toy/0" not in rows


def test_maxrl_refuses_rewards_below_zero(world, tmp_path):
    config = toy_config(tmp_path / "run", advantage="maxrl")
    (group,) = sample_groups(world["model"], world["tokenizer"], toy_problems(1), config, 0)
    for rollout, reward in zip(group.rollouts, (1.0, -1.0, -1.0, -1.0), strict=False):
        rollout.reward = reward
    with pytest.raises(UserError, match="must not be below 0"):
        set_advantages([group], config)


@pytest.mark.parametrize("changes", [{"active_sampling": True}, {"train_rollouts": 4}])
def test_a_step_of_ones_own_loop_trains_on_what_a_run_would(world, tmp_path, changes):
    """`train_step` gets all groups that were sampled, and chooses from them itself."""
    config = resolved(toy_config(tmp_path, aggregate="token", problems_per_step=3, **changes))
    groups = sampled(world, config)
    updated = []
    for given in (groups, select_training_groups(groups, config)):
        model = toy_model()
        train_step(toy_policy(model, config), given, config, 1e-2)
        updated.append(torch.cat([weight.detach().flatten() for weight in model.parameters()]))
    assert torch.equal(*updated)


@pytest.mark.parametrize("kl", ["reward", "token"])
def test_a_penalty_without_a_reference_is_said(world, tmp_path, kl):
    config = resolved(toy_config(tmp_path, kl=kl, kl_coef=0.1))
    with pytest.raises(UserError, match=f"kl='{kl}' compares the policy with a reference"):
        train_step(toy_policy(world["model"], config), sampled(world, config), config, 1e-2)


def test_a_reference_at_another_temperature_is_refused(world, tmp_path):
    config = resolved(toy_config(tmp_path, kl="k3", kl_coef=0.1, temperature=0.6))
    groups, policy = sampled(world, config), toy_policy(world["model"], config)
    other = toy_policy(toy_model(), replace(config, temperature=1.0))
    with pytest.raises(UserError, match="at temperature 1, and the policy at 0.6"):
        train_step(policy, groups, config, 1e-2, other)
    found = train_step(policy, groups, config, 0.0, policy.snapshot())
    assert found["optim/kl_loss"] == 0


def test_a_paper_s_epsilon_is_no_bound_of_the_ratio(world, tmp_path):
    """Between 0.2 and 0.2 nothing good would ever be learned."""
    config = resolved(toy_config(tmp_path))
    groups = sampled(world, config)
    wrong = replace(config, clip_low=0.2, clip_high=0.2)
    with pytest.raises(UserError, match="a paper's epsilon 0.2 is 0.8 and 1.2"):
        train_step(toy_policy(world["model"], config), groups, wrong, 1e-2)


def test_a_missing_learning_rate_is_said_before_a_step(tmp_path):
    with pytest.raises(UserError, match=r"such as TrainConfig\(lr=1e-4\)"):
        step_learning_rate(TrainConfig(), 0)
