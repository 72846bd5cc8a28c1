"""The notebook of several turns: what it draws is what was sampled."""

import pytest
import turns

from reasoning_from_scratch.config import Sampling
from reasoning_from_scratch.problems import problem_prompt
from reasoning_from_scratch.sampling import generate
from reasoning_from_scratch.tiny.guessing import guess_problem
from rfs.engine import FAST
from rfs.files.models import load_model_and_tokenizer


@pytest.fixture(scope="module")
def player():
    return load_model_and_tokenizer("tiny-player")


@pytest.fixture(scope="module")
def sampled(player):
    """Eight games about 23, as a run samples them."""
    model, tokenizer = player
    problem = guess_problem(23)
    sampling = Sampling(96, rollouts=8, environment="guess", max_turn_tokens=4)
    (group,) = generate(
        model,
        [tokenizer.encode(problem_prompt(problem))],
        sampling,
        stop_ids={tokenizer.eos_token_id},
        engine=FAST.with_partners(sampling, tokenizer, [problem]),
    )
    return group


def test_the_opening_is_as_likely_as_the_sampler_wrote_down(player, sampled):
    model, tokenizer = player
    opening = turns.next_guess(model, tokenizer)
    for rollout in sampled:
        end = rollout.response_ids.index(tokenizer.eos_token_id) + 1
        guess = int(tokenizer.decode(rollout.response_ids[: end - 1]))
        assert sum(rollout.logprobs[:end]) == pytest.approx(
            opening[guess - 1].log().item(), abs=1e-4
        )
    assert 0.99 < opening.sum() <= 1.0001
    assert opening.max() < 2.5 / 64  # no plan


def test_the_next_guess_is_that_of_the_conversation(player, sampled):
    """After the first reply, as the sampler had it before it; what is impossible is unlikely."""
    model, tokenizer = player
    rollout = next(one for one in sampled if one.turns > 1)
    pieces = turns.text_pieces(rollout, tokenizer)
    (first, _), (answer, _), (second, _) = pieces[:3]
    found = turns.next_guess(model, tokenizer, [(int(first), answer.strip("[]"))])
    reply = tokenizer.encode(tokenizer.reply_turn(answer.strip("[]")), chat_wrapped=False)
    begin = rollout.response_ids.index(tokenizer.eos_token_id) + 1 + len(reply)
    end = rollout.response_ids.index(tokenizer.eos_token_id, begin) + 1
    wanted = sum(rollout.logprobs[begin:end])
    assert found[int(second) - 1].log().item() == pytest.approx(wanted, abs=1e-4)
    told = turns.next_guess(model, tokenizer, [(32, "higher"), (48, "lower")])
    assert told[32:47].sum() > 0.97
