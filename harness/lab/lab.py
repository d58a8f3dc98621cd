"""The laboratory of one run: store, link and data together, whichever store it is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import boto3
import botocore.exceptions
import msgspec

from harness.errors import StoreError
from harness.lab import embedded, link
from harness.lab.bucket import Bucket, StoreRefused
from harness.lab.dataset import Dataset
from harness.lab.embedded import Credentials, EmbeddedStore
from harness.lab.environments import isolated_environment
from harness.lab.link import LinkServer
from harness.lab.session import Session, open_session, orphaned_folders
from harness.model import Link, StoreInfo

NO_LINK = Link("none")
"""Between client and a store that isn't ours stands nothing of `bench`."""


TARGET = "target.json"
"""In a session's folder: where on a store that isn't ours it writes, for the next `bench` to clear if this one is killed."""


class Target(msgspec.Struct, frozen=True):
    """A store that isn't ours, as the user named it."""

    bucket: str
    prefix: str
    endpoint_url: str | None
    region: str


@dataclass(frozen=True)
class Lab:
    session: Session
    bucket: Bucket
    info: StoreInfo
    embedded_store: EmbeddedStore | None
    tls: bool
    _credentials: Callable[[], Credentials]

    @property
    def secrets(self) -> tuple[str, ...]:
        return self._credentials().secrets

    def client_environment(self, server: LinkServer | None) -> dict[str, str]:
        """Return the variables of a client's process: credentials, region and the authority of the link's certificate."""
        region = {
            "AWS_REGION": self.info.region,
            "AWS_DEFAULT_REGION": self.info.region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        authority = {}
        if server is not None and server.tls:
            path = str(server.authority_file)
            authority = {"AWS_CA_BUNDLE": path, "SSL_CERT_FILE": path}
        return isolated_environment() | self._credentials().environment | region | authority

    @contextlib.contextmanager
    def dataset(self, name: str, seed: int) -> Iterator[Dataset]:
        """Lend an empty dataset, and remove it from store and disk."""
        dataset = Dataset(self.bucket, self.session.folder / name, seed)
        try:
            yield dataset
        finally:
            with contextlib.suppress(*StoreRefused, OSError):
                dataset.remove()

    @contextlib.contextmanager
    def link(self, *wanted: Link) -> Iterator[LinkServer | None]:
        """Lend running links before the embedded store, in one process; nothing before any other store."""
        if self.embedded_store is None:
            yield None
            return
        server = LinkServer(self.session, wanted, self.embedded_store.port, tls=self.tls)
        server.start()
        try:
            yield server
        finally:
            server.stop()

    def check(self, server: LinkServer | None) -> None:
        """Raise StoreLostError when the store or the link has died."""
        if self.embedded_store is not None:
            self.embedded_store.check()
        if server is not None:
            server.check()

    def servants(self, server: LinkServer | None) -> tuple[int, ...]:
        """Return the processes of ours that serve clients: store and link, where they are ours."""
        return tuple(each.pid for each in (self.embedded_store, server) if each is not None)

    def reclaim(self) -> None:
        if self.embedded_store is not None:
            self.embedded_store.reclaim()


@contextlib.contextmanager
def open_lab(target: Target | None, run_prefix: str, *, tls: bool, tell: Callable[[str], None]) -> Iterator[Lab]:
    """Start the embedded store, or check access to the target, and remove at the end what was made."""
    _clear_targets(tell)
    with open_session() as session:
        opened = (
            _open_embedded(session, run_prefix, tls, tell)
            if target is None
            else _open_target(session, target, run_prefix)
        )
        with opened as lab:
            yield lab


@contextlib.contextmanager
def _open_embedded(session: Session, run_prefix: str, tls: bool, tell: Callable[[str], None]) -> Iterator[Lab]:
    tell("embedded store")
    store = EmbeddedStore(session)
    versions = {"store": embedded.version(), "link": link.version()}
    store.start()
    bucket = Bucket(store.endpoint_url, embedded.REGION, store.credentials, embedded.BUCKET, run_prefix)
    info = StoreInfo("embedded", "loopback", embedded.REGION, embedded.BUCKET, run_prefix, versions, store.settings)
    try:
        bucket.create()
        bucket.check_access()
        yield Lab(session, bucket, info, store, tls, lambda: store.credentials)
    finally:
        bucket.close()
        store.stop()


@contextlib.contextmanager
def _open_target(session: Session, target: Target, run_prefix: str) -> Iterator[Lab]:
    prefix = f"{target.prefix}/{run_prefix}" if target.prefix else run_prefix
    find_credentials()
    bucket = Bucket(target.endpoint_url, target.region, None, target.bucket, prefix)
    endpoint = target.endpoint_url or "Amazon S3"
    info = StoreInfo("endpoint", endpoint, target.region, target.bucket, prefix, {}, {})
    try:
        bucket.check_access()
        # From here on something of ours may lie there.
        written = msgspec.structs.replace(target, prefix=prefix)
        (session.folder / TARGET).write_bytes(msgspec.json.encode(written))
        try:
            yield Lab(session, bucket, info, None, not endpoint.startswith("http:"), find_credentials)
        finally:
            bucket.remove(prefix + "/")
    finally:
        bucket.close()


def _clear_targets(tell: Callable[[str], None]) -> None:
    """Remove what killed predecessors left on stores that aren't ours."""
    for folder in orphaned_folders():
        try:
            left = msgspec.json.decode((folder / TARGET).read_bytes(), type=Target)
        except (OSError, msgspec.DecodeError):
            continue
        bucket = Bucket(left.endpoint_url, left.region, None, left.bucket, left.prefix)
        try:
            bucket.remove(left.prefix + "/")
            tell(f"removed what a killed run left below {left.prefix!r} in bucket {left.bucket!r}")
        except StoreRefused as error:
            tell(f"a killed run left objects below {left.prefix!r} in bucket {left.bucket!r}: {type(error).__name__}")
        finally:
            bucket.close()


def find_credentials() -> Credentials:
    """Resolve the user's credentials by the ordinary chain, anew each time: a role's expire within a long run."""
    try:
        found = boto3.Session().get_credentials()
        frozen = found.get_frozen_credentials() if found else None
    except botocore.exceptions.BotoCoreError as error:
        raise StoreError(
            f"the credentials can't be resolved: {error}", "See AWS_PROFILE and `aws configure list`."
        ) from error
    if frozen is None or not frozen.access_key:
        raise StoreError(
            "there are no credentials for this store",
            "Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run where a role gives them.",
        )
    return Credentials(frozen.access_key, frozen.secret_key, frozen.token)
