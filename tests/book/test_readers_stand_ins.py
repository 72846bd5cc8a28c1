"""Programs written for the book's package put something of theirs in place of a part of ours: a
model that notes what is done to it, another generator."""

import pytest
import torch

from reasoning_from_scratch import appendix_f, ch02, ch03, ch04, ch05
from tests.book.stand_ins import ChainModel, LetterTokenizer

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


def replaced(monkeypatch, module, name, answer):
    """Puts a function that takes keywords only in the place of a chapter's; what it was given."""
    calls = []

    def stand_in(**given):
        calls.append(given)
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
        assert call.get("top_p", 0.9) == 0.9
    for call in (*flexible, *refined):
        assert call.keys() >= {"verbose", "generate_func", "top_p"}
    assert [call["temperature"] for call in (*flexible, *refined)] == [0.8] * 2 + [0.7] * 3
    chosen = replaced(
        monkeypatch, appendix_f, "generate_text_basic_stream_cache", torch.tensor([[[66]]])
    )
    assert appendix_f.predict_choice("a model", LetterTokenizer(), ":") == "B"
    assert chosen[0].keys() == {"model", "token_ids", "max_new_tokens", "eos_token_id"}
