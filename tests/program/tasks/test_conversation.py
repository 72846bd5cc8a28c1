"""Conversations: what is learned from them, exactly; limits; environments that misbehave."""

import itertools
import json
from dataclasses import replace

import pytest
import torch
from small_model import small_model
from toy import toy_config, toy_model, toy_policy, toy_problems, toy_tokenizer, train

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.rollouts import sample_groups
from reasoning_from_scratch.sampling import PLAIN_ENGINE, Partner, Rollout, Sampling, generate
from reasoning_from_scratch.text import read_lines
from reasoning_from_scratch.tokenizer import ModelTokenizer, Qwen3Tokenizer
from rfs.config import RunConfig, replaced
from rfs.run.options import resolved, resumed_config
from rfs.tasks.environments.conversation import Conversation, environment_factory
from rfs.tasks.environments.retry import TRY_AGAIN

# ---- the gradient, by enumeration


class Answering(Partner):
    """Vocabulary of 3, two turns of a token each; in between one token that depends on the first
    turn. Nothing ends a turn but its length."""

    def hear(self, response_ids, stopped):
        return [(response_ids[0] * 2) % 3, 1] if len(response_ids) == 1 else None

    def leave(self, rollout):
        pass


def conversations(model):
    """All nine, as rollouts, with what each is paid."""
    for first, second in itertools.product(range(3), repeat=2):
        said = Answering().hear([first], False)
        ids = [first, *said, second]
        with torch.no_grad():
            logprobs = model(torch.tensor([[1, *ids]]))[0].log_softmax(-1)
        record = [float(logprobs[0, first]), 0.0, 0.0, float(logprobs[3, second])]
        reward = [0.3, -1.0, 2.0][first] * (1 + second) - (first == second)
        yield Rollout(
            prompt_ids=[1], response_ids=ids, logprobs=record, forced=[1, 2], advantage=reward
        )


def test_the_sampler_draws_these_conversations():
    model = small_model(3, sharpness=1.0)
    engine = replace(PLAIN_ENGINE, make_partner=lambda number: Answering())
    ((*drawn,),) = generate(model, [[1]], Sampling(9, rollouts=2000), stop_ids=set(), engine=engine)
    wanted = {tuple(one.response_ids): one for one in conversations(model)}
    for rollout in drawn:
        known = wanted[tuple(rollout.response_ids)]
        assert rollout.forced == known.forced
        assert rollout.logprobs == pytest.approx(known.logprobs, abs=1e-5)
    for ids, known in wanted.items():
        share = sum(tuple(one.response_ids) == ids for one in drawn) / len(drawn)
        assert share == pytest.approx(float(torch.tensor(known.logprobs).sum().exp()), abs=0.04)


def test_the_expected_gradient_is_that_of_the_expected_reward():
    model = small_model(3, sharpness=1.0)
    total = torch.zeros(())
    for one in conversations(model):
        logprobs = model(torch.tensor([[1, *one.response_ids]]))[0].log_softmax(-1)
        chance = (logprobs[0, one.response_ids[0]] + logprobs[3, one.response_ids[3]]).exp()
        total = total + chance * one.advantage
    wanted = torch.autograd.grad(total, list(model.parameters()))
    config = RunConfig(objective="reinforce", aggregate="sum")
    found = [torch.zeros_like(parameter) for parameter in model.parameters()]
    for one in conversations(model):
        model.zero_grad()
        toy_policy(model).forward_backward([one], config, 1.0)
        chance = float(torch.tensor(one.logprobs).sum().exp())
        for sum_, parameter in zip(found, model.parameters(), strict=True):
            if parameter.grad is not None:
                sum_ -= chance * parameter.grad
    for gradient, exact in zip(found, wanted, strict=True):
        torch.testing.assert_close(gradient, exact, rtol=0, atol=1e-6)


# ---- an environment, in text


