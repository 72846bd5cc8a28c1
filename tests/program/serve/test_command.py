"""`rfs serve` as a process: what it says, refuses and keeps, whatever ends it."""

import os
import re
import signal
import subprocess
import sys

import httpx
import pytest

from reasoning_from_scratch.errors import UserError
from rfs.commands import cli
from rfs.serve.options import ServeOptions

pytest.importorskip("starlette", reason="needs the extra serve")

from rfs.serve.app import startup_lines


class Process:
    """A server, and where it listens."""

    def __init__(self, folder, *words):
        # No key of the machine's own: a server that needs one would be another.
        environment = {k: v for k, v in os.environ.items() if k != "RFS_API_KEY"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rfs", "serve", "--port", "0", "--device",
             "cpu", "--log-path", str(folder), *words],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
        )  # fmt: skip
        self.said = []
        for line in self.process.stdout:
            self.said.append(line)
            if line.startswith("OpenAI"):
                break
        self.address = re.search(r"look at (http://\S+)", "".join(self.said))[1]

    def end(self, number):
        self.process.send_signal(number)
        rest, _ = self.process.communicate(timeout=30)
        return self.process.returncode, rest


@pytest.fixture
def start(tmp_path):
    running = []

    def begin(*words):
        running.append(Process(tmp_path / "served", *words))
        return running[-1]

    yield begin
    for one in running:
        one.process.kill()
        one.process.wait()
        one.process.stdout.close()


@pytest.fixture
def training():
    """Begins to train: a client, and a step that gives the loss before it."""
    tinker = pytest.importorskip("tinker", reason="Tinker's client needs Python 3.11")
    services = []
    data = [
        tinker.Datum(
            model_input=tinker.ModelInput.from_ints([1, 2, 3, 4]),
            loss_fn_inputs={"target_tokens": [2, 3, 4, 5], "weights": [1.0] * 4},
        )
    ]

    def begin(server, path=None):
        services.append(tinker.ServiceClient(base_url=server.address, api_key="tml-test"))
        if path:
            client = services[-1].create_training_client_from_state_with_optimizer(path).result()
        else:
            client = services[-1].create_lora_training_client("tiny", rank=4, seed=2).result()

        def step():
            passed = client.forward_backward(data, "cross_entropy")
            client.optim_step(tinker.AdamParams(learning_rate=1e-2)).result()
            return passed.result().metrics["loss:sum"]

        return client, step

    yield begin
    for service in services:
        service.holder.close()


def test_after_a_kill_the_client_goes_on_from_its_last_save(start, training):
    server = start()
    client, step = training(server)
    step(), step()
    path = client.save_state("before").result().path
    uninterrupted = [step() for _ in range(3)]
    assert server.end(signal.SIGKILL)[0] == -signal.SIGKILL
    _, step = training(start(), path)
    assert [step() for _ in range(3)] == uninterrupted


def test_ctrl_c_saves(start, training):
    server = start("--model", "mine=tiny", "tiny")
    names = [row["id"] for row in httpx.get(f"{server.address}/v1/models").json()["data"]]
    assert names == ["mine", "tiny"]
    client, step = training(server)
    step(), step()
    code, said = server.end(signal.SIGINT)
    assert code == 0 and said == "Stopped; what was learned is saved.\n"
    server = start("--model", "tiny")
    _, step_anew = training(server)
    step_anew(), step_anew()
    _, step = training(server, f"tinker://{client.model_id}/weights/last")
    assert step() == pytest.approx(step_anew(), abs=1e-5)


def test_what_is_not_saved_at_the_end_is_told(start, training, tmp_path):
    server = start()
    client, step = training(server)
    step()
    folder = tmp_path / "served" / client.model_id.replace(":", "-")
    (folder / "checkpoints").write_text("no folder")
    code, said = server.end(signal.SIGINT)
    assert code == 1 and f"{client.model_id} is not saved: " in said
    assert said.endswith("Stopped.\n")


def test_three_lines_say_what_to_do_and_one_server_has_a_folder(start, tmp_path, capsys):
    server = start()
    assert server.said[0] == "loading tiny ...\n" and len(server.said) == 4
    assert f"TINKER_BASE_URL={server.address} TINKER_API_KEY=tml-" in server.said[2]
    assert f"OPENAI_BASE_URL={server.address}/v1 OPENAI_API_KEY=" in server.said[3]
    port = server.address.rpartition(":")[2]
    for words, says in (
        (["--log-path", str(tmp_path / "served")], "is being written by process"),
        (["--log-path", str(tmp_path / "other"), "--port", port], "choose another --port"),
    ):
        assert cli.main(["serve", *words]) == 2
        assert says in capsys.readouterr().err


def test_a_loss_that_is_another_is_said_at_the_start():
    said = [startup_lines(ServeOptions(stability=how), 8000) for how in ("off", "importance")]
    added = set(said[1]) - set(said[0])
    assert added == {"stable_reinforce: computed as importance_sampling (--stability importance)"}


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(host="0.0.0.0"), "lets others in: give a key"),
        (dict(model=("tiny=",)), "--model tiny=: give NAME=PATH"),
        (dict(model=("tiny", "tiny=smollm2")), "--model tiny is given twice"),
        (dict(model=("tinny",)), "did you mean 'tiny'"),
    ],
)
def test_what_cannot_be_served(options, message, monkeypatch):
    monkeypatch.delenv("RFS_API_KEY", raising=False)
    with pytest.raises(UserError, match=message):
        ServeOptions(**options).check()


def test_with_a_key_others_may_come():
    assert ServeOptions(host="0.0.0.0", api_key="tml-x").check() == "tiny"
    assert ServeOptions(model=("a=tiny", "b=tiny")).model_sources() == {"a": "tiny", "b": "tiny"}
