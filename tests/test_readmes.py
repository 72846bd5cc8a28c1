"""Every command that a README shows works: run with small sizes, in the order of the page."""

import functools
import io
import re
import runpy
import shlex
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from rfs.commands import cli, quickstart
from rfs.run.options import resolved
from rfs.tasks.problem_sets import load_problems

ROOT = Path(__file__).resolve().parents[1]
READMES = (
    "README.md",
    "ch06/README.md",
    "ch07/README.md",
    "ch08/README.md",
    "checkpoints/README.md",
    "CONTRIBUTING.md",
    "docs/gpu.md",
    "docs/gsm8k.md",
    "docs/metrics.md",
    "docs/real_tasks.md",
    "docs/scaling.md",
    "docs/troubleshooting.md",
    "docs/your_own.md",
)
LANGUAGES = {"bash", "text", "python"}  # of fenced blocks; other ones could hide a command

TRAIN = "--steps 1 --problems-per-step 2 --rollouts 2 --max-new-tokens 8 --eval-limit 2 "
TRAIN += "--num-groups-to-log 1 --no-preflight --device cpu"
IN_PROCESSES = "--steps 1 --seeds 1 --problems-per-step 2 --rollouts 2 --max-new-tokens 8 "
IN_PROCESSES += "--eval-limit 2 --eval-every 1"
COMPARE = f"{IN_PROCESSES} --jobs 1"  # each process imports torch

# What is added to a command so that it takes a second or two.
SMALL = {
    "rfs --help": "",
    "rfs quickstart": "",  # has no sizes; see place
    "rfs train": TRAIN,
    "rfs train --resume": "--steps 2",
    "rfs train --recipe sft": TRAIN.replace("--rollouts 2 --max-new-tokens 8 ", ""),
    "rfs train --help": "",
    "rfs recipes": "",
    "rfs playground": "",
    "rfs compare": COMPARE,
    # A recipe of one's own is looked up again in each process.
    "rfs compare --recipes grpo ch07/my_recipe.py:recipe": IN_PROCESSES,
    "rfs plot": "",
    "rfs report": "",
    "rfs evaluate": "--limit 2 --max-new-tokens 8",
    # The chapter's own picture stays as it is.
    "rfs evaluate --model tiny-base tiny-grpo": "--limit 2 --max-new-tokens 8 --figure a.png",
    "rfs chat": "",  # nobody speaks to it, so it ends
    "rfs preflight": "--num-problems 8 --rollouts 8",  # fewer cannot tell, and it says so: code 1
    "rfs doctor": "--no-network",
    "checkpoints/model_report.py": "--limit 2 --samples 1",
    "ch06/train_grpo.py": TRAIN,
    "ch06/plot_metrics.py": "",
    "ch06/evaluate_math500.py": "--dataset_size 2 --max_new_tokens 8 --device cpu",
    "ch06/inference_scaling.py": "--dataset_size 2 --max_new_tokens 8 "
    "--max_critique_tokens 4 --device cpu",
    "ch06/inference_scaling.py --method rescore": "",
    "ch07/train_recipe.py": TRAIN,
    "ch07/train_recipe.py --list": "",
    "ch07/compare_recipes.py": COMPARE,
    "studies/regimes.py --list": "",
    "studies/regimes.py --table": "",
    "ch07/use_checkpoint.py --list": "",
    "ch07/rl_loop.py": "--steps 1 --groups_per_batch 2 --group_size 2 --max_tokens 8 "
    "--test_limit 2",
    "ch07/rl_client.py": "--steps 1 --groups_per_batch 2 --group_size 2 --max_tokens 8 "
    "--test_limit 2",
    "ch07/rl_basic.py": "--steps 1 --groups_per_batch 2 --group_size 2 --max_tokens 8",
    "ch07/chat_rl.py": "--problem_limit 2 --examples_per_step 2 --num_samples 2 "
    "--max_new_tokens 8 --eval_examples 2 --device_batch_size 2",
}

