"""Programs written for the book's package put something of theirs in place of a part of ours: a
model that notes what is done to it, another generator, a `requests` without a network."""

import json
from types import SimpleNamespace

import pytest
import requests
import torch

from reasoning_from_scratch import ch02, ch03, ch04, ch05, ch06, ch07
from tests.book.stand_ins import ChainModel, LetterTokenizer
from tests.files.test_downloads import math_rows

IDS = torch.tensor([[58]])  # ":", after which ChainModel writes its box


class WithModes(ChainModel):
    """Notes that it was put into evaluation mode before it was first asked."""

    def __init__(self):
        super().__init__()
        self.evals, self.asked_before = 0, False

    def eval(self):
        self.evals += 1

    def __call__(self, token_ids, cache=None):
        self.asked_before |= self.evals == 0
        return super().__call__(token_ids, cache)


@pytest.mark.parametrize(
    "generate_text",
    [
        ch02.generate_text_basic,
        ch02.generate_text_basic_cache,
        ch02.generate_text_basic_stream,
        ch02.generate_text_basic_stream_cache,
        ch04.generate_text_temp_stream_cache,
        ch04.generate_text_top_p_stream_cache,
    ],
    ids=lambda function: function.__name__,
)
def test_generating_puts_the_model_into_evaluation_mode(generate_text):
    model = WithModes()
    assert len(list(generate_text(model, IDS, 2))) > 0
    assert model.evals and not model.asked_before


def test_so_does_sampling_a_response():
    model = WithModes()
    ch06.sample_response(model, LetterTokenizer(), ":", "cpu", max_new_tokens=2)
    assert model.evals and not model.asked_before


def replaced(monkeypatch, module, name, answer):
    """Puts a function that takes keywords only in the place of a chapter's; what it was given."""
    calls = []

    def stand_in(*, model, tokenizer, device, **others):
        calls.append({"model": model, "tokenizer": tokenizer, "device": device, **others})
        return answer

    monkeypatch.setattr(module, name, stand_in)
    return calls


WHO = {"model": "a model", "tokenizer": "a tokenizer", "device": "cpu"}
EXAMPLE = {"problem": "7?", "answer": "7"}


def test_what_a_chapter_calls_can_be_replaced_and_gets_keywords(monkeypatch, tmp_path):
    plain = replaced(monkeypatch, ch03, "generate_text_stream_concat", r"\boxed{7}")
    flexible = replaced(monkeypatch, ch04, "generate_text_stream_concat_flex", r"\boxed{7}")
    refined = replaced(monkeypatch, ch05, "generate_text_stream_concat_flex", r"\boxed{7}")
    ch03.mini_eval_demo(**WHO)
    found = ch03.evaluate_math500_stream(**WHO, math_data=[EXAMPLE], out_path=tmp_path / "x")
    assert found == (1, 1, 1.0) and len(plain) == 2
    assert ch04.self_consistency_vote(**WHO, prompt="?", num_samples=2)["final_answer"] == "7"
    loop = ch05.self_refinement_loop(**WHO, raw_prompt="?", iterations=1)
    assert loop["final_extracted"] == "7" and (len(flexible), len(refined)) == (2, 3)
    for call in (*plain, *flexible, *refined):
        assert call.items() >= WHO.items() and "prompt" in call and "max_new_tokens" in call
    for call in (*flexible, *refined):
        assert call.keys() >= {"verbose", "generate_func", "temperature", "top_p"}


def test_a_rollout_of_the_readers_own(monkeypatch):
    rollout = (torch.tensor([58, 92, 98]), 1, r"\boxed{7}")
    calls = replaced(monkeypatch, ch06, "sample_response", rollout)
    who = WHO | {"model": ChainModel()}
    found = ch06.compute_grpo_loss(**who, example=EXAMPLE, num_rollouts=3, max_new_tokens=9)
    assert found["rewards"] == [1.0] * 3 and len(calls) == 3
    assert calls[0].items() >= (who | {"max_new_tokens": 9, "temperature": 0.8}).items()


def test_a_group_of_the_readers_own(monkeypatch, tmp_path):
    stats = {"loss": 0.5, "rewards": [1.0], "advantages": [0.0], "samples": [{"gen_len": 3}]}
    calls = replaced(monkeypatch, ch06, "compute_grpo_loss", stats)
    who = WHO | {"model": torch.nn.Linear(1, 1)}
    ch06.train_rlvr_grpo(**who, math_data=[EXAMPLE], num_rollouts=4, csv_log_path=tmp_path / "x")
    assert calls[0].items() >= (who | {"example": EXAMPLE, "num_rollouts": 4}).items()


class Answer:
    """As small as a stand-in for a response may be."""

    def __init__(self, content, status=200):
        self.content, self.status = content, status

    def raise_for_status(self):
        if self.status >= 400:
            raise requests.HTTPError(f"the stand-in answers {self.status}")

    def json(self):
        return json.loads(self.content)


@pytest.fixture(params=["the module", "its get"])
def answering(request, monkeypatch, tmp_path):
    """Answers in the place of the network's; the addresses that were asked for."""
    monkeypatch.chdir(tmp_path)

    def install(module, answer):
        asked = []

        def get(url, timeout=None):
            asked.append(url)
            return answer

        if request.param == "its get":
            monkeypatch.setattr(module.requests, "get", get)
        else:
            monkeypatch.setattr(module, "requests", SimpleNamespace(get=get))
        return asked

    return install


def test_chapter_6_downloads_with_its_own_requests(answering, tmp_path):
    rows = math_rows(2)
    asked = answering(ch06, Answer(json.dumps(rows).encode()))
    assert ch06.load_math_train(save_copy=False) == rows and not list(tmp_path.iterdir())
    for _ in range(2):
        assert ch06.load_math_train("new/mine.json") == rows
    assert len(asked) == 2 and asked[0].endswith("/math_full_minus_math500.json")


def test_chapter_7_downloads_with_its_own_requests(answering, tmp_path):
    asked = answering(ch07, Answer(b"step,loss\n"))
    for _ in range(2):
        path = ch07.download_from_github("ch07/logs/metrics.csv")
    assert path.read_bytes() == b"step,loss\n" and path.resolve() == tmp_path / "metrics.csv"
    assert ch07.download_from_github("ch07/logs/metrics.csv", "new/b.csv").exists()
    assert len(asked) == 2 and asked[0].endswith("/main/ch07/logs/metrics.csv")
