"""An HTTP server that behaves as badly as a test asks for, and a hub on this machine."""

import atexit
import hashlib
import json
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import huggingface_hub.constants as hub_constants


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

    def paths(self):
        """The files that were asked for with GET; huggingface_hub asks the hub other things too."""
        asked = [path.partition("?")[0] for method, path, _ in self.requests if method == "GET"]
        return [path for path in asked if not path.startswith("/api/")]


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


def closed_port():
    """Nobody answers at it: it is taken, so that no other test gets it, and not listened at."""
    probe = socket.socket()
    probe.bind(("127.0.0.1", 0))
    atexit.register(probe.close)
    return probe.getsockname()[1]


def respond(handler, status, body, length=None, **headers):
    handler.send_response(status)
    handler.send_header("Connection", "close")  # said, so that no client asks again over it
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


def dies_after(count):
    """Sends so many bytes, then closes the connection."""
    return lambda handler, content: respond(handler, 200, content[:count], length=len(content))


def stalls_after(count, seconds=1.0):
    def behavior(handler, content):
        respond(handler, 200, content[:count], length=len(content))
        threading.Event().wait(seconds)  # time.sleep may be switched off (hub_at)

    return behavior


def answers(status, body=b"no"):
    return lambda handler, content: respond(handler, status, body)


def login_page(handler, content):
    body = b"\n<!DOCTYPE html><body>Please accept our terms</body></html>"
    respond(handler, 200, body, Content_Type="text/html; charset=utf-8")


# ---- a hub


def hub_at(monkeypatch, url, cache):
    """As if the process had begun with this HF_ENDPOINT and HF_HOME, which huggingface_hub reads
    when it is imported; and it does not pause between its tries."""
    monkeypatch.setattr(hub_constants, "ENDPOINT", url)
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(hub_constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(hub_constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)


def hub(handler, content):
    """A hub that has every file, with this content."""
    digest = hashlib.sha256(content).hexdigest()
    respond(handler, 200, content, ETag=f'"{digest}"', X_Repo_Commit="0" * 40)


def hub_with(files):
    """A hub with one repository, whose files are {name: content}; a name with None is gated."""

    def behavior(handler, _):
        path, _, _ = handler.path.partition("?")
        if path.startswith("/api/models/"):
            listed = [
                {"type": "file", "path": name, "size": len(content or b""), "oid": name}
                for name, content in files.items()
            ]
            facts = {"id": "someone/model", "sha": "0" * 40, "siblings": []}
            answer = listed if "/tree/" in path else facts
            return respond(
                handler, 200, json.dumps(answer).encode(), Content_Type="application/json"
            )
        name = path.partition("/resolve/")[2].partition("/")[2]
        if name not in files:
            return respond(handler, 404, b"", X_Error_Code="EntryNotFound", X_Repo_Commit="0" * 40)
        if files[name] is None:
            return respond(handler, 403, b"", X_Error_Code="GatedRepo", X_Error_Message="ask")
        return hub(handler, files[name])

    return behavior
