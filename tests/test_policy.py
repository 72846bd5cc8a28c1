"""The verbs of a policy, by themselves: what they leave alone, and that they come to the same."""

import re
from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch
from toy import toy_model, toy_policy, toy_problems, toy_tokenizer

from reasoning_from_scratch import Policy, load_model_and_tokenizer, load_problems
from reasoning_from_scratch.config import TrainConfig
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.fast.packed import packed_logprobs
from reasoning_from_scratch.files.weights import save_model
from reasoning_from_scratch.logprobs import padded_logprobs
from reasoning_from_scratch.optim.muon import MuonAdamW
from reasoning_from_scratch.policy import batch_loss
from reasoning_from_scratch.problems import load_prompt_format, store_prompt_format
from reasoning_from_scratch.sampling import PLAIN_ENGINE, Rollout
from reasoning_from_scratch.trainer import set_advantages, train_step

CONFIG = TrainConfig(max_new_tokens=6, rollouts=4, objective="ppo", epochs=2, micro_batch_tokens=60)


@pytest.fixture
def policy(tmp_path):
    return toy_policy(toy_model(), CONFIG, tokenizer=toy_tokenizer(tmp_path))


def rollouts_of(policy):
    """Rollouts with rewards that random models can earn."""
    groups = policy.sample(toy_problems(3), CONFIG)
    for group in groups:
        for rollout in group.rollouts:
            rollout.reward = rollout.advantage = float(len(set(rollout.response_ids)) % 3) - 1
    return groups, [rollout for group in groups for rollout in group.rollouts]


def weights(policy):
    return [weight.detach().clone() for weight in policy.model.parameters()]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_a_gradient_is_used_up_by_its_step(policy):
    _, rollouts = rollouts_of(policy)
    before = weights(policy)
    policy.forward_backward(rollouts, CONFIG, denominator=12)
    assert same(before, weights(policy)), "only a step moves weights"
    moved = policy.optim_step(lr=1e-2)
    assert moved.finite and moved.grad_norm > 0 and moved.update_ratio > 0
    assert not same(before, weights(policy))
    assert policy.optim_step(lr=1e-2).grad_norm == 0


def test_a_call_that_failed_is_not_made_again(policy):
    """When memory runs out, those are whose gradients wait."""
    _, rollouts = rollouts_of(policy)
    passes = policy.accumulate_gradient
    outcomes = ["", UserError("too long"), "", torch.OutOfMemoryError(), "", ""]

    def made(*call):
        outcome = outcomes.pop(0)
        if outcome:
            raise outcome
        return passes(*call)

    policy.accumulate_gradient, policy.use_less_memory = made, lambda: None
    policy.forward_backward(rollouts, CONFIG, denominator=12)
    with pytest.raises(UserError):
        policy.forward_backward(rollouts, CONFIG, denominator=12)
    policy.forward_backward(rollouts, CONFIG, denominator=12)
    assert outcomes == [] and len(policy.calls_since_update) == 2


@pytest.mark.parametrize("failure", [KeyboardInterrupt, UserError("another record")])
@pytest.mark.parametrize("earlier", [0, 1])
def test_a_call_that_is_interrupted_adds_nothing(policy, failure, earlier, monkeypatch):
    """Its second micro-batch is: the first has added its gradient by then."""
    _, rollouts = rollouts_of(policy)
    for _ in range(earlier):
        policy.forward_backward(rollouts[:4], CONFIG, denominator=12)
    expected = [gradient.clone() for gradient in policy.optimizer.gradients()]
    losses = [batch_loss, Mock(side_effect=failure)]

    def loss_of(*given):
        return (losses or [batch_loss]).pop(0)(*given)

    monkeypatch.setattr("reasoning_from_scratch.policy.batch_loss", loss_of)
    with pytest.raises((KeyboardInterrupt, UserError)):
        policy.forward_backward(rollouts, CONFIG, denominator=12)
    assert not losses
    found = policy.optimizer.gradients()
    assert len(found) == len(expected) and same(found, expected)
    assert len(policy.calls_since_update) == earlier


def test_two_calls_give_the_gradient_of_one(policy):
    _, rollouts = rollouts_of(policy)
    policy.forward_backward(rollouts, CONFIG, denominator=12)
    whole = [gradient.clone() for gradient in policy.optimizer.gradients()]
    policy.optimizer.zero_grad()
    for part in (rollouts[:5], rollouts[5:]):
        policy.forward_backward(part, CONFIG, denominator=12)
    for one, other in zip(policy.optimizer.gradients(), whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-7)


