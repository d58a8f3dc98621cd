"""aioboto3: one shared client, managed transfers for files, a semaphore for many objects; and other ways to use it."""

from __future__ import annotations

import asyncio
import io
import os
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import aioboto3
import aiofiles
import aiohttp
from aiobotocore.config import AioConfig
from boto3.s3.transfer import TransferConfig
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


class AioBoto3:
    """One client on one event loop, entered before the timed window."""

    OPERATIONS = {
        "read": "get_object, await Body.read()",
        "write": "upload_fileobj (managed)",
        "copy": "copy (managed)",
        "put_file": "upload_file (managed)",
        "get_file": "download_file (managed)",
        "cat": "get_object, await Body.read(), a semaphore",
        "pipe": "put_object, a semaphore",
        "put": "the file read by aiofiles, put_object, a semaphore",
        "get": "get_object, written by aiofiles in 1 MiB chunks, a semaphore",
        "copy_many": "copy_object, a semaphore",
        "rm": "delete_objects in thousands",
        "find": "list_objects_v2, paginated",
        "info": "head_object, a semaphore",
        "download_whole": "get_object, await Body.read(), the file written in a thread",
        "download_streamed": "get_object, 1 MiB chunks, each written in a thread",
        "download_atomic": "the same to a .part file, then renamed",
        "put_whole": "the file read whole, put_object",
        "put_parts": "create_multipart_upload, upload_part with `concurrency` in flight, complete",
        "cat_client_each": "a new client for each get_object",
        "cat_head_first": "head_object, then get_object, a semaphore",
        "cat_presigned": "generate_presigned_url, then aiohttp, a semaphore",
        "get_after_listing": "list_objects_v2 to its end, then get_object each",
        "get_behind_listing": "get_object of each key as its page of 100 arrives",
        "rm_each": "delete_object, a semaphore",
        "find_prefixes": "list_objects_v2 of each known prefix, a semaphore",
        "unread_bodies": "two get_object whose bodies stay unread, then a third",
        "cat_throttled": "get_object, await Body.read(), a semaphore; errors counted",
        "incomplete_upload": "create_multipart_upload, upload_part, list_multipart_uploads, abort",
        "small_parts": "create_multipart_upload, two small upload_part, complete",
        "too_many_parts": "upload_part with the number 10,001, complete",
    }
    EVENT_LOOP = True

    def __init__(self, connection: Any) -> None:
        style = {} if connection.endpoint_url is None else {"addressing_style": "path"}
        chunk = {} if connection.block_bytes is None else {"multipart_chunksize": connection.block_bytes}
        self.transfer = TransferConfig(max_concurrency=connection.concurrency, **chunk)
        self.concurrency = connection.concurrency
        # Not asyncio.run() or a Runner: on leaving, they have CPython (3.11 to 3.13) format the coroutine's result for an
        # error message that nobody sees, which costs 0.5 s for 32 MiB and would be taken for the client's.
        self.loop = asyncio.new_event_loop()
        self.timeout_s = connection.timeout_s
        patience = {} if self.timeout_s is None else {"connect_timeout": self.timeout_s, "read_timeout": self.timeout_s}
        config = AioConfig(
            max_pool_connections=connection.pool_size,
            retries={"mode": connection.retry_mode, "total_max_attempts": connection.retry_attempts},
            s3=style,
            **patience,
        )
        self.session = aioboto3.Session()
        self.arguments = {"endpoint_url": connection.endpoint_url, "region_name": connection.region, "config": config}
        self.context = self.session.client("s3", **self.arguments)
        self.client = self.loop.run_until_complete(self._enter())

    def event_loop(self) -> Any:
        """Return the loop on which everything runs."""
        return self.loop

    async def _enter(self) -> Any:
        return await self.context.__aenter__()

    def applied(self) -> dict[str, Any]:
        """Read the settings back from the client and its transfer configuration."""
        config = self.client.meta.config
        return {
            "concurrency": self.transfer.max_request_concurrency,
            "block_bytes": self.transfer.multipart_chunksize,
            "pool_size": config.max_pool_connections,
            "retry_mode": config.retries["mode"],
            "retry_attempts": config.retries["total_max_attempts"],
            "timeout_s": None if self.timeout_s is None else config.read_timeout,
        }

    def warm_up(self, bucket: str, key: str) -> None:
        """Look one object up."""
        self.loop.run_until_complete(self.client.head_object(Bucket=bucket, Key=key))

    async def _each(self, call: Callable[..., Awaitable[Any]], *items: Iterable[Any]) -> list[Any]:
        """Call for each item, `concurrency` at a time."""
        semaphore = asyncio.Semaphore(self.concurrency)

        async def limited(*values: Any) -> Any:
            async with semaphore:
                return await call(*values)

        return await asyncio.gather(*(limited(*values) for values in zip(*items, strict=True)))

    async def _read(self, bucket: str, key: str) -> bytes:
        answer = await self.client.get_object(Bucket=bucket, Key=key)
        async with answer["Body"] as body:
            data: bytes = await body.read()
            return data

    def read(self, job: Any) -> bytes:
        """Read one object whole."""
        return self.loop.run_until_complete(self._read(job.bucket, job.keys[0]))

    def write(self, job: Any) -> None:
        """Write one object from memory."""
        source = io.BytesIO(job.payloads[0])
        self.loop.run_until_complete(self.client.upload_fileobj(source, job.bucket, job.keys[0], Config=self.transfer))

    def copy(self, job: Any) -> None:
        """Copy one object within the store."""
        source = {"Bucket": job.bucket, "Key": job.keys[0]}
        self.loop.run_until_complete(self.client.copy(source, job.bucket, job.targets[0], Config=self.transfer))

    def put_file(self, job: Any) -> None:
        """Upload one file."""
        self.loop.run_until_complete(
            self.client.upload_file(job.paths[0], job.bucket, job.keys[0], Config=self.transfer)
        )

    def get_file(self, job: Any) -> None:
        """Download one object to a file."""
        self.loop.run_until_complete(
            self.client.download_file(job.bucket, job.keys[0], job.paths[0], Config=self.transfer)
        )

    def cat(self, job: Any) -> list[bytes]:
        """Read many objects."""
        return self.loop.run_until_complete(self._each(lambda key: self._read(job.bucket, key), job.keys))

    def pipe(self, job: Any) -> None:
        """Write many objects from memory."""

        async def write(key: str, data: bytes) -> None:
            await self.client.put_object(Bucket=job.bucket, Key=key, Body=data)

        self.loop.run_until_complete(self._each(write, job.keys, job.payloads))

    def put(self, job: Any) -> None:
        """Upload many files."""

        async def upload(path: str, key: str) -> None:
            async with aiofiles.open(path, "rb") as file:
                data = await file.read()
            await self.client.put_object(Bucket=job.bucket, Key=key, Body=data)

        self.loop.run_until_complete(self._each(upload, job.paths, job.keys))

    def get(self, job: Any) -> None:
        """Download many objects to files."""

        async def download(key: str, path: str) -> None:
            answer = await self.client.get_object(Bucket=job.bucket, Key=key)
            async with answer["Body"] as body, aiofiles.open(Path(path), "wb") as file:
                async for chunk in body.content.iter_chunked(1 << 20):
                    await file.write(chunk)

        self.loop.run_until_complete(self._each(download, job.keys, job.paths))

    def copy_many(self, job: Any) -> None:
        """Copy many objects within the store."""

        async def copy(key: str, target: str) -> None:
            await self.client.copy_object(Bucket=job.bucket, Key=target, CopySource={"Bucket": job.bucket, "Key": key})

        self.loop.run_until_complete(self._each(copy, job.keys, job.targets))

    def rm(self, job: Any) -> None:
        """Remove many objects."""
        self.loop.run_until_complete(self._remove(job))

    async def _remove(self, job: Any) -> None:
        for start in range(0, len(job.keys), DELETE_BATCH):
            objects = [{"Key": key} for key in job.keys[start : start + DELETE_BATCH]]
            answer = await self.client.delete_objects(Bucket=job.bucket, Delete={"Objects": objects, "Quiet": True})
            if answer.get("Errors"):
                raise OSError(f"not removed: {answer['Errors'][0]}")

    def find(self, job: Any) -> list[str]:
        """List a prefix."""
        return self.loop.run_until_complete(self._list(job))

    async def _list(self, job: Any) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=job.bucket, Prefix=job.prefix)
        return [entry["Key"] async for page in pages for entry in page.get("Contents", ())]

    def info(self, job: Any) -> list[int]:
        """Look many objects up."""

        async def size(key: str) -> int:
            answer = await self.client.head_object(Bucket=job.bucket, Key=key)
            length: int = answer["ContentLength"]
            return length

        return self.loop.run_until_complete(self._each(size, job.keys))

    # --- other ways to use it ---

    def download_whole(self, job: Any) -> None:
        """Read one object whole, then write it."""

        async def download() -> None:
            data = await self._read(job.bucket, job.keys[0])
            await asyncio.to_thread(Path(job.paths[0]).write_bytes, data)

        self.loop.run_until_complete(download())

    async def _stream(self, bucket: str, key: str, path: str) -> None:
        answer = await self.client.get_object(Bucket=bucket, Key=key)
        async with answer["Body"] as body:
            with Path(path).open("wb") as file:  # noqa: ASYNC230 - each write is in a thread
                async for chunk in body.content.iter_chunked(CHUNK_BYTES):
                    await asyncio.to_thread(file.write, chunk)

    def download_streamed(self, job: Any) -> None:
        """Write one object as it comes."""
        self.loop.run_until_complete(self._stream(job.bucket, job.keys[0], job.paths[0]))

    def download_atomic(self, job: Any) -> None:
        """Write one object as it comes, under its final name only when it is whole."""
        part = job.paths[0] + ".part"
        self.loop.run_until_complete(self._stream(job.bucket, job.keys[0], part))
        Path(part).replace(job.paths[0])

    def put_whole(self, job: Any) -> None:
        """Upload one file in one request."""

        async def upload() -> None:
            data = await asyncio.to_thread(Path(job.paths[0]).read_bytes)
            await self.client.put_object(Bucket=job.bucket, Key=job.keys[0], Body=data)

        self.loop.run_until_complete(upload())

    def put_parts(self, job: Any) -> None:
        """Upload one file in parts, each read right before it is sent."""
        self.loop.run_until_complete(self._put_parts(job))

    async def _put_parts(self, job: Any) -> None:
        target = {"Bucket": job.bucket, "Key": job.keys[0]}
        upload = await self.client.create_multipart_upload(**target)
        target["UploadId"] = upload["UploadId"]

        async def send(number: int) -> dict[str, Any]:
            data = await asyncio.to_thread(_part_of, job.paths[0], number, job.block_bytes)
            answer = await self.client.upload_part(**target, PartNumber=number, Body=data)
            return {"PartNumber": number, "ETag": answer["ETag"]}

        parts = await self._each(send, range(1, -(-job.object_bytes // job.block_bytes) + 1))
        await self.client.complete_multipart_upload(**target, MultipartUpload={"Parts": parts})

    def cat_client_each(self, job: Any) -> list[bytes]:
        """Read many objects, each by a client made for it."""

        async def read(key: str) -> bytes:
            async with self.session.client("s3", **self.arguments) as client:
                answer = await client.get_object(Bucket=job.bucket, Key=key)
                data: bytes = await answer["Body"].read()
                return data

        return self.loop.run_until_complete(self._each(read, job.keys))

    def cat_head_first(self, job: Any) -> list[bytes]:
        """Look each object up before reading it."""

        async def read(key: str) -> bytes:
            await self.client.head_object(Bucket=job.bucket, Key=key)
            return await self._read(job.bucket, key)

        return self.loop.run_until_complete(self._each(read, job.keys))

    def cat_presigned(self, job: Any) -> list[bytes]:
        """Sign for each object, and have a plain HTTP client fetch it."""
        return self.loop.run_until_complete(self._fetch_presigned(job))

    async def _fetch_presigned(self, job: Any) -> list[bytes]:
        # The SDK takes the authority's certificate from this variable; a plain client must be told.
        trusted = ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE"))
        connector = aiohttp.TCPConnector(limit=self.concurrency, ssl=trusted)
        async with aiohttp.ClientSession(connector=connector) as session:

            async def fetch(key: str) -> bytes:
                place = {"Bucket": job.bucket, "Key": key}
                url = await self.client.generate_presigned_url("get_object", Params=place)
                async with session.get(url, raise_for_status=True) as answer:
                    return await answer.read()

            return await self._each(fetch, job.keys)

    def get_after_listing(self, job: Any) -> None:
        """List a prefix to its end, then download what it holds."""
        targets = dict(zip(job.keys, job.paths, strict=True))

        async def run() -> None:
            keys = [key async for page in self._pages(job) for key in page]
            await self._each(lambda key: self._stream(job.bucket, key, targets[key]), keys)

        self.loop.run_until_complete(run())

    def get_behind_listing(self, job: Any) -> None:
        """Download what a page lists while the next page is fetched."""
        targets = dict(zip(job.keys, job.paths, strict=True))

        async def run() -> None:
            semaphore = asyncio.Semaphore(self.concurrency)

            async def limited(key: str) -> None:
                async with semaphore:
                    await self._stream(job.bucket, key, targets[key])

            async with asyncio.TaskGroup() as tasks:
                async for page in self._pages(job):
                    for key in page:
                        tasks.create_task(limited(key))

        self.loop.run_until_complete(run())

    async def _pages(self, job: Any) -> AsyncIterator[list[str]]:
        paging = {"PageSize": PAGE_KEYS}
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=job.bucket, Prefix=job.prefix, PaginationConfig=paging
        )
        async for page in pages:
            yield [entry["Key"] for entry in page.get("Contents", ())]

    def rm_each(self, job: Any) -> None:
        """Remove many objects, one request each."""

        async def remove(key: str) -> None:
            await self.client.delete_object(Bucket=job.bucket, Key=key)

        self.loop.run_until_complete(self._each(remove, job.keys))

    def find_prefixes(self, job: Any) -> list[str]:
        """List the prefixes that are known beforehand, side by side."""

        async def keys_of(prefix: str) -> list[str]:
            pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=job.bucket, Prefix=prefix)
            return [entry["Key"] async for page in pages for entry in page.get("Contents", ())]

        known = sorted({key[:-PREFIX_LETTERS] for key in job.keys})
        return [key for keys in self.loop.run_until_complete(self._each(keys_of, known)) for key in keys]

    # --- questions of another kind than how fast ---

    def unread_bodies(self, job: Any) -> dict[str, Any]:
        """Leave two bodies unread, ask for a third object, then close the two and ask again."""
        return self.loop.run_until_complete(self._unread(job))

    async def _unread(self, job: Any) -> dict[str, Any]:
        held = [await self.client.get_object(Bucket=job.bucket, Key=job.keys[number]) for number in range(2)]
        facts: dict[str, Any] = {"third_error": None}
        started = time.perf_counter()
        try:
            await asyncio.wait_for(self._read(job.bucket, job.keys[2]), PATIENCE_S)
        except TimeoutError:
            facts["third_error"] = "limit"
        except Exception as error:
            facts["third_error"] = type(error).__name__
        facts["third_ms"] = (time.perf_counter() - started) * 1000
        for answer in held:
            answer["Body"].close()
        started = time.perf_counter()
        await self._read(job.bucket, job.keys[2])
        facts["after_close_ms"] = (time.perf_counter() - started) * 1000
        return facts

    def cat_throttled(self, job: Any) -> dict[str, Any]:
        """Read many objects and count what arrives."""
        longest_s, errors = 0.0, Counter()

        async def read(key: str) -> bool:
            nonlocal longest_s
            started = time.perf_counter()
            try:
                return len(await self._read(job.bucket, key)) == job.object_bytes
            except Exception as error:
                errors[code_of(error)] += 1
                return False
            finally:
                longest_s = max(longest_s, time.perf_counter() - started)

        arrived = self.loop.run_until_complete(self._each(read, job.keys))
        return counted(arrived, errors, longest_s)

    def incomplete_upload(self, job: Any) -> dict[str, Any]:
        """Begin an upload, and look whether it stays listed."""
        return self.loop.run_until_complete(self._incomplete(job))

    async def _incomplete(self, job: Any) -> dict[str, Any]:
        target = {"Bucket": job.bucket, "Key": job.keys[0]}
        upload = await self.client.create_multipart_upload(**target)
        await self.client.upload_part(**target, UploadId=upload["UploadId"], PartNumber=1, Body=job.payloads[0])

        async def listed() -> int:
            answer = await self.client.list_multipart_uploads(Bucket=job.bucket, Prefix=job.keys[0])
            return len(answer.get("Uploads", ()))

        facts = {"listed_at_once": await listed(), "waited_ms": 2000}
        await asyncio.sleep(2)
        facts["listed_later"] = await listed()
        await self.client.abort_multipart_upload(**target, UploadId=upload["UploadId"])
        facts["listed_after_abort"] = await listed()
        return facts

    def small_parts(self, job: Any) -> dict[str, Any]:
        """Complete an upload of two parts of 1 KiB."""
        return self.loop.run_until_complete(self._refused(job, [1, 2], "two parts of 1 KiB"))

    def too_many_parts(self, job: Any) -> dict[str, Any]:
        """Send a part with a number beyond 10,000."""
        return self.loop.run_until_complete(self._refused(job, [10_001], "a part numbered 10,001"))

    async def _refused(self, job: Any, numbers: list[int], what: str) -> dict[str, Any]:
        target = {"Bucket": job.bucket, "Key": job.keys[0]}
        upload = await self.client.create_multipart_upload(**target)
        target["UploadId"] = upload["UploadId"]
        parts, step = [], "upload_part"
        try:
            for number in numbers:
                answer = await self.client.upload_part(**target, PartNumber=number, Body=job.payloads[0])
                parts.append({"PartNumber": number, "ETag": answer["ETag"]})
            step = "complete"
            await self.client.complete_multipart_upload(**target, MultipartUpload={"Parts": parts})
        except ClientError as error:
            return {"what": what, "code": code_of(error), "refused_at": step}
        return {"what": what, "code": None, "refused_at": None}

    def close(self) -> None:
        """Close the client and its event loop."""
        self.loop.run_until_complete(self.context.__aexit__(None, None, None))
        self.loop.close()


CLIENTS = {"aioboto3": AioBoto3}
