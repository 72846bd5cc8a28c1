"""Methods that spend more tokens: the same answers as chapters 3 to 5, and killed and resumed."""

from dataclasses import replace

import pytest
from inference_methods import METHODS, answer_with

from reasoning_from_scratch import ch05
from reasoning_from_scratch.sampling import Sampling, greedy
from rfs.evaluation.answer_file import AnswerFile
from rfs.evaluation.evaluate import evaluate
from rfs.files.models import load_model_and_tokenizer
from rfs.tasks.problem_sets import load_problems

PROBLEMS = load_problems("tiny-test", limit=6)
SAMPLING = Sampling(24, temperature=0.8, top_p=0.9, rollouts=4, seed=3, sample_rows=16)


@pytest.fixture(scope="module")
def tiny():
    return load_model_and_tokenizer("tiny")


def run(name, tiny, sampling=SAMPLING, **options):
    return answer_with(name, *tiny, PROBLEMS, sampling, **{"max_critique_tokens": 12} | options)


def texts(rows):
    return [row["generated_text"] for row in rows]


def test_greedy_is_an_evaluation(tiny):
    plain = evaluate(*tiny, PROBLEMS, greedy(24), fallback="number_then_full")
    found = run("greedy", tiny)
    assert (found.accuracy, found.interval) == (plain.accuracy, plain.interval)
    assert [{**row, "tries": None} for row in found.rows] == [
        {**row, "tries": None} for row in plain.rows
    ]


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS[name].several])
def test_one_of_the_sampled_answers_is_taken_and_all_are_counted(tiny, name):
    sampled = evaluate(*tiny, PROBLEMS, SAMPLING, fallback="number_then_full").rows
    for number, row in enumerate(run(name, tiny).rows):
        group = sampled[4 * number : 4 * number + 4]
        assert texts(row["tries"]) == texts(group)
        assert row["generated_text"] in texts(group)
        assert row["tokens"] == sum(one["tokens"] for one in group)


def test_scores_are_kept_and_the_best_wins(tiny):
    for name, score in (("best_heuristic", ch05.heuristic_score), ("best_logprob", None)):
        for row in run(name, tiny).rows:
            top = max(row["tries"], key=lambda one: one["score"])
            assert row["generated_text"] == top["generated_text"]
            if score:
                assert [one["score"] for one in row["tries"]] == list(
                    map(score, texts(row["tries"]))
                )


@pytest.mark.parametrize("name", ["refine", "refine_logprob", "refine_heuristic"])
def test_refinement_is_that_of_chapter_5(tiny, name):
    """At temperature 0 nothing is drawn, so the texts must be the same."""

    def confidence(answer, prompt):
        return ch05.avg_logprob_answer(*tiny, prompt, answer)

    score = {"logprob": confidence, "heuristic": ch05.heuristic_score}.get(METHODS[name].score)
    rows = run(name, tiny, replace(SAMPLING, temperature=0.0), iterations=2).rows
    kept = set()
    for problem, row in zip(PROBLEMS, rows, strict=True):
        asked = {"max_response_tokens": 24, "max_critique_tokens": 12, "temperature": 0.0}
        given = *tiny, problem.problem, "cpu"
        plain = ch05.self_refinement_loop(*given, score_fn=score, **asked)
        draft, *revisions = row["tries"]
        assert draft["generated_text"] == plain["steps"][0]["draft_full"]
        assert texts(revisions) == [step["revised_full"] for step in plain["steps"]]
        assert [one["review"] for one in revisions] == [s["critique"] for s in plain["steps"]]
        assert row["generated_text"] == plain["final_full"]
        kept.add(row["generated_text"] == draft["generated_text"])
    assert name == "refine" or True in kept  # the draft was the better one somewhere


@pytest.mark.parametrize("name", ["vote_logprob", "refine_logprob"])
def test_the_size_of_a_batch_does_not_matter(tiny, name):
    assert run(name, tiny, replace(SAMPLING, sample_rows=4)).rows == run(name, tiny).rows


@pytest.mark.parametrize(
    "name, after, torn",
    [("best_logprob", 3, 9), ("refine_logprob", 1, 0), ("refine_logprob", 5, 200)],
)
def test_killed_and_resumed_is_the_same_file(tiny, tmp_path, monkeypatch, name, after, torn):
    sampling = replace(SAMPLING, sample_rows=2)
    whole, path = tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
    expected = run(name, tiny, sampling, out_path=whole)
    add = AnswerFile.add

    def dying(self, index, rows):
        add(self, index, rows)
        if len(self.groups) == after:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(AnswerFile, "add", dying)
        with pytest.raises(KeyboardInterrupt):
            run(name, tiny, sampling, out_path=path)
    path.write_bytes(path.read_bytes()[: len(path.read_bytes()) - torn])
    assert run(name, tiny, sampling, out_path=path).rows == expected.rows
    assert path.read_bytes() == whole.read_bytes()
    assert len(path.read_text().splitlines()) == 6
