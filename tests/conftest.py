"""Fixtures that several test files share."""

import errno
import logging
import os
import stat
from pathlib import Path

import pytest
from markupsafe import Markup
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

try:
    import fcntl
except ImportError:  # on Windows, which refuses by itself
    fcntl = None

# The special tokens that Qwen3's tokenizer.json marks so, in its order; the last two are
# "added" there but not "special", which is why Qwen3 shows them in its output.
QWEN3_SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
QWEN3_ADDED_TOKENS = ["<think>", "</think>"]

# Qwen3 splits text in this way before merging bytes: digits one by one.
QWEN3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def build_tokenizer(vocab_size: int = 320) -> Tokenizer:
    """A small byte-level BPE of the same make as Qwen3's: NFC, the same split, single digits."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    split = pre_tokenizers.Split(pattern=Regex(QWEN3_SPLIT), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    corpus = ["Question:\nWhat is 12 + 30?\n\nAnswer:", "The answer is \\boxed{42}."] * 8
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in QWEN3_SPECIAL_TOKENS])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in QWEN3_ADDED_TOKENS])
    return tokenizer


ROOT = Path(__file__).parents[1]

# The files that take longest, the longest first. Workers take files in this order, so that none is
# left alone with a long one at the end. What is not named takes less than 30 seconds and comes
# after these, in the order of the folders; test_structure.py checks the names. The last three are
# the longest of `pytest -m core`.
SLOWEST_FIRST = """
    ch07/ch07_museum.ipynb
    ch06/ch06_main.ipynb
    tests/program/scale/test_ray_rollouts.py
    ch06/ch06_solutions.ipynb
    tests/program/commands/test_book.py
    ch07/ch07_main.ipynb
    ch07/ch07_turns.ipynb
    ch08/ch08_main.ipynb
    ch06/ch06_short.ipynb
    ch07/ch07_laboratory.ipynb
    tests/program/commands/test_playground.py
    tests/test_combinations.py
    tests/program/scale/test_ranks.py
    tests/book/test_reasoning_stages.py
    tests/studies/test_gsm8k.py
    tests/book/test_gpu_gate.py
    tests/fast/test_arm.py
    tests/fast/test_decode_library.py
    tests/program/run/test_study.py
    tests/program/run/test_memory.py
    ch07/ch07_solutions.ipynb
    tests/program/serve/test_command.py
    tests/program/serve/test_tinker.py
    tests/program/serve/test_manners.py
    tests/faults/test_disk.py
    tests/faults/test_kill.py
    tests/faults/test_corruption.py
    tests/files/test_weights.py
    tests/program/scale/test_lag.py
    tests/test_readmes.py
    tests/program/run/test_option_checks.py
    tests/book/test_experiments.py
    tests/fast/test_compiled.py
    tests/fast/test_gpu.py
    tests/program/commands/test_train.py
    tests/book/test_sources.py
    tests/faults/test_numbers.py
    tests/program/scale/test_ray_start.py
    tests/test_way_of_a_step.py
    tests/test_sampling.py
    tests/test_trainer.py
""".split()

# What is slow and rarely breaks runs in continuous integration, with `pytest --everything`, and
# when its path is given: killed runs, broken files, Ctrl-C, parallel jobs, Ray, several ranks, a
# browser, compilers, a model of full size, the large combinations, every command of every README,
# all tasks of reasoning-gym, exercises, and the notebooks but for chapter 6's short one. Folders,
# files, tests, and cells by their ids.
RARELY_BROKEN = """
    tests/faults
    tests/program/scale/test_ray_rollouts.py
    tests/program/scale/test_ray_start.py
    tests/program/scale/test_ranks.py
    tests/program/commands/test_book.py
    tests/program/commands/test_playground.py
    tests/fast/test_arm.py
    tests/fast/test_decode_library.py
    tests/fast/test_gpu.py
    tests/program/tasks/test_all_gym_tasks.py
    tests/files/test_full_size.py
    tests/program/run/test_study.py
    tests/program/run/test_memory.py
    tests/test_combinations.py
    tests/test_readmes.py
    tests/test_way_of_a_step.py
    tests/book/test_exercises.py
    tests/book/test_explore.py
    tests/book/test_reasoning_stages.py
    tests/book/test_sources.py::test_what_is_said_to_work_does
    tests/studies/test_gsm8k.py
    tests/book/test_gpu_gate.py::test_what_fails_hangs_or_dies_leaves_its_rows_and_the_next_part_runs
    tests/program/commands/test_compare.py::test_a_comparison_in_two_processes
    tests/program/commands/test_train.py::test_no_warning_from_start_to_report
    ch06/ch06_main.ipynb
    ch06/ch06_solutions.ipynb
    ch07/ch07_main.ipynb
    ch07/ch07_museum.ipynb
    ch07/ch07_laboratory.ipynb
    ch07/ch07_turns.ipynb
    ch07/ch07_solutions.ipynb
    ch08/ch08_main.ipynb
    ch08/ch08_solutions.ipynb
