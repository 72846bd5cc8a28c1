"""Chapter 5 with stand-ins for model and tokenizer."""

import math

import pytest
import torch

from reasoning_from_scratch import ch03, ch05
from tests.book.stand_ins import Answers, ChainModel, LetterTokenizer, Wrapping


@pytest.fixture
def stand_ins():
    return ChainModel(), LetterTokenizer()


def test_heuristic_score_ranks_boxed_number_text():
    boxed, number, words = "so \\boxed{7}", "so it is  7!", "so it is so!"
    assert len(boxed) == len(number) == len(words)
    scores = [ch05.heuristic_score(text) for text in (boxed, number, words)]
    assert scores[0] - scores[1] == pytest.approx(1.0)
    assert scores[1] - scores[2] == pytest.approx(1.0)
    assert ch05.heuristic_score(words, fulltext_bonus=0.5) - scores[2] == pytest.approx(0.5)
    assert ch05.heuristic_score("x" * 400 + boxed) < scores[0]
    assert ch05.heuristic_score(boxed, prompt="any", boxed_bonus=5.0) - scores[0] == pytest.approx(
        3
    )
    assert ch05.heuristic_score("") == pytest.approx(1.5)


def test_next_token_probabilities(stand_ins, capsys):
    probas = ch05.calc_next_token_probas(*stand_ins, ":\\b!", "cpu")
    expected = torch.tensor([0.9, 0.9, 0.1 / 127])
    assert probas.tolist() == pytest.approx(expected.tolist(), rel=1e-5)
    logprobas = ch05.calc_next_token_logprobas(*stand_ins, ":\\b!", "cpu")
    assert logprobas.tolist() == pytest.approx(expected.log().tolist(), rel=1e-5)
    out = capsys.readouterr().out
    assert "Joint probability: 0.0006378" in out
    assert f"Joint log-probability: {expected.log().sum():.4f}" in out
    for function in (ch05.calc_next_token_probas, ch05.calc_next_token_logprobas):
        shown = function(*stand_ins, ":\\b!", "cpu")
        assert capsys.readouterr().out
        assert torch.equal(function(*stand_ins, ":\\b!", "cpu", show=False), shown)
        assert capsys.readouterr().out == ""


def test_average_logprob_counts_the_answer_only(stand_ins):
    score = ch05.avg_logprob_answer(*stand_ins, "any prompt :", "\\b!")
    assert score == pytest.approx((2 * math.log(0.9) + math.log(0.1 / 127)) / 3, rel=1e-5)
    assert ch05.avg_logprob_answer(*stand_ins, "p:", "\\boxed{7}") == pytest.approx(math.log(0.9))
    assert ch05.avg_logprob_answer(*stand_ins, "p:", "") == -math.inf


def test_an_answer_is_no_turn_of_a_chat(stand_ins):
    model, tokenizer = stand_ins[0], Wrapping()
    assert ch05.avg_logprob_answer(model, tokenizer, "p", "") == -math.inf
    alone = ch05.avg_logprob_answer(model, stand_ins[1], ":p!", "\\b!")
    assert ch05.avg_logprob_answer(model, tokenizer, "p", "\\b!") == pytest.approx(alone)


def test_the_prompts_of_a_refinement_name_their_parts():
    """A reader's stand-in for the model tells a critique from a revision by them."""
    critique = ch05.make_critique_prompt("1 + 1?", "It is \\boxed{3}.")
    assert "Question:\n1 + 1?\n" in critique and "Draft answer:\nIt is \\boxed{3}.\n" in critique
    assert critique.endswith("Critique:") and "meticulous reviewer" in critique
    refine = ch05.make_refine_prompt("1 + 1?", "It is \\boxed{3}.", "1 + 1 is 2.")
    assert (
        "Previous answer:\nIt is \\boxed{3}.\n" in refine and "Critique:\n1 + 1 is 2.\n" in refine
    )
    assert refine.endswith("Revised answer:")


def test_refinement_keeps_the_better_answer():
    answers = Answers("\\boxed{1}", "Review A", "no idea", "Review B", "ok \\boxed{2}")
    calls = []

    def score(answer, prompt):
        calls.append(prompt)
        return float("boxed" in answer)

    asked = {"score_fn": score, "prompt_suffix": " Hm.", "max_response_tokens": 9}
    found = ch05.self_refinement_loop(ChainModel(), answers, "Q?", "cpu", **asked)
    assert [step["iteration"] for step in found["steps"]] == [1, 2]
    first, second = found["steps"]
    assert (first["score_before"], first["score_after"]) == (1.0, 0.0)
    assert second["draft_full"] == "\\boxed{1}"  # the revision was worse and is not kept
    assert (second["critique"], second["revised_extracted"]) == ("Review B", "2")
    assert (found["final_full"], found["final_extracted"]) == ("ok \\boxed{2}", "2")
    assert found["final"] == found["final_extracted"]
    prompt = ch03.render_prompt("Q?") + " Hm."
    assert answers.asked == [
        prompt, 9,
        ch05.make_critique_prompt("Q?", "\\boxed{1}"), 256,
        ch05.make_refine_prompt("Q?", "\\boxed{1}", "Review A"), 9,
        ch05.make_critique_prompt("Q?", "\\boxed{1}"), 256,
        ch05.make_refine_prompt("Q?", "\\boxed{1}", "Review B"), 9,
    ]  # fmt: skip
    assert set(calls) == {prompt}
