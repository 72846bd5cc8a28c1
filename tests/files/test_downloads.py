"""Downloads from a server that fails in every way: a file is whole or not there, an error is one
line that says what to do, and what is there needs no network."""

import json
import random
from dataclasses import replace
from unittest.mock import Mock

import pytest
import requests
from file_server import (
    answers,
    closed_port,
    dies_after,
    hub,
    hub_at,
    login_page,
    serving,
    stalls_after,
    whole,
)

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files import downloads
from reasoning_from_scratch.files.data_sets import DATA_SETS
from reasoning_from_scratch.files.downloads import (
    download_data,
    download_file,
    download_from_github,
    download_from_hub,
    download_qwen3_distill_checkpoints,
    download_qwen3_grpo_checkpoints,
    download_qwen3_small,
    get_with_timeout,
    published_checkpoint,
)
from reasoning_from_scratch.problem_sets import load_math500_test, load_math_train
from rfs.tasks.problem_sets import load_problems

CONTENT = random.Random(0).randbytes(300_000)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(downloads, "TIMEOUT", (0.3, 0.3))


@pytest.fixture
def server():
    with serving(CONTENT) as server:
        yield server


@pytest.fixture
def hub_server(server, monkeypatch, tmp_path):
    hub_at(monkeypatch, server.url, tmp_path / "hub cache")
    server.behaviors = [hub]
    return server


def fails(call, path, *words):
    """In one line with these words, and no part of the file under its name or beside it."""
    with pytest.raises(UserError) as info:
        call()
    assert "\n" not in str(info.value) and all(word in str(info.value) for word in words)
    assert not path.exists() and not list(path.parent.glob(f".{path.name}*"))


# ---- a plain address

FAULTS = {
    "not there": (answers(404), "answers 404"),
    "server error": (answers(503), "answers 503"),
    "breaks": (dies_after(100_000), "the connection broke in the middle"),
    "stalls": (stalls_after(100_000), "no answer for 0.3 seconds"),
    "nothing comes": (answers(200, b""), "nothing came"),
    "login page": (login_page, "a web page (of a login or proxy?) came"),
}


@pytest.mark.parametrize("behavior, reason", FAULTS.values(), ids=FAULTS)
def test_a_file_comes_whole_or_not_at_all(server, tmp_path, caplog, behavior, reason):
    path, url = tmp_path / "new folder" / "weights.bin", f"{server.url}/weights.bin"
    server.behaviors = [behavior]
    fails(lambda: download_file(url, path), path, reason, url, f"put it at {path}")
    with serving(CONTENT) as backup:
        assert download_file(url, path, f"{backup.url}/copy.bin") == path
    assert path.read_bytes() == CONTENT
    assert f"took {backup.url}/copy.bin instead" in caplog.text and reason in caplog.text


def test_a_file_already_there_needs_no_network(tmp_path):
    (tmp_path / "file").write_bytes(b"brought by hand")
    path = download_file(f"http://127.0.0.1:{closed_port()}/never", tmp_path / "file")
    assert path.read_bytes() == b"brought by hand"


def test_no_network_no_proxy_no_place(server, tmp_path, monkeypatch):
    path = tmp_path / "weights.bin"
    nobody = f"http://127.0.0.1:{closed_port()}"
    fails(lambda: download_file(f"{nobody}/w", path), path, "no connection (offline", nobody)
    monkeypatch.setenv("HTTPS_PROXY", nobody)
    fails(lambda: download_file("https://files.example/w", path), path, "the proxy")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write .*weights.bin"):
        download_file(f"{server.url}/w", tmp_path / "file" / "weights.bin")


def test_a_full_disk_and_ctrl_c_leave_nothing(server, tmp_path):
    path = tmp_path / "weights.bin"

    full = Mock(side_effect=OSError(28, "No space left on device"))
    call = lambda: download_file(f"{server.url}/w", path, finish=full)  # noqa: E731
    fails(call, path, f"cannot write {path}: No space left", "make room")
    with pytest.raises(KeyboardInterrupt):
        download_file(f"{server.url}/w", path, finish=Mock(side_effect=KeyboardInterrupt))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "get, limited",
    [
        (requests.get, True),
        (lambda url, **options: options, True),
        (lambda url, timeout=None: {"timeout": timeout}, True),
        (lambda url: {}, False),  # of a reader's test
    ],
    ids="requests options timeout alone".split(),
)
def test_the_chapters_wait_only_so_long(get, limited, monkeypatch):
    monkeypatch.setattr(requests.api, "request", lambda *args, params, **options: options)
    given = {"timeout": downloads.TIMEOUT} if limited else {}
    assert get_with_timeout(get, "http://127.0.0.1/file") == given


