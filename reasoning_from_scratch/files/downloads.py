"""What is published where, and how it is downloaded: completely, or not at all.

Models come through huggingface_hub, which keeps its own cache and knows the user's token,
HF_ENDPOINT and HF_HUB_OFFLINE; a file at a plain URL comes through download_file. data_sets.py says
where data sets are.
"""

import filecmp
import inspect
import json
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import requests
from huggingface_hub import hf_hub_download, try_to_load_from_cache
from huggingface_hub.utils import GatedRepoError, RepositoryNotFoundError

from reasoning_from_scratch.errors import UserError, unknown_name
from reasoning_from_scratch.files.data_sets import DATA_SETS, GITHUB_RAW, DataSet
from reasoning_from_scratch.files.disk import disk_errors_as, replacing

log = logging.getLogger("reasoning_from_scratch")

TIMEOUT = (10, 30)  # seconds to connect; seconds without a byte
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


# --- from a plain URL ---


def download_file(
    url: str,
    path: str | Path,
    backup_url: str | None = None,
    finish: Callable[[Path], None] | None = None,
) -> Path:
    """Download `url`, or else `backup_url`, as `path`. A file that is already there stays.

    The file gets its name once it is complete and `finish` has accepted it. `finish` may rewrite
    the file, and raises ValueError if it is invalid.
    """
    path, failures = Path(path), []
    if path.exists():
        return path
    for address in [url, backup_url] if backup_url else [url]:
        try:
            with disk_errors_as(f"cannot write {path}", "choose another place or make room"):
                with replacing(path) as temporary:
                    _fetch(address, temporary)
                    if finish:
                        finish(temporary)
        except ValueError as error:
            failures.append(f"{address}: {error}")
            continue
        if failures:
            log.warning("took %s instead (%s)", address, failures[0])
        return path
    raise UserError(
        f"could not download {path.name} ({'; '.join(failures)}). "
        f"Fetch it in another way, for example in a browser, and put it at {path.resolve()}"
    )


def _fetch(url: str, path: Path) -> None:
    """Download all of `url`, or raise ValueError."""
    try:
        with requests.get(url, stream=True, timeout=TIMEOUT) as response:
            if response.status_code >= 400:
                raise ValueError(f"the server answers {response.status_code}")
            with open(path, "wb") as file:
                for chunk in response.iter_content(1 << 16):
                    file.write(chunk)
    except requests.RequestException as error:
        raise ValueError(network_reason(error)) from None
    with open(path, "rb") as file:
        start = file.read(64)
    # Hotels and companies answer any request with a login page, status 200.
    if not start or is_web_page(start):
        content = "a web page (of a login or proxy?)" if start else "nothing"
        raise ValueError(f"{content} came instead of the file")


def is_web_page(content: bytes) -> bool:
    return content.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html"))


def network_reason(error: Exception) -> str:
    """Requests wraps several exceptions into one; people need to know which it was."""
    if isinstance(error, requests.exceptions.ProxyError):
        return "no connection through the proxy"
    if isinstance(error, requests.exceptions.SSLError):
        return "the secure connection failed (a proxy or antivirus that inspects traffic?)"
    if isinstance(error, requests.Timeout) or "timed out" in str(error):
        return f"no answer for {TIMEOUT[1]} seconds"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection broke in the middle"
    if isinstance(error, requests.ConnectionError):
        return "no connection (offline, refused or blocked)"
    return f"{type(error).__name__}: {error}".splitlines()[0]


# --- from the hub ---


class HubUnreachable(UserError):
    """The hub does not respond."""


@contextmanager
def hub_errors_as(what: str, advice: str) -> Iterator[None]:
    """Turns an error of huggingface_hub into one line."""
    try:
        yield
    except UserError:
        raise
    except GatedRepoError:
        raise UserError(
            f"{what} is gated: accept the license on its page on the hub, and log in with "
            "`hf auth login`"
        ) from None
    except RepositoryNotFoundError:
        raise UserError(
            f"there is no {what} on the hub, or it is private: look for it in a browser; "
            "`hf auth login` opens what is yours"
        ) from None
    except Exception as error:  # versions of huggingface_hub use different HTTP libraries
        cause = error.__cause__ or error
        if isinstance(cause, OSError) and cause.strerror:
            raise UserError(f"cannot write {what}: {cause.strerror}; make room") from error
        why = " ".join(str(cause).split())[:200] or type(cause).__name__
        raise HubUnreachable(f"cannot get {what} from the hub ({why}); {advice}") from error


