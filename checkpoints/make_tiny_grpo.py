"""Make checkpoints/tiny-grpo, or tiny-grpo-longer: the quickstart's run with seed 0, its weights
and its run folder.

    uv run python checkpoints/make_tiny_grpo.py [--longer] [--from-run RUN]

It keeps a few of the pages that the run writes, and only the last save.
"""

import argparse
import json
import re
import shutil
import sys
from pathlib import Path

from reasoning_from_scratch.files.disk import write_atomically
from reasoning_from_scratch.text import json_lines, read_lines
from rfs.commands.cli import guarded, with_home
from rfs.commands.plot import plot_runs
from rfs.commands.quickstart import QuickstartOptions, quickstart
from rfs.report import write_run_report
from rfs.report.iteration import page_and_name
from rfs.report.picture_files import save_picture
from rfs.report.run_files import read_run
from rfs.report.ways import train_answers, ways_over_time
from rfs.report.ways_picture import draw_all_ways

# --longer or not -> (target folder, steps between the pages that are kept)
TARGETS = {
    False: (Path("checkpoints/tiny-grpo"), 10),
    True: (Path("checkpoints/tiny-grpo-longer"), 50),
}
ONCE = (
    "config.json",
    "metrics.jsonl",
    "metrics.csv",
    "logs.log",
    "code.diff",
    "probes.jsonl",
    "timing_spans.jsonl",
)
STEP_FILE = re.compile(r"(train|eval_.+)_iteration_(\d{6})(\.html|_rollout_summaries\.jsonl)")
BESIDE = re.compile(r'(<p class="crumbs"><a data-flat href="report\.html">[^<]*</a>).*?</p>')


def ship(run: Path, target: Path, kept_every: int) -> None:
    last = read_lines(run / "checkpoints.jsonl")[-1]
    weights = run / "checkpoints" / f"{last['batch']:06d}"
    (target / "run").mkdir(parents=True, exist_ok=True)
    for name in (
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ):
        shutil.copyfile(weights / name, target / name)
    for old in (target / "run").iterdir():
        old.unlink()
    for name in ONCE:
        shutil.copyfile(run / name, target / "run" / name)
    for path in run.iterdir():
        found = STEP_FILE.fullmatch(path.name)
        if found and (int(found[2]) % kept_every == 0):
            shutil.copyfile(path, target / "run" / path.name)
    link_kept_pages(target / "run")
    line = {"name": "final", "batch": last["batch"], "final": True, "sampler_path": str(target)}
    write_atomically(target / "run" / "checkpoints.jsonl", json_lines([line]))
    plot_runs([run], target / "curves.png")
    save_picture(draw_all_ways(ways_over_time(train_answers(read_run(run)))), target / "ways.png")
    write_run_report(target / "run")


def link_kept_pages(folder: Path) -> None:
    """Lets each page lead to the ones before and after it that were kept too, as most were not."""
    pages = sorted(folder.glob("*_iteration_*.html"))
    splits = {
        path: path.name.partition("_iteration_")[0].replace("eval_", "eval/") for path in pages
    }
    for split in set(splits.values()):
        kept = [path for path in pages if splits[path] == split]
        steps = [None, *(int(path.stem[-6:]) for path in kept), None]
        for path, before, after in zip(kept, steps, steps[2:], strict=False):
            back = "" if before is None else link(split, before, "\N{LEFTWARDS ARROW} {}")
            onward = "" if after is None else link(split, after, "{} \N{RIGHTWARDS ARROW}")
            text = BESIDE.sub(rf"\1{back}{onward}</p>", path.read_text("utf-8"))
            write_atomically(path, text)


def link(split: str, step: int, words: str) -> str:
    page, name = page_and_name(split, step)
    return f' · <a data-flat href="{page}">{words.format(name)}</a>'


def main() -> int:
    parser = argparse.ArgumentParser(description="Make a shipped model from the quickstart's run.")
    parser.add_argument("--longer", action="store_true", help="make tiny-grpo-longer (second run)")
    parser.add_argument("--from-run", type=Path, help="a finished quickstart run to use")
    options = parser.parse_args(with_home(sys.argv[1:]))
    target, kept_every = TARGETS[options.longer]
    run = options.from_run
    if run is None:
        run = Path("runs") / target.name
        if code := quickstart(QuickstartOptions(longer=options.longer, log_path=str(run))):
            return code  # it was interrupted, and only a whole run is shipped
    missing = [name for name in ("checkpoints.jsonl", *ONCE) if not (run / name).is_file()]
    if missing:  # now, while the shipped files are still there
        parser.error(f"{run} is no finished run of the quickstart: it has no {missing[0]}")
    ship(run, target, kept_every)
    config = json.loads((target / "run" / "config.json").read_text())
    print(f"{target}: {config['steps']} steps with seed {config['seed']}")
    return 0


if __name__ == "__main__":
    sys.exit(guarded("make_tiny_grpo.py", main))
