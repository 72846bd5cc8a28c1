"""Rollouts, groups, batches and the order of problems."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy import toy_config, toy_problems, toy_world

from reasoning_from_scratch.config import Rewards
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.rollouts import (
    ACTIVE_SAMPLING_ROUNDS,
    Group,
    Rollout,
    count_tokens,
    make_batch,
    micro_batches,
    problem_index,
    reward_groups,
    sample_groups,
    step_problems,
)
from reasoning_from_scratch.trainer import on_policy_rollouts, select_training_groups
from rfs.config import replaced
from rfs.run.options import configure, resolved

PROBLEM = Problem("p", "1 + 1", "2")


def rollout(prompt, response, text="", finished=True, **others):
    logprobs, entropies = [-0.5] * len(response), [0.1] * len(response)
    return Rollout(PROBLEM, prompt, response, logprobs, entropies, text, finished, **others)


# ---- batches


def test_batch_by_hand():
    batch = make_batch([rollout([5, 6], [7], advantage=1.0), rollout([8], [9, 0, 4])])
    assert batch.token_ids.tolist() == [[5, 6, 7, 0], [8, 9, 0, 4]]
    assert batch.mask.tolist() == [[0, 0, 1, 0], [0, 1, 1, 1]]  # token 0 counts where sampled
    assert batch.old_logprobs.tolist() == [[0, 0, -0.5, 0], [0, -0.5, -0.5, -0.5]]
    assert batch.advantages.tolist() == [1, 0] and batch.lengths.tolist() == [3, 4]
    first = batch.rows([0])
    assert first.token_ids.tolist() == [[5, 6, 7]] and first.advantages.tolist() == [1]
    assert batch.kept is None and batch.ref_logprobs is None


def test_each_token_of_an_answer_has_its_own_number():
    """One number alone would be taken for all of them."""
    for name in ("logprobs", "token_advantages", "start_logprobs", "ref_logprobs"):
        for count in (0, 1, 2, 4):
            one = rollout([5], [7, 8, 9])
            setattr(
                one, name, torch.ones(count).tolist() if name == "logprobs" else torch.ones(count)
            )
            with pytest.raises(UserError, match=f"{name}: {count} numbers for an answer of 3"):
                make_batch([one])


def test_kept_sets_follow_their_rows():
    rows = [rollout([1], [2, 3], kept=[[2, 9], [3]]), rollout([1], [4], kept=[[]])]
    assert make_batch(rows).rows([1, 0]).kept == [[[]], [[2, 9], [3]]]
    rows[1].kept = None
    assert make_batch(rows).kept is None


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 200), st.integers(0, 9)
)
def test_micro_batches_are_a_partition_within_the_budget(lengths, budget, rows):
    parts = micro_batches(lengths, budget, rows)
    assert sorted(row for part in parts for row in part) == list(range(len(lengths)))
    for part in parts:
        assert sum(lengths[row] for row in part) <= budget or len(part) == 1
        assert len(part) <= (rows or 40)
    for part, after in pairwise(parts):  # none is too small
        full = len(part) == rows
        assert full or sum(lengths[row] for row in part) + lengths[after[0]] > budget
    order = [lengths[row] for part in parts for row in part]
    assert order == sorted(lengths, reverse=True)


def test_where_a_prompt_is_stored_once_it_takes_room_once():
    """Three prompts of 200 tokens, of which 150 are the same, with answers of 10 to 40."""
    start = list(range(150))
    prompts = [start + [1000 + number] * 50 for number in (0, 1, 2) for _ in range(4)]
    lengths = [200 + 10 * (1 + row % 4) for row in range(12)]
    assert len(micro_batches(lengths, 700)) == 5  # at most three rows in each
    parts = micro_batches(lengths, 700, prompts=prompts)
    assert parts == [[3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8]]
    assert count_tokens(lengths, parts[0], prompts) == 2 * 50 + 3 * (10 + 20 + 30 + 40)
    smaller = micro_batches(lengths, 150, prompts=prompts)  # less than a prompt
    assert sorted(row for part in smaller for row in part) == list(range(12))
    assert len(smaller) > 1 and all(count_tokens(lengths, p, prompts) <= 150 for p in smaller)
    assert max(map(len, smaller)) > 3
    short = [prompt[-50:] for prompt in prompts]  # not worth another order
    assert micro_batches(lengths, 700, prompts=short) == micro_batches(lengths, 700)


# ---- the order of problems


def test_each_pass_visits_every_problem_once_in_a_new_order():
    passes = [[problem_index(3, epoch * 10 + i, 10) for i in range(10)] for epoch in range(3)]
    assert all(sorted(order) == list(range(10)) for order in passes)
    assert len({tuple(order) for order in passes}) == 3
    assert passes[0] != [problem_index(4, i, 10) for i in range(10)]


def test_problems_of_a_step_need_no_history(tmp_path):
    problems = toy_problems(10)
    config = resolved(toy_config(tmp_path, problems_per_step=4))
    walked = [step_problems(problems, config, step) for step in range(8)]
    assert step_problems(problems, config, 7) == walked[7]
    first_pass = [p.id for step in walked for p in step][:10]
    assert sorted(first_pass) == sorted(p.id for p in problems)
    again = step_problems(problems, config, 0, 1)
    assert again != walked[0] and again == step_problems(problems, config, 0, 1)


# ---- sampling and reward


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return toy_world(tmp_path_factory.mktemp("toy"))


def key(group: Group):
    return [(r.place, r.response_ids, r.logprobs) for r in group.rollouts]


def test_a_rollout_depends_on_seed_step_and_place_alone(world, tmp_path):
    config = resolved(toy_config(tmp_path))
    model, tokenizer = world["model"], world["tokenizer"]
    problems = toy_problems(4)
    whole = sample_groups(model, tokenizer, problems, config, 5)
    alone = sample_groups(model, tokenizer, problems[2:3], config, 5, places=[2])
    few_rows = sample_groups(model, tokenizer, problems, replaced(config, sample_rows=3), 5)
    ids = [[r.response_ids for r in group.rollouts] for group in whole]
    assert ids[2] == [r.response_ids for r in alone[0].rollouts]
    assert ids == [[r.response_ids for r in group.rollouts] for group in few_rows]
    other_step = sample_groups(model, tokenizer, problems, config, 6)
    assert ids != [[r.response_ids for r in group.rollouts] for group in other_step]


def test_rollouts_carry_their_record(world, tmp_path):
    config = resolved(toy_config(tmp_path, rollouts=4))
    stop = world["tokenizer"].eos_token_id
    for group in sample_groups(world["model"], world["tokenizer"], toy_problems(3), config, 2):
        for number, item in enumerate(group.rollouts):
            assert item.policy_version == 2 and item.place[1] == number
            assert item.finished == (item.response_ids[-1] == stop)
            assert "<|endoftext|>" not in item.text or not item.finished


def test_rewards_and_penalties(tmp_path):
    right = rollout([1], [2, 3], text="\\boxed{2}")
    late = rollout([1], [2] * 9, text="\\boxed{2}", finished=False)
    wrong = rollout([1], [2], text="\\boxed{3}")
    config = resolved(
        toy_config(
            tmp_path,
            max_new_tokens=10,
            overlong_penalty=4,
            reward_parts={"correct": 1.0, "format": 0.5},
        )
    )
    reward_groups([Group(PROBLEM, [right, late, wrong])], config, None)
    assert right.rewards == {"correct": 1, "format": 1, "overlong": 0}
    assert [right.reward, late.reward, wrong.reward] == [1.5, 1 - 0.75, 0.5]
    reward_groups([Group(PROBLEM, [wrong])], replaced(config, conditional_format=True), None)
    assert wrong.reward == 0 and wrong.advantage == 0


def test_uniform_and_live():
    group = Group(PROBLEM, [rollout([1], [2], reward=r) for r in (0.1, 0.1, 0.1)])
    assert group.uniform and not group.live
    group.rollouts[0].reward, group.rollouts[0].advantage = 0.2, 1.0
    assert not group.uniform and group.live


# ---- the iterator


def test_iterator_yields_the_steps_that_are_left(world, tmp_path):
    config = resolved(toy_config(tmp_path, steps=3))
    given = LocalPolicy(world["model"], tokenizer=world["tokenizer"]), world["problems"], config
    whole = list(on_policy_rollouts(*given))
    rest = list(on_policy_rollouts(*given, first_step=1))
    assert len(whole) == 3 and len(rest) == 2
    assert [key(g) for g in whole[2]] == [key(g) for g in rest[1]]


def test_active_sampling_asks_for_more_and_gives_up(world, tmp_path):
    config = resolved(toy_config(tmp_path, steps=1, active_sampling=True, problems_per_step=2))
    given = LocalPolicy(world["model"], tokenizer=world["tokenizer"]), world["problems"], config, 0
    (groups,) = on_policy_rollouts(*given, lambda *_: {"correct": 0.0})
    assert len(groups) == ACTIVE_SAMPLING_ROUNDS * 2
    assert [group.rollouts[0].place[0] for group in groups] == list(range(8))
    correct = iter([0.0] * 16 + [0.0, 1.0] * 50)
    (groups,) = on_policy_rollouts(*given, lambda *_: {"correct": next(correct)})
    assert len(groups) == 4 and sum(group.solved_sometimes for group in groups) == 2


def test_active_sampling_looks_at_correctness_alone(world, tmp_path):
    """All wrong, with different lengths, formats and so rewards: nothing was learned by that."""
    changes = dict(steps=1, problems_per_step=2, overlong_penalty=4, max_new_tokens=4)
    config = resolved(
        toy_config(
            tmp_path, active_sampling=True, **changes, reward_parts={"correct": 1.0, "format": 0.5}
        )
    )
    policy, wrong = LocalPolicy(world["model"], tokenizer=world["tokenizer"]), {"correct": 0.0}
    (groups,) = on_policy_rollouts(policy, world["problems"], config, 0, lambda *_: wrong)
    assert len(groups) == ACTIVE_SAMPLING_ROUNDS * 2 and not all(g.uniform for g in groups)
    assert select_training_groups(groups, config) == []


def test_right_is_plus_one_and_wrong_minus_one_in_dapo():
    """As in the paper, where the whole length penalty turns a right answer into nothing earned."""
    config = resolved(configure("dapo", model="tiny", max_new_tokens=20))
    short, wrong = rollout([1], [2], text="\\boxed{2}"), rollout([1], [2], text="\\boxed{3}")
    late = rollout([1], [2] * 20, text="\\boxed{2}", finished=False)
    reward_groups([Group(PROBLEM, [short, wrong, late])], config, None)
    assert [short.reward, wrong.reward, late.reward] == [1, -1, 0]
    reward_groups([Group(PROBLEM, [wrong])], config, None, lambda *_: {"correct": 0.25})
    assert wrong.reward == 0.25 - 0.75


def test_the_think_part_asks_the_tokenizer_for_its_ids(tmp_path):
    class Tokenizer:
        def encode(self, text):
            return {"<think>": [7], "</think>": [8]}[text]

    thought = rollout([1], [7, 2, 8, 3, 0], text="\\boxed{2}")  # 0 ends it
    said_nothing = rollout([1], [7, 2, 8, 0], text="")
    typed_out = rollout([1], [2, 2, 3, 3], text="<think>x</think>\\boxed{2}")
    config = resolved(toy_config(tmp_path, reward_parts={"correct": 1.0, "think": 0.5}))
    reward_groups([Group(PROBLEM, [thought, typed_out, said_nothing])], config, Tokenizer())
    assert [thought.reward, typed_out.reward, said_nothing.reward] == [1.5, 1.0, 0.0]
    Tokenizer.encode = lambda self, text: [*text.encode()]  # a vocabulary without these tokens
    with pytest.raises(UserError, match="<think>"):
        reward_groups([Group(PROBLEM, [thought])], config, Tokenizer())


def test_a_verifier_that_is_named_but_not_handed_in_is_said():
    with pytest.raises(ValueError, match="judge_of"):
        reward_groups([], Rewards(reward="my_task.py:reward"), None)
