"""Suite files: TOML in, a `Suite` out. Whatever a file says that isn't understood is an error that names the field."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from harness.errors import BenchError, UnknownNameError
from harness.model import Case, Link, Objects, Profile, Scenario, Settings, Suite
from harness.operations import OPERATIONS, Kind
from harness.toml import Table, as_name, as_positive, as_text, open_toml

T = TypeVar("T")


_SWEPT = ("objects", "concurrency", "block", "pool", "retry_mode", "retry_attempts", "timeout_s")
"""Lists; a scenario measures every combination of them."""
_SETTINGS = (*_SWEPT, "watch_loop", "link", "clients")
RETRY_MODES = ("legacy", "standard", "adaptive")
_UNITS = {"b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_SIZE = re.compile(r"([0-9]+)\s*(B|KiB|MiB|GiB)", re.IGNORECASE)
_BATCH = re.compile(r"([0-9]+)( a worker)?\s*x\s*(.+)", re.IGNORECASE)
_FEW_BLOCKS = re.compile(r"(.+?)\s+in\s+([0-9]+)\s+blocks?", re.IGNORECASE)


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
    offers = Offers(tuple(link.name for link in links), default_link, clients)
    scenarios = {name: _scenarios(top, name, tuple(profiles), offers) for name in profiles}
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


@dataclass(frozen=True)
class Shape:
    """What a scenario says of its objects."""

    objects: Objects
    a_worker: bool = False
    """The count is of one worker: a case has as many times more."""
    blocks: int | None = None

    def case_objects(self, concurrency: int) -> Objects:
        factor = concurrency if self.a_worker else 1
        return Objects(self.objects.count * factor, self.objects.size_bytes)


def parse_shape(text: str) -> Shape:
    """Return the shape of e.g. `64 MiB`, `200 x 1 MiB`, `8 a worker x 4 KiB` or `1 GiB in 2 blocks`."""
    few = _FEW_BLOCKS.fullmatch(text.strip())
    blocks = int(few[2]) if few else None
    match = _BATCH.fullmatch(few[1] if few else text.strip())
    if blocks == 0 or (match and int(match[1]) == 0):
        raise BenchError(f"{text!r}: a count must be above zero")
    if match is None:
        return Shape(Objects(count=1, size_bytes=parse_size(few[1] if few else text)), blocks=blocks)
    return Shape(Objects(count=int(match[1]), size_bytes=parse_size(match[3])), match[2] is not None, blocks)


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


@dataclass(frozen=True)
class Offers:
    """What the whole file offers to its scenarios."""

    link_names: tuple[str, ...]
    default_link: str
    clients: tuple[str, ...]


def _scenarios(top: Table, profile: str, profiles: tuple[str, ...], offers: Offers) -> tuple[Scenario, ...]:
    defaults = top.table("defaults", required=False)
    defaults.allow(*Kind)
    for kind in Kind:
        defaults.table(kind, required=False).allow(*_SETTINGS, *profiles)
    scenarios = top.tables("scenario")
    for table in scenarios.values():
        table.allow("title", "operation", *_SETTINGS, *profiles)
    return tuple(_scenario(name, table, defaults, profile, offers) for name, table in scenarios.items())


def _scenario(name: str, table: Table, defaults: Table, profile: str, offers: Offers) -> Scenario:
    operation = table.choice("operation", OPERATIONS, default=name)
    kind = OPERATIONS[operation].kind
    layers = [layer for each in (table, defaults.table(kind, required=False)) for layer in _layers(each, profile)]
    link = _first(layers, "link").choice("link", offers.link_names, default=offers.default_link)
    shapes = _first(layers, "objects").many("objects", _shape_of(kind))
    swept = itertools.product(
        shapes,
        _first(layers, "concurrency").many("concurrency", as_positive),
        _first(layers, "block").many("block", _block),
        _optional(layers, "pool", as_positive),
        _optional(layers, "retry_mode", _retry_mode),
        _optional(layers, "retry_attempts", as_positive),
        _optional(layers, "timeout_s", as_positive),
    )
    watch_loop = _first(layers, "watch_loop").flag("watch_loop")
    cases = tuple(
        Case(
            name,
            operation,
            shape.case_objects(workers),
            Settings(workers, block, pool, mode, attempts, timeout_s, watch_loop),
            link,
            shape.blocks,
        )
        for shape, workers, block, pool, mode, attempts, timeout_s in swept
    )
    clients = _first(layers, "clients")
    alone = clients.many("clients", as_name) if "clients" in clients.values else ()
    for label in alone:
        if label not in offers.clients:
            raise clients.error(
                "clients", f"{label!r} is no client of this suite", f"There is: {', '.join(offers.clients)}."
            )
    return Scenario(name=name, title=table.text("title"), operation=operation, cases=cases, clients=alone)


def _optional(layers: list[Table], key: str, read: Callable[[object], T]) -> tuple[T | None, ...]:
    found = _first(layers, key)
    return found.many(key, read) if key in found.values else (None,)


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


def _retry_mode(value: object) -> str:
    if value not in RETRY_MODES:
        raise BenchError(f"{value!r} is no retry mode", f"There is: {', '.join(RETRY_MODES)}.")
    return str(value)


def _shape_of(kind: Kind) -> Callable[[object], Shape]:
    def read(value: object) -> Shape:
        shape = parse_shape(as_text(value))
        if kind is Kind.ONE and (shape.objects.count != 1 or shape.a_worker):
            raise BenchError(f"the operation handles one object, not {value!r}")
        return shape

    return read
