"""`rfs export` and `rfs push`: take a model out of this project, to a folder or to the hub."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from huggingface_hub import HfApi

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.disk import disk_errors_as, replacing
from reasoning_from_scratch.files.hub_models import is_complete
from reasoning_from_scratch.files.model_names import HUB_NAME
from reasoning_from_scratch.files.weights import COPIED_FILES, model_folder, save_hf_folder
from reasoning_from_scratch.text import expand_home, visible
from rfs.commands.positional_options import ExportOptions, PushOptions
from rfs.files.models import load_model_and_tokenizer
from rfs.files.saved_models import CARD_FILE, which_weights


def export(options: ExportOptions) -> None:
    """Write a folder that transformers, vLLM and llama.cpp's converter open."""
    folder = expand_home(options.out)
    with disk_errors_as(f"cannot export {options.model} to {folder}", "choose another --out"):
        if folder.exists() and any(folder.iterdir() if folder.is_dir() else [folder]):
            raise UserError(f"{folder} exists and is not empty; choose another folder")
        source = model_folder(which_weights(options.model))
        folder.mkdir(parents=True, exist_ok=True)
        # Everything is written into a temporary subfolder and moved up last. If the disk fills up,
        # only the subfolder is deleted, so `folder` is empty and the next export may use it.
        with TemporaryDirectory(prefix=".export-", dir=folder) as temporary:
            if is_complete(source):
                copy_model(source, Path(temporary))
            else:  # weights alone
                save_hf_folder(*load_model_and_tokenizer(options.model), temporary)
            for path in list(Path(temporary).iterdir()):
                path.replace(folder / path.name)
    print(visible(f"{folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}"))


def copy_model(source: Path, folder: Path) -> None:
    for path in source.iterdir():
        if is_model_file(path.name):
            with replacing(folder / path.name) as temporary:
                shutil.copyfile(path, temporary)


def is_model_file(name: str) -> bool:
    is_weights = name.startswith("model") and name.endswith((".safetensors", ".index.json"))
    return is_weights or name in ("config.json", CARD_FILE, *COPIED_FILES)


def push(options: PushOptions) -> None:
    """Upload a model to the hub."""
    if not HUB_NAME.fullmatch(options.repository):
        raise UserError(f"{options.repository} is not OWNER/NAME; OWNER is your name on the hub")
    source = model_folder(which_weights(options.model))
    if not is_complete(source):
        raise UserError(
            f"{source} is not a model's folder: first run rfs export {options.model} --out FOLDER"
        )
    api = HfApi()
    try:
        api.create_repo(options.repository, private=options.private, exist_ok=True)
        api.upload_folder(
            repo_id=options.repository,
            folder_path=source,
            allow_patterns=[p.name for p in source.iterdir() if is_model_file(p.name)],
            commit_message="A model of reasoning_from_scratch",
        )
    except Exception as error:  # versions of huggingface_hub use different HTTP libraries
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(
            f"could not push to {options.repository} ({why}); run `hf auth login` with a write "
            "token, then try again: files that are already there are not sent again"
        ) from error
    print(f"{api.endpoint}/{options.repository}")
