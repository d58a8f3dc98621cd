"""What a store's operator charges for requests: one dated table."""

from __future__ import annotations

from collections.abc import Mapping

DATED = "Amazon S3 Standard, us-east-1, list prices of November 2026"
USD_PER_REQUEST: Mapping[str, float] = {"write": 0.005 / 1000, "read": 0.0004 / 1000, "free": 0.0}
"""By class: PUT, COPY, POST and LIST cost as much as a write; GET, HEAD and all others as a read; deleting is free."""


def class_of(method: str, what: str) -> str:
    """Return the price class of a request by its method and what its query says it is about (`harness.lab.link`)."""
    if method == "DELETE" or what == "delete":
        return "free"
    lists = what in {"list", "uploads", "upload"}
    return "write" if method in {"PUT", "POST"} or lists else "read"


def requests_usd(counts: Mapping[str, int]) -> float:
    """Return the list price of that many requests of each class."""
    return sum(USD_PER_REQUEST[name] * count for name, count in counts.items())
