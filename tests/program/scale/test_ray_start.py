"""Ray is found, started, or one line says why not."""

import os
import socket
import subprocess
import sys
from importlib.util import find_spec

import pytest
from toy import toy_config

from reasoning_from_scratch.errors import UserError
from rfs.config import replaced
from rfs.run.options import resolved
from rfs.scale import ray_start


def needs_ray():
    if not find_spec("ray"):
        pytest.skip("the extra `ray` is not installed")


# ---- what a user can get wrong


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("here", "is not HOST:PORT"),
        ("http://here:80", "is not HOST:PORT"),
        ("127.0.0.1:1", "nothing answers at --ray-address 127.0.0.1:1"),
        ("127.0.0.1:listener", "no Ray answers at .* gave no answer in 3 s"),
    ],
)
def test_a_wrong_address_is_one_line_in_bounded_time(monkeypatch, tmp_path, address, says):
    needs_ray()
    monkeypatch.setattr(ray_start, "ANSWER_TIMEOUT", 3.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = address.replace("listener", str(listener.getsockname()[1]))
        with pytest.raises(UserError, match=says) as error:
            ray_start.connect(address)
    assert "\n" not in str(error.value)


def test_an_address_without_ray_is_refused(tmp_path):
    with pytest.raises(UserError, match="--sampler ray"):
        resolved(replaced(toy_config(tmp_path), ray_address="127.0.0.1:6379"))


def test_uv_run_gives_samplers_this_environment(tmp_path):
    """Left alone, Ray would build a new one for each: gigabytes from a registry, or a failure."""
    needs_ray()
    code = (
        "from rfs.scale.ray_start import connect\nray = connect(None)\n"
        "given = ray.get_runtime_context().runtime_env\nassert not given, given"
    )
    (tmp_path / "uv").symlink_to("/bin/sh")  # a shell that runs the script `run`, named as uv is
    (tmp_path / "run").write_text(f"{sys.executable} -c '{code}'\nexit $?\n")
    environment = {k: v for k, v in os.environ.items() if k not in ray_start.RAY_VARIABLES}
    done = subprocess.run(
        [tmp_path / "uv", "run"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
