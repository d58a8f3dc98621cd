"""A client that does nothing: what remains in its window is the harness's own floor."""

from __future__ import annotations

from typing import Any


class NullClient:
    """Offers every operation and performs none."""

    OPERATIONS = dict.fromkeys(
        (
            *("read", "write", "copy", "put_file", "get_file"),
            *("cat", "pipe", "put", "get", "copy_many", "rm", "find", "info"),
        ),
        "nothing",
    )

    def __init__(self, connection: Any) -> None:
        """Connect to nothing."""

    def applied(self) -> dict[str, Any]:
        """Report no settings: there are none."""
        return {}

    def warm_up(self, bucket: str, key: str) -> None:
        """Send nothing."""

    def _nothing(self, job: Any) -> None:
        """Do nothing."""

    read = write = copy = put_file = get_file = _nothing
    cat = pipe = put = get = copy_many = rm = find = info = _nothing

    def close(self) -> None:
        """Free nothing."""


CLIENTS = {"null": NullClient}
