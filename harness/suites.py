"""Suite files: TOML in, a `Suite` out. Whatever a file says that isn't understood is an error that names the field."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from harness.errors import BenchError, UnknownNameError
from harness.model import Case, Link, Objects, Profile, Scenario, Settings, Suite
from harness.toml import Table, as_name, as_positive, as_text, open_toml

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
    clients = top.many("clients", as_name)
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


def _open(path: Path) -> Table:
    top = open_toml(path)
    top.allow(
        "name", "title", "clients", "baseline", "default_profile", "default_link",
        "profiles", "links", "defaults", "scenario",
    )  # fmt: skip
    # A suite is found by its file's name and recorded under its own: one name, or history could not tell them apart.
    if top.text("name") != path.stem:
        raise top.error("name", f"must be the file's name, {path.stem!r}, not {top.text('name')!r}")
    return top


def _profiles(top: Table) -> dict[str, Profile]:
    return {name: _profile(name, table, top) for name, table in top.tables("profiles").items()}


def _profile(name: str, table: Table, top: Table) -> Profile:
    table.allow("measured_blocks", "warmup_blocks", "control")
    return Profile(
        name=name,
        measured_blocks=table.number("measured_blocks", least=1),
        warmup_blocks=table.number("warmup_blocks", least=0),
        control=table.choice("control", top.many("clients", as_name)) if "control" in table.values else None,
    )


def _links(top: Table) -> tuple[Link, ...]:
    return tuple(_link(name, table) for name, table in top.tables("links").items())


def _link(name: str, table: Table) -> Link:
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


def _scenarios(top: Table, profile: str, profiles: tuple[str, ...], link: str) -> tuple[Scenario, ...]:
    defaults = top.table("defaults", required=False)
    defaults.allow(*Kind)
    for kind in Kind:
        defaults.table(kind, required=False).allow(*_SETTINGS, *profiles)
    scenarios = top.tables("scenario")
    for table in scenarios.values():
        table.allow("title", "operation", *_SETTINGS, *profiles)
    return tuple(_scenario(name, table, defaults, profile, link) for name, table in scenarios.items())


def _scenario(name: str, table: Table, defaults: Table, profile: str, link: str) -> Scenario:
    operation = table.choice("operation", OPERATIONS, default=name)
    kind = OPERATIONS[operation]
    layers = [layer for each in (table, defaults.table(kind, required=False)) for layer in _layers(each, profile)]
    objects = _first(layers, "objects").many("objects", _objects_of(kind))
    concurrency = _first(layers, "concurrency").many("concurrency", as_positive)
    blocks = _first(layers, "block").many("block", _block)
    cases = tuple(
        Case(name, operation, shape, Settings(workers, block), link)
        for shape, workers, block in itertools.product(objects, concurrency, blocks)
    )
    return Scenario(name=name, title=table.text("title"), operation=operation, cases=cases)


def _layers(table: Table, profile: str) -> tuple[Table, Table]:
    """Return what a table says for `profile`, then what it says for all profiles."""
    own = table.table(profile, required=False)
    own.allow(*_SETTINGS)
    return own, table


def _first(layers: list[Table], key: str) -> Table:
    """Return the first layer that holds `key`, else the very first, which then reports it missing."""
    return next((layer for layer in layers if key in layer.values), layers[0])


# --- single values: each reader raises BenchError, and the table adds file and field ---------------------------------


def _rate(value: object) -> int | None:
    """Return bytes a second; a scaled rate isn't known before the store was measured."""
    text = as_text(value)
    if text == "scaled":
        return None
    if not text.endswith("/s"):
        raise BenchError(f"{text!r} is not a rate", 'Write a size a second, e.g. "90 MiB/s", or "scaled".')
    return parse_size(text.removesuffix("/s"))


def _block(value: object) -> int | None:
    text = as_text(value)
    return None if text == "default" else parse_size(text)


def _objects_of(kind: Kind) -> Callable[[object], Objects]:
    def read(value: object) -> Objects:
        objects = parse_objects(as_text(value))
        if kind is Kind.ONE and objects.count != 1:
            raise BenchError(f"the operation handles one object, not {value!r}")
        return objects

    return read