def download_from_hub(repository: str, filename: str, out_dir: str | Path = ".") -> Path:
    """`out_dir/filename` from a model repository of the hub. A file that is there already, or in
    the hub's own cache, needs no network."""
    path = Path(out_dir) / filename
    if path.exists():
        return path
    cached = try_to_load_from_cache(repository, filename)
    advice = (
        "try again, set HF_ENDPOINT to a mirror such as https://hf-mirror.com, or get it in a "
        f"browser and put it at {path.resolve()}"
    )
    with hub_errors_as(f"{repository}/{filename}", advice):
        if isinstance(cached, str):
            return copy_atomically(Path(cached), path)
        hf_hub_download(repository, filename, local_dir=out_dir)
    return path


def copy_atomically(source: Path, path: Path) -> Path:
    with replacing(path) as temporary:
        shutil.copyfile(source, temporary)
    return path


def download_qwen3_small(
    kind: str = "base", tokenizer_only: bool = False, out_dir: str | Path = "."
) -> None:
    """Qwen3-0.6B, `kind` "base" or "reasoning": the tokenizer and, by default, the weights."""
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
        published = ", ".join(map(str, steps))
        raise UserError(f"{grpo_type} has no checkpoint of step {step}; published are {published}")
    name = f"qwen3-0.6B-rlvr-grpo-step{int(step):05d}.pth"
    return download_from_hub(GRPO_REPOSITORY, f"{GRPO_FOLDERS[grpo_type]}/{name}", out_dir)


def download_qwen3_grpo_checkpoints(
    grpo_type: str = "no_kl", step: str | int = "00050", out_dir: str | Path = "."
) -> Path:
    """The same, and a copy in `out_dir` itself, where the book's cells read it.

    A copy, not a link: readers save their training under this name, so their code may overwrite it.
    """
    path = published_checkpoint(grpo_type, step, out_dir)
    published = [Path(out_dir) / folder / path.name for folder in GRPO_FOLDERS.values()]
    return _with_copy(path, Path(out_dir) / path.name, published)


def _with_copy(path: Path, copy: Path, published: Sequence[Path]) -> Path:
    """`path`, after it is copied to `copy`. `published`: all files published under that name,
    `path` among them."""
    same = [other for other in published if _same_content(copy, other)]
    if path not in same and (same or not copy.exists()):  # a copy of another kind is replaced
        copy_atomically(path, copy)
    elif path not in same:  # perhaps what the reader has trained
        log.warning("%s is another file and is kept; the published checkpoint is %s", copy, path)
    return path


def download_qwen3_distill_checkpoints(
    distill_type: str = "deepseek_r1", step: str | int = "06682", out_dir: str | Path = "."
) -> Path:
    """A published Qwen3-0.6B that learned from the answers of a larger model (chapter 8 of the
    book): in the folder of its kind, and a copy in `out_dir` itself."""
    steps = DISTILL_STEPS.get(distill_type, ())
    if not str(step).isdigit() or int(step) not in steps:
        published = "; ".join(f"{kind} {numbers}" for kind, numbers in DISTILL_STEPS.items())
        raise ValueError(f"there is no {distill_type} of step {step}; published are {published}")
    name = f"qwen3-0.6B-distill-step{int(step):05d}-epoch{steps.index(int(step)) + 1}.pth"
    filename = f"ch08_distill_{distill_type}/checkpoints/{name}"
    path = download_from_hub(DISTILL_REPOSITORY, filename, out_dir)
    return _with_copy(path, Path(out_dir) / name, [path])


def _same_content(a: Path, b: Path) -> bool:
    return a.exists() and b.exists() and filecmp.cmp(a, b, shallow=False)


# --- files of the book, data sets ---


def download_from_github(rel_path: str, out: str | Path | None = None) -> Path:
    """A file of the book's repository, by its path there; `out` defaults to its name, here."""
    return download_file(book_url(rel_path), out or Path(rel_path).name)


def get_with_timeout(get: Callable, url: str) -> Any:
    """The response of `get`, the chapters' requests.get, within a time limit. A reader's stand-in
    for it may take nothing but the address."""
    parameters = inspect.signature(get).parameters
    any_keyword = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return get(url, timeout=TIMEOUT) if "timeout" in parameters or any_keyword else get(url)


def book_url(rel_path: str) -> str:
    return f"{GITHUB_RAW}/rasbt/reasoning-from-scratch/refs/heads/main/{rel_path}"


def download_data(name: str, path: str | Path | None = None) -> Path:
    """The data set `name` at `path` (default: its file name, here), as one JSON list or as JSONL
    according to the suffix of its own name."""
    if name not in DATA_SETS:
        raise unknown_name("data set", name, DATA_SETS)
    data = DATA_SETS[name]
    finish = partial(_finish_rows, data)
    return download_file(data.url, path or data.filename, data.backup_url, finish)


def _finish_rows(data: DataSet, path: Path) -> None:
    """All rows with all fields, or ValueError. A JSONL mirror of a JSON file becomes JSON."""
    text = path.read_text(encoding="utf-8")
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
        path.write_text(json.dumps(rows, indent=2, ensure_ascii=False), encoding="utf-8")
