"""report.html, the probes behind its slider, and the server that follows a run."""

import http.client
import json
import os
import re
import threading

import pytest
import torch
from report_groups import ByteTokenizer, make_groups, make_rollout

from reasoning_from_scratch.commands.cli import main
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.evaluation.evaluate import wilson_interval
from reasoning_from_scratch.problems import Problem, render_prompt
from reasoning_from_scratch.qwen3 import Qwen3Model
from reasoning_from_scratch.report import record_probes, write_iteration, write_run_report
from reasoning_from_scratch.report.curves import make_charts, short
from reasoning_from_scratch.report.learned import eval_rows, learned
from reasoning_from_scratch.report.probe_story import biggest_change, slider_data
from reasoning_from_scratch.report.run_files import read_run
from reasoning_from_scratch.report.serve import make_server, run_version
from reasoning_from_scratch.rollouts import Group
from reasoning_from_scratch.text import evenly

SMALL = {
    "vocab_size": 260,
    "context_length": 512,
    "emb_dim": 32,
    "n_heads": 2,
    "n_layers": 2,
    "hidden_dim": 48,
    "head_dim": 16,
    "qk_norm": True,
    "n_kv_groups": 1,
    "rope_base": 10_000.0,
    "dtype": torch.float32,
}


def metrics_line(step: int, **values) -> str:
    row = {"step": step, "env/all/reward/total": step / 10, "optim/grad_norm": 1.0, **values}
    return json.dumps(row) + "\n"


def write_eval(folder, step: int, right: list[bool], name: str = "test") -> None:
    groups = []
    for number, good in enumerate(right):
        problem = Problem(f"p{number}", f"Problem {number}?", "1")
        rollout = make_rollout(problem, "\\boxed{1}" if good else "\\boxed{2}", float(good))
        groups.append(Group(problem, [rollout]))
    write_iteration(folder, f"eval/{name}", step, groups, ByteTokenizer())


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "a-run"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"recipe": "grpo", "model": "tiny", "steps": 4}))
    (folder / "metrics.jsonl").write_text("".join(metrics_line(step) for step in range(4)))
    for step in (2, 3):
        write_iteration(folder, "train", step, make_groups(seed=step), ByteTokenizer())
    for step, right in ((0, "1000"), (2, "1100"), (4, "0110")):
        write_eval(folder, step, [mark == "1" for mark in right])
    return folder


# ---- reading


def test_a_step_that_was_run_again_counts_once_and_half_a_line_not_at_all(run):
    with open(run / "metrics.jsonl", "a") as file:
        file.write(metrics_line(2, **{"env/all/reward/total": 0.9}) + '{"step": 4, "env/al')
    rows = read_run(run).metrics
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert rows[2]["env/all/reward/total"] == 0.9


def test_a_folder_without_a_run_is_a_user_error(tmp_path, capsys):
    with pytest.raises(UserError, match="no run in"):
        write_run_report(tmp_path)
    assert main(["report", str(tmp_path)]) == 2
    assert "no metrics.jsonl" in capsys.readouterr().err