# Asks until the model says its letter.
OWN = """
class Riddle:
    def __init__(self, problem):
        self.letter, self.heard = problem.problem[0], []

    def reply(self, turn):
        self.heard.append(turn)
        if "q" in turn:
            raise RuntimeError("no luck")
        return None if self.letter in turn else "no"

    def rewards(self):
        found = float(self.letter in self.heard[-1]) if self.heard else 0.0
        return {"correct": found, "early": found / max(1, len(self.heard))}
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "riddle.py").write_text(OWN)
    return f"{tmp_path / 'riddle.py'}:Riddle"


@pytest.fixture
def tokenizer(tmp_path):
    return toy_tokenizer(tmp_path)


def spoken(tokenizer, kind, limits, turns):
    """What a conversation says to these turns (token ids), and what it leaves behind."""
    talk = Conversation(kind, toy_problems(1)[0], tokenizer, limits)
    rollout, said = Rollout(), []
    for text, stopped in turns:
        for token in tokenizer.encode(text, chat_wrapped=False):
            rollout.response_ids.append(token)
            said.append(talk.hear(rollout.response_ids, False))
        if stopped:
            rollout.response_ids.append(tokenizer.eos_token_id)
            said.append(talk.hear(rollout.response_ids, True))
        rollout.response_ids += said[-1] or []
    talk.leave(rollout)
    return rollout, [reply for reply in said if reply != []]


def test_a_turn_is_what_the_model_wrote_since_the_last_reply(tokenizer, own):
    heard = []

    class Listening(environment_factory(own)):
        def reply(self, turn):
            heard.append(turn)
            return super().reply(turn)

    rollout, replies = spoken(
        tokenizer, Listening, Sampling(40), [("xyz", True), ("b", True), ("cab", True)]
    )
    assert heard == ["xyz", "b", "cab"]
    no = tokenizer.encode(tokenizer.reply_turn("no"), chat_wrapped=False)
    assert replies == [no, no, None]
    assert rollout.outcome == {"correct": 1.0, "early": pytest.approx(1 / 3)}
    assert rollout.turns == 3 and not rollout.ran_out


@pytest.mark.parametrize("kind", ["Qwen3", "of a folder"])
def test_a_reply_is_a_users_turn_in_the_chat_template(tokenizer, tmp_path, kind):
    """What the model then has before it is the template's own text of the whole conversation."""
    path = str(tmp_path / "tokenizer-base.json")
    if kind == "Qwen3":
        chat = Qwen3Tokenizer(path, True, True, True, eos_token="<|im_end|>")
    else:
        chat = ModelTokenizer(path, "<|im_end|>", "<|endoftext|>")
        chat.chat_template = (
            "{% for m in messages %}<|im_start|>{{ m.role }}: {{ m.content }}<|im_end|>\n"
            "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant: {% endif %}"
        )
        chat.apply_chat_template = True
    begin, answer, reply = chat.wrap_chat("abc"), "xyz", "no"
    whole = chat.wrap_chat(reply, [("abc", answer)])
    assert begin + answer + "<|im_end|>" + chat.reply_turn(reply) == whole


def test_limits_of_turns_and_of_a_turn(tokenizer, own):
    riddle, two = environment_factory(own), Sampling(40, max_turns=2)
    rollout, replies = spoken(tokenizer, riddle, two, [("x", True), ("y", True)])
    assert replies[-1] is None and rollout.ran_out and rollout.turns == 2
    rollout, replies = spoken(tokenizer, riddle, Sampling(40, max_turn_tokens=3), [("xyz", False)])
    assert replies[0][0] == tokenizer.eos_token_id, "a turn that was cut off is closed"
    assert rollout.turns == 1


# ---- in a run


def riddles(tmp_path, own, name, **changes):
    values = {"environment": own, "max_turns": 3, "max_turn_tokens": 5, "max_new_tokens": 40}
    config = toy_config(tmp_path / name, **{"steps": 3} | values | changes)
    world = {"tokenizer": toy_tokenizer(tmp_path), "problems": toy_problems()}
    return train(config, model=toy_model(), quiet=True, **world)


