"""The harness's own hands on the store: prepares, verifies and removes, beside the link and within one prefix only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import botocore.exceptions
from boto3.s3.transfer import TransferConfig
from botocore.config import Config

from harness.errors import StoreError
from harness.lab.content import digest_of_stream
from harness.lab.embedded import Credentials

CONCURRENCY = 8
DELETE_BATCH = 1000
STREAM_CHUNK_BYTES = 1 << 20

StoreRefused = (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError)
"""How a request of the harness itself fails: no answer, or an error from the store."""


class Bucket:
    """A bucket seen through one prefix; every key given or returned is a whole key below it.

    Without `credentials` the ordinary chain finds them, and renews those of a role when they expire.
    """

    def __init__(
        self, endpoint_url: str | None, region: str, credentials: Credentials | None, name: str, prefix: str
    ) -> None:
        self.name = name
        self.prefix = prefix
        style = {"addressing_style": "path"} if endpoint_url else {}
        config = Config(
            max_pool_connections=2 * CONCURRENCY, retries={"mode": "standard", "total_max_attempts": 4}, s3=style,
            connect_timeout=5, read_timeout=60,
        )  # fmt: skip
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=endpoint_url,
            region_name=region,
            aws_access_key_id=credentials and credentials.access_key,
            aws_secret_access_key=credentials and credentials.secret_key,
            aws_session_token=credentials and credentials.session_token,
            config=config,
        )
        self._pool = ThreadPoolExecutor(CONCURRENCY)

    def close(self) -> None:
        self._pool.shutdown()
        self._client.close()

    def create(self) -> None:
        self._client.create_bucket(Bucket=self.name)

    def check_access(self) -> None:
        """Write, list and remove one small object below the prefix; raise StoreError in words when that fails."""
        key = f"{self.prefix}/access-check"
        try:
            self._require_bucket()
            self.put(key, b"bench")
            self.sizes(key)
            self._client.delete_object(Bucket=self.name, Key=key)
        except botocore.exceptions.ClientError as error:
            raise StoreError(*_explain(error, self.name)) from error
        except botocore.exceptions.BotoCoreError as error:
            raise StoreError(
                f"the store can't be reached: {type(error).__name__}", "See --endpoint-url and --region."
            ) from error

    def _require_bucket(self) -> None:
        # First of all, since a store may create a missing bucket on the first write to it.
        try:
            self._client.head_bucket(Bucket=self.name)
        except botocore.exceptions.ClientError as error:
            # Looking at a bucket may be forbidden where using it is not; then the write decides.
            if error.response.get("Error", {}).get("Code") != "403":
                raise

    def put(self, key: str, body: bytes) -> None:
        self._client.put_object(Bucket=self.name, Key=self._own(key), Body=body)

    def upload(self, path: Path, key: str) -> None:
        config = TransferConfig(max_concurrency=CONCURRENCY)
        self._client.upload_file(str(path), self.name, self._own(key), Config=config)

    def upload_many(self, paths: Sequence[Path], keys: Sequence[str]) -> None:
        if len(paths) == 1:
            self.upload(paths[0], keys[0])
        else:
            list(self._pool.map(lambda pair: self.put(pair[1], pair[0].read_bytes()), zip(paths, keys, strict=True)))

    def copy_many(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        def copy(pair: tuple[str, str]) -> None:
            source = {"Bucket": self.name, "Key": self._own(pair[0])}
            self._client.copy_object(Bucket=self.name, Key=self._own(pair[1]), CopySource=source)

        list(self._pool.map(copy, zip(sources, targets, strict=True)))

    def digests(self, keys: Sequence[str]) -> list[str]:
        """Return the checksum of all bytes of each object."""
        return list(self._pool.map(self._digest, keys))

    def _digest(self, key: str) -> str:
        body = self._client.get_object(Bucket=self.name, Key=self._own(key))["Body"]
        with contextlib.closing(body):
            return digest_of_stream(body.iter_chunks(STREAM_CHUNK_BYTES))

    def sizes(self, prefix: str) -> dict[str, int]:
        """Map the keys below `prefix` to their sizes in bytes."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=self._own(prefix))
        return {entry["Key"]: entry["Size"] for page in pages for entry in page.get("Contents", ())}

    def remove(self, prefix: str) -> None:
        """Remove every object and every incomplete upload below `prefix`."""
        keys = list(self.sizes(prefix))
        for start in range(0, len(keys), DELETE_BATCH):
            objects = [{"Key": key} for key in keys[start : start + DELETE_BATCH]]
            self._client.delete_objects(Bucket=self.name, Delete={"Objects": objects, "Quiet": True})
        self.abort_uploads(prefix)

    def abort_uploads(self, prefix: str) -> None:
        for key, upload_id in list(self._incomplete_uploads(prefix)):
            with contextlib.suppress(botocore.exceptions.ClientError):
                self._client.abort_multipart_upload(Bucket=self.name, Key=key, UploadId=upload_id)

    def _incomplete_uploads(self, prefix: str) -> Iterator[tuple[str, str]]:
        pages = self._client.get_paginator("list_multipart_uploads").paginate(
            Bucket=self.name, Prefix=self._own(prefix)
        )
        for page in pages:
            for upload in page.get("Uploads", ()):
                # A store may ignore the prefix that was asked for; what is not ours is not touched.
                if upload["Key"].startswith(prefix):
                    yield upload["Key"], upload["UploadId"]

    def _own(self, key: str) -> str:
        if not key.startswith(self.prefix + "/"):
            raise AssertionError(f"{key!r} is outside of the run's prefix {self.prefix!r}")
        return key


def _explain(error: botocore.exceptions.ClientError, bucket: str) -> tuple[str, str]:
    code = str(error.response.get("Error", {}).get("Code", "unknown"))
    if code in ("NoSuchBucket", "404"):
        return f"there is no bucket {bucket!r}", "Create it first, or name another with --bucket."
    if code in ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"):
        return f"the store does not accept the credentials ({code})", "Renew them, or choose others with AWS_PROFILE."
    if code in ("AccessDenied", "403"):
        return (
            f"access to bucket {bucket!r} is denied ({code})",
            "bench must list, read, write and delete below its own prefix.",
        )
    return (
        f"the store refuses a small test object in bucket {bucket!r} ({code})",
        "See --bucket, --endpoint-url and --region.",
    )
