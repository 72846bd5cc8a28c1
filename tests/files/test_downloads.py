"""Downloads from a server that fails in every way: nothing half-written is taken for whole."""

import hashlib
import json
import multiprocessing
import random
import socket
from dataclasses import replace

import pytest
from file_server import (
    answers,
    chunks,
    chunks_that_break,
    claims_length,
    dies_after,
    hurry,
    login_page,
    login_page_without_type,
    range_refused,
    ranges,
    respond,
    serving,
    stalls_after,
    truncated_without_length,
    whole,
    without_length,
)

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files import counters, downloads, transfers
from reasoning_from_scratch.files.counters import Lines
from reasoning_from_scratch.files.disk import replacing
from reasoning_from_scratch.files.downloads import (
    DATA_SETS,
    download_data,
    download_from_github,
    download_from_hub,
    download_qwen3_grpo_checkpoints,
    download_qwen3_small,
)
from reasoning_from_scratch.files.transfers import Expected, download_file

CONTENT = random.Random(0).randbytes(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
KNOWN = Expected(size=len(CONTENT), sha256=SHA256)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    hurry(monkeypatch, 0.3)


@pytest.fixture
def server():
    with serving(CONTENT) as server:
        yield server


@pytest.fixture
def target(tmp_path):
    return tmp_path / "new folder" / "weights.bin"


def fetch(server, target, expected=None, **options):
    return download_file(f"{server.url}/weights.bin", target, expected=expected, **options)


def fails(server, target, match, expected=None):
    """One line that names the URL, the reason and the place; and nothing under the file's name."""
    with pytest.raises(UserError, match=match) as info:
        fetch(server, target, expected)
    text = str(info.value)
    assert "\n" not in text and f"{server.url}/weights.bin" in text and str(target) in text
    assert not target.exists()


def test_a_good_server(server, target):
    assert fetch(server, target, KNOWN) == target
    assert target.read_bytes() == CONTENT
    assert [path.name for path in target.parent.iterdir()] == ["weights.bin"]


def test_a_file_already_there_needs_no_network(target):
    target.parent.mkdir()
    target.write_bytes(b"brought by hand")
    assert download_file("http://127.0.0.1:9/never", target, expected=KNOWN) == target
    assert target.read_bytes() == b"brought by hand"


@pytest.mark.parametrize("count", [0, 1000, 70_000, 299_000])
def test_resumes_after_a_break(server, target, count):
    server.behaviors = [dies_after(count), ranges]
    fetch(server, target, KNOWN)
    assert target.read_bytes() == CONTENT
    assert server.gets()[1].get("Range") == (f"bytes={count}-" if count else None)


def test_many_breaks_are_survived_as_long_as_something_arrives(server, target):
    server.behaviors = [dies_after(40_000)]
    fetch(server, target, KNOWN)
    assert target.read_bytes() == CONTENT
    assert len(server.requests) == 8


def test_a_later_run_resumes(server, target):
    server.behaviors = [dies_after(100_000), dies_after(0)]
    fails(server, target, "sent nothing|broke in the middle", KNOWN)
    server.behaviors = [ranges]
    fetch(server, target, KNOWN)
    assert target.read_bytes() == CONTENT
    assert server.gets()[-1]["Range"] == "bytes=100000-"


def test_without_a_hash_nothing_is_spliced(server, target):
    server.behaviors = [dies_after(100_000), ranges]
    fetch(server, target)
    assert target.read_bytes() == CONTENT
    assert "Range" not in server.gets()[1]


@pytest.mark.parametrize("second", [whole, range_refused])
def test_a_server_that_handles_ranges_badly(server, target, second):
    server.behaviors = [dies_after(100_000), second, whole]
    fetch(server, target, KNOWN)
    assert target.read_bytes() == CONTENT


def test_a_server_without_ranges_that_always_dies_is_given_up(server, target):
    server.behaviors = [dies_after(100_000, honors_range=False)]
    fails(server, target, "ended after 100000 of 300000 bytes|broke in the middle")
    assert len(server.requests) == 1 + transfers.TRIES


def test_a_stall_is_noticed_and_resumed(server, target):
    server.behaviors = [stalls_after(120_000), ranges]
    fetch(server, target)
    assert target.read_bytes() == CONTENT


def test_a_server_that_always_stalls_is_given_up(server, target):
    server.behaviors = [stalls_after(0)]
    fails(server, target, "no answer for 0.3 seconds")


@pytest.mark.parametrize("status, requests", [(404, 1), (403, 1), (500, 3), (503, 3)])
def test_error_answers(server, target, status, requests):
    server.behaviors = [answers(status)]
    fails(server, target, f"the server answers {status}")
    assert len(server.requests) == requests


def test_a_passing_server_error_is_retried(server, target):
    server.behaviors = [answers(500), answers(429), whole]
    fetch(server, target)
    assert target.read_bytes() == CONTENT


def test_a_claimed_length_that_is_too_long(server, target):
    server.behaviors = [claims_length(len(CONTENT) + 10)]
    fails(server, target, "300000 of 300010|broke in the middle")


@pytest.mark.parametrize("expected", [Expected(size=len(CONTENT)), Expected(sha256=SHA256)])
def test_a_claimed_length_that_is_too_short(server, target, expected):
    server.behaviors = [claims_length(1000)]
    fails(server, target, "expected 300000 bytes, the server has 1000|expected sha256", expected)


def test_bytes_with_the_right_size_and_a_wrong_hash(server, target):
    server.content = CONTENT[::-1]
    fails(server, target, f"expected sha256 {SHA256[:12]}", KNOWN)
    assert list(target.parent.glob("*.part")) == []  # never used as a beginning


def test_a_spoiled_part_is_thrown_away_and_fetched_anew(server, target):
    server.behaviors = [dies_after(100_000), dies_after(0)]
    fails(server, target, "ended|broke", KNOWN)
    (part,) = target.parent.glob(".*.part")
    part.write_bytes(b"\0" * 100_000)  # as after a power failure
    server.behaviors = [ranges]
    fetch(server, target, KNOWN)
    assert target.read_bytes() == CONTENT


def test_a_server_that_does_not_say_the_length(server, target):
    server.behaviors = [without_length]
    fetch(server, target, Expected(sha256=SHA256))
    assert target.read_bytes() == CONTENT


def test_truncation_without_a_length_is_found_by_the_hash(server, target):
    server.behaviors = [truncated_without_length]
    fails(server, target, "expected 300000 bytes|300000|expected sha256", KNOWN)


def test_chunked_transfer(server, target):
    server.behaviors = [chunks_that_break, chunks]
    fetch(server, target, Expected(sha256=SHA256))
    assert target.read_bytes() == CONTENT
    target.unlink()
    server.behaviors = [chunks_that_break]
    fails(server, target, "broke in the middle", Expected(sha256=SHA256))


@pytest.mark.parametrize("behavior", [login_page, login_page_without_type])
def test_a_login_page_is_not_the_file(server, target, behavior):
    server.behaviors = [behavior]
    fails(server, target, "a web page came instead of the file")


def closed_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_no_connection_names_the_url_and_the_place(target):
    url = f"http://127.0.0.1:{closed_port()}/weights.bin"
    with pytest.raises(UserError, match="no connection") as info:
        download_file(url, target)
    assert url in str(info.value) and str(target) in str(info.value)


@pytest.mark.parametrize("behavior", [answers(404), answers(500), login_page, stalls_after(9)])
def test_the_backup_is_used(server, target, behavior):
    with serving(CONTENT) as backup:
        server.behaviors = [behavior]
        fetch(server, target, backup_url=f"{backup.url}/copy.bin")
    assert target.read_bytes() == CONTENT


def test_a_part_of_one_source_is_not_continued_from_another(server, target):
    with serving(CONTENT[::-1]) as backup:
        backup.behaviors = [ranges]
        server.behaviors = [dies_after(100_000), answers(404)]
        fetch(server, target, backup_url=f"{backup.url}/weights.bin")
    assert target.read_bytes() == CONTENT[::-1]


def test_both_reasons_are_told(server, target):
    with serving() as backup:
        server.behaviors, backup.behaviors = [answers(404)], [answers(403)]
        with pytest.raises(UserError, match="answers 404; .*answers 403"):
            fetch(server, target, backup_url=f"{backup.url}/b")


def test_a_place_that_cannot_be_written(server, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        fetch(server, tmp_path / "file" / "weights.bin")


def _fetch_in_a_process(url, path, queue):
    download_file(url, path)
    queue.put(path.read_bytes() == CONTENT)


def test_two_processes_bring_the_file_once(server, target):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    job = (f"{server.url}/weights.bin", target, queue)
    processes = [context.Process(target=_fetch_in_a_process, args=job) for _ in range(3)]
    for process in processes:
        process.start()
    assert all(queue.get(timeout=20) for _ in processes)
    for process in processes:
        process.join()
    assert len(server.requests) == 1


def test_ctrl_c_leaves_a_part_that_is_resumed(server, target, monkeypatch):
    class Bar(Lines):
        def update(self, count=1):
            raise KeyboardInterrupt

    server.behaviors = [ranges]
    monkeypatch.setattr(counters, "Lines", Bar)
    with pytest.raises(KeyboardInterrupt):
        fetch(server, target, KNOWN)
    assert not target.exists()
    monkeypatch.undo()
    fetch(server, target, KNOWN)
    assert "Range" in server.gets()[1] and target.read_bytes() == CONTENT


def test_the_progress_bar_reaches_the_whole_size(server, target, monkeypatch):
    bars = []

    class Bar(Lines):
        def close(self):
            bars.append((self.n, self.total))
            super().close()

    monkeypatch.setattr(counters, "Lines", Bar)
    server.behaviors = [dies_after(100_000), ranges]
    fetch(server, target)
    assert bars[-1] == (300_000, 300_000)


def test_replacing_keeps_the_old_file_if_the_block_fails(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    with replacing(path) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


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
def test_download_grpo_checkpoints(hub_server, tmp_path, grpo_type, step, expected):
    path = download_qwen3_grpo_checkpoints(grpo_type, step, out_dir=tmp_path)
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