def test_a_run_talks_is_paid_and_says_how(tmp_path, own):
    result = riddles(tmp_path, own, "run", reward_parts={"correct": 1.0, "early": 0.5})
    row = result.rows[-1]
    assert 1 < row["env/all/turns_per_episode"] <= 3
    assert 0 < row["env/all/ran_out_of_turns"] < 1
    assert row["env/all/early"] <= row["env/all/correct"] and row["env/all/reward_failed"] > 0
    total = row["env/all/correct"] + 0.5 * row["env/all/early"]
    assert row["env/all/reward/total"] == pytest.approx(total)
    assert row["env/all/ac_tokens_per_turn"] <= 5
    lines = read_lines(tmp_path / "run" / "train_iteration_000002_rollout_summaries.jsonl")
    assert any("forced" in json.dumps(line) for line in lines)
    assert "no luck" in (tmp_path / "run" / "logs.log").read_text()


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, own):
    whole = riddles(tmp_path, own, "whole", save_every=1)
    short = riddles(tmp_path, own, "short", save_every=1, steps=2)
    assert len(short.rows) == 2
    config = replaced(resumed_config(str(tmp_path / "short")), steps=3)
    world = {"tokenizer": toy_tokenizer(tmp_path), "problems": toy_problems()}
    rest = train(config, model=toy_model(), quiet=True, **world)
    for one, other in zip(whole.model.parameters(), rest.model.parameters(), strict=True):
        assert torch.equal(one, other)


def forgetful(tmp_path, when):
    """An environment that returns no reward `early` in some cases."""
    forgets = OWN.replace('"early": found / max(1, len(self.heard))}', "} | self.early()")
    forgets += f"    def early(self):\n        return {{}} if {when} else {{'early': 0}}\n"
    (tmp_path / "riddle.py").write_text(forgets)


def test_one_that_lacks_a_part_once_the_model_has_spoken_is_refused(tmp_path, own):
    forgetful(tmp_path, "self.heard")
    with pytest.raises(UserError, match="returned no early of --reward-parts"):
        riddles(tmp_path, own, "run", reward_parts={"correct": 1.0, "early": 0.5})
    assert not (tmp_path / "run").exists()


def test_one_that_forgets_a_part_later_has_failed(tmp_path, own):
    forgetful(tmp_path, "any(self.heard)")
    result = riddles(tmp_path, own, "run", reward_parts={"correct": 1.0, "early": 0.5})
    assert len(result.rows) == 3 and "failed on every answer" in result.stopped
    assert "returned no early of --reward-parts" in (tmp_path / "run/logs.log").read_text()


def test_what_is_refused(tmp_path, own):
    with pytest.raises(UserError, match="--environment"):
        resolved(toy_config(tmp_path, environment=own, reward="gsm8k"))
    with pytest.raises(UserError, match="partners"):
        generate(toy_model(), [[1]], Sampling(4, environment="guess"), stop_ids=set())


def test_a_plain_problem_is_the_environment_that_never_replies(tokenizer):
    class Silent:
        def __init__(self, problem):
            pass

        def reply(self, turn):
            return None

        def rewards(self):
            return {"correct": 0.0}

    model, problems = toy_model(), toy_problems(4)
    plain = sample_groups(model, tokenizer, problems, Sampling(20), 0)
    engine = replace(
        PLAIN_ENGINE,
        make_partner=lambda i: Conversation(Silent, problems[i], tokenizer, Sampling(20)),
    )
    talked = sample_groups(model, tokenizer, problems, Sampling(20), 0, engine=engine)
    for one, other in zip(plain, talked, strict=True):
        for a, b in zip(one.rollouts, other.rollouts, strict=True):
            assert a.response_ids == b.response_ids and a.logprobs == b.logprobs
            assert a.finished == b.finished and b.forced == []


def test_a_second_try_is_judged_by_the_rules_of_the_set():
    facts = {"topic": "a tree", "constraints": [["starts_with", "Many"]]}
    text = 'Describe a tree briefly. Begin with the word "Many".'
    problem = Problem("1", text, "", rules="instructions", facts=json.dumps(facts))
    wrong, right = "A tree has green leaves.", "Many trees lose their leaves."
    retry = environment_factory("retry")
    once, twice = retry(problem), retry(problem)
    assert once.reply(right) is None and once.rewards() == {"correct": 1.0, "first_try": 1.0}
    assert twice.reply(wrong) == TRY_AGAIN and twice.reply(right) is None
    assert twice.rewards() == {"correct": 1.0, "first_try": 0.0}
