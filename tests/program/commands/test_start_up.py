"""The first second of a command: what is mistyped is refused, and what is loaded is said, before
torch is imported. And what a model's loading does not import."""

import signal
import subprocess
import sys

import pytest

# Runs `rfs WORDS` up to its first import of torch, which ends it.
UNTIL_TORCH = """
import sys

class End:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            sys.exit("torch is imported")

sys.meta_path.insert(0, End())
from rfs.commands.cli import main
sys.exit(main())
"""


def until_torch(*words: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", UNTIL_TORCH, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "words, line",
    [
        ("chat --model tiny-grpo", "loading tiny-grpo ..."),
        ("train", "loading tiny-base ..."),
        ("compare --model tiny-grpo", "loading tiny-grpo ..."),
        ("export tiny --out elsewhere", "loading tiny ..."),
        ("doctor", "loading torch ..."),
        ("plot", "loading torch ..."),
        ("report", "loading torch ..."),
    ],
)
def test_a_command_says_what_it_loads_before_it_imports_torch(words, line):
    done = until_torch(*words.split())
    assert done.stderr == f"{line}\ntorch is imported\n"
    assert done.stdout == ""


@pytest.mark.parametrize(
    "words, says",
    [
        ("chat --modle tiny", "--model"),
        ("train --model tiny-bsae", "did you mean 'tiny-base'?"),
        ("train --recipe dapoo", "did you mean 'dapo'?"),
        ("evaluate --problems tiny-tset", "did you mean 'tiny-test'?"),
        ("quickstart --steps 0", "--steps is 0"),
        ("compare --stesp 3", "did you mean --steps?"),
        ("compare --recipes grop", "did you mean 'grpo'?"),
        ("compare --seeds 0", "--seeds is 0"),
        ("export tiny --otu elsewhere", "did you mean --out?"),
        ("export tiny-bsae --out elsewhere", "did you mean 'tiny-base'?"),
        ("push tiny mine", "mine is not OWNER/NAME"),
        ("plot --otu 2", "did you mean --out?"),
        ("report --opne", "did you mean --open?"),
        ("book --otu site", "did you mean --out?"),
        ("playground --models tiny-bsae", "did you mean 'tiny-base'?"),
        ("doctor --no-netwrok", "--network"),
    ],
)
def test_what_is_mistyped_is_refused_without_torch(words, says):
    done = until_torch(*words.split())
    assert done.returncode == 2 and says in done.stderr
    assert "loading" not in done.stderr and "torch is imported" not in done.stderr


# Runs `rfs train`, and presses Ctrl-C where torch imports a part of numpy that is needed later.
PRESS = """
import os, signal, sys

class Pressing:
    def find_spec(self, name, *_):
        if name == "numpy._core._methods":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Pressing())
from rfs.commands.cli import main
sys.exit(main(["train"]))
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="Windows holds no signal back")
def test_ctrl_c_during_an_import_ends_the_command(tmp_path):
    """torch swallows a KeyboardInterrupt that comes while it imports numpy."""
    command = [sys.executable, "-c", PRESS]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stderr.endswith("\nrfs train: interrupted\n") and done.returncode == 130
    assert not list(tmp_path.iterdir())


def test_opening_a_model_imports_no_compiler_and_no_pictures():
    code = """
import sys
from rfs.commands import chat
chat.open_model("tiny-grpo", "cpu", "auto")
needless = "torch._dynamo torch._inductor sympy matplotlib jinja2 pandas transformers tyro"
print([name for name in needless.split() if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "[]\n", done.stderr
