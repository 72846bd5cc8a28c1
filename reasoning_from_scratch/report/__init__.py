"""What a run wrote, as pages for people and as files for machines."""

from .iteration import write_iteration

__all__ = ["write_iteration"]
