"""`rfs report`: write a run's page, or serve it to this machine while the run goes on."""

import functools
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote, urlsplit

import tyro

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.disk import told_in_one_line
from reasoning_from_scratch.text import visible

from .run_files import newest_run
from .run_report import run_page, write_run_report

LOOPBACK = "127.0.0.1"
# The kinds of files that a run folder shows; text is sent as text, so that nothing in it runs.
CONTENT_TYPES = {
    ".html": "text/html",
    ".json": "application/json",
    ".jsonl": "text/plain",
    ".csv": "text/plain",
    ".log": "text/plain",
    ".diff": "text/plain",
    ".png": "image/png",
}
WATCHED = ("metrics.jsonl", "probes.jsonl", "checkpoints.jsonl", "config.json")


def report_command(
    run: Annotated[str, tyro.conf.Positional] = "",
    serve: bool = False,
    port: int = 8000,
) -> None:
    """Write report.html into a run's folder.

    Args:
        run: Folder of the run (default: the newest in runs/).
        serve: Show it at an address that only this machine can open, and follow a run that goes on.
        port: Port of that address; 0 takes a free one.
    """
    folder = Path(run) if run else newest_run(Path("runs"))
    advice = "copy the run to a place that can be written"
    with told_in_one_line(f"cannot write a report into {folder}", advice):
        path = write_run_report(folder)
    if not serve:
        print(visible(str(path)))
        return
    with make_server(folder, port) as server:
        print(f"http://{LOOPBACK}:{server.server_port}/  (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


def make_server(folder: Path, port: int) -> ThreadingHTTPServer:
    handler = functools.partial(_Handler, Path(folder).resolve())
    try:
        return ThreadingHTTPServer((LOOPBACK, port), handler)
    except OSError as error:
        raise UserError(f"port {port} cannot be used ({error.strerror}); try --port 0") from None


def run_version(folder: Path) -> str:
    """Changes whenever the run wrote something that its page shows."""
    stats = [path.stat() for name in WATCHED if (path := folder / name).exists()]
    return "-".join(f"{stat.st_mtime_ns:x}.{stat.st_size:x}" for stat in stats) or "empty"


@functools.lru_cache(maxsize=1)
def _page_of_version(folder: Path, version: str) -> str:
    return run_page(folder, version)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET for the page, its version, and the run's own files; nothing else."""

    def __init__(self, folder: Path, *args):
        self.folder = folder
        super().__init__(*args)

    def do_GET(self) -> None:  # noqa: N802 (the name that http.server calls)
        # A page elsewhere could point a name of its own at this machine and read what we answer.
        host = self.headers.get("Host", "").rsplit(":", 1)[0]
        if host not in (LOOPBACK, "localhost"):
            return self.send_error(HTTPStatus.FORBIDDEN)
        name = unquote(urlsplit(self.path).path).lstrip("/")
        if name == "version":
            return self._send("text/plain", run_version(self.folder).encode())
        if name in ("", "report.html"):
            page = _page_of_version(self.folder, run_version(self.folder))
            return self._send("text/html", page.encode())
        file = self._file(name)
        if file is None:
            return self.send_error(HTTPStatus.NOT_FOUND)
        self._send(CONTENT_TYPES[file.suffix], file.read_bytes())

    def _file(self, name: str) -> Path | None:
        """A file of a known kind that really lies inside the folder, links followed."""
        if "\0" in name:
            return None
        path = (self.folder / name).resolve()
        inside = path.is_relative_to(self.folder) and path.is_file()
        return path if inside and path.suffix in CONTENT_TYPES else None

    def _send(self, kind: str, content: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args) -> None:
        """Quiet: a request per two seconds would hide everything else in the terminal."""
