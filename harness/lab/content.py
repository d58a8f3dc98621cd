"""Pseudo-random contents that can be made again from a seed, and their checksums."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

CHUNK_BYTES = 1 << 20


def chunks(seed: str, size_bytes: int) -> Iterator[bytes]:
    """Yield `size_bytes` of content that no store can compress or deduplicate, the same for the same seed."""
    # Mersenne Twister: about 1 GiB/s here, and the standard library promises its stream for a seed.
    generator = random.Random(seed)  # noqa: S311
    remaining = size_bytes
    while remaining:
        length = min(CHUNK_BYTES, remaining)
        yield generator.randbytes(length)
        remaining -= length


def content(seed: str, size_bytes: int) -> bytes:
    return b"".join(chunks(seed, size_bytes))


def write_file(path: Path, seed: str, size_bytes: int) -> None:
    with path.open("wb") as file:
        for chunk in chunks(seed, size_bytes):
            file.write(chunk)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def digest_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of_stream(stream: Iterator[bytes]) -> str:
    state = hashlib.sha256()
    for chunk in stream:
        state.update(chunk)
    return state.hexdigest()
