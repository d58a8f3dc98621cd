"""boto3 in threads: one shared client, managed transfers for files, a pool of threads for many objects."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config

DELETE_BATCH = 1000


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
    }

    def __init__(self, connection: Any) -> None:
        style = {} if connection.endpoint_url is None else {"addressing_style": "path"}
        self.client = boto3.client(
            "s3",
            endpoint_url=connection.endpoint_url,
            region_name=connection.region,
            config=Config(
                max_pool_connections=connection.pool_size,
                retries={"mode": connection.retry_mode, "total_max_attempts": connection.retry_attempts},
                s3=style,
            ),
        )
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

    def close(self) -> None:
        """Free threads and connections."""
        self.pool.shutdown()
        self.client.close()


CLIENTS = {"boto3-threads": Boto3Threads}
