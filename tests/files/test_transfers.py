"""A transfer that breaks, stalls or lies: resumed, retried, or refused in one line."""

import atexit
import hashlib
import multiprocessing
import random
import socket

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
    serving,
    stalls_after,
    truncated_without_length,
    whole,
    without_length,
)

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files import counters, transfers
from reasoning_from_scratch.files.counters import Lines
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


def fetch(server, target, expected=None, backups=()):
    return download_file(f"{server.url}/weights.bin", target, *backups, expected=expected)


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
    """Nobody answers at it: it is taken, so that no other test gets it, and not listened at."""
    probe = socket.socket()
    probe.bind(("127.0.0.1", 0))
    atexit.register(probe.close)
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
        fetch(server, target, backups=[f"{backup.url}/copy.bin"])
    assert target.read_bytes() == CONTENT


def test_a_part_of_one_source_is_not_continued_from_another(server, target):
    with serving(CONTENT[::-1]) as backup:
        backup.behaviors = [ranges]
        server.behaviors = [dies_after(100_000), answers(404)]
        fetch(server, target, backups=[f"{backup.url}/weights.bin"])
    assert target.read_bytes() == CONTENT[::-1]


def test_both_reasons_are_told(server, target):
    with serving() as backup:
        server.behaviors, backup.behaviors = [answers(404)], [answers(403)]
        with pytest.raises(UserError, match="answers 404; .*answers 403"):
            fetch(server, target, backups=[f"{backup.url}/b"])


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
