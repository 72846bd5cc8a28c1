"""Proxies, certificates and login pages: what fails here goes on where it was, elsewhere."""

import hashlib
import random
import socket
import ssl
import subprocess
import threading
import time
from contextlib import contextmanager

import pytest
from file_server import answers, dies_after, hurry, login_page, ranges, respond, serving

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files import downloads, transfers
from reasoning_from_scratch.files.downloads import download_data, download_from_hub
from reasoning_from_scratch.files.transfers import Expected, download_file
from tests.files.test_transfers import closed_port

CONTENT = random.Random(4).randbytes(200_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
KNOWN = Expected(size=len(CONTENT), sha256=SHA256)
ARRIVED = 120_000  # bytes that a good server had sent before the fault
SECONDS = 30  # a fault is told within, also on a busy machine; it takes far less than one


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    hurry(monkeypatch, 0.5)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server():
    with serving(CONTENT) as server:
        yield server


@pytest.fixture
def target(tmp_path):
    return tmp_path / "weights.bin"


# ---- answers that a proxy or a hotel gives in place of the file


def portal(handler, content):
    """Any address leads to a page to log in at."""
    if handler.path != "/login":
        return respond(handler, 302, b"", Location="/login")
    return login_page(handler, content)


def portal_with_its_own_etag(handler, content):
    body = b"<html>" + b"Welcome! " * 1000
    respond(handler, 200, body, Content_Type="text/html", ETag='"portal"')


def nonsense_length(handler, content):
    handler.send_response(200)
    handler.send_header("Content-Length", "a lot")
    handler.end_headers()
    handler.close_connection = True


FAULTS = {
    "proxy wants a password": (answers(407), "the server answers 407"),
    "bad gateway": (answers(502), "the server answers 502"),
    "gateway timeout": (answers(504), "the server answers 504"),
    "log in first": (answers(511), "the server answers 511"),
    "forbidden": (answers(403, b"<html>blocked by policy"), "the server answers 403"),
    "login page": (login_page, "a web page came instead"),
    "login page after a redirect": (portal, "a web page came instead"),
    "login page with an ETag": (portal_with_its_own_etag, "a web page came instead"),
    "a length that is no number": (nonsense_length, "sent nothing"),
}


def fails(call, match, target):
    """In one line, in bounded time, and nothing lies under the file's name."""
    started = time.monotonic()
    with pytest.raises(UserError, match=match) as info:
        call()
    assert time.monotonic() - started < SECONDS
    assert "\n" not in str(info.value) and not target.exists()


@pytest.mark.parametrize("behavior, reason", FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.parametrize("expected", [KNOWN, Expected(sha256=SHA256)])
def test_what_had_arrived_is_kept_through_the_fault(server, target, behavior, reason, expected):
    """Half a file, then a fault for as long as one tries, then a good network again."""
    url = f"{server.url}/weights.bin"
    server.behaviors = [dies_after(ARRIVED), behavior]
    fails(lambda: download_file(url, target, expected=expected), reason, target)
    server.behaviors = [ranges]
    download_file(url, target, expected=expected)
    assert target.read_bytes() == CONTENT
    assert server.gets()[-1]["Range"] == f"bytes={ARRIVED}-"
    assert [path.name for path in target.parent.iterdir()] == ["weights.bin"]


@pytest.mark.parametrize("behavior, reason", FAULTS.values(), ids=FAULTS.keys())
def test_the_hub_behind_the_same_faults(server, tmp_path, monkeypatch, behavior, reason):
    """Already its answer about size and hash may be a portal's."""
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setattr(downloads, "try_to_load_from_cache", lambda *args: None)
    facts = {"X_Repo_Commit": "0" * 40, "X_Linked_Size": len(CONTENT), "X_Linked_ETag": SHA256}

    def hub(handler, content):
        respond(handler, 200, content, ETag='"x"', **{k: str(v) for k, v in facts.items()})

    call = lambda: download_from_hub("someone/model", "weights.bin", tmp_path)  # noqa: E731
    server.behaviors = [behavior]
    fails(call, "could not download weights.bin", tmp_path / "weights.bin")
    server.behaviors = [hub, dies_after(ARRIVED), behavior]
    fails(call, "could not download weights.bin", tmp_path / "weights.bin")
    server.behaviors = [hub, ranges]
    assert call().read_bytes() == CONTENT
    assert server.gets()[-1]["Range"] == f"bytes={ARRIVED}-"


BAD_ROWS = {
    "an error as JSON": b'{"error": "sign in first"}',
    "numbers": b"[" + b"1, " * 499 + b"2]",
    "lines of numbers": b"1\n" * 500,
    "one number": b"7",
    "deep": b"[" * 100_000,
    "not UTF-8": b"[\xff\xfe]",
    "nothing": b"",
}


@pytest.mark.parametrize("content", BAD_ROWS.values(), ids=BAD_ROWS.keys())
def test_a_data_set_that_is_something_else(server, target, monkeypatch, content):
    monkeypatch.setattr(downloads, "GITHUB_RAW", server.url)
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    server.content = content
    fails(lambda: download_data("math-500", target), "could not download", target)


# ---- a proxy in between


@contextmanager
def proxy(answer: bytes):
    """Answers whatever it is asked with these bytes; counts how often."""
    listener = socket.create_server(("127.0.0.1", 0))
    asked = []

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                asked.append(connection.recv(4096))
                connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
    finally:
        listener.close()


PROXY_ANSWERS = {
    "407": (
        b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n",
        "answers 407",
    ),
    "502": (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", "answers 502"),
    "nonsense": (b"220 mail.example ESMTP\r\n", "could not download"),
    "silence": (b"", "could not download"),
}


@pytest.mark.parametrize("answer, reason", PROXY_ANSWERS.values(), ids=PROXY_ANSWERS.keys())
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_refuses(target, monkeypatch, answer, reason, scheme):
    with proxy(answer) as (address, asked):
        monkeypatch.setenv("HTTP_PROXY", address)
        monkeypatch.setenv("HTTPS_PROXY", address)
        url = f"{scheme}://files.example/weights.bin"
        fails(lambda: download_file(url, target, expected=KNOWN), reason, target)
        assert 1 <= len(asked) <= transfers.TRIES
        assert asked[0].startswith(b"CONNECT" if scheme == "https" else b"GET")


def test_a_proxy_that_is_not_there(target, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{closed_port()}")
    call = lambda: download_file("https://files.example/w", target, expected=KNOWN)  # noqa: E731
    fails(call, "no connection to the proxy", target)


# ---- a certificate that nobody vouches for


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificate")
    names = [str(folder / "key.pem"), str(folder / "certificate.pem")]
    try:
        subprocess.run(
            [
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
                "-addext",
                "subjectAltName=DNS:localhost",
                "-keyout",
                names[0],
                "-out",
                names[1],
            ],
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no openssl on the PATH to make a certificate with")
    return names


def test_a_certificate_error_and_the_resume_after_it(server, target, certificate, monkeypatch):
    """An antivirus that inspects traffic shows its own certificate; its maker's is then added."""
    key, certificate_file = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate_file, key)
    server._httpd.socket = context.wrap_socket(server._httpd.socket, server_side=True)
    server._httpd.handle_error = lambda *_: None  # the handshakes that our side breaks off
    url = server.url.replace("http://127.0.0.1", "https://localhost") + "/weights.bin"
    call = lambda: download_file(url, target, expected=KNOWN)  # noqa: E731
    fails(call, "the secure connection failed", target)
    assert not server.requests  # nothing was asked over it
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", certificate_file)
    server.behaviors = [dies_after(ARRIVED), dies_after(0)]
    fails(call, "ended|broke", target)
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    fails(call, "the secure connection failed", target)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", certificate_file)
    server.behaviors = [ranges]
    assert call().read_bytes() == CONTENT
    assert server.gets()[-1]["Range"] == f"bytes={ARRIVED}-"
