"""Commands drawn at random on a few run folders; after each, what is on the disk must be what was
said.

Whatever happened before: the weights are those of a fresh run of the same settings, to the bit;
each step has one line; nothing is empty, nothing half-written once a command has gone over it; a
refusal is one line and changes no file.

The ordinary form draws the same few sequences every time (under a minute); -m soak draws new ones
for an hour, or for SOAK_SECONDS.
"""

import functools
import io
import os
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest
from chat_rl import chat_rl_command
from command_world import commands, contents, equal, make_world, saved, train_words
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from reasoning_from_scratch.text import read_lines, read_values
from tests.faults.whole import check_whole, lines

MOST = 6  # steps of the longest run
HOW = {"full": "", "lora": "--lora-rank 2", "kl": "--kl k3 --kl-coef 0.5"}
WHERE_IT_CRASHES = (
    "report.metrics.append",
    "run.folder.write_whole",
    "run.checkpoints.save_state",
    "run.checkpoints.write_whole",
    "files.weights.save_state",
    "run.training_run.write_iteration",
)
PACKAGE = "reasoning_from_scratch"


class Crash(Exception):
    pass


@dataclass(frozen=True)
class Spec:
    """What decides the weights of a run, after any number of steps."""

    how: str
    seed: int
    source: tuple["Spec", int] | None = None  # a save of another run; None: the toy model

    def words(self) -> list[str]:
        return ["--seed", str(self.seed), *HOW[self.how].split()]

    def depth(self) -> int:
        return 1 + self.source[0].depth() if self.source else 0


