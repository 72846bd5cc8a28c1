"""The last lines of `rfs train --smoke`: what was seen to work, and what a full run takes."""

import shlex
from statistics import fmean

from reasoning_from_scratch.text import counted
from rfs.config import RunConfig, replaced
from rfs.evaluation.group_signal import Outlook
from rfs.run.options import resolved
from rfs.run.will_it_work import run_time_text


def smoke_summary(
    config: RunConfig, folder: str, rows: list[dict], outlook: Outlook | None = None
) -> str:
    """`config`: the command's configuration, before --smoke reduced its sizes; `rows`: the lines of
    its metrics; `outlook`: of the preflight before the first step."""
    answers = sum(row["env/all/total_episodes"] for row in rows)
    tokens = sum(row["env/all/total_ac_tokens"] for row in rows)
    correct = sum(row["env/all/correct"] * row["env/all/total_episodes"] for row in rows)
    speed = tokens / max(sum(row["time/sampling"] for row in rows), 1e-9)
    action = "sampled"
    amount = f"{counted(answers, 'answer')} at {speed:,.0f} tokens/s; {correct:.0f} correct"
    if config.is_supervised:
        action, amount = "learned", f"{counted(answers, 'worked solution')} of {tokens:,} tokens"
    facts = {
        "outlook": outlook.verdict if outlook else "",
        action: amount,
        "gradient": gradient_text(rows),
        "saved": f"rfs train --resume {shlex.quote(str(folder))} --steps N continues from here",
        "full run": full_run_text(config, rows),
    }
    lines = [f"  {name:<10}{text}" for name, text in facts.items() if text]
    return "\n".join([f"\nChecked in {counted(len(rows), 'small step')}:", *lines])


def gradient_text(rows: list[dict]) -> str:
    if failed := sum(row["optim/nonfinite"] for row in rows):
        return (
            f"not finite in {counted(failed, 'update')}, which were skipped: try --dtype float32 "
            "or --device cpu"
        )
    norms = [row["optim/grad_norm"] for row in rows if row["optim/updates"]]
    if not norms:
        return (
            "not tested: no group had both better and worse answers. With so few answers that may "
            "be chance; rfs preflight samples more"
        )
    moved = max(row["optim/update_ratio"] for row in rows if row["optim/updates"])
    updates = counted(sum(row["optim/updates"] for row in rows), "update")
    return (
        f"finite, norm {fmean(norms):.2g}; {updates} moved the weights by {moved:.1g} of their size"
    )


def full_run_text(config: RunConfig, rows: list[dict]) -> str:
    """An estimate from the last step: the first one also waits for compiling and reading that
    happen only once."""
    full, small = resolved(replaced(config, smoke=False)), resolved(config)
    seconds = sum(rows[-1].get(f"time/{stage}") or 0.0 for stage in ("sampling", "reward", "train"))
    larger, longer = full.problems_per_step / small.problems_per_step, 1.0
    if not full.is_supervised:
        larger *= full.rollouts / small.rollouts
        longer = full.max_new_tokens / small.max_new_tokens
    return f"without --smoke, {run_time_text(full, seconds * larger * longer, at_most=longer > 1)}"
