"""A local HTTP server that behaves as badly as a test asks for."""

import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from reasoning_from_scratch.files import transfers


class FileServer:
    """`behaviors` is worked off request by request; the last one stays.

    A behavior is a function of (handler, content). `requests` records method, path and headers.
    """

    def __init__(self, content=b""):
        self.content = content
        self.behaviors = [whole]
        self.requests = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                server.requests.append((self.command, self.path, dict(self.headers)))
                behaviors = server.behaviors
                behavior = behaviors.pop(0) if len(behaviors) > 1 else behaviors[0]
                try:
                    behavior(self, server.content)
                except (BrokenPipeError, ConnectionResetError):
                    pass  # a client that gave up

            do_HEAD = do_GET

            def log_message(self, *args):
                pass

        self._httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._httpd.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._httpd.server_address[1]}"

    def gets(self):
        return [headers for method, _, headers in self.requests if method == "GET"]


@contextmanager
def serving(content=b""):
    server = FileServer(content)
    thread = threading.Thread(target=server._httpd.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server._httpd.shutdown()
        server._httpd.server_close()


def respond(handler, status, body, length=None, **headers):
    """`length` None: that of the body; -1: not said, the connection's end is the file's."""
    handler.send_response(status)
    handler.send_header("Connection", "close")  # said, so that no client asks again over it
    if length != -1:
        handler.send_header("Content-Length", str(len(body) if length is None else length))
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)
        handler.wfile.flush()
    handler.close_connection = True


def whole(handler, content):
    respond(handler, 200, content)


def ranges(handler, content):
    """A server as it should be."""
    asked = handler.headers.get("Range")
    if asked is None:
        return respond(handler, 200, content)
    start = int(asked.removeprefix("bytes=").rstrip("-"))
    if start >= len(content):
        return respond(handler, 416, b"", Content_Range=f"bytes */{len(content)}")
    said = f"bytes {start}-{len(content) - 1}/{len(content)}"
    return respond(handler, 206, content[start:], Content_Range=said)


def range_refused(handler, content):
    if handler.headers.get("Range"):
        return respond(handler, 416, b"")
    return whole(handler, content)


def dies_after(count, honors_range=True):
    """Sends `count` more bytes of those asked for, then closes the connection."""

    def behavior(handler, content):
        start, status, headers = 0, 200, {}
        if honors_range and handler.headers.get("Range"):
            start, status = int(handler.headers["Range"][6:-1]), 206
            headers["Content_Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        rest = content[start:]
        respond(handler, status, rest[:count], length=len(rest), **headers)

    return behavior


def stalls_after(count, seconds=1.0):
    def behavior(handler, content):
        respond(handler, 200, content[:count], length=len(content))
        time.sleep(seconds)

    return behavior


def answers(status, body=b"no"):
    return lambda handler, content: respond(handler, status, body)


def claims_length(length):
    return lambda handler, content: respond(handler, 200, content, length=length)


def without_length(handler, content):
    respond(handler, 200, content, length=-1)


def truncated_without_length(handler, content):
    respond(handler, 200, content[: len(content) // 2], length=-1)


def chunks_that_break(handler, content):
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    half = content[: len(content) // 2]
    handler.wfile.write(f"{len(half):x}\r\n".encode() + half + b"\r\n")
    handler.close_connection = True


def chunks(handler, content):
    chunks_that_break(handler, content)
    half = content[len(content) // 2 :]
    handler.wfile.write(f"{len(half):x}\r\n".encode() + half + b"\r\n0\r\n\r\n")


def login_page(handler, content):
    body = b"<html><body>Please accept our terms</body></html>"
    respond(handler, 200, body, Content_Type="text/html; charset=utf-8")


def login_page_without_type(handler, content):
    respond(handler, 200, b"\n<!DOCTYPE html><html>", Content_Type="application/octet-stream")


def hurry(monkeypatch, seconds: float) -> None:
    """Downloads that wait at most so long, hardly pause, and arrive in small pieces."""
    monkeypatch.setattr(transfers, "TIMEOUT", (seconds, seconds))
    monkeypatch.setattr(transfers, "PAUSE", 0.01)
    monkeypatch.setattr(transfers, "CHUNK", 1000)
