"""Connect to Ray, local or at an address, in bounded time; a failure is one line."""

import importlib.util
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from types import ModuleType

from reasoning_from_scratch.errors import UserError

MISSING = "--sampler ray: the extra `ray` is needed: uv run --extra ray rfs train ..."
CONNECT_TIMEOUT = 5.0  # seconds for a connection to be made
ANSWER_TIMEOUT = 30.0  # seconds for Ray to answer; without an answer, its own client takes minutes
MAX_TRIES = 3  # on a busy machine the parts of a local Ray may not find each other in their 15 s
RAY_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is reported to anyone
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # else each sampler reinstalls everything under `uv run`
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else a page of warnings on machines without a GPU
}


def connect(address: str | None) -> ModuleType:
    """The module `ray`, connected to the cluster at `address`, or to a local one."""
    if not importlib.util.find_spec("ray"):
        raise UserError(MISSING)
    if "ray" in sys.modules and sys.modules["ray"].is_initialized():
        return sys.modules["ray"]
    for name, value in RAY_VARIABLES.items():
        os.environ.setdefault(name, value)
    if address:
        check_address(address)
    handler = signal.getsignal(signal.SIGTERM)
    for tries_left in reversed(range(1 if address else MAX_TRIES)):
        error = start_ray(address or "local")
        if error is None:
            break
        if not tries_left:
            where = f"at {address}" if address else "could be started on this machine"
            raise UserError(f"no Ray {where}: {str(error).splitlines()[0]}")
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)  # Ray has replaced our handler, which saves first
    return sys.modules["ray"]


def start_ray(address: str) -> Exception | None:
    """Starts or joins Ray; returns the error, if any."""
    import ray

    try:
        ray.init(
            address=address,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except Exception as error:  # Ray raises a bare Exception where it cannot start
        return error
    return None


def check_address(address: str) -> None:
    """Raises a UserError unless Ray answers at HOST:PORT."""
    host, _, port = address.rpartition(":")
    if "//" in address or not port.isdigit():
        raise UserError(f"--ray-address {address} is not HOST:PORT, such as 10.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT).close()
    except (OSError, OverflowError) as error:
        raise UserError(
            f"nothing answers at --ray-address {address} ({error}); `ray start --head` "
            "on one machine prints the address"
        ) from None
    problem = health_problem(address)
    if "AuthToken" in problem and "RAY_AUTH_MODE" not in os.environ:
        os.environ["RAY_AUTH_MODE"] = "token"  # the cluster has one; Ray finds it in ~/.ray
        problem = health_problem(address)
    if "AuthToken" in problem:
        raise UserError(
            f"the Ray at {address} needs another token: copy ~/.ray/auth_token from "
            "its head node to this machine"
        )
    if problem:
        raise UserError(f"no Ray answers at --ray-address {address}: {problem}")


def health_problem(address: str) -> str:
    """Why the Ray at an address cannot be used; "" if it can. Checked in another process, which can
    be stopped after a while."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        check = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_TIMEOUT)
    except subprocess.TimeoutExpired:
        return f"what listens there gave no answer in {ANSWER_TIMEOUT:g} s"
    lines = check.stderr.strip().splitlines()
    return "" if check.returncode == 0 else (lines or ["it is not healthy"])[-1]