def test_download_from_github(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(downloads, "GITHUB_RAW", server.url)
    server.content = b"step,loss\n"
    assert download_from_github("ch07/logs/metrics.csv").read_bytes() == b"step,loss\n"
    assert (tmp_path / "metrics.csv").exists()
    assert download_from_github("ch07/logs/metrics.csv", out=tmp_path / "a" / "b.csv").exists()
    expected = "/rasbt/reasoning-from-scratch/refs/heads/main/ch07/logs/metrics.csv"
    assert set(server.paths()) == {expected}


# ---- the hub


def test_a_file_of_the_hub_comes_once(hub_server, tmp_path):
    path = download_from_hub("someone/model", "sub/weights.bin", tmp_path)
    assert path == tmp_path / "sub" / "weights.bin" and path.read_bytes() == CONTENT
    assert set(hub_server.paths()) == {"/someone/model/resolve/main/sub/weights.bin"}
    count = len(hub_server.requests)
    download_from_hub("someone/model", "sub/weights.bin", tmp_path)
    assert len(hub_server.requests) == count


def test_a_break_is_bridged(hub_server, tmp_path):
    hub_server.behaviors = [hub, dies_after(100_000), whole]
    path = download_from_hub("someone/model", "weights.bin", tmp_path)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    "behaviors, words",
    [
        ([answers(404)], "404"),
        ([answers(503)], "503"),
        ([login_page], "does not seem to be served by a Hugging Face Hub"),
        ([hub, dies_after(100)], "weights.bin"),
    ],
)
def test_a_hub_that_does_not_give_the_file(hub_server, tmp_path, behaviors, words):
    hub_server.behaviors = behaviors
    path = tmp_path / "weights.bin"
    call = lambda: download_from_hub("someone/model", "weights.bin", tmp_path)  # noqa: E731
    fails(call, path, "someone/model/weights.bin", words, f"put it at {path}", "HF_ENDPOINT")


def test_download_qwen3_small(hub_server, tmp_path):
    download_qwen3_small("base", tokenizer_only=True, out_dir=tmp_path)
    assert [path.name for path in tmp_path.glob("*.json")] == ["tokenizer-base.json"]
    download_qwen3_small("reasoning", out_dir=tmp_path)
    names = ["tokenizer-base.json", "tokenizer-reasoning.json", "qwen3-0.6B-reasoning.pth"]
    expected = [f"/rasbt/qwen3-from-scratch/resolve/main/{name}" for name in names]
    assert hub_server.paths() == expected
    with pytest.raises(UserError, match="did you mean 'reasoning'"):
        download_qwen3_small("reasoner")


@pytest.mark.parametrize(
    "grpo_type, step, folder",
    [
        ("no_kl", "00050", "grpo_original_no_kl"),
        ("no_kl", 9000, "grpo_original_no_kl"),
        ("tracking", 450, "7_3_plus_tracking/checkpoints"),
        ("clip_ratio", 50, "7_4_plus_clip_ratio/checkpoints"),
        ("kl", 50, "7_5_plus_kl/checkpoints"),
        ("format_reward", "00500", "7_6_plus_format_reward/checkpoints"),
    ],
)
def test_published_checkpoints(hub_server, tmp_path, grpo_type, step, folder):
    """The scripts know where it is, and need no copy of 1.5 GB."""
    path = published_checkpoint(grpo_type, step, out_dir=tmp_path)
    expected = f"{folder}/qwen3-0.6B-rlvr-grpo-step{int(step):05d}.pth"
    assert path == tmp_path / expected and path.read_bytes() == CONTENT
    assert list(tmp_path.rglob("*.pth")) == [path]
    root = "/rasbt/qwen3-from-scratch-grpo-checkpoints/resolve/main"
    assert hub_server.paths() == [f"{root}/{expected}"]


@pytest.mark.parametrize(
    "grpo_type, step, message",
    [
        ("no-kl", 50, "did you mean 'no_kl'"),
        ("no_kl", 150, "published are 50, 100, 500, 1000"),
        ("kl", 1000, "published are 50, 100, 150"),
        ("kl", "last", "no checkpoint of step last"),
    ],
)
def test_grpo_checkpoints_that_do_not_exist(tmp_path, grpo_type, step, message):
    with pytest.raises(UserError, match=message):
        download_qwen3_grpo_checkpoints(grpo_type, step, out_dir=tmp_path)


NAME = "qwen3-0.6B-rlvr-grpo-step00050.pth"


def test_what_the_reader_has_trained_stays_and_the_reader_is_told(hub_server, tmp_path, caplog):
    (tmp_path / NAME).write_bytes(b"trained for a night")
    path = download_qwen3_grpo_checkpoints("no_kl", 50, tmp_path)
    assert path.read_bytes() == CONTENT
    assert (tmp_path / NAME).read_bytes() == b"trained for a night"
    assert f"{NAME} is another file and is kept" in caplog.text and str(path) in caplog.text


