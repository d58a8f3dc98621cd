"""Runs and records for tests: small ones to order, and one as a real run would leave it."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import msgspec

from harness.model import (
    SCHEMA_VERSION,
    Case,
    ClientInfo,
    Failed,
    FailureKind,
    Filters,
    FirstByte,
    Host,
    Link,
    Measured,
    Measurement,
    Objects,
    Outcome,
    Phase,
    Profile,
    Record,
    Requests,
    Run,
    RunSet,
    Settings,
    StoreInfo,
    Trial,
    Unsupported,
)

MIB = 1 << 20
RUN_ID = "20261127-101500-filesystem-standard-ab12"
LINK = Link("s3-scaled", delay_ms=20, copy_delay_ms=200, stream_rate_bytes_per_s=20 * MIB, scaled=True)
NAMES = ("pyathena-sync", "pyathena-aio", "s3fs", "aioboto3", "boto3-threads", "floor", "null")
OBJECT_OPERATIONS = ("rm", "find", "info")


def make_case(
    operation: str = "read", count: int = 1, size: int = 64 * MIB, concurrency: int = 8, **changes: Any
) -> Case:
    case = Case(operation, operation, Objects(count, size), Settings(concurrency, 8 * MIB), LINK.name)
    return msgspec.structs.replace(case, **changes)


def make_client(name: str = "s3fs", **changes: Any) -> ClientInfo:
    info = ClientInfo(
        name=name,
        title=f"{name}, as it is installed",
        environment=name.split("-", maxsplit=1)[0],
        role={"null": "null", "floor": "instrument"}.get(name, "client"),
        version="" if name in {"floor", "null"} else "2026.9.0",
        python="3.11.7",
        packages={"botocore": "1.43.117"} if name not in {"floor", "null"} else {},
        lock_digest="0123456789abcdef",
        adapter_digest="fedcba9876543210",
        operations={"read": f"{name}.open(path).read()", "rm": f"{name}.rm(paths)"},
    )
    return msgspec.structs.replace(info, **changes)


def make_run(
    clients: Iterable[ClientInfo | str] = ("s3fs", "pyathena-sync"), cases: Iterable[Case] = (), **changes: Any
) -> Run:
    run = Run(
        schema=SCHEMA_VERSION,
        id=RUN_ID,
        created_at="2026-11-27T10:15:00+00:00",
        command="bench run --suite filesystem --profile standard --seed 7",
        bench_version="0.1.0",
        bench_commit="3f15293",
        suite="filesystem",
        suite_file="scenarios/filesystem.toml",
        suite_title="Filesystem operations",
        profile=Profile("standard", 8, 1),
        baseline="s3fs",
        seed=7,
        filters=Filters(),
        tls=True,
        link=LINK,
        ceiling_bytes_per_s=310 * MIB,
        upload_rate_limited=True,
        store=StoreInfo("embedded", "loopback", "us-east-1", "bench", "p", {"store": "4.48", "link": "1.40.0"}, {}),
        host=Host("box", "Linux", "6.18.0", "x86_64", "Some CPU @ 3 GHz", 2, 8 << 30, "3.11.7"),
        clients=tuple(make_client(c) if isinstance(c, str) else c for c in clients),
        cases=tuple(cases) or (make_case(),),
        trial_count=0,
        plan_digest="00112233aabbccdd",
    )
    return msgspec.structs.replace(run, **changes)


def make_measured(
    wall_ns: int = 1_000_000_000, byte_count: int = 64 * MIB, object_count: int = 1, **changes: Any
) -> Measured:
    measurement = Measurement(
        wall_ns=wall_ns,
        cpu_user_ns=80_000_000,
        cpu_system_ns=20_000_000,
        byte_count=byte_count,
        object_count=object_count,
        rss_base_bytes=60 * MIB,
        rss_peak_bytes=100 * MIB,
        threads_base=1,
        threads_peak=13,
        harness_cpu_ns=2_000_000,
        requests=Requests({"GET 206": 8}, 0, byte_count, 8, 8, FirstByte(8, 20_100, 21_500, 30_000)),
    )
    return Measured(msgspec.structs.replace(measurement, **changes), {"concurrency": 8}, 0)


def make_record(sequence: int = 0, outcome: Outcome | None = None, **changes: Any) -> Record:
    """Build a record; `changes` go to the trial, or to the record where that is what has such a field."""
    trial = Trial(sequence, 1, 0, Phase.MEASURED, "s3fs", make_case())
    of_trial = {name: value for name, value in changes.items() if name in Trial.__struct_fields__}
    record = Record(
        SCHEMA_VERSION,
        RUN_ID,
        msgspec.structs.replace(trial, **of_trial),
        "2026.9.0",
        "0123456789abcdef",
        "2026-11-27T10:16:00+00:00",
        outcome or make_measured(),
    )
    return msgspec.structs.replace(record, **{n: v for n, v in changes.items() if n not in of_trial})


def make_run_set(outcomes: dict[str, list[Outcome]], **changes: Any) -> RunSet:
    """Build a run of one case: each client's outcomes, one a measured block."""
    run = make_run(outcomes, **changes)
    records: list[Record] = []
    for client, own in outcomes.items():
        for block, outcome in enumerate(own, start=1):
            records.append(make_record(len(records), outcome, client=client, block=block, case=run.cases[0]))
    return RunSet(msgspec.structs.replace(run, trial_count=len(records)), tuple(records))


