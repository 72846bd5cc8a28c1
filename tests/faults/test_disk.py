"""Full disks, crashes at each kind of write, read-only folders, vanished folders, two processes in
one folder."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from faults import kill_loop
from toy import resumed_run, toy_world, train

from reasoning_from_scratch.errors import UserError
from rfs.run.folder import LOCK_FILE, OWNER_FILE, RunFolder
from rfs.run.options import resumed_config
from tests.faults.whole import check_whole, kind_of, lines, same_runs
from tests.program.run.test_interrupts import ENVIRONMENT


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    kill_loop.start_or_resume(folder / "plain", folder)
    return folder / "plain"


def one_line(error: BaseException) -> str:
    text = str(error)
    assert "\n" not in text and len(text) < 400
    return text


# ---- a full disk at each kind of write


class Crash(BaseException):
    """Nothing catches it: what was half done stays half done."""


ENDS = {
    "a full disk": lambda path: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path),
    "a crash": Crash,
}


class Refuse:
    """Raises where a file of a folder is opened, renamed or linked; which one is counted per kind
    of file.

    Python reports each of these to audit hooks first, so no write is forgotten. A hook cannot be
    taken away again; without a folder it does nothing.
    """

    def __init__(self) -> None:
        self.start("", None, None)
        sys.addaudithook(self.on_event)

    def on_event(self, event: str, given: tuple) -> None:
        if not self.folder or event not in ("open", "os.rename", "os.link", "os.mkdir"):
            return
        path = str(given[1] if event in ("os.rename", "os.link") else given[0])
        writes = event != "open" or (given[2] or 0) & (os.O_WRONLY | os.O_RDWR)
        if path.startswith(self.folder) and writes:
            key = (event, kind_of(Path(path)))
            self.seen[key] = self.seen.get(key, 0) + 1
            if (key, self.seen[key]) == self.at:
                self.refused = True
                raise self.end(path)

    def start(self, folder: Path | str, at: tuple | None, end) -> None:
        self.folder, self.seen, self.at, self.end = str(folder), {}, at, end
        self.refused = False


REFUSE = Refuse()


def run_until_refused(folder: Path, scratch: Path, at: tuple | None, end=None) -> None:
    asked = kill_loop.config(folder, steps=4)
    REFUSE.start(folder, at, end)
    try:
        train(asked, quiet=True, **kill_loop.world(scratch))
    except UserError as error:
        assert "No space left on device" in one_line(error)
    except Crash:
        pass
    finally:
        REFUSE.folder = ""


@pytest.mark.parametrize("how", ENDS)
def test_the_end_at_each_kind_of_write(tmp_path, how):
    """The first or the third of each kind; then the run goes on to the end of the undisturbed one.
    A full disk is told in one line."""
    run = tmp_path / "plain0"
    asked = kill_loop.config(run, steps=4)
    run_until_refused(run, tmp_path, None)
    kinds, undisturbed = dict(REFUSE.seen), run.rename(tmp_path / "undisturbed")
    assert len(kinds) > 25
    for number, (key, count) in enumerate(kinds.items()):
        at = (key, 1 + number % 2 * min(2, count - 1))
        shutil.rmtree(run, ignore_errors=True)
        run_until_refused(run, tmp_path, at, ENDS[how])
        assert REFUSE.refused
        if key == ("os.mkdir", "plain0"):
            assert not run.exists()
        elif number % 4 == 0 or key[0] == "os.rename":  # all could go on; these do, to the end
            again = resumed_config(run) if (run / "config.json").exists() else asked
            train(again, quiet=True, **kill_loop.world(tmp_path))
            same_runs(run, undisturbed)


# ---- commands that write what a user names: half of it is never left behind

IN_SMALL_FILES = """
import resource, signal, sys
from pathlib import Path
from rfs.commands.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
room = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, room[1]))  # no file may be longer
assert main(sys.argv[1:]) == 2
resource.setrlimit(resource.RLIMIT_FSIZE, room)
print(sorted(path.name for path in Path().rglob("*")), flush=True)
assert main(sys.argv[1:]) == 0
"""


@pytest.mark.parametrize(
    "words, left",
    [
        (["export", "tiny-player", "--to", "out"], ["out"]),
        (["playground", "--models", "tiny-player", "--players", "--out", "out"], []),
    ],
)
def test_a_full_disk_leaves_no_half_of_a_model_or_page(words, left, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", IN_SMALL_FILES, *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=ENVIRONMENT,
    )
    assert done.returncode == 0, done.stderr
    (line,) = (x for x in done.stderr.splitlines() if not x.startswith("loading "))
    assert "out: File too large" in line
    assert done.stdout.startswith(f"{left}\n")


# ---- read-only, gone, taken


HOLD = (
    "import sys, time; from pathlib import Path; "
    "from rfs.run.folder import FolderLock; "
    "lock = FolderLock(Path(sys.argv[1])); lock.acquire(); "
    "print('held', flush=True); time.sleep(600)"
)


def test_a_second_process_is_told_who_writes(tmp_path):
    run = tmp_path / "plain0"
    train(kill_loop.config(run, steps=2), quiet=True, **toy_world(tmp_path))
    command = [sys.executable, "-c", HOLD, str(run)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT)
    holder.stdout.readline()
    overwriting = kill_loop.config(run, overwrite=True)
    for config in (resumed_config(run, steps=4), overwriting):
        with pytest.raises(UserError, match=f"process {holder.pid}"):
            train(config, quiet=True, **toy_world(tmp_path))
    assert len(lines(run / "metrics.jsonl")) == 2
    holder.kill()
    holder.communicate()
    assert (run / OWNER_FILE).exists()  # a dead process bars nobody
    resumed_run(run, steps=4)
    check_whole(run)


def test_a_cell_that_was_interrupted_does_not_bar_the_next_one(tmp_path):
    """The same process may begin again, though its first run was never closed."""
    first = RunFolder(tmp_path / "run")
    first.create(kill_loop.config(tmp_path / "run"))
    second = RunFolder(tmp_path / "run")
    second.create(kill_loop.config(tmp_path / "run", overwrite=True))
    second.close()
    assert not (tmp_path / "run" / LOCK_FILE).exists()
