"""Suite files: TOML in, a `Suite` out. Whatever a file says that isn't understood is an error that names the field."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from harness.errors import BenchError, InvalidFileError, UnknownNameError
from harness.model import Case, Link, Objects, Profile, Scenario, Settings, Suite

T = TypeVar("T")


class Kind(StrEnum):
    ONE = "one"
    MANY = "many"
    KNOWN = "known"
    """Of the known client: its objects say how much of a thing it does."""


OPERATIONS = {
    "read": Kind.ONE,
    "write": Kind.ONE,
    "copy": Kind.ONE,
    "put_file": Kind.ONE,
    "get_file": Kind.ONE,
    "cat": Kind.MANY,
    "pipe": Kind.MANY,
    "put": Kind.MANY,
    "get": Kind.MANY,
    "copy_many": Kind.MANY,
    "rm": Kind.MANY,
    "find": Kind.MANY,
    "info": Kind.MANY,
    "allocate": Kind.KNOWN,
    "hold_threads": Kind.KNOWN,
    "burn_cpu": Kind.KNOWN,
    "pause": Kind.KNOWN,
}
"""Every operation that a scenario may name. An adapter need not offer them all."""

_SETTINGS = ("objects", "concurrency", "block")
_UNITS = {"b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_SIZE = re.compile(r"([0-9]+)\s*(B|KiB|MiB|GiB)", re.IGNORECASE)
_BATCH = re.compile(r"([0-9]+)\s*x\s*(.+)", re.IGNORECASE)
# Names become parts of a case's key, where a slash separates.
_NAME = re.compile(r"[A-Za-z0-9_-]+")


def find(folder: Path, name: str) -> Path:
    """Return the file of the suite called `name`."""
    known = sorted(path.stem for path in folder.glob("*.toml"))
    if name not in known:
        raise UnknownNameError("suite", name, known)
    return folder / f"{name}.toml"


def profile_names(path: Path) -> tuple[str, ...]:
    return tuple(_profiles(_open(path)))


def load(path: Path, profile: str | None) -> Suite:
    """Read a suite for `profile`, or for the suite's default; what other profiles say is checked all the same."""
    top = _open(path)
    profiles = _profiles(top)
    links = _links(top)
    clients = top.many("clients", _name)
    default_link = top.choice("default_link", [link.name for link in links])
    default_profile = top.choice("default_profile", profiles)
    scenarios = {name: _scenarios(top, name, tuple(profiles), default_link) for name in profiles}
    chosen = default_profile if profile is None else profile
    if chosen not in profiles:
        raise UnknownNameError("profile", chosen, tuple(profiles))
    return Suite(
        name=top.text("name"),
        title=top.text("title"),
        profile=profiles[chosen],
        clients=clients,
        baseline=top.choice("baseline", clients),
        scenarios=scenarios[chosen],
        links=links,
        default_link=default_link,
    )


