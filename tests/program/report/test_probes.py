"""Probes of a run, and the story that they tell."""

import json

import pytest
import torch
from report_groups import ByteTokenizer
from small_model import small_model

from reasoning_from_scratch.problems import Problem, render_prompt
from rfs.report import record_probes
from rfs.report.probe_story import slider_data


@pytest.fixture(scope="module")
def probed(tmp_path_factory):
    model = small_model(260, context_length=512)
    folder = tmp_path_factory.mktemp("probed")
    problems = [Problem("a", "What is 2 + 3?", "5"), Problem("b", "And 10 - 1?", "9")]
    for step in (0, 10):
        record_probes(folder, step, model, ByteTokenizer(), problems, max_new_tokens=8)
        with torch.no_grad():
            model.out_head.weight *= 1.5  # a surer model
    return folder, problems


def test_probes_record_the_greedy_answer_and_its_distributions(probed):
    folder, problems = probed
    rows = [json.loads(line) for line in (folder / "probes.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 10]
    model = small_model(260, context_length=512)
    for problem, probe in zip(problems, rows[0]["probes"], strict=True):
        assert (probe["problem_id"], probe["answer"]) == (problem.id, problem.answer)
        ids = ByteTokenizer().encode(render_prompt(problem.problem))
        for place in probe["top"]:  # token by token, without cache: the slow and certain way
            with torch.no_grad():
                expected = model(torch.tensor([ids]))[0, -1].softmax(-1)
            values, tokens = expected.topk(6)
            assert [p for _, p in place] == pytest.approx(values.tolist(), abs=2e-4)
            ids.append(int(tokens[0]))
        drawn = ids[len(ids) - len(probe["top"]) :]
        assert "".join(probe["tokens"]) == ByteTokenizer().decode(drawn)


def test_the_slider_reads_what_was_recorded(probed):
    folder, _ = probed
    rows = [json.loads(line) for line in (folder / "probes.jsonl").read_text().splitlines()]
    data = slider_data(rows)
    assert data["steps"] == [0, 10] and len(data["problems"]) == 2
    first, last = data["problems"][0]["at"]
    assert max(p for _, p in last["top"][0]) > max(p for _, p in first["top"][0])
    assert slider_data([]) is None
    for row in rows:
        for probe in row["probes"]:
            probe["problem_id"] = "mine"  # as where a file gives each problem the same id
    assert slider_data(rows) == data