def test_a_run_that_has_only_begun_has_a_report(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert "no step finished yet" in write_run_report(tmp_path).read_text("utf-8")


def test_a_run_that_has_lost_its_metrics_keeps_its_page(run, capsys):
    page = write_run_report(run).read_text("utf-8")
    (run / "metrics.jsonl").unlink()
    assert main(["report", str(run)]) == 2
    assert "has lost its metrics.jsonl" in capsys.readouterr().err
    assert (run / "report.html").read_text("utf-8") == page
    (run / "report.html").unlink()  # better than none
    assert "Evaluations" in write_run_report(run).read_text("utf-8")


def tiles(run, steps):
    (run / "metrics.jsonl").write_text("".join(metrics_line(step) for step in range(steps)))
    page = write_run_report(run).read_text("utf-8")
    found = re.findall(r"<dt>(.+?)</dt><dd>(.+?)</dd>(?:<dd class=\"was\">(.+?)</dd>)?", page)
    return {name: (now, was) for name, now, was in found}


def test_what_was_and_what_is_share_no_step(run):
    """The rewards of the steps are 0, 0.1, 0.2, ..."""
    assert tiles(run, 1)["reward"] == ("0.000", "")
    assert tiles(run, 2)["reward"] == ("0.100", "from 0.000")
    assert tiles(run, 3)["reward"] == ("0.200", "from 0.000")
    assert tiles(run, 5)["reward"] == ("0.350", "from 0.050")
    assert tiles(run, 20)["reward"] == ("1.700", "from 0.200")


def test_a_run_of_another_program_has_a_report_of_its_curves(run):
    for path in run.glob("*_summaries.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for row in rows:
            del row["text"], row["problem_id"], row["advantage"], row["stop_reason"]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    html = write_run_report(run).read_text("utf-8")
    assert "Gradient norm" in html and "Most improved" not in html


@pytest.mark.parametrize("size, limit", [(3, 5), (5, 5), (100, 6), (7, 2)])
def test_evenly_keeps_both_ends(size, limit):
    kept = evenly(list(range(size)), limit)
    assert len(kept) == min(size, limit) == len(set(kept))
    assert kept[0] == 0 and kept[-1] == size - 1 and kept == sorted(kept)


# ---- curves


@pytest.mark.parametrize(
    "value, label",
    [
        (0, "0"),
        (1234.5, "1230"),
        (45678, "45700"),
        (0.25, "0.25"),
        (120, "120"),
        (0.00012, "0.00012"),
        (-2, "-2"),
    ],
)
def test_numbers_are_short(value, label):
    assert short(value) == label


def test_curves_skip_what_was_not_measured(run):
    with open(run / "metrics.jsonl", "a") as file:
        file.write(metrics_line(4, **{"optim/grad_norm": None, "optim/clip_frac": None}))
    charts = {chart.title: chart for chart in make_charts(read_run(run))}
    assert set(charts) == {"Reward", "Accuracy", "Gradient norm"}
    assert charts["Gradient norm"].lines[0].steps == [0, 1, 2, 3]
    assert charts["Accuracy"].lines[0].values == [0.25, 0.5, 0.5]
    assert "total: 0 at step 0, 0.4 at step 4" in charts["Reward"].svg


def test_a_chart_has_the_pages_colors_and_no_id_twice(run):
    pictures = "".join(chart.svg for chart in make_charts(read_run(run)))
    assert "var(--c0)" in pictures and "var(--soft)" in pictures
    assert not re.search("#[0-9a-f]{6}", pictures)
    assert "<metadata" not in pictures
    ids = re.findall(' id="(.+?)"', pictures)
    assert len(ids) == len(set(ids))


# ---- evaluations


def test_the_evaluation_table(run):
    rows = eval_rows(read_run(run))
    assert [(row.step, row.accuracy, row.problems) for row in rows] == [
        (0, 0.25, 4),
        (2, 0.5, 4),
        (4, 0.5, 4),
    ]
    assert (rows[1].low, rows[1].high) == wilson_interval(2, 4)
    assert rows[0].length == 10 and rows[0].cut_off == 0


def test_pass_at_k_counts_problems_with_any_right_answer(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    groups = make_groups(count=3, size=4)  # rollouts 0 and 2 are right
    for rollout in groups[0].rollouts:
        rollout.rewards["correct"] = 0.0
    write_iteration(tmp_path, "eval/many", 0, groups, ByteTokenizer())
    (row,) = eval_rows(read_run(tmp_path))
    assert (row.samples, row.problems) == (4, 3)
    assert (row.accuracy, row.solved) == pytest.approx((4 / 12, 2 / 3))
    assert "@4: 66.7 %" in write_run_report(tmp_path).read_text("utf-8")


def test_what_was_learned_lost_and_still_fails(run):
    found = learned(read_run(run), "test")
    assert found.steps == [0, 2, 4]
    assert {label: count for _, label, count in found.counts} == {
        "↑ learned": 2,
        "↓ lost": 1,
        "✗ wrong both times": 1,
    }
    assert [story.problem_id for story in found.improved] == ["p1", "p2"]
    # Never solved comes before what was solved once.
    assert [story.problem_id for story in found.failing] == ["p3", "p0"]
    assert [moment.boxed for moment in found.improved[0].moments] == ["2", "1", "1"]


def test_one_evaluation_is_not_a_story(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    write_eval(tmp_path, 0, [True])
    assert learned(read_run(tmp_path), "test") is None
    write_run_report(tmp_path)


def test_the_report_shows_all_of_it(run):
    html = write_run_report(run).read_text("utf-8")
    text = re.sub(r"<(script|style)[^>]*>.*?</\1>|<[^>]+>", " ", html, flags=re.S)
    text = re.sub(r"\s+", " ", text)
    for words in (
        "grpo on tiny",
        "4 of 4 steps",
        "Most improved",
        "Still failing",
        "Best",
        "Worst",
        "Gradient norm",
        "25 %",
        "4.6 to 69.9 %",
        "Problem 3?",
    ):
        assert words in text, words
    links = set(re.findall(r'href="([^"#]+)"', html)) - {"data:,"}
    assert "train_iteration_000003.html" in links and "eval_test_iteration_000004.html" in links
    assert all((run / link).is_file() for link in links)


# ---- probes


@pytest.fixture(scope="module")
def probed(tmp_path_factory):
    torch.manual_seed(0)
    model = Qwen3Model(SMALL).eval()
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
    torch.manual_seed(0)
    model = Qwen3Model(SMALL).eval()
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


def test_the_biggest_change_is_a_mean_over_the_probes():
    def record(step, *firsts):
        return {
            "step": step,
            "probes": [
                {"top": [first], "tokens": [first[0][0]], "text": f" {first[0][0]}'s see.\nYes"}
                for first in firsts
            ],
        }

    change = biggest_change(
        [
            record(0, [["No", 0.9], ["Let", 0.1]], [["No", 0.7]]),
            record(5, [["No", 0.5]], [["No", 0.9]]),
            record(9, [["Let", 0.8], ["No", 0.2]], [["Let", 0.6], ["No", None]]),
        ]
    )
    assert (change.token, change.first_step, change.last_step) == ("Let", 0, 9)
    assert change.example == "Let's see."
    assert (change.first, change.last) == pytest.approx((0.05, 0.7))
    assert biggest_change([record(0, [["No", 1.0]])]) is None


# ---- the command and the server


def test_the_command_writes_and_names_the_page(run, capsys, monkeypatch):
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out == f"{run / 'report.html'}\n"
    (run / "report.html").unlink()
    (run.parent / "runs").mkdir()
    run.rename(run.parent / "runs" / "newest")
    monkeypatch.chdir(run.parent)
    assert main(["report"]) == 0
    assert (run.parent / "runs/newest/report.html").is_file()


@pytest.fixture
def server(run):
    with make_server(run, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def get(server, path: str, host: str = "127.0.0.1") -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.putrequest("GET", path, skip_host=True)
    connection.putheader("Host", f"{host}:{server.server_port}")
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read().decode("utf-8", "replace")
    return answer.status, answer.headers.get("Content-Type", ""), body


def test_the_server_listens_on_loopback_only(server):
    assert server.server_address[0] == "127.0.0.1"


def test_the_page_follows_the_run(server, run):
    status, kind, page = get(server, "/")
    assert status == 200 and kind.startswith("text/html")
    version = get(server, "/version")[2]
    assert f'data-version="{version}"' in page and "4 of 4 steps" in page
    assert "connect-src &#39;self&#39;" in page
    with open(run / "metrics.jsonl", "a") as file:
        file.write(metrics_line(4))
    assert get(server, "/version")[2] == run_version(run) != version
    assert "5 of 4 steps" in get(server, "/")[2]
    assert "data-version" not in write_run_report(run).read_text("utf-8")


def test_the_server_gives_out_the_runs_files_and_nothing_else(server, run):
    (run.parent / "secret.html").write_text("secret")
    os.symlink(run.parent / "secret.html", run / "link.html")
    (run / "weights.safetensors").write_text("weights")
    assert get(server, "/metrics.jsonl")[:2] == (200, "text/plain; charset=utf-8")
    assert get(server, "/train_iteration_000002.html")[0] == 200
    assert get(server, "/iteration_000002/train.html")[0] == 200
    for path in (
        "/../secret.html",
        "/%2e%2e/secret.html",
        "/link.html",
        "/weights.safetensors",
        "/iteration_000002",
        "/%00",
        "//etc/passwd",
        f"/{run.parent}/secret.html",
    ):
        status, _, body = get(server, path)
        assert status == 404 and "secret" not in body.replace("secret.html", ""), path


def test_other_names_for_this_machine_get_nothing(server):
    """A web page can point its own host name at 127.0.0.1 and would then read the answers."""
    assert get(server, "/", host="evil.example")[0] == 403
    assert get(server, "/", host="localhost")[0] == 200


def test_a_port_in_use_is_a_user_error(server, run):
    with pytest.raises(UserError, match="--port 0"):
        make_server(run, server.server_port)
