"""aioboto3: one shared client, managed transfers for files, a semaphore for many objects."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import aioboto3
import aiofiles
from aiobotocore.config import AioConfig
from boto3.s3.transfer import TransferConfig

DELETE_BATCH = 1000


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
    }

    def __init__(self, connection: Any) -> None:
        style = {} if connection.endpoint_url is None else {"addressing_style": "path"}
        chunk = {} if connection.block_bytes is None else {"multipart_chunksize": connection.block_bytes}
        self.transfer = TransferConfig(max_concurrency=connection.concurrency, **chunk)
        self.concurrency = connection.concurrency
        # Not asyncio.run() or a Runner: on leaving, they have CPython (3.11 to 3.13) format the coroutine's result for an
        # error message that nobody sees, which costs 0.5 s for 32 MiB and would be taken for the client's.
        self.loop = asyncio.new_event_loop()
        self.context = aioboto3.Session().client(
            "s3",
            endpoint_url=connection.endpoint_url,
            region_name=connection.region,
            config=AioConfig(
                max_pool_connections=connection.pool_size,
                retries={"mode": connection.retry_mode, "total_max_attempts": connection.retry_attempts},
                s3=style,
            ),
        )
        self.client = self.loop.run_until_complete(self._enter())

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

    def close(self) -> None:
        """Close the client and its event loop."""
        self.loop.run_until_complete(self.context.__aexit__(None, None, None))
        self.loop.close()


CLIENTS = {"aioboto3": AioBoto3}
