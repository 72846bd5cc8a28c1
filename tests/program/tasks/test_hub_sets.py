"""Data sets by their names on the hub, which is on this machine."""

import io
import json
import sys

import huggingface_hub.constants as hub_constants
import pytest
from command_world import SHORT, commands, make_world
from file_server import closed_port, hub_at, hub_with, respond, serving

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.text import read_lines
from rfs.files import hub_data
from rfs.run.chosen_problems import load_sets
from rfs.run.options import configure, resolved
from rfs.tasks.problem_sets import held_out, load_problems, source_of
from rfs.tasks.source import split_off_held_out

pa = pytest.importorskip("pyarrow", reason="the extra hf")
pq = pytest.importorskip("pyarrow.parquet", reason="the extra hf")

GSM8K = [
    {"question": f"What is {n} times {n}?", "answer": f"It is <<1*1=1>>so.\n#### 1,{n:03d}"}
    for n in range(30)
]
BRIEF = {"role": "system", "content": "Be brief."}
ASKS, SAYS = {"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "So 2."}


def parquet(rows) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file.getvalue()


def data_hub(files):
    """A hub with one data set, whose parquet files are {path: content}."""
    inside = hub_with(files)

    def behavior(handler, content):
        if handler.path.startswith("/api/datasets/"):
            assert "refs%2Fconvert%2Fparquet" in handler.path
            siblings = [{"rfilename": name} for name in [".gitattributes", *files]]
            facts = {"id": "openai/gsm8k", "sha": "0" * 40, "siblings": siblings}
            body = json.dumps(facts).encode()
            return respond(handler, 200, body, Content_Type="application/json")
        return inside(handler, content)

    return behavior


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    hub_data.hub_data_set.cache_clear()
    with serving() as server:
        hub_at(monkeypatch, server.url, tmp_path / "hub cache")
        yield server
    hub_data.hub_data_set.cache_clear()


def offers(server, **splits):
    """One config, main, with these splits."""
    files = {f"main/{name}/0000.parquet": parquet(rows) for name, rows in splits.items()}
    server.behaviors = [data_hub(files)]


def refused(name: str) -> str:
    with pytest.raises(UserError) as info:
        load_problems(name)
    assert "\n" not in str(info.value)
    return str(info.value)


def test_gsm8k(server, caplog):
    caplog.set_level("INFO", "reasoning_from_scratch")
    offers(server, train=GSM8K, test=GSM8K[:7])
    problems = load_problems("hf:openai/gsm8k")
    assert len(problems) == 30 and problems[3].answer == "1003"
    assert problems[3].problem == "What is 3 times 3?"
    assert problems[3].source == "hf:openai/gsm8k:main@train, row 3"
    assert [record.getMessage() for record in caplog.records] == [
        "hf:openai/gsm8k:main@train: questions from the column 'question', answers from 'answer'"
    ]
    assert load_problems("hf:openai/gsm8k", limit=4) == problems[:4]
    assert len(load_problems("hf:openai/gsm8k:main@test")) == 7


@pytest.mark.parametrize(
    "row, columns, solution",
    [
        ({"problem": "1 + 1?", "answer": "2", "solution": "So 2."}, "", "So 2."),
        ({"problem": "1 + 1?", "answer": "2", "worked": "So 2."}, "?solution=worked", "So 2."),
        ({"q": "1 + 1?", "a": "2", "w": "So."}, "?question=q&answer=a&solution=w", "So."),
        ({"question": "1 + 1?", "answer": "1 + 1 = <<1+1=2>>2\n#### 2"}, "", "1 + 1 = 2"),
        ({"problem": "1 + 1?", "answer": "2"}, "", ""),
        ({"problem": "1 + 1?", "answer": "2", "talk": [ASKS, SAYS]}, "?solution=talk", "So 2."),
    ],
)
def test_worked_solutions(server, row, columns, solution):
    offers(server, train=[row])
    (problem,) = load_problems(f"hf:openai/gsm8k{columns}")
    assert (problem.problem, problem.answer, problem.solution) == ("1 + 1?", "2", solution)


def test_what_is_held_out(server):
    offers(server, train=GSM8K, test=GSM8K[:7], validation=GSM8K[:5])
    assert held_out("hf:openai/gsm8k") == "hf:openai/gsm8k:main@test"
    assert held_out("hf:openai/gsm8k@test") == "hf:openai/gsm8k:main@validation"
    columns = "?question=answer&answer=question"
    assert held_out(f"hf:openai/gsm8k{columns}") == f"hf:openai/gsm8k:main@test{columns}"
    assert len(load_problems("hf:openai/gsm8k@held-out")) == 7
    assert source_of("hf:openai/gsm8k:main@test" + columns).short_name == "gsm8k-main@test"


def test_held_out_is_one_set_whoever_names_it(server):
    """Where the set has a split of its own, `rfs train` does not set a tenth aside either."""
    many = [{"problem": f"{n} and nothing", "answer": str(n)} for n in range(60)]
    offers(server, train=many, test=many[:7])
    name = "hf:openai/gsm8k"
    asked = dict(problems=name, eval_problems=[f"{name}@held-out"], eval_every=1)
    problems, sets = load_sets(resolved(configure("grpo", model="tiny", **asked)))
    assert len(problems) == 60
    assert list(sets.values()) == [load_problems(f"{name}@held-out")] and len(*sets.values()) == 7


def test_a_set_of_one_split_keeps_a_share_aside(server):
    many = [{"problem": f"{n} and nothing", "answer": n} for n in range(100)]
    offers(server, everything=many)
    name = "hf:openai/gsm8k"
    assert held_out(name) == f"{name}@held-out"
    assert load_problems(f"{name}@held-out") == split_off_held_out(load_problems(name))[1]


@pytest.mark.parametrize(
    "row, columns, answer",
    [
        ({"prompt": "1 + 1?", "target": 2.0}, "", "2"),
        ({"problem": "1 + 1?", "solution": r"So \boxed{2}."}, "", "2"),
        ({"problem": "1 + 1?", "solution": r"So \boxed{3}.", "answer": "2"}, "", "2"),
        ({"problem": "1 + 1?", "solution": r"So \boxed{2}.", "answer": None}, "", "2"),
        ({"problem": "1 + 1?", "solution": "2"}, "", None),
        ({"problem": "1 + 1?", "solution": "2"}, "?answer=solution", "2"),
        ({"problem": "1 + 1?", "final_answer": ["2"], "answer": "as one sees"}, "", "2"),
        ({"text": "1 + 1?", "x y": "2"}, "?question=text&answer=x y", "2"),
        ({"prompt": [BRIEF, ASKS], "reward_model": {"ground_truth": "2"}}, "", "2"),
    ],
)
def test_columns(server, row, columns, answer):
    offers(server, train=[row])
    if answer is None:
        assert "none of 1 rows has" in refused(f"hf:openai/gsm8k{columns}")
        return
    (problem,) = load_problems(f"hf:openai/gsm8k{columns}")
    assert (problem.problem, problem.answer) == ("1 + 1?", answer)


def test_rows_without_an_answer_are_counted(server, caplog):
    offers(server, train=[*GSM8K, {"question": "Why?", "answer": None}, {"answer": "3"}])
    assert len(load_problems("hf:openai/gsm8k")) == 30
    assert "skipped 2 of 32 rows" in caplog.text


@pytest.mark.parametrize(
    "name, words",
    [
        ("hf:gsm8k", "the form is hf:OWNER/NAME:CONFIG@SPLIT"),
        ("hf:openai/gsm8k?problem=text", "not problem=text"),
        ("hf:openai/gsm8k?question=txt", "unknown column of openai/gsm8k 'txt': did you mean"),
        ("hf:openai/gsm8k:maine", "name one of its configs, .*:CONFIG: main"),
        ("hf:openai/gsm8k@dev", "name one of its splits, .*@SPLIT: train"),
        ("hf:openai/gsm8k", "which column is the question.* the columns are text, number"),
        ("hf:openai/gsm8k?question=text", "which column is the answer"),
    ],
)
def test_names_that_say_too_little(server, name, words):
    offers(server, train=[{"text": "1 + 1?", "number": 2}])
    with pytest.raises(UserError, match=words):
        load_problems(name)


def test_a_config_has_to_be_chosen_among_several(server):
    rows = parquet(GSM8K)
    files = {f"{config}/train/0000.parquet": rows for config in ("algebra", "geometry")}
    server.behaviors = [data_hub(files)]
    assert "CONFIG: algebra, geometry" in refused("hf:openai/gsm8k")
    assert len(load_problems("hf:openai/gsm8k:geometry")) == 30


def test_a_set_in_several_files_is_read_as_far_as_it_is_asked_for(server):
    files = {
        "default/partial-train/0000.parquet": parquet(GSM8K),
        "default/partial-train/0001.parquet": parquet(GSM8K),
        "default/test/0000.parquet": parquet(GSM8K),
    }
    server.behaviors = [data_hub(files)]
    load_problems("hf:openai/gsm8k", limit=30)
    assert [path.rpartition("/")[2] for path in server.paths()] == ["0000.parquet"]
    assert len({problem.id for problem in load_problems("hf:openai/gsm8k")}) == 60


def test_a_set_comes_once(server, monkeypatch, tmp_path):
    offers(server, train=GSM8K, test=GSM8K[:7])
    before = load_problems("hf:openai/gsm8k")
    hub_data.hub_data_set.cache_clear()
    hub_at(monkeypatch, f"http://127.0.0.1:{closed_port()}", tmp_path / "hub cache")
    assert load_problems("hf:openai/gsm8k") == before
    monkeypatch.setattr(hub_constants, "HF_HUB_OFFLINE", True)
    assert load_problems("hf:openai/gsm8k") == before
    assert "cannot get data set openai/gsm8k" in refused("hf:openai/gsm8k@test")


@pytest.mark.parametrize(
    "status, code, words",
    [
        (404, "RepoNotFound", "there is no data set openai/gsm8k on the hub, or it is private"),
        (403, "GatedRepo", "data set openai/gsm8k is gated: accept the license"),
        (404, "RevisionNotFound", "has no parquet files of openai/gsm8k (a private set"),
    ],
)
def test_what_the_hub_does_not_give(server, status, code, words):
    server.behaviors = [lambda handler, _: respond(handler, status, b"{}", X_Error_Code=code)]
    assert words in refused("hf:openai/gsm8k")


def test_without_pyarrow(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match="uv sync --extra hf"):
        source_of("hf:openai/gsm8k").check()


def test_a_run_trains_on_it_and_goes_on(server, tmp_path, monkeypatch, capsys):
    make_world(tmp_path)
    letters = [{"problem": a + b, "answer": "3"} for a in "abcdefgh" for b in "abcdefgh"]
    offers(server, train=letters, test=letters[:6])
    monkeypatch.chdir(tmp_path)
    words = ["train", "--model", "tiny-toy", "--problems", "hf:openai/gsm8k", *SHORT]
    assert commands([*words, "--log-path", "run"]) == 0, capsys.readouterr().err
    said = capsys.readouterr().err
    assert "hf:openai/gsm8k:main@train: questions from the column 'problem'" in said
    saved = json.loads((tmp_path / "run/config.json").read_text())
    assert saved["problems"] == "hf:openai/gsm8k"
    assert saved["eval_problems"] == ["hf:openai/gsm8k:main@test"]
    measured = read_lines(tmp_path / "run/metrics.jsonl")[-1]
    assert any("gsm8k-main@test" in name for name in measured)
    hub_data.hub_data_set.cache_clear()
    hub_at(monkeypatch, f"http://127.0.0.1:{closed_port()}", tmp_path / "hub cache")
    monkeypatch.chdir(tmp_path / "run")
    assert commands(["train", "--resume", str(tmp_path / "run"), "--steps", "6"]) == 0
    assert len(read_lines(tmp_path / "run/metrics.jsonl")) == 6
