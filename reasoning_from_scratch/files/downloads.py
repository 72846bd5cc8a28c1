"""What is published and where: models, GRPO checkpoints, the book's other files; data sets are in
data_sets.py."""

import filecmp
import json
import logging
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from huggingface_hub.utils import GatedRepoError, build_hf_headers

from reasoning_from_scratch.errors import UserError, unknown_name
from reasoning_from_scratch.files.data_sets import DATA_SETS, DataSet
from reasoning_from_scratch.files.disk import replacing
from reasoning_from_scratch.files.transfers import (
    Expected,
    check_size_and_hash,
    could_not_download,
    download_file,
    tell_of_another_source,
)

log = logging.getLogger("reasoning_from_scratch")

GITHUB, GITHUB_RAW = "https://github.com", "https://raw.githubusercontent.com"
HUB, HUB_MIRROR = "https://huggingface.co", "https://hf-mirror.com"  # the same paths on both
QWEN3_REPOSITORY = "rasbt/qwen3-from-scratch"
GRPO_REPOSITORY = "rasbt/qwen3-from-scratch-grpo-checkpoints"
GRPO_FOLDERS = {
    "no_kl": "grpo_original_no_kl",
    "tracking": "7_3_plus_tracking/checkpoints",
    "clip_ratio": "7_4_plus_clip_ratio/checkpoints",
    "kl": "7_5_plus_kl/checkpoints",
    "format_reward": "7_6_plus_format_reward/checkpoints",
}
NO_KL_STEPS = (50, 100, 500, 1000, 1500, 3000, 5000, 9000)
OTHER_STEPS = tuple(range(50, 501, 50))
GRPO_CHECKPOINTS = {  # kind -> steps that are published
    kind: NO_KL_STEPS if kind == "no_kl" else OTHER_STEPS for kind in GRPO_FOLDERS
}


DISTILL_REPOSITORY = "rasbt/qwen3-from-scratch-distill-checkpoints"
DISTILL_STEPS = {  # kind -> the steps that are published, after one, two and three epochs
    "deepseek_r1": (6682, 13364, 20046),
    "qwen3_235b_a22b": (5746, 11492, 17238),
}


def hub_endpoints() -> list[str]:
    """The hub and its mirror, or the only one that the reader wants."""
    named = os.environ.get("HF_ENDPOINT", "").rstrip("/")
    return [named] if named else [HUB, HUB_MIRROR]


def download_from_hub(
    repository: str, filename: str, out_dir: str | Path = ".", perhaps: Sequence[Path] = ()
) -> Path:
    """`out_dir/filename` from a model repository of the hub, or of its mirror.

    huggingface_hub knows the address, the token, its own cache, and the size and hash; the bytes
    come through download_file, because huggingface_hub starts from zero after an interruption.
    A file of `perhaps` that proves to be the same is copied: it need not come again.
    """
    path = Path(out_dir) / filename
    if path.exists():
        return path
    cached = try_to_load_from_cache(repository, filename)
    if isinstance(cached, str):
        return copy_whole(Path(cached), path)
    urls = [hf_hub_url(repository, filename, endpoint=end) for end in hub_endpoints()]
    failures: list[str] = []
    while urls:
        url, *urls = urls
        token = False if failures else None  # the reader's own, but not for a mirror
        try:
            expected = _told_by_hub(url, token)
        except GatedRepoError:
            raise UserError(
                f"{repository} is gated: accept its licence on its page, {HUB}/{repository}, and "
                "log in with `hf auth login`"
            ) from None
        except Exception as error:  # each generation of huggingface_hub has another HTTP library
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            failures.append(f"{url}: {reason}")
            continue
        for file in perhaps:
            if expected.sha256 and _is_file(file, expected):
                return copy_whole(file, path)
        download_file(url, path, *urls, expected=expected)
        tell_of_another_source(url, failures)
        return path
    raise could_not_download(path, failures)


def _told_by_hub(url: str, token: bool | None) -> Expected:
    known = get_hf_file_metadata(url, token=token)
    if not (known.etag and known.commit_hash):
        raise ValueError("what answers there is not the hub")
    is_hash = len(known.etag) == 64  # of large files; small ones have a git id of 40 digits
    headers = build_hf_headers(token=token)
    return Expected(known.size, known.etag if is_hash else None, headers=headers)


def _is_file(path: Path, expected: Expected) -> bool:
    with suppress(OSError, ValueError):
        check_size_and_hash(path, expected)
        return True
    return False


def copy_whole(source: Path, path: Path) -> Path:
    with replacing(path) as temporary:
        shutil.copyfile(source, temporary)
    return path


def download_qwen3_small(
    kind: str = "base", tokenizer_only: bool = False, out_dir: str | Path = "."
) -> None:
    """Qwen3-0.6B, `kind` "base" or "reasoning": tokenizer and, unless told otherwise, weights."""
    if kind not in ("base", "reasoning"):
        raise unknown_name("kind of Qwen3", kind, ("base", "reasoning"))
    download_from_hub(QWEN3_REPOSITORY, f"tokenizer-{kind}.json", out_dir)
    if not tokenizer_only:
        download_from_hub(QWEN3_REPOSITORY, f"qwen3-0.6B-{kind}.pth", out_dir)