def parse_size(text: str) -> int:
    """Return the bytes of e.g. `64 MiB`."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise BenchError(f"{text!r} is not a size", "Write a whole number and B, KiB, MiB or GiB, e.g. 64 MiB.")
    byte_count = int(match[1]) * _UNITS[match[2].lower()]
    if byte_count == 0:
        raise BenchError(f"{text!r}: a size must be above zero")
    return byte_count


def parse_objects(text: str) -> Objects:
    """Return the objects of e.g. `64 MiB` or `200 x 1 MiB`."""
    match = _BATCH.fullmatch(text.strip())
    if match is None:
        return Objects(count=1, size_bytes=parse_size(text))
    if int(match[1]) == 0:
        raise BenchError(f"{text!r}: a count must be above zero")
    return Objects(count=int(match[1]), size_bytes=parse_size(match[2]))


# --- the parts of a file ---------------------------------------------------------------------------------------------


def _open(path: Path) -> _Table:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:  # its message ends with line and column
        raise InvalidFileError(path, "", f"is not TOML: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFileError(path, "", f"can't be read: {error}") from error
    top = _Table(path, "", values)
    top.allow(
        "name", "title", "clients", "baseline", "default_profile", "default_link",
        "profiles", "links", "defaults", "scenario",
    )  # fmt: skip
    # A suite is found by its file's name and recorded under its own: one name, or history could not tell them apart.
    if top.text("name") != path.stem:
        raise top.error("name", f"must be the file's name, {path.stem!r}, not {top.text('name')!r}")
    return top


def _profiles(top: _Table) -> dict[str, Profile]:
    return {name: _profile(name, table, top) for name, table in top.tables("profiles").items()}


def _profile(name: str, table: _Table, top: _Table) -> Profile:
    table.allow("measured_blocks", "warmup_blocks", "control")
    return Profile(
        name=name,
        measured_blocks=table.number("measured_blocks", least=1),
        warmup_blocks=table.number("warmup_blocks", least=0),
        control=table.choice("control", top.many("clients", _name)) if "control" in table.values else None,
    )


def _links(top: _Table) -> tuple[Link, ...]:
    return tuple(_link(name, table) for name, table in top.tables("links").items())


def _link(name: str, table: _Table) -> Link:
    table.allow("delay_ms", "copy_delay_ms", "stream_rate", "abort_percent")
    rate = table.one("stream_rate", _rate) if "stream_rate" in table.values else None
    return Link(
        name=name,
        delay_ms=table.number("delay_ms", least=0, default=0),
        copy_delay_ms=table.number("copy_delay_ms", least=0, default=0),
        stream_rate_bytes_per_s=rate,
        scaled=table.values.get("stream_rate") == "scaled",
        abort_percent=table.number("abort_percent", least=0, most=100, default=0),
    )


def _scenarios(top: _Table, profile: str, profiles: tuple[str, ...], link: str) -> tuple[Scenario, ...]:
    defaults = top.table("defaults", required=False)
    defaults.allow(*Kind)
    for kind in Kind:
        defaults.table(kind, required=False).allow(*_SETTINGS, *profiles)
    scenarios = top.tables("scenario")
    for table in scenarios.values():
        table.allow("title", "operation", *_SETTINGS, *profiles)
    return tuple(_scenario(name, table, defaults, profile, link) for name, table in scenarios.items())


def _scenario(name: str, table: _Table, defaults: _Table, profile: str, link: str) -> Scenario:
    operation = table.choice("operation", OPERATIONS, default=name)
    kind = OPERATIONS[operation]
    layers = [layer for each in (table, defaults.table(kind, required=False)) for layer in _layers(each, profile)]
    objects = _first(layers, "objects").many("objects", _objects_of(kind))
    concurrency = _first(layers, "concurrency").many("concurrency", _positive)
    blocks = _first(layers, "block").many("block", _block)
    cases = tuple(
        Case(name, operation, shape, Settings(workers, block), link)
        for shape, workers, block in itertools.product(objects, concurrency, blocks)
    )
    return Scenario(name=name, title=table.text("title"), operation=operation, cases=cases)


def _layers(table: _Table, profile: str) -> tuple[_Table, _Table]:
    """Return what a table says for `profile`, then what it says for all profiles."""
    own = table.table(profile, required=False)
    own.allow(*_SETTINGS)
    return own, table


def _first(layers: list[_Table], key: str) -> _Table:
    """Return the first layer that holds `key`, else the very first, which then reports it missing."""
    return next((layer for layer in layers if key in layer.values), layers[0])


# --- single values: each reader raises BenchError, and the table adds file and field ---------------------------------


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise BenchError(f"must be text, not {value!r}")
    return value


def _name(value: object) -> str:
    if not _NAME.fullmatch(_text(value)):
        raise BenchError(f"a name must be letters, digits, - and _, not {value!r}")
    return str(value)


def _positive(value: object) -> int:
    return _whole(value, least=1)


def _whole(value: object, least: int, most: int | None = None) -> int:
    # TOML's true is a Python bool, which is an int.
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise BenchError(f"must be a whole number of at least {least}, not {value!r}")
    if most is not None and value > most:
        raise BenchError(f"must be at most {most}, not {value!r}")
    return value


def _rate(value: object) -> int | None:
    """Return bytes a second; a scaled rate isn't known before the store was measured."""
    text = _text(value)
    if text == "scaled":
        return None
    if not text.endswith("/s"):
        raise BenchError(f"{text!r} is not a rate", 'Write a size a second, e.g. "90 MiB/s", or "scaled".')
    return parse_size(text.removesuffix("/s"))


def _block(value: object) -> int | None:
    text = _text(value)
    return None if text == "default" else parse_size(text)


def _objects_of(kind: Kind) -> Callable[[object], Objects]:
    def read(value: object) -> Objects:
        objects = parse_objects(_text(value))
        if kind is Kind.ONE and objects.count != 1:
            raise BenchError(f"the operation handles one object, not {value!r}")
        return objects

    return read


@dataclass(frozen=True)
class _Table:
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
        return self.one(key, _text)

    def number(self, key: str, least: int, most: int | None = None, default: int | None = None) -> int:
        if default is not None and key not in self.values:
            return default
        return self.one(key, lambda value: _whole(value, least, most))

    def choice(self, key: str, known: Iterable[str], default: str | None = None) -> str:
        name = default if default is not None and key not in self.values else self.text(key)
        names = tuple(known)
        if name not in names:
            raise self.error(key, f"{name!r} is unknown", f"There is: {', '.join(names)}.")
        return name

    def table(self, key: str, *, required: bool = True) -> _Table:
        """Return the table under `key`; one that isn't required is empty where it is absent."""
        if key not in self.values and required:
            raise self.error(key, "missing")
        values = self.values.get(key, {})
        if not isinstance(values, dict):
            raise self.error(key, f"must be a table, not {values!r}")
        return _Table(self.path, f"{self.where}.{key}" if self.where else key, values)

    def tables(self, key: str) -> dict[str, _Table]:
        """Return the tables under the table `key`, by name; there must be one."""
        outer = self.table(key)
        if not outer.values:
            raise self.error(key, "must hold at least one table")
        for name in outer.values:
            outer._read(name, name, _name)
        return {name: outer.table(name) for name in outer.values}

    def _read(self, key: str, value: object, read: Callable[[object], T]) -> T:
        try:
            return read(value)
        except BenchError as error:
            raise self.error(key, str(error), error.hint) from error
