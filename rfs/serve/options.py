"""Options of `rfs serve`. They need no torch: a mistyped one is refused immediately."""

import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, Literal

from reasoning_from_scratch.config import Device
from reasoning_from_scratch.errors import UserError
from reasoning_from_scratch.facts import AtLeast, Below
from rfs.files.models import check_model_name

LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
KEY = "RFS_API_KEY"  # in the environment, where a list of processes does not show it


@dataclass
class ServeOptions(Device):
    """Options of `rfs serve`."""

    model: tuple[str, ...] = ("tiny",)
    """Serve these models: tiny, smollm2, OWNER/NAME, a folder, a run; NAME=PATH sets another
    name."""
    port: Annotated[int, AtLeast(0, "0 takes any free one"), Below(65536)] = 8000
    """Listen on this port."""
    host: str = "127.0.0.1"
    """Listen on this address; any other than this machine's own needs a key."""
    api_key: str | None = None
    """Require this key of clients (default: the environment's RFS_API_KEY, or none)."""
    log_path: str | None = None
    """Keep what clients save and train in this folder (default: runs/serve); reuse it to
    continue."""
    all_weights: bool = False
    """Train all weights even if a client requests LoRA; without it, a client's rank=0 does so."""
    keep_samplers: Annotated[int, AtLeast(1)] = 16
    """Keep this many of a client's newest snapshots of weights in memory."""
    rows: Annotated[int, AtLeast(1)] = 64
    """Draw this many answers in parallel; lower it if memory runs out."""
    seed: int = 0
    """Sample with this seed if the client gives none."""
    stability: Literal["off", "importance"] = "off"
    """Refuse stable_reinforce, Tinker's default loss, since it needs records that only Tinker makes
    (off), or compute importance_sampling in its place (importance)."""

    def check(self) -> str:
        """Refuses what cannot be served; returns the names of the models."""
        missing = [name for name in ("starlette", "uvicorn", "pydantic") if find_spec(name) is None]
        if missing:
            raise UserError(
                f"{' and '.join(missing)} cannot be found: install the extra `serve`. In a clone: "
                "uv run --extra serve rfs serve ..."
            )
        for where in self.model_sources().values():
            check_model_name(where)
        if self.host not in LOCAL_HOSTS and not self.key:
            raise UserError(
                f"--host {self.host} lets others in: give a key, as in {KEY}=tml-... rfs serve "
                f"--host {self.host} (Tinker's client needs one that begins with tml-)"
            )
        return ", ".join(self.model_sources())

    @property
    def key(self) -> str:
        return self.api_key or os.environ.get(KEY, "")

    @property
    def folder(self) -> str:
        return self.log_path or "runs/serve"

    def model_sources(self) -> dict[str, str]:
        """Where the models are, by the names that clients use."""
        sources: dict[str, str] = {}
        for word in self.model:
            name, equals, where = word.partition("=")
            if not (name and (where or not equals)):
                raise UserError(f"--model {word}: give NAME=PATH")
            if name in sources:
                raise UserError(f"--model {name} is given twice")
            sources[name] = where or name
        return sources