def published_checkpoint(
    grpo_type: str = "no_kl", step: str | int = "00050", out_dir: str | Path = "."
) -> Path:
    """A published GRPO checkpoint of Qwen3-0.6B, under the folder name of its kind."""
    if grpo_type not in GRPO_FOLDERS:
        raise unknown_name("grpo_type", grpo_type, GRPO_FOLDERS)
    steps = GRPO_CHECKPOINTS[grpo_type]
    if not str(step).isdigit() or int(step) not in steps:
        known = ", ".join(map(str, steps))
        raise UserError(f"{grpo_type} has no checkpoint of step {step}; published are {known}")
    name = f"qwen3-0.6B-rlvr-grpo-step{int(step):05d}.pth"
    brought = (Path(out_dir) / name, Path(name))  # by the book's own function, of whichever kind
    return download_from_hub(GRPO_REPOSITORY, f"{GRPO_FOLDERS[grpo_type]}/{name}", out_dir, brought)


def download_qwen3_grpo_checkpoints(
    grpo_type: str = "no_kl", step: str | int = "00050", out_dir: str | Path = "."
) -> Path:
    """The same, and a copy in `out_dir` itself, where the book's cells read it.

    A copy and no link: readers train to files of this name, and code of theirs may write into it.
    """
    path = published_checkpoint(grpo_type, step, out_dir)
    kinds = [Path(out_dir) / folder / path.name for folder in GRPO_FOLDERS.values()]
    return _with_copy(path, Path(out_dir) / path.name, kinds)


def _with_copy(path: Path, books: Path, kinds: Sequence[Path]) -> Path:
    """`path`, after a copy to `books`; `kinds` are published files of that name, `path` too."""
    same = [other for other in kinds if _same(books, other)]
    if path not in same and (same or not books.exists()):  # a copy of another kind makes room
        copy_whole(path, books)
    elif path not in same:  # perhaps what the reader has trained
        log.warning("%s is another file and stays; the published checkpoint is %s", books, path)
    return path


def download_qwen3_distill_checkpoints(
    distill_type: str = "deepseek_r1", step: str | int = "06682", out_dir: str | Path = "."
) -> Path:
    """A published Qwen3-0.6B that learned from the answers of a larger model (chapter 8 of the
    book): in the folder of its kind, and a copy in `out_dir` itself."""
    steps = DISTILL_STEPS.get(distill_type, ())
    if not str(step).isdigit() or int(step) not in steps:
        known = "; ".join(f"{kind} {numbers}" for kind, numbers in DISTILL_STEPS.items())
        raise ValueError(f"there is no {distill_type} of step {step}; published are {known}")
    name = f"qwen3-0.6B-distill-step{int(step):05d}-epoch{steps.index(int(step)) + 1}.pth"
    books = Path(out_dir) / name
    filename = f"ch08_distill_{distill_type}/checkpoints/{name}"
    path = download_from_hub(DISTILL_REPOSITORY, filename, out_dir, [books])
    return _with_copy(path, books, [path])


def _same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and filecmp.cmp(one, other, shallow=False)


def download_from_github(rel_path: str, out: str | Path | None = None) -> Path:
    """A file of the book's repository, by its path there; `out` defaults to its name, here."""
    return download_file(books_url(rel_path), out or Path(rel_path).name)


def books_url(rel_path: str) -> str:
    return f"{GITHUB_RAW}/rasbt/reasoning-from-scratch/refs/heads/main/{rel_path}"


def download_data(name: str, path: str | Path | None = None) -> Path:
    """The data set `name` at `path` (default: its file name, here), as one JSON list or as JSONL
    according to the suffix of its own name."""
    if name not in DATA_SETS:
        raise unknown_name("data set", name, DATA_SETS)
    data, urls = DATA_SETS[name], data_urls(name)
    expected = Expected(sha256=data.sha256, finish=partial(_finish_rows, data))
    return download_file(urls[0], path or data.filename, *urls[1:], expected=expected)


def data_urls(name: str) -> list[str]:
    """Where a data set is, the first place first."""
    return [url for source in DATA_SETS[name].paths for url in _urls_of(source)]


def _urls_of(source: str) -> list[str]:
    if source.startswith("hub:"):
        return [f"{end}/{source.removeprefix('hub:')}" for end in hub_endpoints()]
    if source.startswith("github:"):
        return [f"{GITHUB}/{source.removeprefix('github:')}"]
    return [f"{GITHUB_RAW}/{source}"]


def _finish_rows(data: DataSet, part: Path) -> None:
    """All rows with all fields, or ValueError. A JSONL mirror of a JSON file becomes JSON."""
    text = part.read_text(encoding="utf-8")
    is_list = text.lstrip().startswith("[")
    try:
        lines = [text] if is_list else filter(str.strip, text.split("\n"))
        parsed = [json.loads(line) for line in lines]
    except RecursionError:
        raise ValueError("not a data set: JSON that is too deep") from None
    rows = parsed[0] if is_list else parsed
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError("not a data set: expected objects with fields")
    if len(rows) != data.rows:
        raise ValueError(f"expected {data.rows} problems, found {len(rows)}")
    missing = {name for row in rows for name in data.fields if name not in row}
    if missing:
        raise ValueError(f"rows without {', '.join(sorted(missing))}")
    if data.filename.endswith(".json") and not is_list:
        rows = list(map(data.reword, rows)) if data.reword else rows
        part.write_text(json.dumps(rows, indent=2, ensure_ascii=False), encoding="utf-8")