def test_asking_for_logprobs_leaves_no_gradient(policy):
    _, rollouts = rollouts_of(policy)
    for rollout, found in zip(rollouts, policy.logprobs(rollouts), strict=True):
        torch.testing.assert_close(found, torch.tensor(rollout.logprobs), rtol=0, atol=2e-6)
        assert not found.requires_grad
        assert found.untyped_storage().nbytes() == 4 * len(found), "nothing of its batch is kept"
    assert policy.optimizer.gradients() == []
    # Nor is there an optimizer's state yet, twelve bytes for each weight.
    assert "state" not in vars(policy.optimizer)


@pytest.mark.parametrize("room", [150, 250, 400])
def test_out_of_memory_means_smaller_pieces_and_the_same_gradient(policy, caplog, room):
    """Also where some of a micro-batch's gradient was there already, and that of calls before."""
    _, rollouts = rollouts_of(policy)
    for part in (rollouts[:5], rollouts[5:]):
        policy.forward_backward(part, CONFIG, denominator=12)
    whole = [gradient.clone() for gradient in policy.optimizer.gradients()]
    small = toy_policy(toy_model(), replace(CONFIG, micro_batch_tokens=10**6))
    tight = Tight(room)
    small.training_pass = tight
    for part in (rollouts[:5], rollouts[5:]):
        sums = small.forward_backward(part, CONFIG, denominator=12)
    assert sum(float(one["tokens"]) for one in sums) == sum(r.num_sampled for r in rollouts[5:])
    for one, other in zip(small.optimizer.gradients(), whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-7)
    assert tight.failed and "from now on micro-batches" in caplog.text
    for found, expected in zip(small.logprobs(rollouts), policy.logprobs(rollouts), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=2e-6)


class Tight:
    """A training pass on a device that holds so many tokens; when it runs out, some of the gradient
    is there already."""

    def __init__(self, room):
        self.room, self.failed = room, 0

    def __call__(self, model, batch, temperature):
        if int(batch.lengths.sum()) > self.room:
            self.failed += 1
            if torch.is_grad_enabled():
                model.out_head.weight.grad = torch.ones_like(model.out_head.weight)
            raise torch.OutOfMemoryError
        return padded_logprobs(model, batch, temperature)


def test_one_answer_that_does_not_fit_is_said(policy):
    _, rollouts = rollouts_of(policy)
    policy.training_pass = Tight(1)
    with pytest.raises(UserError, match="--gradient-checkpointing"):
        policy.logprobs(rollouts)


def test_memory_that_runs_out_before_the_first_micro_batch_is_said(policy):
    """As where a GPU has no room to gather the slices of a model, also after it had."""
    _, rollouts = rollouts_of(policy)
    policy.logprobs(rollouts)
    policy.full_model = Mock(side_effect=torch.OutOfMemoryError)
    with pytest.raises(UserError, match="--gradient-checkpointing"):
        policy.logprobs(rollouts)


def test_out_of_memory_while_sampling_means_fewer_rows_and_the_same_answers(policy, caplog):
    expected, _ = rollouts_of(policy)
    tried = []

    def decoder(model, rows, steps):
        tried.append(rows)
        if rows > 3:
            raise torch.OutOfMemoryError
        return model

    policy.engine = replace(PLAIN_ENGINE, make_decoder=decoder)
    found, _ = rollouts_of(policy)
    assert tried == [12, 6, 3] and "3 answers are sampled" in caplog.text
    for one, other in zip(found, expected, strict=True):
        assert [r.response_ids for r in one.rollouts] == [r.response_ids for r in other.rollouts]


def test_out_of_memory_first_takes_back_what_sampling_keeps(policy, caplog):
    """Then the same is tried again, and nothing gets smaller."""
    _, rollouts = rollouts_of(policy)
    kept, tried = ["recordings"], []
    policy.engine = replace(PLAIN_ENGINE, free_memory=lambda: bool(kept and kept.pop()))

    def tight(model, batch, temperature):
        tried.append(len(batch))
        if kept:
            raise torch.OutOfMemoryError
        return padded_logprobs(model, batch, temperature)

    policy.training_pass = tight
    policy.forward_backward(rollouts, CONFIG, denominator=12)
    assert "no longer kept" in caplog.text and "micro-batches" not in caplog.text
    assert tried[0] == tried[1] and policy.max_tokens == float("inf")