# Only their flags are checked: they download, or take hours, or never end.
FLAGS_ONLY = re.compile(
    r"--(model|which_model) (base|reasoning|smollm2|Qwen/\S+)\b|\.pth\b"
    r"|use_checkpoint\.py(?! --list)"
    # Small ones are in tests/book/test_experiments.py, test_reasoning_stages.py, tests/checkpoints.
    r"|studies/(real_model|binary_search|long_runs|asking|second_try|experiment)\.py"
    r"|checkpoints/(player|blurred)\.py"
    r"|(math-500|math-train|gsm8k\S*)\b|checkpoints/pretrain\.py"
    r"|studies/regimes\.py --regime"  # tests/book/test_regime_runs.py has small ones
    r"|\bpublished/"  # fetched by each reader: tests/program/commands/test_plot.py draws such
    r"|--sampler ray\b"  # tests/program/scale/test_ray_rollouts.py
)
CPU_TORCH = "cp docs/uv-linux-cpu.toml uv.toml"  # PyTorch for Linux without CUDA
NOT_RUN = {
    "python3 -m venv .uv": "no test installs",
    "export 'PATH=$PWD/.uv/bin:$PATH'": "likewise",
    "pip install uv": "likewise",
    "git clone ADDRESS rlvr": "likewise",
    "cd rlvr": "likewise",
    "rfs book": "half a minute; tests/program/commands/test_book.py",
    "rfs serve --model tiny": "until Ctrl-C; tests/program/serve/test_command.py starts it",
    "pytest": "this is it",
    "pytest --everything": "likewise",
    "pytest -m core": "likewise",
    "pytest -m soak": "likewise, for hours",
    "pytest tests/test_losses.py": "likewise",
    "ruff check .": "a check of its own",
    "ruff format .": "likewise",
    "mypy": "likewise",
    "ray start --head --port 6379": "a cluster of several machines",
    "ray start --address 10.0.0.1:6379": "likewise",
    "--with transformers --with trl benchmarks/gpu_gate.py": "in tests/book/test_gpu_gate.py",
    "studies/experiment_page.py": "it draws over a picture; tests/studies/test_experiment_page.py",
    "rfs chat --model ch08/adapter --template ch08/question.txt": "it needs SmolLM2; a small one is"
    " in tests/files/test_adapters.py",
}


# What stands before a command of the package or of its tests, with the packages that it asks for.
UV_RUN = re.compile(r"^uv run (--(group|extra) \w+ )*")


