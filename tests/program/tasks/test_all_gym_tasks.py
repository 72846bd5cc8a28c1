"""Each task of reasoning-gym makes the same problems in every process, or is refused."""

import os
import subprocess
import sys

from rfs.tasks.gym_tasks import NOT_REPRODUCIBLE, REFUSED_TASKS


def test_problems_do_not_depend_on_the_process():
    """Of the tasks that are refused for that, this is so; of all others it is not."""
    code = """
import contextlib, io, sys, zlib
from rfs.tasks.gym_tasks import dataset_of, refusal_reason, task_table, NOT_REPRODUCIBLE
with contextlib.redirect_stdout(io.StringIO()):
    for name in sorted(task_table()):
        if refusal_reason(name) in ("", NOT_REPRODUCIBLE) and name not in SLOW:
            some = [dataset_of(name, "{}", "train")[index] for index in range(4)]
            text = repr([(one["question"], one["answer"]) for one in some])
            print(name, zlib.crc32(text.encode()), file=sys.stderr)
"""
    slow = {"acre", "sokoban", "futoshiki", "composite"}  # seconds, seen by hand; made of others
    runs = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", f"SLOW = {slow}\n{code}"],
            env=os.environ | {"PYTHONHASHSEED": seed},
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    one, two = (dict(line.split() for line in run.communicate()[1].splitlines()) for run in runs)
    assert len(one) > 80 and one.keys() == two.keys()
    changed = {name for name in one if one[name] != two[name]}
    assert changed == {name for name, why in REFUSED_TASKS.items() if why == NOT_REPRODUCIBLE}