# --- as a real run would leave it ------------------------------------------------------------------------------------

_SPEED = {"pyathena-sync": 120, "pyathena-aio": 131, "s3fs": 19.4, "aioboto3": 96, "boto3-threads": 118, "floor": 148}
_CPU_S_PER_GIB = {
    "pyathena-sync": 3.1,
    "pyathena-aio": 3.4,
    "s3fs": 1.2,
    "aioboto3": 4.2,
    "boto3-threads": 3.0,
    "floor": 0.8,
}


def realistic_run_set(blocks: int = 8) -> RunSet:
    cases = (
        make_case("read"),
        make_case("read", size=256 * MIB, concurrency=40),
        make_case("write"),
        make_case("cat", count=200, size=MIB, concurrency=40),
        make_case("rm", count=200, size=MIB),
        make_case("find", count=200, size=MIB),
        make_case("info", count=200, size=MIB),
    )
    dice = random.Random(7)
    records: list[Record] = []
    for block in range(blocks + 1):
        for case in cases:
            for position, client in enumerate(NAMES):
                trial = Trial(len(records), block, position, Phase.MEASURED if block else Phase.WARMUP, client, case)
                records.append(make_record(trial.sequence, _outcome(trial, dice), trial=trial))
    run = make_run(NAMES, cases, trial_count=len(records), profile=Profile("standard", blocks, 1))
    return RunSet(run, tuple(records))


def _outcome(trial: Trial, dice: random.Random) -> Outcome:
    operation, client = trial.case.operation, trial.client
    if client == "floor" and operation == "rm":
        return Unsupported("floor declares no rm")
    if client == "aioboto3" and trial.block == 3 and trial.case.objects.count == 200 and operation == "cat":
        log = 'Traceback (most recent call last):\n  File "adapter.py", line 88, in cat\nConnectionClosedError: closed'
        return Failed(FailureKind.RAISED, "ConnectionClosedError: Connection was closed before a response", log)
    if client == "null":
        return make_measured(round(dice.uniform(2_000, 9_000)), 0, 0, threads_peak=1, requests=None)
    noise = dice.lognormvariate(0, 0.06)
    objects = trial.case.objects
    byte_count = 0 if operation in OBJECT_OPERATIONS else objects.total_bytes
    work = byte_count / MIB if byte_count else objects.count / 8
    return make_measured(
        round(work / (_SPEED[client] * noise) * 1e9),
        byte_count,
        objects.count,
        cpu_user_ns=round(
            _CPU_S_PER_GIB[client] * (byte_count or 100 * MIB) / (1 << 30) * 1e9 * dice.uniform(0.9, 1.1)
        ),
        rss_peak_bytes=round((90 + 20 * dice.random()) * MIB + byte_count * (client != "floor")),
        threads_peak={"s3fs": 13, "floor": 9, "aioboto3": 3}.get(client, 19 + dice.randrange(4)),
    )