def readme_commands(text):
    """The commands of bash blocks, and those in a sentence, without `uv run`."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, flags=re.M | re.S)
    assert {language for language, _ in blocks} <= LANGUAGES
    for found in re.finditer(r"^```bash\n(.*?)^```|`(uv run [^`]+)`", text, flags=re.M | re.S):
        whole = (found.group(1) or found.group(2)).replace("\\\n", " ")
        for line in whole.splitlines():
            line = shlex.join(shlex.split(line, comments=True)).replace(" '&&' ", "\n")
            yield from (UV_RUN.sub("", command) for command in line.splitlines())


def small_flags(command):
    """The entry of the table that fits best."""
    fitting = [start for start in SMALL if f"{command} ".startswith(f"{start} ")]
    if not fitting:
        pytest.fail(f"{command!r} has no entry in SMALL, FLAGS_ONLY or NOT_RUN")
    return SMALL[max(fitting, key=len)].split()


def run_here(command):
    """The exit code, without a new Python and another minute of imports."""
    program, *args = shlex.split(command)
    try:
        if program == "rfs":
            return cli.main(args)
        sys.argv = [program, *args]
        runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        return end.code
    finally:
        plt.close("all")


run_once = functools.cache(run_here)  # for what depends on the machine alone and leaves nothing


def only_parsed(function):
    """The same signature, and nothing behind it. The class that a command's options are read into,
    and that checks them, stays as it is."""
    if isinstance(function, type):
        return function
    return functools.wraps(function)(lambda *_, **__: None)


def parse_here(command):
    """The exit code of a command that goes no further than its flags."""
    load_function, run_script = cli.load_function, cli.run_script
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "load_function", lambda target: only_parsed(load_function(target)))
        patch.setattr(
            cli, "run_script", lambda function, **looks: run_script(only_parsed(function), **looks)
        )
        # What is not on this machine, or not known without the network.
        patch.setattr("rfs.commands.train_options.check_names", lambda config: None)
        patch.setattr("rfs.run.options.held_out", lambda name: f"{name}@held-out")
        patch.setattr("rfs.run.start.train", only_resolved)  # of scripts
        return run_here(command)


def only_resolved(config, **_):
    resolved(config)
    raise SystemExit(0)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with all that a clone has, in which runs may be left behind."""
    for path in ROOT.iterdir():
        if path.name != "runs" and not path.name.startswith("."):
            (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(sys, "argv", sys.argv)
    sizes = {"steps": 1, "problems_per_step": 2, "rollouts": 2, "max_new_tokens": 8}
    monkeypatch.setattr(quickstart, "SETTINGS", quickstart.SETTINGS | sizes | {"eval_limit": 2})
    monkeypatch.setattr(quickstart, "LONGER", quickstart.LONGER | sizes)
    monkeypatch.setattr(quickstart, "load_problems", functools.partial(load_problems, limit=2))
    return tmp_path


def works(command, place):
    """The exit code of one command of a README, or 0 where there is nothing to run."""
    if "FOLDER" in command:
        run = min(place.glob("runs/*/checkpoints.jsonl")).parent
        command = command.replace("FOLDER", str(run.relative_to(place)))
    # Ranks are for tests/program/scale/test_ranks.py; here each rank's own command is looked at.
    command = re.sub(r"^torchrun .*-m rfs ", "rfs ", command)
    command = re.sub(r"(checkpoints/|@)\d{6}\b", r"\g<1>000001", command)  # SMALL has one step
    if command in NOT_RUN:
        return 0
    if command.startswith("jupyter lab "):
        return int(not (ROOT / command.split()[-1]).is_file())
    if FLAGS_ONLY.search(command):
        return parse_here(command)
    # It compiles decode.c and tries it out in a process of its own, each time.
    run = run_once if command.startswith("rfs doctor") else run_here
    return run(shlex.join([*shlex.split(command), *small_flags(command)]))


@pytest.mark.parametrize("readme", READMES)
def test_every_command_works(readme, place):
    commands = list(readme_commands((ROOT / readme).read_text(encoding="utf-8")))
    assert commands
    for command in commands:
        assert works(command, place) == 0, command


def test_the_first_lines_are_the_same_everywhere():
    """The choice of PyTorch for the CPU comes before anything that fetches PyTorch; the line that
    needs nothing but Python is the one that continuous integration starts with."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    line = 'python3 -m venv .uv && export PATH="$PWD/.uv/bin:$PATH" && pip install uv'
    assert readme.index(CPU_TORCH) < readme.index(f"{line} && uv run rfs quickstart\n")
    assert f"{line} && uv run --group test pytest\n" in readme
    assert f"\n{line}\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    settings = (ROOT / "docs" / "uv-linux-cpu.toml").read_text(encoding="utf-8")
    address = re.search(r'^find-links = \["(.*)"\]$', settings, flags=re.M)[1]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert settings.splitlines()[-1] in project  # uv reads nothing else of [tool.uv] then
    for place in (".github/workflows/tests.yml", ".github/workflows/pages.yml", ".devcontainer"):
        files = [ROOT / place] if place.endswith("yml") else (ROOT / place).iterdir()
        assert all(address in file.read_text(encoding="utf-8") for file in files), place


def test_nobody_is_sent_to_the_package_of_the_books_author():
    """`reasoning-from-scratch` on the Python package index is another project."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("*/README.md")]
    packages = ("reasoning_from_scratch", "rfs", "answer_grader")
    sources = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    sources += ROOT.glob("ch0*/*.*")
    texts = {path: path.read_text(encoding="utf-8", errors="replace") for path in pages + sources}
    asks = re.compile(r"\binstall [^\n]*reasoning-from-scratch")
    assert [path.name for path, text in texts.items() if asks.search(text)] == []