class Fresh:
    """Undisturbed runs of every kind, made once, to compare with."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sequences-"))
        make_world(self.folder)
        self.run = functools.cache(self.trained)

    def trained(self, spec: Spec) -> Path:
        path = self.folder / f"run{self.run.cache_info().currsize}"
        start = []
        if spec.source:
            other, batch = spec.source
            start = ["--load-checkpoint-path", self.run(other) / "checkpoints" / f"{batch:06d}"]
            path = path.with_name(f"{path.name}-from-{other.seed}-{batch}")
        words = train_words(
            self.folder, path, *spec.words(), *start, "--steps", MOST, "--save-every", 1
        )
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            assert commands(words) == 0
        return path


@functools.cache
def fresh() -> Fresh:
    return Fresh()


names = st.sampled_from("ABC")
specs = st.builds(Spec, st.sampled_from(sorted(HOW)), st.integers(0, 1))
few_steps = st.integers(1, MOST)
harmless = st.sampled_from(
    [
        "",
        "--save-every 1",
        "--keep-last 1 --save-every 1",
        "--rolling-every 1",
        "--eval-every 0",
        "--num-groups-to-log 0",
        "--report-every 1",
        "--eval-every 2",
    ]
)
refused_flags = st.sampled_from(
    [
        "--memory-budget 1MB",
        "--optimizer muon",
        "--lora-rank 3",
        "--dtype bfloat16",
        "--model {}/tiny-other",
        "--load-checkpoint-path {}/tiny-other",
        "--eval-problems nothing",
        "--reward nothing.py:reward",
        "--few-shot 8",
    ]
)


class Sequences(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="sequence-")).resolve()
        self.runs: dict[str, Spec] = {}
        self.torn: set[str] = set()  # a crash or a deleted save; mended by the next command
        self.here = self.folder
        self.said = ""

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- commands

    def path(self, name: str) -> Path:
        """As it is typed in the folder where we are."""
        return Path(os.path.relpath(self.folder / name, self.here))

    def call(self, words: list[object]) -> int:
        out, errors = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(errors):
            code = commands([str(word) for word in words], self.here)
        self.said = out.getvalue() + errors.getvalue()
        assert "Traceback" not in self.said
        return code

    def refused(self, words: list[object]) -> None:
        before = contents(self.folder)
        assert self.call(words) == 2, self.said
        assert self.said.strip().splitlines()[-1].startswith(f"rfs {words[0]}: ")
        assert contents(self.folder) == before

    def train(self, name: str, spec: Spec, *more: object) -> list[object]:
        return [*train_words(fresh().folder, self.path(name), *spec.words()), *more]

    def resume(self, name: str, *more: object) -> list[object]:
        return ["train", "--resume", self.path(name), *more]

    def done(self, name: str) -> int:
        """Steps in the newest save that is there."""
        rows = read_lines(self.folder / name / "checkpoints.jsonl")
        whole = [row["batch"] for row in rows if "state_path" in row and self.has(name, row)]
        return max(whole, default=0)

    def has(self, name: str, row: dict) -> bool:
        number, run = f"{row['batch']:06d}", self.folder / name
        state = run / "training_state" / number / "trainer_state.json"
        whole = (run / "checkpoints" / number / "config.json").exists()
        return whole and ("state_path" not in row or state.exists())

    def may_refuse(self, name: str) -> bool:
        """Without its first weights a run may be lost, and without any of its saves it is."""
        rows = read_lines(self.folder / name / "checkpoints.jsonl")
        began = any(row["batch"] == 0 and self.has(name, row) for row in rows)
        states = [row for row in rows if "state_path" in row]
        return not began or (bool(states) and not any(self.has(name, row) for row in states))

    def a_run(self, name: str) -> str:
        """That one, or else another that is there."""
        return name if name in self.runs else sorted(self.runs)[0]

    # -- rules

    @initialize(spec=specs)
    def begin(self, spec):
        self.train_one("A", spec, 4, False)

    @rule(name=names, spec=specs, steps=few_steps, overwrite=st.booleans())
    def train_one(self, name, spec, steps, overwrite):
        words = self.train(name, spec, "--steps", steps, *["--overwrite"] * overwrite)
        if name in self.runs and not overwrite:
            return self.refused(words)
        assert self.call(words) == 0, self.said
        self.ended(name, spec, steps)

    @precondition(lambda self: self.runs)
    @rule(
        name=names,
        other=names,
        how=st.sampled_from(sorted(HOW)),
        steps=few_steps,
        save=st.integers(0, 9),
    )
    def train_from_a_run(self, name, other, how, steps, save):
        other = self.a_run(other)
        if self.runs[other].depth() == 2 or other in self.torn:
            return
        saves = [f"@{row['batch']:06d}" for row in lines(self.folder / other / "checkpoints.jsonl")]
        chosen = ["", *saves][save % (1 + len(saves))]
        source, words = self.runs[other], ["--load-checkpoint-path", f"{self.path(other)}{chosen}"]
        words = self.train(name, Spec(how, 2), "--steps", steps, "--overwrite", *words)
        if name == other:
            return self.refused(words)
        assert self.call(words) == 0, self.said
        place = Path(read_values(self.folder / name / "config.json")["load_checkpoint_path"])
        assert place.parents[1] == self.folder / other and chosen in ("", f"@{place.name}")
        self.ended(name, Spec(how, 2, (source, int(place.name))), steps)

    @precondition(lambda self: self.runs)
    @rule(name=names, steps=few_steps, flags=harmless)
    def resume_one(self, name, steps, flags):
        name = self.a_run(name)
        words = self.resume(name, "--steps", steps, *flags.split())
        if steps < self.done(name):
            return self.refused(words)
        lost = self.may_refuse(name)
        before = contents(self.folder)
        code = self.call(words)
        if lost and code == 2:
            assert contents(self.folder) == before
            return
        assert code == 0, self.said
        self.ended(name, self.runs[name], steps)

    @precondition(lambda self: self.runs)
    @rule(name=names, steps=st.integers(4, MOST), where=st.sampled_from(["", "elsewhere"]))
    def resume_from_another_folder(self, name, steps, where):
        self.change_the_folder(where)
        self.resume_one(name, steps, "")

    @precondition(lambda self: self.runs)
    @rule(name=names, flags=refused_flags)
    def resume_with_what_cannot_be(self, name, flags):
        name = self.a_run(name)
        flags = flags.format(fresh().folder).split()
        if flags[0] == "--eval-problems":
            flags += ["--eval-every", "1"]
        self.refused(self.resume(name, *flags, "--steps", MOST))

    @rule(
        name=names,
        spec=specs,
        flags=refused_flags.filter(
            lambda f: f.startswith(("--memory", "--eval", "--reward", "--few"))
        ),
    )
    def overwrite_with_what_cannot_be(self, name, spec, flags):
        flags = flags.format(fresh().folder).split()
        self.refused(self.train(name, spec, "--overwrite", *flags))

    @rule(name=names, spec=specs, call=st.integers(1, 4), overwrite=st.booleans())
    def ctrl_c(self, name, spec, call, overwrite):
        """In the middle of a fresh run, or of one that is resumed."""
        resumed = name in self.runs and not overwrite
        if resumed and self.may_refuse(name):
            return
        words = (
            self.resume(name, "--steps", MOST)
            if resumed
            else self.train(name, spec, "--steps", 4, "--overwrite")
        )
        most = MOST if resumed else 4
        first = self.done(name) if resumed else 0
        with at_call("trainer.set_advantages", call, lambda: signal.raise_signal(signal.SIGINT)):
            code = self.call(words)
        spec = self.runs[name] if resumed else spec
        if first + call > most:
            assert code == 0
            return self.ended(name, spec, most)
        done = first + call - 1
        assert code == 130 and f"interrupted after {done} of {most} steps; saved" in self.said
        self.torn.discard(name)
        self.runs[name] = spec
        assert self.done(name) == done and len(self.rows(name)) == done

    @rule(name=names, spec=specs, overwrite=st.booleans())
    def ctrl_c_while_it_loads(self, name, spec, overwrite):
        if name not in self.runs and not overwrite:
            return
        before = contents(self.folder)
        words = self.train(name, spec, "--overwrite") if overwrite else self.resume(name)
        with at_call("run.asked.all_sets", 1, lambda: signal.raise_signal(signal.SIGINT)):
            assert self.call(words) in (130, 2)
        assert contents(self.folder) == before

    @rule(
        name=names,
        spec=specs,
        place=st.sampled_from(WHERE_IT_CRASHES),
        call=st.integers(1, 12),
        overwrite=st.booleans(),
    )
    def crash(self, name, spec, place, call, overwrite):
        def crashing():
            raise Crash

        resumed = name in self.runs and not overwrite
        words = (
            self.resume(name, "--steps", MOST)
            if resumed
            else self.train(name, spec, "--steps", 4, "--overwrite")
        )
        before, spec = contents(self.folder), self.runs[name] if resumed else spec
        with at_call(place, call, crashing):
            try:
                code = self.call(words)
            except Crash:
                self.torn.add(name)
                if any((self.folder / name / file).exists() for file in ("config.json",)):
                    self.runs[name] = spec
                else:
                    self.runs.pop(name, None)
                return
        if code == 2:
            assert resumed and self.may_refuse(name) and contents(self.folder) == before
        else:
            assert code == 0, self.said
            self.ended(name, spec, MOST if resumed else 4)

    # -- what people do with folders

    @precondition(lambda self: self.runs)
    @rule(name=names, other=names)
    def move(self, name, other):
        name = self.a_run(name)
        if not (self.folder / other).exists():
            (self.folder / name).rename(self.folder / other)
            self.runs[other] = self.runs.pop(name)
            self.torn = {other if torn == name else torn for torn in self.torn}

    @precondition(lambda self: self.runs)
    @rule(name=names, other=names)
    def copy(self, name, other):
        name = self.a_run(name)
        if not (self.folder / other).exists():
            shutil.copytree(self.folder / name, self.folder / other)
            self.runs[other] = self.runs[name]
            self.torn |= {other} if name in self.torn else set()

    @precondition(lambda self: self.runs)
    @rule(name=names)
    def delete_a_run(self, name):
        shutil.rmtree(self.folder / name, ignore_errors=True)
        self.runs.pop(name, None)
        self.torn.discard(name)

    @precondition(lambda self: self.runs)
    @rule(name=names, number=st.integers(0, 9))
    def delete_a_save(self, name, number):
        name = self.a_run(name)
        saves = sorted((self.folder / name / "checkpoints").glob("*"))
        if saves:
            shutil.rmtree(saves[number % len(saves)])
            self.torn.add(name)

    @precondition(lambda self: self.runs)
    @rule(name=names, file=st.sampled_from(["report.html", "metrics.csv", "probes.jsonl"]))
    def delete_a_file(self, name, file):
        name = self.a_run(name)
        (self.folder / name / file).unlink(missing_ok=True)
        self.torn.add(name)

    @rule(where=st.sampled_from(["", "elsewhere", "elsewhere/deeper"]))
    def change_the_folder(self, where):
        self.here = self.folder / where
        self.here.mkdir(parents=True, exist_ok=True)

    # -- other commands

    @precondition(lambda self: self.runs)
    @rule(name=names)
    def evaluate(self, name):
        name = self.a_run(name)
        if name in self.torn:
            return
        before = contents(self.folder)
        place = read_lines(self.folder / name / "checkpoints.jsonl")[-1]["batch"]
        words = [
            "evaluate",
            "--model",
            self.path(name) / "checkpoints" / f"{place:06d}",
            "--problems",
            fresh().folder / "problems.jsonl",
            "--max-new-tokens",
            3,
            "--limit",
            2,
        ]
        assert self.call(words) == 0, self.said
        kept = {file: data for file, data in contents(self.folder).items() if file in before}
        assert kept == before

    @precondition(lambda self: self.runs)
    @rule(name=names)
    def quickstart_into_a_used_folder(self, name):
        self.refused(["quickstart", "--log-path", self.path(self.a_run(name))])

    @rule(lr=st.sampled_from([None, "1e-3", "1e-4"]))
    def compare(self, lr):
        out = self.folder / "compared"
        words = [
            "compare",
            "--recipes",
            "grpo",
            "--seeds",
            1,
            "--steps",
            2,
            "--model",
            os.path.relpath(fresh().folder / "tiny-toy", self.here),
            "--out",
            os.path.relpath(out, self.here),
            "--problems-per-step",
            1,
            "--rollouts",
            2,
            "--max-new-tokens",
            3,
            "--eval-limit",
            2,
        ]
        words += ["--lrs", lr] if lr else []
        assert self.call(words) == 0, self.said
        run = f"grpo-lr{float(lr):g}-seed0" if lr else "grpo-seed0"  # each rate has its own run
        assert len(lines(out / run / "metrics.jsonl")) == 2

    @rule()
    def chat_rl(self):
        small = [
            "--examples-per-step",
            "1",
            "--num-samples",
            "2",
            "--max-new-tokens",
            "3",
            "--problem-limit",
            "2",
            "--device-batch-size",
            "2",
            "--eval-examples",
            "1",
            "--device-type",
            "cpu",
            "--model",
            str(fresh().folder / "tiny-toy"),
            "--run",
            "nano",
        ]
        before, used = contents(self.folder), (self.here / "runs" / "nano").exists()
        place = Path.cwd()
        os.chdir(self.here)
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as errors:
                code = chat_rl_command(small)
        finally:
            os.chdir(place)
        assert code == (2 if used else 0), errors.getvalue()
        if used:
            assert contents(self.folder) == before

    # -- what must hold

    def ended(self, name: str, spec: Spec, steps: int) -> None:
        """It was said that this run is done."""
        self.runs[name] = spec
        self.torn.discard(name)
        last = self.said.strip().splitlines()
        assert any(line.startswith(f"done: {self.path(name)} holds") for line in last), self.said
        final = lines(self.folder / name / "checkpoints.jsonl")[-1]
        assert final["final"] and final["batch"] == steps
        assert len(self.rows(name)) == steps
        assert (self.folder / name / "report.html").stat().st_size > 1000
        assert (self.here / final["sampler_path"]).resolve() == (
            self.folder / name / "checkpoints" / f"{steps:06d}"
        ).resolve()
        self.check(name)

    def rows(self, name: str) -> list[dict]:
        return lines(self.folder / name / "metrics.jsonl")

    def check(self, name: str) -> None:
        run, spec = self.folder / name, self.runs[name]
        alike = fresh().run(spec)
        for row in read_lines(run / "checkpoints.jsonl"):
            if self.has(name, row):
                assert equal(saved(run, row["batch"]), saved(alike, row["batch"]))
            else:
                assert name in self.torn
        if name in self.torn:
            return
        check_whole(run)
        rows, steps = self.rows(name), self.config_steps(name)
        for row, other in zip(rows, lines(alike / "metrics.jsonl"), strict=False):
            same = ("step", "env/all/reward/total", "optim/loss", "optim/grad_norm")
            assert [row[key] for key in same] == [other[key] for key in same]
            assert row["progress/done_frac"] == (row["step"] + 1) / steps
        pages = [path.name for path in run.rglob("train*iteration_*")]
        assert not [page for page in pages if int(page.split("_")[2][:6]) >= len(rows)]
        places = [path for path in (run / "checkpoints").iterdir() if path.is_dir()]
        assert all(any(place.iterdir()) for place in places)

    def config_steps(self, name: str) -> int:
        values = read_values(self.folder / name / "config.json")
        for change in values.get("resumed", []):
            values |= change["changed"]
        return values["steps"]

    @invariant()
    def what_is_said_is_there(self) -> None:
        for name in self.runs:
            self.check(name)


def at_call(place: str, call: int, act) -> ExitStack:
    """While entered, the call-th call of a function of the package begins with `act`."""
    module, _, name = place.rpartition(".")
    module = sys.modules[f"{PACKAGE}.{module}"]
    original, calls = getattr(module, name), []

    def counted(*given, **named):
        calls.append(1)
        if len(calls) == call:
            act()
        return original(*given, **named)

    return patch.object(module, name, counted)


QUIET = {
    "deadline": None,
    "database": None,
    "suppress_health_check": list(HealthCheck),
    "print_blob": False,
}


def test_random_sequences():
    run_state_machine_as_test(
        Sequences,
        settings=settings(
            max_examples=6,
            stateful_step_count=12,
            derandomize=True,
            phases=[Phase.generate],
            **QUIET,
        ),
    )


@pytest.mark.soak
def test_random_sequences_for_an_hour():
    end = time.monotonic() + float(os.environ.get("SOAK_SECONDS", 3600))
    while time.monotonic() < end:
        run_state_machine_as_test(
            Sequences,
            settings=settings(
                max_examples=10, stateful_step_count=20, phases=[Phase.generate], **QUIET
            ),
        )
