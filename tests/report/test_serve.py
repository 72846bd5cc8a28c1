"""The server of a report: loopback only, the run's files and nothing else."""

import http.client
import os
import threading

import pytest

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.report import write_run_report
from reasoning_from_scratch.report.serve import make_server, run_version
from tests.report.written import metrics_line, write_run


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "a-run")


@pytest.fixture
def server(run):
    with make_server(run, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def get(server, path: str, host: str = "127.0.0.1") -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.putrequest("GET", path, skip_host=True)
    connection.putheader("Host", f"{host}:{server.server_port}")
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read().decode("utf-8", "replace")
    return answer.status, answer.headers.get("Content-Type", ""), body


def test_the_server_listens_on_loopback_only(server):
    assert server.server_address[0] == "127.0.0.1"


def test_the_page_follows_the_run(server, run):
    status, kind, page = get(server, "/")
    assert status == 200 and kind.startswith("text/html")
    version = get(server, "/version")[2]
    assert f'data-version="{version}"' in page and "4 of 4 steps" in page
    assert "connect-src &#39;self&#39;" in page
    with open(run / "metrics.jsonl", "a") as file:
        file.write(metrics_line(4))
    assert get(server, "/version")[2] == run_version(run) != version
    assert "5 of 4 steps" in get(server, "/")[2]
    assert "data-version" not in write_run_report(run).read_text("utf-8")


def test_the_server_gives_out_the_runs_files_and_nothing_else(server, run):
    (run.parent / "secret.html").write_text("secret")
    os.symlink(run.parent / "secret.html", run / "link.html")
    (run / "weights.safetensors").write_text("weights")
    assert get(server, "/metrics.jsonl")[:2] == (200, "text/plain; charset=utf-8")
    assert get(server, "/train_iteration_000002.html")[0] == 200
    assert get(server, "/iteration_000002/train.html")[0] == 200
    for path in (
        "/../secret.html",
        "/%2e%2e/secret.html",
        "/link.html",
        "/weights.safetensors",
        "/iteration_000002",
        "/%00",
        "//etc/passwd",
        f"/{run.parent}/secret.html",
    ):
        status, _, body = get(server, path)
        assert status == 404 and "secret" not in body.replace("secret.html", ""), path


def test_other_names_for_this_machine_get_nothing(server):
    """A web page can point its own host name at 127.0.0.1 and would then read the answers."""
    assert get(server, "/", host="evil.example")[0] == 403
    assert get(server, "/", host="localhost")[0] == 200


def test_a_port_in_use_is_a_user_error(server, run):
    with pytest.raises(UserError, match="--port 0"):
        make_server(run, server.server_port)