@pytest.mark.parametrize(
    "kind, step, number, epoch",
    [("deepseek_r1", "06682", 6682, 1), ("qwen3_235b_a22b", 11492, 11492, 2)],
)
def test_distilled_checkpoints(hub_server, tmp_path, kind, step, number, epoch):
    path = download_qwen3_distill_checkpoints(kind, step, out_dir=tmp_path)
    name = f"qwen3-0.6B-distill-step{number:05d}-epoch{epoch}.pth"
    expected = f"ch08_distill_{kind}/checkpoints/{name}"
    assert path == tmp_path / expected
    assert path.read_bytes() == (tmp_path / name).read_bytes() == CONTENT
    root = "/rasbt/qwen3-from-scratch-distill-checkpoints/resolve/main"
    assert hub_server.paths() == [f"{root}/{expected}"]


# ---- data sets


def math_rows(count):
    return [
        {"problem": f"What is {n}?\u2028", "solution": "", "answer": str(n), "unique_id": str(n)}
        for n in range(count)
    ]


@pytest.fixture
def here(server, monkeypatch):
    """The places of the data sets are on this machine, with the paths that they have there."""
    for name, data in DATA_SETS.items():
        urls = [
            url and server.url + "/" + url.split("/", 3)[3] for url in (data.url, data.backup_url)
        ]
        monkeypatch.setitem(DATA_SETS, name, replace(data, url=urls[0], backup_url=urls[1]))
    return server


@pytest.mark.parametrize(
    "load, count, path",
    [
        (load_math500_test, 500, "/ch03/01_main-chapter-code/math500_test.json"),
        (load_math_train, 12_000, "/math_full_minus_math500.json"),
    ],
)
def test_the_books_loaders_keep_a_copy_if_asked(here, tmp_path, load, count, path):
    here.content = json.dumps(math_rows(count)).encode()
    copy = tmp_path / "rows.json"
    assert load(copy, save_copy=False) == math_rows(count) and not copy.exists()
    assert load(copy) == math_rows(count) == json.loads(copy.read_text())
    copy.write_text(json.dumps(math_rows(2)))
    assert load(copy, save_copy=False) == math_rows(2)  # the file that is there is used
    assert len(here.paths()) == 2 and all(asked.endswith(path) for asked in here.paths())


def test_math500_from_the_hub_comes_as_jsonl_and_is_saved_as_json(here, tmp_path):
    here.behaviors = [answers(404), whole]
    lines = [json.dumps(row, ensure_ascii=False) for row in math_rows(500)]
    here.content = "\n".join(lines).encode() + b"\n"
    path = download_data("math-500", tmp_path / "math500_test.json")
    assert json.loads(path.read_text(encoding="utf-8")) == math_rows(500)
    assert here.paths()[1] == "/datasets/HuggingFaceH4/MATH-500/resolve/main/test.jsonl"


def test_math_train_in_the_words_of_the_second_source(here, tmp_path):
    """PRM800K's file has the same problems, as JSONL, with `subject` and a number as level."""
    here.behaviors = [answers(404), whole]
    lines = [
        json.dumps(row | {"subject": "Algebra", "level": n % 5 + 1})
        for n, row in enumerate(math_rows(12_000))
    ]
    here.content = "\n".join(lines).encode()
    path = download_data("math-train", tmp_path / "math_train.json")
    rows = json.loads(path.read_text(encoding="utf-8"))
    assert rows[2] == math_rows(3)[2] | {"type": "Algebra", "level": "Level 3"}
    assert here.paths()[1] == "/openai/prm800k/raw/main/prm800k/math_splits/train.jsonl"
    problem = load_problems(str(path), limit=3)[2]
    assert (problem.level, problem.type) == ("Level 3", "Algebra")


BAD_ROWS = {
    "a row is missing": (json.dumps(math_rows(499)).encode(), "expected 500 problems, found 499"),
    "cut": (json.dumps(math_rows(500)).encode()[:-100], "math500_test.json"),
    "no answers": (json.dumps([{"problem": "?"}] * 500).encode(), "rows without answer, solution"),
    "an error as JSON": (b'{"error": "sign in first"}', "expected 500 problems, found 1"),
    "numbers": (b"[" + b"1, " * 499 + b"2]", "expected objects"),
    "deep": (b"[" * 100_000, "too deep"),
    "not UTF-8": (b"[\xff\xfe]", "utf-8"),
}


@pytest.mark.parametrize("content, message", BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_data_set_that_is_something_else(here, tmp_path, content, message):
    here.content, path = content, tmp_path / "math500_test.json"
    fails(lambda: download_data("math-500", path), path, "could not download", message)