def test_a_snapshot_stays_as_it_was(policy):
    _, rollouts = rollouts_of(policy)
    then = policy.snapshot()
    policy.forward_backward(rollouts, CONFIG, denominator=12)
    policy.optim_step(lr=1e-1)
    _, again = rollouts_of(then)
    assert [r.response_ids for r in again] == [r.response_ids for r in rollouts]
    now = policy.logprobs(rollouts)
    assert any(
        (a - b).abs().max() > 1e-3 for a, b in zip(now, then.logprobs(rollouts), strict=True)
    )


def test_what_no_policy_can_do_is_refused_before_a_weight_moves(policy):
    _, rollouts = rollouts_of(policy)
    then, before = policy.snapshot(), weights(policy)
    for what, says in (
        (lambda: then.optim_step(1e-3), "has no optimizer"),
        (lambda: then.forward_backward(rollouts, CONFIG, 12), "has no optimizer"),
        (lambda: policy.optim_step(float("inf")), "the learning rate is inf"),
        (lambda: policy.optim_step(float("nan")), "the learning rate is nan"),
        (lambda: policy.optim_step(-1e-3), "the learning rate is -0.001"),
        (lambda: policy.load_optimizer(policy.optimizer_state(), -1), "made -1 updates"),
    ):
        policy.forward_backward(rollouts, CONFIG, denominator=12)
        with pytest.raises(UserError, match=says):
            what()
        assert same(before, weights(policy)) and policy.optimizer.updates == 0


def test_no_more_tokens_are_scored_than_the_model_reads(policy):
    context = policy.model.cfg["context_length"]
    policy = Policy(policy.model, policy.optimizer, CONFIG)
    for count, fits in ((context, True), (context + 1, False)):
        # The last token is predicted; the model does not read it.
        long = Rollout(prompt_ids=[1], response_ids=[2] * count, logprobs=[-1.0] * count)
        for score in (policy.logprobs, lambda one: policy.forward_backward(one, CONFIG, 1)):
            if fits:
                score([long])
                continue
            with pytest.raises(UserError, match=f"has {count + 1} tokens; the model reads"):
                score([long])


def test_the_gradient_of_some_calls_is_made_anew_without_the_others(policy):
    _, rollouts = rollouts_of(policy)
    policy.forward_backward(rollouts[:5], CONFIG, denominator=12)
    expected = [gradient.clone() for gradient in policy.optimizer.gradients()]
    calls = list(policy.calls_since_update)
    policy.forward_backward(rollouts[5:], CONFIG, denominator=float("nan"))
    policy.recompute_gradient(calls)
    assert len(policy.calls_since_update) == 1
    for one, other in zip(policy.optimizer.gradients(), expected, strict=True):
        assert torch.equal(one, other)


def test_records_of_an_earlier_use_are_not_read_again(policy):
    """The same groups, first with a KL in the advantages, then without."""
    groups, rollouts = rollouts_of(policy)
    with_kl = replace(CONFIG, kl="token", kl_coef=0.1)
    reference = toy_policy(toy_model(seed=1), CONFIG)
    train_step(policy, groups, with_kl, 1e-3, reference)
    assert all(r.token_advantages is not None and r.ref_logprobs is not None for r in rollouts)
    set_advantages(groups, CONFIG)
    for rollout in rollouts:
        assert rollout.token_advantages is rollout.ref_logprobs is rollout.start_logprobs is None


def test_packed_and_padded_come_to_the_same_update(policy):
    groups, _ = rollouts_of(policy)
    packed = toy_policy(toy_model(), CONFIG, packed_logprobs)
    for one in (policy, packed):
        train_step(one, groups, CONFIG, 1e-3)
    for a, b in zip(weights(policy), weights(packed), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=2e-5)


def test_a_policy_of_ones_own_is_loaded_trained_and_saved(tmp_path):
    policy = Policy.load("tiny", device="cpu", lora_rank=2)
    groups = policy.sample(
        load_problems("tiny", limit=2), TrainConfig(max_new_tokens=8, rollouts=2)
    )
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    for rollout in rollouts:
        rollout.advantage = 1.0
    policy.forward_backward(rollouts, TrainConfig(), denominator=len(rollouts))
    assert policy.optim_step(lr=1e-2).update_ratio > 0
    with pytest.raises(UserError, match="Policy.save merges them"):
        save_model(policy.model, tmp_path / "beside.pth")
    saved, _ = load_model_and_tokenizer(policy.save(tmp_path / "mine"), "cpu")
    ids = torch.tensor([rollouts[0].prompt_ids])
    torch.testing.assert_close(saved(ids), policy.model(ids), rtol=1e-4, atol=1e-4)


