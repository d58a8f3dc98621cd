"""boto3 in threads: one shared client, managed transfers for files, a pool of threads for many objects.

Beside it, boto3 under asyncio by `to_thread`, and other ways to use it.
"""

from __future__ import annotations

import io
import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import urllib3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

DELETE_BATCH = 1000
CHUNK_BYTES = 1 << 20
PAGE_KEYS = 100
"""Of a listing that is worked on while it goes on; a page of a thousand would be all there is."""
PREFIX_LETTERS = 2
"""Fewer than a key has: so many keys share a prefix that is known beforehand."""
PATIENCE_S = 10.0
"""For a request that may wait for ever."""


def code_of(error: Exception) -> str:
    """Return the store's code of an error, or its type where the store said none."""
    answer = getattr(error, "response", None) or {}
    return str(answer.get("Error", {}).get("Code") or type(error).__name__)


def counted(arrived: list[bool], errors: Counter[str], longest_s: float) -> dict[str, Any]:
    """Return what became of many requests, as flat facts."""
    told = ", ".join(f"{code} {count}" for code, count in errors.most_common())
    return {
        "asked": len(arrived),
        "arrived": sum(arrived),
        "failed": len(arrived) - sum(arrived),
        "errors": told or None,
        "longest_ms": longest_s * 1000,
    }


def _part_of(path: str, number: int, size_bytes: int) -> bytes:
    with Path(path).open("rb") as file:
        file.seek((number - 1) * size_bytes)
        return file.read(size_bytes)


