"""A headless Chromium that tests drive by its DevTools protocol, over a pair of pipes."""

import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from rfs.commands.playground import quantized

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run "
    "--disable-background-networking --disable-extensions --remote-debugging-pipe"
).split()


def chromium() -> str | None:
    """Where a Chromium is, or None."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next(filter(None, map(shutil.which, names)), None)


# Started in the browser's place, it moves the two pipes to where the browser expects them. (By
# way of 100 and 101: one of them may be the other's place.)
MOVE_PIPES = """
import os, sys
for source, target in zip((*map(int, sys.argv[1:3]), 100, 101), (100, 101, 3, 4)):
    os.dup2(source, target)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Refused(AssertionError):
    """The browser's answer to a call that it could not carry out."""


class Browser:
    """One page of a browser of its own. Messages are JSON, each followed by a zero byte; the
    browser reads them from its file descriptor 3 and writes to 4."""

    def __init__(self, profile: Path):
        if chromium() is None:
            pytest.skip("there is no Chromium or Chrome here to open a page in")
        read_end, self.requests = os.pipe()
        self.replies, write_end = os.pipe()
        command = [chromium(), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", MOVE_PIPES, str(read_end), str(write_end), *command],
            pass_fds=(read_end, write_end),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_end)
        os.close(write_end)
        self.buffer, self.last_id, self.session = b"", 0, None
        self.errors: list[str] = []  # of the console, or not caught
        self.addresses: list[str] = []  # of all that was requested
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        os.close(self.requests)
        os.close(self.replies)

    def send(self, method: str, timeout: float = 300, **parameters):
        """The result of one method of the protocol."""
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.requests, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._next(timeout)
            if reply.get("id") == self.last_id:
                if "error" in reply:
                    raise Refused(reply["error"]["message"])
                return reply["result"]
            self._note(reply)

    def _next(self, timeout: float) -> dict:
        end = time.monotonic() + timeout
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.replies], [], [], max(0, end - time.monotonic()))
            assert ready, f"the browser did not answer within {timeout} s"
            part = os.read(self.replies, 2**20)
            assert part, "the browser has ended"
            self.buffer += part
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict) -> None:
        """Keeps what a page must not do: errors, and requests."""
        method, values = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(values["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning"):
            self.errors.append(json.dumps(values["args"])[:500])
        elif method == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.errors.append(values["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.addresses.append(values["request"]["url"])

    def open(self, path: Path) -> None:
        self.send("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.readyState === 'complete'")

    def run(self, script: str):
        """The value of an expression in the page; a promise's, once it has one."""
        found = self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def back(self) -> None:
        """What the back button does: the page before this one, which may be built anew."""
        history = self.send("Page.getNavigationHistory")
        before = history["entries"][history["currentIndex"] - 1]
        self.send("Page.navigateToHistoryEntry", entryId=before["id"])
        self.wait(f"location.href === {json.dumps(before['url'])}")
        self.wait("document.readyState === 'complete'")

    def wait(self, condition: str, seconds: float = 120) -> None:
        """Until an expression is true. A page that gives way to another cannot say: asked anew."""
        end = time.monotonic() + seconds
        while True:
            try:
                if self.run(condition):
                    return
            except Refused as refused:
                if "navigated" not in str(refused) and "context" not in str(refused):
                    raise
            assert time.monotonic() < end, f"never came true: {condition}"
            time.sleep(0.05)


def as_a_page_has_it(model, bits: int):
    """The model with the weights that a page has, each rounded to so many bits."""
    state = {}
    for name, tensor in model.state_dict().items():
        scales, whole = quantized(tensor.numpy(), bits)
        state[name] = torch.from_numpy(whole * scales[:, None]).view_as(tensor)
    copy = type(model)(model.cfg)
    copy.load_state_dict(state)
    return copy
