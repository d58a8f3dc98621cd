"""TOML as it enters: a table that knows where it stands, so that every complaint names file and field."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from harness.errors import BenchError, InvalidFileError

T = TypeVar("T")

# Names become parts of a case's key, where a slash separates.
_NAME = re.compile(r"[A-Za-z0-9_-]+")


def open_toml(path: Path) -> Table:
    """Read a file; raise InvalidFileError when it is no TOML."""
    try:
        return Table(path, "", tomllib.loads(path.read_text(encoding="utf-8")))
    except tomllib.TOMLDecodeError as error:  # its message ends with line and column
        raise InvalidFileError(path, "", f"is not TOML: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFileError(path, "", f"can't be read: {error}") from error


# --- single values: each reader raises BenchError, and the table adds file and field ---------------------------------


def as_text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise BenchError(f"must be text, not {value!r}")
    return value


def as_name(value: object) -> str:
    if not _NAME.fullmatch(as_text(value)):
        raise BenchError(f"a name must be letters, digits, - and _, not {value!r}")
    return str(value)


def as_positive(value: object) -> int:
    return as_whole(value, least=1)


def as_whole(value: object, least: int, most: int | None = None) -> int:
    # TOML's true is a Python bool, which is an int.
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise BenchError(f"must be a whole number of at least {least}, not {value!r}")
    if most is not None and value > most:
        raise BenchError(f"must be at most {most}, not {value!r}")
    return value


@dataclass(frozen=True)
class Table:
    """A TOML table that knows where it stands, so that every complaint names file and field."""

    path: Path
    where: str
    values: dict[str, object]

    def error(self, key: str, problem: str, hint: str = "") -> InvalidFileError:
        return InvalidFileError(self.path, f"{self.where}.{key}" if self.where else key, problem, hint)

    def allow(self, *known: str) -> None:
        for key in self.values:
            if key not in known:
                raise self.error(key, "unknown key", f"There is: {', '.join(known)}.")

    def one(self, key: str, read: Callable[[object], T]) -> T:
        if key not in self.values:
            raise self.error(key, "missing")
        return self._read(key, self.values[key], read)

    def many(self, key: str, read: Callable[[object], T]) -> tuple[T, ...]:
        """Return the items of a list that is neither empty nor names a thing twice, which would measure it twice."""
        items = self.one(key, lambda value: value)
        if not isinstance(items, list) or not items:
            raise self.error(key, f"must be a list with at least one item, not {items!r}")
        found = tuple(self._read(key, item, read) for item in items)
        for index, item in enumerate(found):
            if item in found[:index]:
                raise self.error(key, f"holds {items[index]!r} twice")
        return found

    def text(self, key: str) -> str:
        return self.one(key, as_text)

    def number(self, key: str, least: int, most: int | None = None, default: int | None = None) -> int:
        if default is not None and key not in self.values:
            return default
        return self.one(key, lambda value: as_whole(value, least, most))

    def flag(self, key: str) -> bool:
        """Return true or false; false where it is absent."""
        value = self.values.get(key, False)
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, not {value!r}")
        return value

    def choice(self, key: str, known: Iterable[str], default: str | None = None) -> str:
        name = default if default is not None and key not in self.values else self.text(key)
        names = tuple(known)
        if name not in names:
            raise self.error(key, f"{name!r} is unknown", f"There is: {', '.join(names)}.")
        return name

    def table(self, key: str, *, required: bool = True) -> Table:
        """Return the table under `key`; one that isn't required is empty where it is absent."""
        if key not in self.values and required:
            raise self.error(key, "missing")
        values = self.values.get(key, {})
        if not isinstance(values, dict):
            raise self.error(key, f"must be a table, not {values!r}")
        return Table(self.path, f"{self.where}.{key}" if self.where else key, values)

    def tables(self, key: str) -> dict[str, Table]:
        """Return the tables under the table `key`, by name; there must be one."""
        outer = self.table(key)
        if not outer.values:
            raise self.error(key, "must hold at least one table")
        for name in outer.values:
            outer._read(name, name, as_name)
        return {name: outer.table(name) for name in outer.values}

    def _read(self, key: str, value: object, read: Callable[[object], T]) -> T:
        try:
            return read(value)
        except BenchError as error:
            raise self.error(key, str(error), error.hint) from error
