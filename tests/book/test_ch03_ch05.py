"""Chapters 3 and 5 with stand-ins for model and tokenizer, and against the batched evaluation."""

import json
import math
import time

import pytest
import torch

from reasoning_from_scratch import ch03, ch05
from reasoning_from_scratch.evaluation.evaluate import evaluate
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.sampling import greedy

CHAIN = ":\\boxed{7}\0"  # each letter follows the one before; no letter comes twice


class LetterTokenizer:
    eos_token_id = 0

    def encode(self, text):
        return [ord(letter) % 128 for letter in text]

    def decode(self, ids):
        return "".join(map(chr, ids))


class ChainModel:
    """After ":" it writes \\boxed{7}. The next letter has probability 0.9, the rest share 0.1."""

    cfg = {"n_layers": 1}

    def __init__(self):
        self.following = torch.zeros(128, dtype=torch.long)
        for letter, after in zip(CHAIN, CHAIN[1:], strict=False):
            self.following[ord(letter)] = ord(after)
        self.resets = 0

    def reset_kv_cache(self):
        self.resets += 1

    def __call__(self, token_ids, cache=None):
        logits = torch.full((*token_ids.shape, 128), math.log(0.1 / 127))
        return logits.scatter(-1, self.following[token_ids][..., None], math.log(0.9))


@pytest.fixture
def stand_ins():
    return ChainModel(), LetterTokenizer()


def test_ch03_has_the_names_that_readers_import():
    for name in (
        "load_model_and_tokenizer load_tokenizer_only generate_text_stream_concat get_last_boxed "
        "extract_final_candidate normalize_text sympy_parser equality_check split_into_parts "
        "grade_answer run_demos_table render_prompt load_math500_test mini_eval_demo "
        "eta_progress_message evaluate_math500_stream"
    ).split():
        assert callable(getattr(ch03, name)), name


def test_text_ends_before_end_of_text(stand_ins, capsys):
    text = ch03.generate_text_stream_concat(*stand_ins, "Answer:", "cpu", 50)
    assert text == "\\boxed{7}"
    assert capsys.readouterr().out == ""


def test_text_stops_at_the_limit_and_is_shown_if_wanted(stand_ins, capsys):
    text = ch03.generate_text_stream_concat(*stand_ins, "Answer:", "cpu", 5, verbose=True)
    assert text == "\\boxe"
    assert capsys.readouterr().out == "\\boxe\n"


def test_mini_demo_shows_question_and_verdict(stand_ins, capsys):
    ch03.mini_eval_demo(*stand_ins, "cpu")
    out = capsys.readouterr().out
    assert "1/2 + 1/6" in out and "\\boxed{7}" in out and "wrong" in out


@pytest.mark.parametrize(
    "elapsed, processed, total, expected",
    [
        (10, 1, 3, "MATH: 1/3 | ETA: 20s"),
        (60, 1, 3, "MATH: 1/3 | ETA: 2m 00s"),
        (100, 1, 100, "MATH: 1/100 | ETA: 2h 45m 00s"),
        (3600, 1, 2, "MATH: 1/2 | ETA: 1h 00m 00s"),
        (10, 3, 3, "MATH: 3/3 | ETA: 0s"),
        (10, 0, 3, "MATH: 0/3"),
    ],
)
def test_progress_message(monkeypatch, elapsed, processed, total, expected):
    monkeypatch.setattr(time, "time", lambda: 1000.0 + elapsed)
    assert ch03.eta_progress_message(processed, total, 1000.0, True, "MATH") == expected
    assert ch03.eta_progress_message(1, 2, 1000.0) == "Progress: 1/2"


MATH_DATA = [
    {"problem": "3 + 4", "answer": "7"},
    {"problem": "3 + 5", "answer": "8"},
    {"problem": "1/2 of 14", "answer": "\\frac{14}{2}"},
]


def test_math500_stream(stand_ins, tmp_path, capsys):
    path = tmp_path / "out.jsonl"
    found = ch03.evaluate_math500_stream(*stand_ins, "cpu", MATH_DATA, out_path=path)
    assert found == (2, 3, pytest.approx(2 / 3))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["index"] for row in rows] == [1, 2, 3]
    assert rows[1] == {
        "index": 2,
        "problem": "3 + 5",
        "gtruth_answer": "8",
        "generated_text": "\\boxed{7}",
        "extracted": "7",
        "correct": False,
    }
    assert "66.7% (2/3)" in capsys.readouterr().out