""".split()

# `pytest -m core`: the loop, its losses and a small training run, in less than a minute. They are
# the test files at the top of tests/, which has the loop's modules at the top as the package has.
SLOW = ("test_combinations.py", "test_readmes.py")


def name_of(item) -> str:
    """Path and name; of a cell its id, for its number changes when a cell is put before it."""
    cell = getattr(item, "cell", None)
    return f"{item.path.relative_to(ROOT).as_posix()}::{cell['id']}" if cell else item.nodeid


def pytest_collection_modifyitems(config, items):
    # The long forms run only when they are asked for: pytest -m soak.
    left_out = set()
    if not config.option.markexpr:
        left_out |= {item for item in items if item.get_closest_marker("soak")}
    if not config.option.markexpr and not config.option.everything:
        left_out |= {item for item in items if name_of(item).startswith(tuple(RARELY_BROKEN))}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    places = {ROOT / name: place for place, name in enumerate(SLOWEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))  # keeps the order of a file
    top = Path(__file__).parent
    for item in items:
        if item.path.parent == top and item.path.name not in SLOW:
            item.add_marker("core")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Some tests log halves of surrogate pairs. What workers send each other must be UTF-8."""
    report = yield
    report.sections = [
        (title, text.encode("utf-8", "backslashreplace").decode())
        for title, text in report.sections
    ]
    return report


# A page's nine charts take longer to draw than the toy model to train, and every run writes a page.
# Here they are drawn; elsewhere no test looks at them, and a page has all but the curves in it.
# (What runs in another process draws them everywhere, and the lines of the charts are made.)
DRAWN = (
    "tests/program/report/",
    "tests/program/commands/",
    "tests/faults/test_hostile",
    "tests/faults/test_num",
)


@pytest.fixture(scope="session", autouse=True)
def charts_are_drawn_where_they_are_seen():
    from rfs.report import curves

    chart_svg = curves.chart_svg

    def drawn_if_seen(*given):
        seen = os.environ.get("PYTEST_CURRENT_TEST", "").startswith(DRAWN)
        return chart_svg(*given) if seen else Markup("<svg></svg>")

    curves.chart_svg = drawn_if_seen
    yield
    curves.chart_svg = chart_svg


# What a power cut leaves is not tested, so a test need not wait for the disk, which takes longer
# than a step of the toy model. Here it waits; so does whatever runs in another process.
DURABLE = "tests/faults/"


def refuse_read_only(file: int) -> None:
    """As Windows does, whose fsync needs a file that is open for writing. Folders are opened for
    reading, where the system has such a call."""
    if fcntl is None or stat.S_ISDIR(os.fstat(file).st_mode):
        return
    if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, "fsync of a file that is open for reading only")


@pytest.fixture(scope="session", autouse=True)
def nobody_waits_for_the_disk():
    fsync = os.fsync

    def synced(file):
        if os.environ.get("PYTEST_CURRENT_TEST", "").startswith(DURABLE):
            fsync(file)
        else:
            os.fstat(file)  # as fsync does, it refuses what is not open
            refuse_read_only(file)

    os.fsync = synced
    yield
    os.fsync = fsync


@pytest.fixture(autouse=True)
def log_is_heard():
    """A run that shows its log on the console takes it away from pytest's caplog."""
    yield
    logging.getLogger("reasoning_from_scratch").propagate = True


@pytest.fixture(scope="session")
def tiny_tokenizer_file(tmp_path_factory) -> Path:
    """A tokenizer.json of a few hundred entries with Qwen3's special tokens."""
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    build_tokenizer().save(str(path))
    return path
