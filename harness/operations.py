"""Every operation that a scenario may name: what it works on, and what must be there afterwards. One table, one place."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    ONE = "one"
    MANY = "many"
    KNOWN = "known"
    """Of the known client: its objects say how much of a thing it does."""
    FINDING = "finding"
    """Answers a question in place of being timed: its outcome is an `Observed`."""


class Source(StrEnum):
    """What is laid out before the window."""

    NOTHING = "nothing"
    OBJECTS = "objects"
    """On the store, the same for every trial."""
    OWN_OBJECTS = "own-objects"
    """On the store, a copy for the trial alone, which removes it."""
    FILES = "files"
    MEMORY = "memory"


class Leaves(StrEnum):
    """What is held against the truth after the window."""

    NOTHING = "nothing"
    BYTES = "bytes"
    """Contents, returned in the order of the keys."""
    FILES = "files"
    OBJECTS = "objects"
    ABSENCE = "absence"
    NAMES = "names"
    SIZES = "sizes"


@dataclass(frozen=True)
class Operation:
    kind: Kind
    source: Source = Source.NOTHING
    leaves: Leaves = Leaves.NOTHING
    copies: bool = False
    """Within the store: no contents pass the client."""

    @property
    def reads(self) -> bool:
        """Tell whether objects must be on the store beforehand."""
        return self.source in {Source.OBJECTS, Source.OWN_OBJECTS}

    @property
    def writes(self) -> bool:
        """Tell whether the local contents are needed beforehand, as files or in memory."""
        return self.source in {Source.FILES, Source.MEMORY}

    @property
    def moves(self) -> bool:
        """Tell whether its unit is the byte; else it is the object."""
        return self.leaves in {Leaves.BYTES, Leaves.FILES, Leaves.OBJECTS}

    @property
    def touches_store(self) -> bool:
        """Tell whether something of the trial's own lies on the store afterwards, and must be cleared away."""
        return self.writes or self.leaves is Leaves.OBJECTS or self.source is Source.OWN_OBJECTS


_READ, _GET = (Source.OBJECTS, Leaves.BYTES), (Source.OBJECTS, Leaves.FILES)
_WRITE, _PUT = (Source.MEMORY, Leaves.OBJECTS), (Source.FILES, Leaves.OBJECTS)
_COPY = (Source.OBJECTS, Leaves.OBJECTS, True)

OPERATIONS: dict[str, Operation] = {
    "read": Operation(Kind.ONE, *_READ),
    "write": Operation(Kind.ONE, *_WRITE),
    "copy": Operation(Kind.ONE, *_COPY),
    "put_file": Operation(Kind.ONE, *_PUT),
    "get_file": Operation(Kind.ONE, *_GET),
    "cat": Operation(Kind.MANY, *_READ),
    "pipe": Operation(Kind.MANY, *_WRITE),
    "put": Operation(Kind.MANY, *_PUT),
    "get": Operation(Kind.MANY, *_GET),
    "copy_many": Operation(Kind.MANY, *_COPY),
    "rm": Operation(Kind.MANY, Source.OWN_OBJECTS, Leaves.ABSENCE),
    "find": Operation(Kind.MANY, Source.OBJECTS, Leaves.NAMES),
    "info": Operation(Kind.MANY, Source.OBJECTS, Leaves.SIZES),
    # --- how an SDK is used: several ways to the same end ---
    "download_whole": Operation(Kind.ONE, *_GET),
    "download_streamed": Operation(Kind.ONE, *_GET),
    "download_atomic": Operation(Kind.ONE, *_GET),
    "put_whole": Operation(Kind.ONE, *_PUT),
    "put_parts": Operation(Kind.ONE, *_PUT),
    "cat_client_each": Operation(Kind.MANY, *_READ),
    "cat_head_first": Operation(Kind.MANY, *_READ),
    "cat_presigned": Operation(Kind.MANY, *_READ),
    "get_after_listing": Operation(Kind.MANY, *_GET),
    "get_behind_listing": Operation(Kind.MANY, *_GET),
    "rm_each": Operation(Kind.MANY, Source.OWN_OBJECTS, Leaves.ABSENCE),
    "find_prefixes": Operation(Kind.MANY, Source.OBJECTS, Leaves.NAMES),
    # --- questions of another kind than how fast ---
    "unread_bodies": Operation(Kind.FINDING, Source.OBJECTS),
    "cat_throttled": Operation(Kind.FINDING, Source.OBJECTS),
    "incomplete_upload": Operation(Kind.FINDING, Source.MEMORY),
    "small_parts": Operation(Kind.FINDING, Source.MEMORY),
    "too_many_parts": Operation(Kind.FINDING, Source.MEMORY),
    # --- the known client ---
    "allocate": Operation(Kind.KNOWN),
    "hold_threads": Operation(Kind.KNOWN),
    "burn_cpu": Operation(Kind.KNOWN),
    "pause": Operation(Kind.KNOWN),
}
"""An adapter need not offer them all."""