class Boto3Threads:
    """One client for everything; it is safe to share between threads."""

    OPERATIONS = {
        "read": "get_object, Body.read()",
        "write": "upload_fileobj (managed)",
        "copy": "copy (managed)",
        "put_file": "upload_file (managed)",
        "get_file": "download_file (managed)",
        "cat": "get_object, Body.read() in threads",
        "pipe": "put_object in threads",
        "put": "put_object of the file in threads",
        "get": "get_object, written as it comes, in threads",
        "copy_many": "copy_object in threads",
        "rm": "delete_objects in thousands",
        "find": "list_objects_v2, paginated",
        "info": "head_object in threads",
        "download_whole": "get_object, Body.read(), then the file written",
        "download_streamed": "get_object, 1 MiB chunks written as they come",
        "download_atomic": "the same to a .part file, then renamed",
        "put_whole": "the file read whole, put_object",
        "put_parts": "create_multipart_upload, upload_part in `concurrency` threads, complete",
        "cat_client_each": "a new client for each get_object, in threads",
        "cat_head_first": "head_object, then get_object, in threads",
        "cat_presigned": "generate_presigned_url, then urllib3, in threads",
        "get_after_listing": "list_objects_v2 to its end, then get_object each, in threads",
        "get_behind_listing": "get_object of each key as its page of 100 arrives, in threads",
        "rm_each": "delete_object in threads",
        "find_prefixes": "list_objects_v2 of each known prefix, in threads",
        "unread_bodies": "two get_object whose bodies stay unread, then a third",
        "cat_throttled": "get_object, Body.read() in threads; errors counted",
        "incomplete_upload": "create_multipart_upload, upload_part, list_multipart_uploads, abort",
        "small_parts": "create_multipart_upload, two small upload_part, complete",
        "too_many_parts": "upload_part with the number 10,001, complete",
    }

    def __init__(self, connection: Any) -> None:
        style = {} if connection.endpoint_url is None else {"addressing_style": "path"}
        self.timeout_s = connection.timeout_s
        patience = {} if self.timeout_s is None else {"connect_timeout": self.timeout_s, "read_timeout": self.timeout_s}
        config = Config(
            max_pool_connections=connection.pool_size,
            retries={"mode": connection.retry_mode, "total_max_attempts": connection.retry_attempts},
            s3=style,
            **patience,
        )
        self.arguments = {"endpoint_url": connection.endpoint_url, "region_name": connection.region, "config": config}
        self.client = boto3.client("s3", **self.arguments)
        chunk = {} if connection.block_bytes is None else {"multipart_chunksize": connection.block_bytes}
        self.transfer = TransferConfig(max_concurrency=connection.concurrency, **chunk)
        self.pool = ThreadPoolExecutor(connection.concurrency)

    def applied(self) -> dict[str, Any]:
        """Read the settings back from the client and its transfer configuration."""
        config = self.client.meta.config
        return {
            "concurrency": self.transfer.max_concurrency,
            "block_bytes": self.transfer.multipart_chunksize,
            "pool_size": config.max_pool_connections,
            "retry_mode": config.retries["mode"],
            "retry_attempts": config.retries["total_max_attempts"],
            "timeout_s": None if self.timeout_s is None else config.read_timeout,
        }

    def warm_up(self, bucket: str, key: str) -> None:
        """Look one object up."""
        self.client.head_object(Bucket=bucket, Key=key)

    def read(self, job: Any) -> bytes:
        """Read one object whole."""
        return self._read(job.bucket, job.keys[0])

    def _read(self, bucket: str, key: str) -> bytes:
        data: bytes = self.client.get_object(Bucket=bucket, Key=key)["Body"].read()
        return data

    def write(self, job: Any) -> None:
        """Write one object from memory."""
        self.client.upload_fileobj(io.BytesIO(job.payloads[0]), job.bucket, job.keys[0], Config=self.transfer)

    def copy(self, job: Any) -> None:
        """Copy one object within the store."""
        source = {"Bucket": job.bucket, "Key": job.keys[0]}
        self.client.copy(source, job.bucket, job.targets[0], Config=self.transfer)

    def put_file(self, job: Any) -> None:
        """Upload one file."""
        self.client.upload_file(job.paths[0], job.bucket, job.keys[0], Config=self.transfer)

    def get_file(self, job: Any) -> None:
        """Download one object to a file."""
        self.client.download_file(job.bucket, job.keys[0], job.paths[0], Config=self.transfer)

    def cat(self, job: Any) -> list[bytes]:
        """Read many objects."""
        return list(self.pool.map(lambda key: self._read(job.bucket, key), job.keys))

    def pipe(self, job: Any) -> None:
        """Write many objects from memory."""

        def write(key: str, data: bytes) -> None:
            self.client.put_object(Bucket=job.bucket, Key=key, Body=data)

        list(self.pool.map(write, job.keys, job.payloads))

    def put(self, job: Any) -> None:
        """Upload many files."""

        def upload(path: str, key: str) -> None:
            with Path(path).open("rb") as file:
                self.client.put_object(Bucket=job.bucket, Key=key, Body=file)

        list(self.pool.map(upload, job.paths, job.keys))

    def get(self, job: Any) -> None:
        """Download many objects to files."""

        def download(key: str, path: str) -> None:
            body = self.client.get_object(Bucket=job.bucket, Key=key)["Body"]
            with Path(path).open("wb") as file:
                for chunk in body.iter_chunks(1 << 20):
                    file.write(chunk)

        list(self.pool.map(download, job.keys, job.paths))

    def copy_many(self, job: Any) -> None:
        """Copy many objects within the store."""

        def copy(key: str, target: str) -> None:
            self.client.copy_object(Bucket=job.bucket, Key=target, CopySource={"Bucket": job.bucket, "Key": key})

        list(self.pool.map(copy, job.keys, job.targets))

    def rm(self, job: Any) -> None:
        """Remove many objects."""
        for start in range(0, len(job.keys), DELETE_BATCH):
            objects = [{"Key": key} for key in job.keys[start : start + DELETE_BATCH]]
            answer = self.client.delete_objects(Bucket=job.bucket, Delete={"Objects": objects, "Quiet": True})
            if answer.get("Errors"):
                raise OSError(f"not removed: {answer['Errors'][0]}")

    def find(self, job: Any) -> list[str]:
        """List a prefix."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=job.bucket, Prefix=job.prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", ())]

    def info(self, job: Any) -> list[int]:
        """Look many objects up."""
        return list(
            self.pool.map(lambda key: self.client.head_object(Bucket=job.bucket, Key=key)["ContentLength"], job.keys)
        )

    # --- other ways to use it ---

    def download_whole(self, job: Any) -> None:
        """Read one object whole, then write it."""
        Path(job.paths[0]).write_bytes(self._read(job.bucket, job.keys[0]))

    def _stream(self, bucket: str, key: str, path: str) -> None:
        body = self.client.get_object(Bucket=bucket, Key=key)["Body"]
        with Path(path).open("wb") as file:
            for chunk in body.iter_chunks(CHUNK_BYTES):
                file.write(chunk)

    def download_streamed(self, job: Any) -> None:
        """Write one object as it comes."""
        self._stream(job.bucket, job.keys[0], job.paths[0])

    def download_atomic(self, job: Any) -> None:
        """Write one object as it comes, under its final name only when it is whole."""
        part = job.paths[0] + ".part"
        self._stream(job.bucket, job.keys[0], part)
        Path(part).replace(job.paths[0])

    def put_whole(self, job: Any) -> None:
        """Upload one file in one request."""
        self.client.put_object(Bucket=job.bucket, Key=job.keys[0], Body=Path(job.paths[0]).read_bytes())

    def put_parts(self, job: Any) -> None:
        """Upload one file in parts, each read right before it is sent."""
        target = {"Bucket": job.bucket, "Key": job.keys[0]}
        target["UploadId"] = self.client.create_multipart_upload(**target)["UploadId"]

        def send(number: int) -> dict[str, Any]:
            data = _part_of(job.paths[0], number, job.block_bytes)
            answer = self.client.upload_part(**target, PartNumber=number, Body=data)
            return {"PartNumber": number, "ETag": answer["ETag"]}

        parts = list(self.pool.map(send, range(1, -(-job.object_bytes // job.block_bytes) + 1)))
        self.client.complete_multipart_upload(**target, MultipartUpload={"Parts": parts})

    def cat_client_each(self, job: Any) -> list[bytes]:
        """Read many objects, each by a client made for it."""

        def read(key: str) -> bytes:
            client = boto3.client("s3", **self.arguments)
            data: bytes = client.get_object(Bucket=job.bucket, Key=key)["Body"].read()
            client.close()
            return data

        return list(self.pool.map(read, job.keys))

    def cat_head_first(self, job: Any) -> list[bytes]:
        """Look each object up before reading it."""

        def read(key: str) -> bytes:
            self.client.head_object(Bucket=job.bucket, Key=key)
            return self._read(job.bucket, key)

        return list(self.pool.map(read, job.keys))

    def cat_presigned(self, job: Any) -> list[bytes]:
        """Sign for each object, and have a plain HTTP client fetch it."""
        # The SDK takes the authority's certificate from this variable; a plain client must be told.
        trusted = os.environ.get("AWS_CA_BUNDLE")
        with urllib3.PoolManager(maxsize=job.concurrency, ca_certs=trusted, retries=False) as http:

            def fetch(key: str) -> bytes:
                url = self.client.generate_presigned_url("get_object", Params={"Bucket": job.bucket, "Key": key})
                answer = http.request("GET", url)
                if answer.status != 200:
                    raise OSError(f"status {answer.status}")
                return bytes(answer.data)

            return list(self.pool.map(fetch, job.keys))

    def get_after_listing(self, job: Any) -> None:
        """List a prefix to its end, then download what it holds."""
        targets = dict(zip(job.keys, job.paths, strict=True))
        keys = [key for page in self._pages(job) for key in page]
        list(self.pool.map(lambda key: self._stream(job.bucket, key, targets[key]), keys))

    def get_behind_listing(self, job: Any) -> None:
        """Download what a page lists while the next page is fetched."""
        targets = dict(zip(job.keys, job.paths, strict=True))
        started = [
            self.pool.submit(self._stream, job.bucket, key, targets[key]) for page in self._pages(job) for key in page
        ]
        for each in started:
            each.result()

    def _pages(self, job: Any) -> Iterator[list[str]]:
        paging = {"PageSize": PAGE_KEYS}
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=job.bucket, Prefix=job.prefix, PaginationConfig=paging
        )
        for page in pages:
            yield [entry["Key"] for entry in page.get("Contents", ())]

    def rm_each(self, job: Any) -> None:
        """Remove many objects, one request each."""
        list(self.pool.map(lambda key: self.client.delete_object(Bucket=job.bucket, Key=key), job.keys))

    def find_prefixes(self, job: Any) -> list[str]:
        """List the prefixes that are known beforehand, side by side."""

        def keys_of(prefix: str) -> list[str]:
            pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=job.bucket, Prefix=prefix)
            return [entry["Key"] for page in pages for entry in page.get("Contents", ())]

        known = sorted({key[:-PREFIX_LETTERS] for key in job.keys})
        return [key for keys in self.pool.map(keys_of, known) for key in keys]

    # --- questions of another kind than how fast ---

    def unread_bodies(self, job: Any) -> dict[str, Any]:
        """Leave two bodies unread, ask for a third object, then close the two and ask again."""
        held = [self.client.get_object(Bucket=job.bucket, Key=job.keys[number]) for number in range(2)]
        facts: dict[str, Any] = {"third_error": None}
        started = time.perf_counter()
        third = self.pool.submit(self._read, job.bucket, job.keys[2])
        try:
            third.result(PATIENCE_S)
        except TimeoutError:
            facts["third_error"] = "limit"
        except Exception as error:
            facts["third_error"] = type(error).__name__
        facts["third_ms"] = (time.perf_counter() - started) * 1000
        for answer in held:
            answer["Body"].close()
        started = time.perf_counter()
        self._read(job.bucket, job.keys[2])
        facts["after_close_ms"] = (time.perf_counter() - started) * 1000
        return facts

    def cat_throttled(self, job: Any) -> dict[str, Any]:
        """Read many objects and count what arrives."""
        errors: Counter[str] = Counter()
        waits_s = []

        def read(key: str) -> bool:
            started = time.perf_counter()
            try:
                return len(self._read(job.bucket, key)) == job.object_bytes
            except Exception as error:
                errors[code_of(error)] += 1
                return False
            finally:
                waits_s.append(time.perf_counter() - started)

        return counted(list(self.pool.map(read, job.keys)), errors, max(waits_s))

    def incomplete_upload(self, job: Any) -> dict[str, Any]:
        """Begin an upload, and look whether it stays listed."""
        target = {"Bucket": job.bucket, "Key": job.keys[0]}
        upload_id = self.client.create_multipart_upload(**target)["UploadId"]
        self.client.upload_part(**target, UploadId=upload_id, PartNumber=1, Body=job.payloads[0])

        def listed() -> int:
            return len(self.client.list_multipart_uploads(Bucket=job.bucket, Prefix=job.keys[0]).get("Uploads", ()))

        facts = {"listed_at_once": listed(), "waited_ms": 2000}
        time.sleep(2)
        facts["listed_later"] = listed()
        self.client.abort_multipart_upload(**target, UploadId=upload_id)
        facts["listed_after_abort"] = listed()
        return facts

    def small_parts(self, job: Any) -> dict[str, Any]:
        """Complete an upload of two parts of 1 KiB."""
        return self._refused(job, [1, 2], "two parts of 1 KiB")

    def too_many_parts(self, job: Any) -> dict[str, Any]:
        """Send a part with a number beyond 10,000."""
        return self._refused(job, [10_001], "a part numbered 10,001")

    def _refused(self, job: Any, numbers: list[int], what: str) -> dict[str, Any]:
        target = {"Bucket": job.bucket, "Key": job.keys[0]}
        target["UploadId"] = self.client.create_multipart_upload(**target)["UploadId"]
        parts, step = [], "upload_part"
        try:
            for number in numbers:
                answer = self.client.upload_part(**target, PartNumber=number, Body=job.payloads[0])
                parts.append({"PartNumber": number, "ETag": answer["ETag"]})
            step = "complete"
            self.client.complete_multipart_upload(**target, MultipartUpload={"Parts": parts})
        except ClientError as error:
            return {"what": what, "code": code_of(error), "refused_at": step}
        return {"what": what, "code": None, "refused_at": None}

    def close(self) -> None:
        """Free threads and connections."""
        self.pool.shutdown()
        self.client.close()


class ToThread(Boto3Threads):
    """The same client on an event loop, each call by `asyncio.to_thread`: in the loop's default executor."""

    OPERATIONS = {"cat": "get_object, Body.read() by asyncio.to_thread, a semaphore"}
    EVENT_LOOP = True

    def __init__(self, connection: Any) -> None:
        # Imported here: boto3 alone doesn't need it, and its 2 MiB would be taken for boto3's.
        import asyncio

        super().__init__(connection)
        self.asyncio = asyncio
        self.loop = asyncio.new_event_loop()
        self.concurrency = connection.concurrency

    def event_loop(self) -> Any:
        """Return the loop from which the threads are started."""
        return self.loop

    def cat(self, job: Any) -> list[bytes]:
        """Read many objects."""
        return self.loop.run_until_complete(self._cat(job))

    async def _cat(self, job: Any) -> list[bytes]:
        semaphore = self.asyncio.Semaphore(self.concurrency)

        async def read(key: str) -> bytes:
            async with semaphore:
                return await self.asyncio.to_thread(self._read, job.bucket, key)

        return list(await self.asyncio.gather(*map(read, job.keys)))

    def close(self) -> None:
        """Free threads, connections and the loop."""
        super().close()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


class ToThread64(ToThread):
    """The same with an executor of 64 threads as the loop's default."""

    OPERATIONS = {"cat": "the same in an executor of 64 threads"}

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self.loop.set_default_executor(ThreadPoolExecutor(64))


CLIENTS = {"boto3-threads": Boto3Threads, "boto3-to-thread": ToThread, "boto3-to-thread-64": ToThread64}