def test_math500_stream_names_its_file_by_itself(stand_ins, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ch03.evaluate_math500_stream(*stand_ins, torch.device("cpu"), MATH_DATA[:1])
    assert len((tmp_path / "math500-cpu.jsonl").read_text().splitlines()) == 1


def test_math500_stream_writes_each_line_before_the_next_problem(tmp_path):
    path, lines = tmp_path / "out.jsonl", []

    class Watching(ChainModel):
        def reset_kv_cache(self):
            lines.append(len(path.read_text().splitlines()))

    ch03.evaluate_math500_stream(Watching(), LetterTokenizer(), "cpu", MATH_DATA, out_path=path)
    assert sorted(set(lines)) == [0, 1, 2]


def test_plain_and_batched_evaluation_agree(tmp_path):
    """A random Qwen3: the same texts and verdicts, one by one and in a batch."""
    sizes = {"vocab_size": 128, "context_length": 512, "emb_dim": 16, "n_heads": 2, "n_layers": 2}
    sizes |= {"hidden_dim": 24, "head_dim": 8, "qk_norm": True, "n_kv_groups": 1}
    torch.manual_seed(3)
    model = Qwen3Model(sizes | {"rope_base": 10_000.0, "dtype": torch.float32}).eval()
    path = tmp_path / "plain.jsonl"
    plain = ch03.evaluate_math500_stream(
        model, LetterTokenizer(), "cpu", MATH_DATA, out_path=path, max_new_tokens=30
    )
    problems = [Problem(str(i), row["problem"], row["answer"]) for i, row in enumerate(MATH_DATA)]
    batched = evaluate(model, LetterTokenizer(), problems, greedy(30), fallback="number_then_full")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows == [{key: row[key] for key in rows[0]} for row in batched.rows]
    assert plain[2] == batched.accuracy


# --- chapter 5 ---


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


def test_average_logprob_counts_the_answer_only(stand_ins):
    score = ch05.avg_logprob_answer(*stand_ins, "any prompt :", "\\b!")
    assert score == pytest.approx((2 * math.log(0.9) + math.log(0.1 / 127)) / 3, rel=1e-5)
    assert ch05.avg_logprob_answer(*stand_ins, "p:", "\\boxed{7}") == pytest.approx(math.log(0.9))
    assert ch05.avg_logprob_answer(*stand_ins, "p:", "") == -math.inf


def test_prompts_hold_their_parts():
    critique = ch05.make_critique_prompt("THE QUESTION", "THE DRAFT")
    assert "THE QUESTION" in critique and "THE DRAFT" in critique
    refine = ch05.make_refine_prompt("THE QUESTION", "THE DRAFT", "THE CRITIQUE")
    assert all(part in refine for part in ("THE QUESTION", "THE DRAFT", "THE CRITIQUE"))
    assert "\\boxed{ANSWER}" in refine and refine.endswith("Answer:")


@pytest.fixture
def scripted_answers(monkeypatch):
    """Answers in order, instead of a model's; the prompts are kept."""

    def install(*answers):
        prompts, left = [], list(answers)

        def respond(model, tokenizer, prompt, device, max_new_tokens, **options):
            prompts.append((prompt, max_new_tokens, options["temperature"], options["top_p"]))
            return left.pop(0)

        monkeypatch.setattr(ch05, "generate_text_stream_concat_flex", respond)
        return prompts

    return install


def test_refinement_keeps_the_better_answer(scripted_answers):
    prompts = scripted_answers("\\boxed{1}", "Review A", "no idea", "Review B", "ok \\boxed{2}")
    calls = []

    def score(answer, prompt):
        calls.append(prompt)
        return float("boxed" in answer)

    found = ch05.self_refinement_loop(
        None, None, "Q?", "cpu", score_fn=score, prompt_suffix=" Hm.", max_response_tokens=9
    )
    assert [step["iteration"] for step in found["steps"]] == [1, 2]
    first, second = found["steps"]
    assert (first["draft_score"], first["revised_score"]) == (1.0, 0.0)
    assert second["draft_full"] == "\\boxed{1}"  # the revision was worse and is not kept
    assert (second["critique"], second["revised_extracted"]) == ("Review B", "2")
    assert (found["final_full"], found["final_extracted"]) == ("ok \\boxed{2}", "2")
    assert prompts[0] == (ch03.render_prompt("Q?") + " Hm.", 9, 0.7, 0.9)
    assert prompts[1][:2] == (ch05.make_critique_prompt("Q?", "\\boxed{1}"), 256)
    assert prompts[4][0] == ch05.make_refine_prompt("Q?", "\\boxed{1}", "Review B")
    assert set(calls) == {prompts[0][0]}


def test_refinement_without_a_score_takes_each_revision(scripted_answers):
    scripted_answers("\\boxed{1}", "Review", "no idea")
    found = ch05.self_refinement_loop(None, None, "Q?", "cpu", iterations=1)
    assert found["final_full"] == "no idea"


def test_refinement_with_a_stand_in_model(stand_ins):
    model, tokenizer = stand_ins
    found = ch05.self_refinement_loop(
        model,
        tokenizer,
        "3 + 4?",
        "cpu",
        iterations=1,
        max_response_tokens=20,
        max_critique_tokens=5,
        score_fn=ch05.heuristic_score,
        temperature=0.1,
        top_p=0.5,
    )
    assert found["final_extracted"] == "7"
    assert found["steps"][0]["critique"] == "\\boxe"
