"""Downloads from a server that fails in every way: nothing half-written is taken for whole."""

import hashlib
import json
from dataclasses import replace

import pytest
from file_server import (
    answers,
    dies_after,
    hurry,
    login_page,
    ranges,
    respond,
    serving,
    stalls_after,
    whole,
)

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files import downloads
from reasoning_from_scratch.files.downloads import (
    DATA_SETS,
    download_data,
    download_from_github,
    download_from_hub,
    download_qwen3_distill_checkpoints,
    download_qwen3_grpo_checkpoints,
    download_qwen3_small,
    published_checkpoint,
)
from reasoning_from_scratch.tasks.problem_sets import load_problems
from tests.files.test_transfers import CONTENT, SHA256, closed_port


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    hurry(monkeypatch, 0.3)


@pytest.fixture
def server():
    with serving(CONTENT) as server:
        yield server


# ---- the hub


def hub(handler, content, **headers):
    """What the hub says about a large file: commit, size and hash beside the content."""
    facts = {
        "X_Repo_Commit": "0" * 40,
        "X_Linked_Size": str(len(CONTENT)),
        "X_Linked_ETag": f'"{SHA256}"',
    }
    respond(handler, 200, content, ETag='"x"', **{**facts, **headers})


@pytest.fixture
def hub_server(server, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setattr(downloads, "try_to_load_from_cache", lambda *args: None)
    server.behaviors = [hub]
    return server


def test_hub_file(hub_server, tmp_path):
    path = download_from_hub("someone/model", "sub/weights.bin", tmp_path)
    assert path == tmp_path / "sub" / "weights.bin" and path.read_bytes() == CONTENT
    paths = {path for _, path, _ in hub_server.requests}
    assert paths == {"/someone/model/resolve/main/sub/weights.bin"}


def test_hub_file_in_the_hubs_own_cache_needs_no_network(tmp_path, monkeypatch):
    cached = tmp_path / "cached"
    cached.write_bytes(b"from the cache")
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{closed_port()}")
    monkeypatch.setattr(downloads, "try_to_load_from_cache", lambda *args: str(cached))
    path = download_from_hub("someone/model", "weights.bin", tmp_path)
    assert path.read_bytes() == b"from the cache"


def test_hub_bytes_are_checked_against_the_hubs_hash(hub_server, tmp_path):
    hub_server.content = CONTENT[::-1]
    with pytest.raises(UserError, match="expected sha256"):
        download_from_hub("someone/model", "weights.bin", tmp_path)
    assert not (tmp_path / "weights.bin").exists()


def test_hub_transfer_that_breaks_is_resumed_by_the_next_run(hub_server, tmp_path):
    hub_server.behaviors = [hub, dies_after(100_000), dies_after(0)]
    with pytest.raises(UserError, match="ended|broke"):
        download_from_hub("someone/model", "weights.bin", tmp_path)
    hub_server.behaviors = [hub, ranges]
    path = download_from_hub("someone/model", "weights.bin", tmp_path)
    assert path.read_bytes() == CONTENT
    assert hub_server.gets()[-1]["Range"] == "bytes=100000-"


@pytest.mark.parametrize("behavior", [answers(404), answers(401), login_page, stalls_after(0)])
def test_a_hub_that_does_not_give_the_file(hub_server, tmp_path, behavior):
    hub_server.behaviors = [behavior]
    with pytest.raises(UserError) as info:
        download_from_hub("someone/model", "weights.bin", tmp_path)
    text = str(info.value)
    assert "\n" not in text and f"{hub_server.url}/someone/model/resolve/main/weights.bin" in text
    assert f"put it at {tmp_path / 'weights.bin'}" in text
    assert not (tmp_path / "weights.bin").exists()


def test_hub_offline(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{closed_port()}")
    with pytest.raises(UserError, match="could not download tokenizer-base.json"):
        download_qwen3_small("base", tokenizer_only=True, out_dir=tmp_path)


@pytest.fixture
def hub_and_mirror(hub_server, monkeypatch):
    """Two servers, and a reader who has a token and has named no endpoint."""
    with serving(CONTENT) as mirror:
        mirror.behaviors = [hub]
        monkeypatch.delenv("HF_ENDPOINT")
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        monkeypatch.setattr(downloads, "HUB", hub_server.url)
        monkeypatch.setattr(downloads, "HUB_MIRROR", mirror.url)
        yield hub_server, mirror


def shown_the_token(server):
    return any("hf_secret" in str(headers) for _, _, headers in server.requests)


@pytest.mark.parametrize("behaviors", [[answers(503)], [login_page], [hub, answers(404)]])
def test_a_mirror_has_what_the_hub_does_not_give(hub_and_mirror, tmp_path, caplog, behaviors):
    """Nothing is known, or size and hash but no bytes. The token is shown to the hub alone."""
    hub_server, mirror = hub_and_mirror
    hub_server.behaviors = list(behaviors)
    path = download_qwen3_grpo_checkpoints("kl", 50, out_dir=tmp_path)
    assert path.read_bytes() == CONTENT
    assert {path for _, path, _ in mirror.requests} == {path for _, path, _ in hub_server.requests}
    assert f"took {mirror.url}/rasbt/" in caplog.text and hub_server.url in caplog.text
    assert shown_the_token(hub_server) and not shown_the_token(mirror)


def test_a_mirror_must_give_the_bytes_that_the_hub_has_named(hub_and_mirror, tmp_path):
    hub_server, mirror = hub_and_mirror
    hub_server.behaviors, mirror.content = [hub, answers(404)], CONTENT[::-1]
    with pytest.raises(UserError, match="answers 404.*; .*expected sha256"):
        download_qwen3_grpo_checkpoints("kl", 50, out_dir=tmp_path)


def test_hub_and_mirror_are_both_named_where_neither_has_the_file(hub_and_mirror, tmp_path):
    for server in hub_and_mirror:
        server.behaviors = [answers(404)]
    with pytest.raises(UserError) as info:
        download_qwen3_small("base", out_dir=tmp_path)
    assert all(server.url in str(info.value) for server in hub_and_mirror)


def test_who_names_an_endpoint_gets_no_other(hub_and_mirror, tmp_path, monkeypatch):
    hub_server, mirror = hub_and_mirror
    monkeypatch.setenv("HF_ENDPOINT", f"{hub_server.url}/")
    hub_server.behaviors = [answers(404)]
    with pytest.raises(UserError):
        download_qwen3_small("base", out_dir=tmp_path)
    assert not mirror.requests


def requested(server):
    return [path for method, path, _ in server.requests if method == "GET"]


def test_download_qwen3_small(hub_server, tmp_path):
    download_qwen3_small("base", tokenizer_only=True, out_dir=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer-base.json"]
    download_qwen3_small("reasoning", out_dir=tmp_path)
    root = "/rasbt/qwen3-from-scratch/resolve/main"
    assert requested(hub_server) == [
        f"{root}/tokenizer-base.json",
        f"{root}/tokenizer-reasoning.json",
        f"{root}/qwen3-0.6B-reasoning.pth",
    ]
    download_qwen3_small("reasoning", out_dir=tmp_path)
    assert len(requested(hub_server)) == 3
    with pytest.raises(UserError, match="did you mean 'reasoning'"):
        download_qwen3_small("reasoner")


@pytest.mark.parametrize(
    "grpo_type, step, expected",
    [
        ("no_kl", "00050", "grpo_original_no_kl/qwen3-0.6B-rlvr-grpo-step00050.pth"),
        ("no_kl", 9000, "grpo_original_no_kl/qwen3-0.6B-rlvr-grpo-step09000.pth"),
        ("tracking", 450, "7_3_plus_tracking/checkpoints/qwen3-0.6B-rlvr-grpo-step00450.pth"),
        ("clip_ratio", 50, "7_4_plus_clip_ratio/checkpoints/qwen3-0.6B-rlvr-grpo-step00050.pth"),
        ("kl", 50, "7_5_plus_kl/checkpoints/qwen3-0.6B-rlvr-grpo-step00050.pth"),
        (
            "format_reward",
            "00500",
            "7_6_plus_format_reward/checkpoints/qwen3-0.6B-rlvr-grpo-step00500.pth",
        ),
    ],
)
def test_published_checkpoints(hub_server, tmp_path, grpo_type, step, expected):
    path = published_checkpoint(grpo_type, step, out_dir=tmp_path)
    assert path == tmp_path / expected and path.read_bytes() == CONTENT
    root = "/rasbt/qwen3-from-scratch-grpo-checkpoints/resolve/main"
    assert requested(hub_server) == [f"{root}/{expected}"]


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


def test_the_books_cells_find_the_checkpoint_that_they_have_just_asked_for(
    hub_server, tmp_path, monkeypatch, caplog
):
    monkeypatch.chdir(tmp_path)
    path = download_qwen3_grpo_checkpoints(grpo_type="no_kl", step="00050")
    assert (tmp_path / NAME).read_bytes() == CONTENT and not (tmp_path / NAME).samefile(path)
    for_kl = CONTENT[::-1]
    hub_server.content = for_kl
    sha256 = hashlib.sha256(for_kl).hexdigest()
    hub_server.behaviors = [lambda h, content: hub(h, content, X_Linked_ETag=f'"{sha256}"')]
    download_qwen3_grpo_checkpoints("kl", 50)
    assert (tmp_path / NAME).read_bytes() == for_kl and path.read_bytes() == CONTENT
    download_qwen3_grpo_checkpoints("no_kl", 50)
    assert (tmp_path / NAME).read_bytes() == CONTENT and not caplog.text


def test_what_the_reader_has_trained_stays_and_the_reader_is_told(hub_server, tmp_path, caplog):
    (tmp_path / NAME).write_bytes(b"trained for a night")
    path = download_qwen3_grpo_checkpoints("no_kl", 50, tmp_path)
    assert path.read_bytes() == CONTENT
    assert (tmp_path / NAME).read_bytes() == b"trained for a night"
    assert f"{NAME} is another file and stays" in caplog.text and str(path) in caplog.text


@pytest.mark.parametrize("folder", [".", "checkpoints"])
def test_a_checkpoint_that_the_books_cells_have_brought_need_not_come_again(
    hub_server, tmp_path, monkeypatch, caplog, folder
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / NAME).write_bytes(CONTENT)
    for _ in range(2):
        path = download_qwen3_grpo_checkpoints("no_kl", 50, folder)
    assert path.read_bytes() == (tmp_path / folder / NAME).read_bytes() == CONTENT
    assert not requested(hub_server) and not caplog.text


def test_a_checkpoint_that_is_asked_something_has_one_place(hub_server, tmp_path):
    """The scripts know where it is, and need no copy of 1.5 GB."""
    path = published_checkpoint("kl", 50, out_dir=tmp_path)
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path]


@pytest.mark.parametrize(
    "kind, step, number, epoch",
    [
        ("deepseek_r1", "06682", 6682, 1),
        ("deepseek_r1", 20046, 20046, 3),
        ("qwen3_235b_a22b", 5746, 5746, 1),
        ("qwen3_235b_a22b", "11492", 11492, 2),
    ],
)
def test_distilled_checkpoints(hub_server, tmp_path, kind, step, number, epoch):
    path = download_qwen3_distill_checkpoints(kind, step, out_dir=tmp_path)
    name = f"qwen3-0.6B-distill-step{number:05d}-epoch{epoch}.pth"
    expected = f"ch08_distill_{kind}/checkpoints/{name}"
    assert path == tmp_path / expected
    assert path.read_bytes() == (tmp_path / name).read_bytes() == CONTENT
    root = "/rasbt/qwen3-from-scratch-distill-checkpoints/resolve/main"
    assert requested(hub_server) == [f"{root}/{expected}"]


@pytest.mark.parametrize(
    "kind, step", [("deepseek", "06682"), ("deepseek_r1", 5746), ("deepseek_r1", "last")]
)
def test_distilled_checkpoints_that_do_not_exist(tmp_path, kind, step):
    with pytest.raises(ValueError, match=r"published are deepseek_r1 \(6682, 13364, 20046\);"):
        download_qwen3_distill_checkpoints(kind, step, out_dir=tmp_path)


# ---- data sets


def math_rows(count):
    return [
        {"problem": f"What is {n}?\u2028", "solution": "", "answer": str(n), "unique_id": str(n)}
        for n in range(count)
    ]


@pytest.fixture
def github(monkeypatch):
    with serving() as github, serving() as hub:
        monkeypatch.setattr(downloads, "GITHUB_RAW", github.url)
        monkeypatch.setattr(downloads, "GITHUB", github.url)
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield github, hub


def test_math500_from_the_book(github, tmp_path):
    github[0].content = json.dumps(math_rows(500)).encode()
    path = download_data("math-500", tmp_path / "math500_test.json")
    assert json.loads(path.read_text()) == math_rows(500)
    assert github[0].requests[0][1].endswith("/ch03/01_main-chapter-code/math500_test.json")


def test_math500_from_the_hub_comes_as_jsonl_and_is_saved_as_json(github, tmp_path):
    github[0].behaviors = [answers(404)]
    lines = [json.dumps(row, ensure_ascii=False) for row in math_rows(500)]
    github[1].content = "\n".join(lines).encode() + b"\n"
    path = download_data("math-500", tmp_path / "math500_test.json")
    assert json.loads(path.read_text(encoding="utf-8")) == math_rows(500)
    assert github[1].requests[0][1] == "/datasets/HuggingFaceH4/MATH-500/resolve/main/test.jsonl"


@pytest.mark.parametrize(
    "content, message",
    [
        (json.dumps(math_rows(499)), "expected 500 problems, found 499"),
        (json.dumps(math_rows(500))[:-100], "math500_test.json"),
        (json.dumps([{"problem": "?"}] * 500), "rows without answer, solution, unique_id"),
        ("\x00\xff", "math500_test.json"),
    ],
)
def test_data_that_is_not_whole(github, tmp_path, content, message):
    github[0].content = github[1].content = content.encode("latin-1")
    with pytest.raises(UserError, match=message):
        download_data("math-500", tmp_path / "math500_test.json")
    assert not (tmp_path / "math500_test.json").exists()


def test_math_train(github, tmp_path):
    github[0].content = json.dumps(math_rows(12_000)).encode()
    path = download_data("math-train", tmp_path / "math_train.json")
    assert len(json.loads(path.read_text())) == 12_000
    assert "math_full_minus_math500.json" in github[0].requests[0][1]


def test_math_train_in_the_words_of_the_second_source(github, tmp_path):
    """PRM800K's file has the same problems, as JSONL, with `subject` and a number as level."""
    github[0].behaviors = [answers(404), whole]
    lines = [
        json.dumps(row | {"subject": "Algebra", "level": n % 5 + 1})
        for n, row in enumerate(math_rows(12_000))
    ]
    github[0].content = "\n".join(lines).encode()
    path = download_data("math-train", tmp_path / "math_train.json")
    rows = json.loads(path.read_text(encoding="utf-8"))
    assert rows[2] == math_rows(3)[2] | {"type": "Algebra", "level": "Level 3"}
    assert github[0].requests[1][1] == "/openai/prm800k/raw/main/prm800k/math_splits/train.jsonl"
    problem = load_problems(str(path), limit=3)[2]
    assert (problem.level, problem.type) == ("Level 3", "Algebra")


def test_gsm8k_is_checked_by_its_hash(github, tmp_path, monkeypatch):
    content = b"".join(
        json.dumps({"question": "?", "answer": "#### 1"}).encode() + b"\n" for _ in range(1319)
    )
    github[0].content = content
    with pytest.raises(UserError, match="expected sha256 3730d312f6e3"):
        download_data("gsm8k-test", tmp_path / "gsm8k_test.jsonl")
    published = DATA_SETS["gsm8k-test"]
    fake = replace(published, sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(DATA_SETS, "gsm8k-test", fake)
    path = download_data("gsm8k-test", tmp_path / "gsm8k_test.jsonl")
    assert path.read_bytes() == content
    assert github[0].requests[0][1].endswith("/grade_school_math/data/test.jsonl")


def test_unknown_data_set():
    with pytest.raises(UserError, match="did you mean 'math-500'"):
        download_data("math500")


def test_download_from_github(github, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    github[0].content = b"step,loss\n"
    assert download_from_github("ch07/logs/metrics.csv").read_bytes() == b"step,loss\n"
    assert (tmp_path / "metrics.csv").exists()
    download_from_github("ch07/logs/metrics.csv", out=tmp_path / "a" / "b.csv")
    assert (tmp_path / "a" / "b.csv").exists()
    expected = "/rasbt/reasoning-from-scratch/refs/heads/main/ch07/logs/metrics.csv"
    assert {path for _, path, _ in github[0].requests} == {expected}
