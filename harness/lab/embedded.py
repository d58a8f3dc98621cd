"""The embedded store: SeaweedFS from its wheel, on loopback, with credentials made for this run."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sysconfig
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.errors import StoreError, StoreLostError
from harness.lab.ports import LOOPBACK, free_ports, is_open
from harness.lab.session import Session, stop_process

REGION = "us-east-1"
BUCKET = "bench"
START_LIMIT_S = 60.0
VOLUME_LIMIT_MB = 1024


@dataclass(frozen=True)
class Credentials:
    access_key: str
    secret_key: str
    session_token: str | None = None

    @property
    def environment(self) -> dict[str, str]:
        values = {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}
        return values | ({"AWS_SESSION_TOKEN": self.session_token} if self.session_token else {})

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be written down."""
        return tuple(value for value in self.environment.values() if value)


def program(name: str) -> Path:
    """Return the path of a program that a wheel installed beside this interpreter."""
    path = Path(sysconfig.get_path("scripts")) / name
    if not path.exists():
        raise StoreError(
            f"the program {name!r} of the embedded store is not installed",
            "Its wheels are for Linux and for macOS on arm64; elsewhere give a store of yours: --bucket and --endpoint-url.",
        )
    return path


class EmbeddedStore:
    """A running SeaweedFS. `port` is its S3 service, without the link."""

    def __init__(self, session: Session) -> None:
        self.credentials = Credentials(secrets.token_hex(10).upper(), secrets.token_hex(20))
        self._session = session
        self._folder = session.folder / "store"
        self._log = session.folder / "store.log"
        names = ("master", "volume", "filer", "s3", "master.grpc", "volume.grpc", "filer.grpc", "s3.grpc")
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        return self._ports["s3"]

    @property
    def endpoint_url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def settings(self) -> dict[str, str]:
        return {"volume_limit_mb": str(VOLUME_LIMIT_MB), "telemetry": "off", "metadata": "leveldb in the run's folder"}

    def start(self) -> None:
        self._folder.mkdir()
        for service in ("master", "volume", "filer", "s3"):
            # SeaweedFS makes this socket whatever it is told, and leaves it.
            self._session.remember(Path(f"/tmp/seaweedfs-{service}-grpc-{self._ports[f'{service}.grpc']}.sock"))  # noqa: S108
        identities = self._folder / "identities.json"
        identities.write_bytes(msgspec.json.encode(_identities(self.credentials)))
        with self._log.open("wb") as log:
            self._process = self._session.spawn(
                self._command(identities), _environment(self._folder), log, cwd=self._folder
            )
        deadline = time.monotonic() + START_LIMIT_S
        while not self._answers():
            if not self.alive:
                raise StoreError(f"the embedded store ended while starting: {self.last_words()}")
            if time.monotonic() > deadline:
                raise StoreError(f"the embedded store did not answer within {START_LIMIT_S:.0f} s: {self.last_words()}")
            time.sleep(0.05)

    def stop(self) -> None:
        if self._process is not None:
            # Its data is thrown away with the folder, so there is nothing to wait for.
            stop_process(self._process, grace_s=0)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def check(self) -> None:
        """Raise StoreLostError if the store has died."""
        if not self.alive:
            raise StoreLostError(
                f"the embedded store died: {self.last_words()}",
                "What was measured is kept. `bench resume` starts a new store and goes on from there.",
            )

    def last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return " / ".join(lines[-3:])[-500:] or "it printed nothing"

    def reclaim(self) -> None:
        """Have the store give back the room of removed objects, and wait: by itself it does so every quarter of an hour.

        A trial that ran meanwhile would share the processors with it.
        """
        url = f"http://{LOOPBACK}:{self._ports['master']}/vol/vacuum?garbageThreshold=0.1"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                answer.read()
        except OSError:
            self.check()

    def _answers(self) -> bool:
        return all(is_open(self._ports[name]) for name in ("master", "volume", "filer", "s3"))

    def _command(self, identities: Path) -> list[str]:
        ports = self._ports
        return [
            str(program("weed")), "server", "-filer", "-s3",
            f"-ip={LOOPBACK}", f"-ip.bind={LOOPBACK}", f"-dir={self._folder}",
            f"-master.port={ports['master']}", f"-master.port.grpc={ports['master.grpc']}",
            f"-volume.port={ports['volume']}", f"-volume.port.grpc={ports['volume.grpc']}",
            f"-filer.port={ports['filer']}", f"-filer.port.grpc={ports['filer.grpc']}",
            f"-s3.port={ports['s3']}", f"-s3.port.grpc={ports['s3.grpc']}",
            f"-filer.localSocket={self._folder / 'filer.sock'}", f"-s3.localSocket={self._folder / 's3.sock'}",
            "-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.iam=false",
            "-s3.autoCreateBucket=false", f"-s3.config={identities}",
            "-volume.max=0", f"-master.volumeSizeLimitMB={VOLUME_LIMIT_MB}", "-volume.preStopSeconds=0",
            "-master.telemetry=false",
        ]  # fmt: skip


def _identities(credentials: Credentials) -> dict[str, object]:
    key = {"accessKey": credentials.access_key, "secretKey": credentials.secret_key}
    return {
        "identities": [
            {"name": "bench", "credentials": [key], "actions": ["Admin", "Read", "Write", "List", "Tagging"]}
        ]
    }


def _environment(folder: Path) -> Mapping[str, str]:
    # A home of its own: SeaweedFS reads and writes settings there, and the user's must not change what is measured.
    return {"HOME": str(folder), "PATH": os.defpath, "TMPDIR": str(folder)}


def version() -> str:
    """Return the store's version as the program states it."""
    if shutil.which(str(program("weed"))) is None:
        return "unknown"
    answer = subprocess.run([program("weed"), "version"], capture_output=True, text=True, check=False, timeout=30)
    words = answer.stdout.split()
    return f"SeaweedFS {words[2]}" if len(words) > 2 else "SeaweedFS, version unknown"