def test_a_loop_of_ones_own_trains_on_what_was_sampled():
    """At the temperature of its configuration, and over the tokens that top-k kept."""
    config = TrainConfig(max_new_tokens=8, rollouts=2, temperature=0.7, top_k=5, lora_rank=2)
    policy = Policy.load("tiny", config, device="cpu")
    sizes = {True: 0, False: 0}
    for weight in policy.model.parameters():
        sizes[weight.requires_grad] += weight.numel()
    assert 0 < sizes[True] < sizes[False] / 10
    groups = policy.sample(load_problems("tiny", limit=2), config)
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    for rollout, found in zip(rollouts, policy.logprobs(rollouts), strict=True):
        torch.testing.assert_close(found, torch.tensor(rollout.logprobs), rtol=0, atol=1e-4)
    with pytest.raises(UserError, match="0.7, .* sampled at 1: "):
        policy.forward_backward(rollouts, replace(config, temperature=1.0), 1.0)


def test_a_policy_has_what_its_configuration_asks_for():
    config = TrainConfig(
        optimizer="muon", beta1=0.5, beta2=0.6, weight_decay=0.3, gradient_checkpointing=True
    )
    policy = Policy.load("tiny", config, device="cpu")
    assert isinstance(policy.optimizer, MuonAdamW) and policy.optimizer.betas == (0.5, 0.6)
    assert policy.optimizer.weight_decay == 0.3
    assert all(block.recompute for block in policy.model.trf_blocks)
    assert not Policy.load("tiny", device="cpu").model.trf_blocks[0].recompute


@pytest.mark.parametrize(
    "given, message",
    [
        ({"dtype": "bf16"}, "unknown number format 'bf16'"),
        ({"engine": "Plain"}, "unknown engine 'Plain': did you mean 'plain'?"),
        ({"config": TrainConfig(device="nosuch"), "device": "auto"}, "unknown device 'nosuch'"),
        ({"config": TrainConfig(compile=True)}, "drop compile=True"),
        ({"config": TrainConfig(low_precision_updates="stochastic")}, "weights are float32"),
        (
            {"config": TrainConfig(low_precision_updates="stochastic", beta1=0.99)}
            | {"dtype": "bfloat16"},
            "so slow a mean as --beta1 0.99",
        ),
    ],
)
def test_what_a_policy_cannot_be_loaded_with_is_said(given, message):
    with pytest.raises(UserError, match=re.escape(message)):
        Policy.load("tiny", **{"device": "cpu"} | given)


def test_a_snapshot_of_ones_own_policy_keeps_what_top_p_kept():
    config = TrainConfig(max_new_tokens=8, rollouts=2, top_p=0.7)
    policy = Policy.load("tiny", config, device="cpu")
    (group,) = policy.snapshot().sample(load_problems("tiny", limit=1), config)
    assert all(rollout.kept is not None for rollout in group.rollouts)
    for rollout, found in zip(group.rollouts, policy.logprobs(group.rollouts), strict=True):
        torch.testing.assert_close(found, torch.tensor(rollout.logprobs), rtol=0, atol=1e-4)


def test_greedy_answers_are_scored_by_the_model_itself():
    """At temperature 0, dividing by it would give nothing but NaN."""
    config = TrainConfig(max_new_tokens=4, rollouts=1, temperature=0)
    policy = Policy.load("tiny", config, device="cpu")
    (group,) = policy.sample(load_problems("tiny", limit=1), config)
    (found,) = policy.logprobs(group.rollouts)
    torch.testing.assert_close(found, torch.tensor(group.rollouts[0].logprobs), rtol=0, atol=1e-4)


def test_a_home_folder_is_found_when_saving_as_when_loading(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    Policy.load("tiny", device="cpu").save("~/mine")
    assert (tmp_path / "mine" / "config.json").exists() and not (tmp_path / "~").exists()
    Policy.load("~/mine", device="cpu")
    with pytest.raises(UserError, match="nobodyhere"):
        Policy.load("~nobodyhere/mine", device="cpu")


def test_a_folder_keeps_nothing_of_the_model_that_was_in_it(tmp_path):
    first = Policy.load("tiny", device="cpu")
    store_prompt_format(first.tokenizer, "question", load_problems("tiny", limit=1))
    first.save(tmp_path)
    assert load_prompt_format(tmp_path) is not None
    Policy.load("tiny", device="cpu").save(tmp_path)
    assert load_prompt_format(tmp_path) is None
