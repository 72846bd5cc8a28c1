"""The settings of a run that are not the defaults."""

from typing import Any

from reasoning_from_scratch.text import shorten
from rfs.config import PLACES, RunConfig, to_json

DEFAULTS = {name: v for name, v in to_json(RunConfig()).items() if name not in PLACES}
OPEN_DEFAULTS = (None, "auto")  # defaults that the model, the problems or the machine fill in


def changed_settings(config: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Name, value, who set it, and default. Settings with an open default come last, and only if
    they are on."""
    set_by = config.get("set_by", {})
    changed = [name for name in DEFAULTS if config.get(name, DEFAULTS[name]) != DEFAULTS[name]]
    names = sorted(changed, key=lambda name: DEFAULTS[name] in OPEN_DEFAULTS)
    return [
        (name, format_value(config[name]), set_by.get(name, ""), format_value(DEFAULTS[name]))
        for name in names
        if config[name] or DEFAULTS[name] not in OPEN_DEFAULTS
    ]


def format_value(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        parts = [f"{name} {format_value(part)}" for name, part in value.items()]
        return shorten(", ".join(parts), 200)
    if isinstance(value, list):
        return shorten(", ".join(map(format_value, value)), 200)
    return shorten(str(value), 200)
