"""Tokens in, tokens out, as the training client of verifiers has it (seen with 0.4.0); and why the
text of an answer is not tokenized a second time."""

import re
import runpy
import sys

import httpx
import pytest
import torch

pytest.importorskip("starlette", reason="needs the extra serve")

from reasoning_from_scratch import Rollout, load_model_and_tokenizer
from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.problems import render_prompt
from rfs import load_problems
from rfs.config import RunConfig
from tests.conftest import ROOT

MODEL, TOKENIZER = load_model_and_tokenizer("tiny")
PROMPT = TOKENIZER.encode(render_prompt(load_problems("tiny", limit=1)[0].problem))


def generated(server, seed, **settings):
    """An answer, asked for as verifiers asks."""
    params = {
        "temperature": 1.0, "max_tokens": 60, "seed": seed, "stop_token_ids": [7], "logprobs": 1,
        "skip_special_tokens": False, "routed_experts_prompt_start": 3,
    }  # fmt: skip
    body = {"model": "tiny", "token_ids": PROMPT, "sampling_params": params | settings}
    answer = httpx.post(
        f"{server.address}/inference/v1/generate",
        json=body | {"cache_salt": "a"},
        headers={"X-Session-ID": "b"},
    )
    assert answer.status_code == 200, answer.text
    (choice,) = answer.json()["choices"]
    return choice


def test_tokens_are_kept_as_they_were_sampled(server):
    """The same text can be spelled in several ways, and a policy finds them: here soon, at
    temperature 3. The tokens of the text are then others than those that were drawn, the record has
    no log-probabilities for them, and the ratio to it is no ratio."""
    policy = LocalPolicy(MODEL, config=RunConfig(temperature=3.0))
    others = 0
    for seed in range(12):
        choice = generated(server, seed, temperature=3.0)
        tokens = choice["token_ids"]
        record = [one["logprob"] for one in choice["logprobs"]["content"]]
        again = TOKENIZER.encode(TOKENIZER.decode(tokens), chat_wrapped=False)
        (now,) = policy.logprobs([Rollout(prompt_ids=PROMPT, response_ids=tokens, logprobs=record)])
        torch.testing.assert_close(now, torch.tensor(record), atol=1e-4, rtol=0)
        if again == tokens:
            continue
        others += 1
        rollout = Rollout(prompt_ids=PROMPT, response_ids=again, logprobs=[0.0] * len(again))
        (wrong,) = policy.logprobs([rollout])
        assert abs(wrong.sum() - sum(record)) > 0.1
    assert others >= 6


def test_its_own_client_drives_rollouts(server, monkeypatch, capsys):
    pytest.importorskip("verifiers", reason="96 packages, and an older openai than the tests have")
    pytest.importorskip("transformers")
    pytest.importorskip("tinker", reason="Tinker's client needs Python 3.11")
    monkeypatch.setenv("TINKER_BASE_URL", server.address)
    monkeypatch.setenv("TINKER_API_KEY", "tml-local")
    words = ["model=tiny", f"folder={ROOT / 'checkpoints' / 'tiny-base'}", "steps=1"]
    words += ["groups_per_batch=1", "group_size=2", "max_tokens=30"]
    monkeypatch.setattr(sys, "argv", ["rl_verifiers.py", *words])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / "ch07" / "rl_verifiers.py"), run_name="__main__")
    out, _ = capsys.readouterr()
    assert end.value.code == 0 and re.fullmatch(r"step 0  reward/total \S+  loss \S+\n", out)
