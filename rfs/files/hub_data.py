"""Data sets on the Hugging Face Hub by their names, OWNER/NAME, as parquet files.

The hub converts every public set to parquet, on a separate branch, in folders CONFIG/SPLIT. A set
is downloaded once: its version and its list of files are stored here, and the files stay in the
cache of huggingface_hub. So a resumed run has the same problems, and needs no network.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.files.disk import user_cache, write_atomically

BRANCH = "refs/convert/parquet"
PARTIAL = "partial-"  # of a large set the hub converts the first 5 GB


@dataclass
class HubDataSet:
    """The files that the hub has of a set, and their version."""

    repository: str
    commit: str
    configs: dict[str, dict[str, list[str]]]  # config -> split -> its files, in their order

    def rows(self, config: str, split: str, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yields these columns, row by row; each file is downloaded when its turn comes."""
        import pyarrow.parquet  # late: an extra

        for name in self.configs[config][split]:
            file = pyarrow.parquet.ParquetFile(self._downloaded(name))
            for batch in file.iter_batches(1024, columns=columns):
                yield from batch.to_pylist()

    def columns(self, config: str, split: str) -> list[str]:
        """Their names; a field of a column is COLUMN.FIELD."""
        import pyarrow.parquet
        import pyarrow.types

        names = []
        first = self._downloaded(self.configs[config][split][0])
        for field in pyarrow.parquet.read_schema(first):
            names.append(field.name)
            if pyarrow.types.is_struct(field.type):
                names += [f"{field.name}.{inner.name}" for inner in field.type]
        return names

    def _downloaded(self, name: str) -> str:
        from huggingface_hub import hf_hub_download

        with _hub_errors(
            self.repository,
            f" (or delete {_index_file(self.repository)} to get its newest version)",
        ):
            return hf_hub_download(self.repository, name, repo_type="dataset", revision=self.commit)


def check_pyarrow(name: str) -> None:
    if find_spec("pyarrow") is None:
        raise UserError(f"{name} is read with pyarrow, which is not installed: uv sync --extra hf")


@cache
def hub_data_set(repository: str) -> HubDataSet:
    """The set OWNER/NAME as it was when it was first used on this machine."""
    index_file = _index_file(repository)
    if index_file.exists():
        return HubDataSet(**json.loads(index_file.read_text(encoding="utf-8")))
    data_set = _list_files(repository)
    index_file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(index_file, json.dumps(asdict(data_set), indent=2))
    return data_set


def _index_file(repository: str) -> Path:
    return user_cache() / "hub_data" / f"{repository.replace('/', '--')}.json"


def _list_files(repository: str) -> HubDataSet:
    from huggingface_hub import HfApi
    from huggingface_hub.utils import RevisionNotFoundError

    with _hub_errors(repository):
        try:
            info = HfApi().dataset_info(repository, revision=BRANCH)
        except RevisionNotFoundError:
            raise UserError(
                f"the hub has no parquet files of {repository} (a private set, or one that it "
                "cannot convert): read it in a function of your own, FILE.py:FUNCTION"
            ) from None
    configs: dict[str, dict[str, list[str]]] = {}
    for path in sorted(file.rfilename for file in info.siblings):
        if path.endswith(".parquet") and path.count("/") == 2:
            config, split, _ = path.split("/")
            splits = configs.setdefault(config, {})
            splits.setdefault(split.removeprefix(PARTIAL), []).append(path)
    if not configs:
        raise UserError(f"the hub's branch {BRANCH} of {repository} has no parquet files in it")
    return HubDataSet(repository, info.sha, configs)


def _hub_errors(repository: str, more_advice: str = ""):
    from reasoning_from_scratch.files.downloads import hub_errors_as  # late: it takes a second

    advice = f"try again, or set HF_ENDPOINT to a mirror such as https://hf-mirror.com{more_advice}"
    return hub_errors_as(f"data set {repository}", advice)
