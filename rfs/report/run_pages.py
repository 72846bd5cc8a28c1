"""What people read about a run while it is going on: a page for each step, and report.html."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reasoning_from_scratch.policy import LocalPolicy
from reasoning_from_scratch.problems import Problem
from reasoning_from_scratch.rollouts import Group, Judge
from reasoning_from_scratch.text import counted
from rfs.config import RunConfig
from rfs.report.clock import Clock
from rfs.report.health import failure_reports
from rfs.report.iteration import step_label, write_iteration
from rfs.report.probes import record_probes
from rfs.report.run_report import write_run_report

PROBE_PROBLEMS = 4  # problems whose answers are followed through the whole run
SMOKE_PROBES = 1
PAGE_REST = 20  # report.html rests for this many times as long as it took to write

log = logging.getLogger("reasoning_from_scratch")


@dataclass
class Pages:
    """One rank writes, but all ranks call: answering the probe problems needs all the weights."""

    config: RunConfig
    policy: LocalPolicy
    folder: Path
    writes: bool  # only one of several ranks does
    clock: Clock
    judge: Judge
    probe_problems: Sequence[Problem]  # whose answers report.html follows
    first_step: int
    known_failures: set[str] = field(default_factory=set)  # of the judge, already reported
    last_write: float = 0.0  # when report.html was last written, by time.monotonic()
    write_seconds: float = 0.0  # how long that took

    def write_rollouts(self, split: str, step: int, groups: Sequence[Group]) -> None:
        """Writes all rollouts of a step, for people and machines, before any group is dropped."""
        if not self.writes:
            return
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        for failure_report in failure_reports(rollouts, self.known_failures):
            log.warning("%s, %s: %s", split, step_label(split, step), failure_report)
        with self.clock("report"):
            write_iteration(
                self.folder,
                split,
                step,
                groups,
                self.policy.tokenizer,
                num_groups_to_log=self.config.num_groups_to_log,
                in_folders=self.config.iteration_folders,
            )

    def report_if_due(self, step: int) -> None:
        """If it is time: answers the probe problems, then writes report.html from the files."""
        every = self.config.report_every
        is_first_or_last = step in (self.first_step, self.config.steps)
        if is_first_or_last or (every and step % every == 0):
            self.report_step(step, is_first=step == self.first_step)

    def report_step(self, step: int, is_first: bool = False) -> None:
        with self.clock("report"), self.policy.full_model() as model:
            if not self.writes:
                return
            count = SMOKE_PROBES if self.config.smoke else PROBE_PROBLEMS
            problems = self.probe_problems[:count]
            if is_first:
                log.info("answering %s that the report follows", counted(len(problems), "problem"))
            record_probes(
                self.folder,
                step,
                model,
                self.policy.tokenizer,
                problems,
                self.config.max_new_tokens,
                self.judge,
                self.config,
            )
            if not is_first:
                self.write_report(is_last=step == self.config.steps)

    def write_report(self, is_last: bool) -> None:
        """Makes report.html from all files so far; the longer that takes, the less often."""
        start = time.monotonic()
        if is_last or start - self.last_write > PAGE_REST * self.write_seconds:
            write_run_report(self.folder)
            self.last_write = time.monotonic()
            self.write_seconds = self.last_write - start
