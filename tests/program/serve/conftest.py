"""A server in a thread, for the real clients."""

import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass
class Running:
    address: str
    application: object
    folder: Path

    @property
    def tinker(self):
        return self.application.state.tinker

    @property
    def worker(self):
        return self.tinker.worker


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """tiny-base, once for the tests of a file."""
    import uvicorn

    from rfs.serve.app import build
    from rfs.serve.options import ServeOptions

    folder = tmp_path_factory.mktemp("served")
    application = build(ServeOptions(log_path=str(folder), device="cpu", keep_samplers=3))
    config = uvicorn.Config(application, port=0, log_level="warning", timeout_graceful_shutdown=1)
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run)
    thread.start()
    while not running.started:
        assert thread.is_alive()
        time.sleep(0.01)
    _, port = running.servers[0].sockets[0].getsockname()
    yield Running(f"http://127.0.0.1:{port}", application, folder)
    running.should_exit = True
    thread.join()
