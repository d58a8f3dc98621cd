"""PyAthena's two S3 filesystems, by their public synchronous methods."""

from __future__ import annotations

from typing import Any

from pyathena.filesystem.s3 import S3FileSystem
from pyathena.filesystem.s3_async import AioS3FileSystem


def paths(bucket: str, keys: list[str]) -> list[str]:
    """Return the filesystem's paths of some keys."""
    return [f"{bucket}/{key}" for key in keys]


def arguments(connection: Any) -> dict[str, Any]:
    """Return what both filesystems are constructed with; a misspelt name would be ignored, so `applied` reads it back."""
    config: dict[str, Any] = {
        "max_pool_connections": connection.pool_size,
        "retries": {"mode": connection.retry_mode, "total_max_attempts": connection.retry_attempts},
    }
    patience = {}
    if connection.timeout_s is not None:
        patience = {"connect_timeout": connection.timeout_s, "read_timeout": connection.timeout_s}
    endpoint = {}
    if connection.endpoint_url is not None:
        config["s3"] = {"addressing_style": "path"}
        endpoint = {"endpoint_url": connection.endpoint_url}
    block = {} if connection.block_bytes is None else {"default_block_size": connection.block_bytes}
    return {
        "region_name": connection.region,
        "max_workers": connection.concurrency,
        "config_kwargs": config,
        # A listing or lookup that was answered from a cache would not be one.
        "use_listings_cache": False,
        "skip_instance_cache": True,
        **patience,
        **endpoint,
        **block,
    }


class Filesystem:
    """What both have in common."""

    OPERATIONS = {
        "read": "fs.open(path, 'rb').read()",
        "write": "fs.open(path, 'wb'), write(1 MiB) until all is written, close",
        "copy": "fs.copy(path, path, block_size=...); one request up to 5 GiB",
        "put_file": "fs.put_file(file, path)",
        "get_file": "fs.get_file(path, file)",
        "cat": "fs.cat(paths)",
        "pipe": "fs.pipe({path: data})",
        "put": "fs.put(files, paths)",
        "get": "fs.get(paths, files)",
        "copy_many": "fs.copy(paths, paths)",
        "rm": "fs.rm(paths)",
        "find": "fs.find(prefix)",
        "info": "fs.info(path) in the harness's pool of threads",
    }

    def __init__(self, fs: Any, sync_fs: Any, timeout_s: int | None) -> None:
        self.fs = fs
        self.sync_fs = sync_fs
        self.timeout_s = timeout_s

    def applied(self) -> dict[str, Any]:
        """Read the settings back from the filesystem and its client."""
        config = self.sync_fs.core.client.meta.config
        return {
            "concurrency": self.sync_fs.max_workers,
            "block_bytes": self.sync_fs.default_block_size,
            "pool_size": config.max_pool_connections,
            "retry_mode": config.retries["mode"],
            "retry_attempts": config.retries["total_max_attempts"],
            "timeout_s": None if self.timeout_s is None else config.read_timeout,
        }

    def warm_up(self, bucket: str, key: str) -> None:
        """Look one object up."""
        self.fs.info(f"{bucket}/{key}")

    def read(self, job: Any) -> Any:
        """Read one object whole."""
        with self.fs.open(f"{job.bucket}/{job.keys[0]}", "rb") as file:
            return file.read()

    def write(self, job: Any) -> None:
        """Write one object from memory."""
        with self.fs.open(f"{job.bucket}/{job.keys[0]}", "wb") as file:
            for piece in job.pieces():
                file.write(piece)

    def copy(self, job: Any) -> None:
        """Copy one object within the store."""
        block = {} if job.block_bytes is None else {"block_size": job.block_bytes}
        self.fs.copy(f"{job.bucket}/{job.keys[0]}", f"{job.bucket}/{job.targets[0]}", **block)

    def put_file(self, job: Any) -> None:
        """Upload one file."""
        self.fs.put_file(job.paths[0], f"{job.bucket}/{job.keys[0]}")

    def get_file(self, job: Any) -> None:
        """Download one object to a file."""
        self.fs.get_file(f"{job.bucket}/{job.keys[0]}", job.paths[0])

    def cat(self, job: Any) -> Any:
        """Read many objects."""
        return self.fs.cat(paths(job.bucket, job.keys))

    def pipe(self, job: Any) -> Any:
        """Write many objects from memory."""
        return self.fs.pipe(dict(zip(paths(job.bucket, job.keys), job.payloads, strict=True)))

    def put(self, job: Any) -> Any:
        """Upload many files."""
        return self.fs.put(job.paths, paths(job.bucket, job.keys))

    def get(self, job: Any) -> Any:
        """Download many objects to files."""
        return self.fs.get(paths(job.bucket, job.keys), job.paths)

    def copy_many(self, job: Any) -> Any:
        """Copy many objects within the store."""
        return self.fs.copy(paths(job.bucket, job.keys), paths(job.bucket, job.targets))

    def rm(self, job: Any) -> Any:
        """Remove many objects."""
        return self.fs.rm(paths(job.bucket, job.keys))

    def find(self, job: Any) -> Any:
        """List a prefix."""
        return self.fs.find(f"{job.bucket}/{job.prefix}")

    def info(self, job: Any) -> Any:
        """Look many objects up."""
        return job.concurrently(lambda path: self.fs.info(path)["size"], paths(job.bucket, job.keys))

    def close(self) -> None:
        """Leave the threads to the interpreter's exit, as a program does that uses a filesystem throughout."""


class Sync(Filesystem):
    """S3FileSystem: batches run one object at a time, so no batch size is given."""

    def __init__(self, connection: Any) -> None:
        fs = S3FileSystem(**arguments(connection))
        super().__init__(fs, fs, connection.timeout_s)


class Aio(Filesystem):
    """AioS3FileSystem: batches run `batch_size` at a time."""

    EVENT_LOOP = True

    def __init__(self, connection: Any) -> None:
        fs = AioS3FileSystem(batch_size=connection.concurrency, **arguments(connection))
        super().__init__(fs, fs._sync_fs, connection.timeout_s)

    def applied(self) -> dict[str, Any]:
        """Read the settings back; the batch size and the workers must both be the concurrency."""
        settings = super().applied()
        if self.fs.batch_size != settings["concurrency"]:
            settings["concurrency"] = self.fs.batch_size
        return settings

    def event_loop(self) -> Any:
        """Return the loop of fsspec's own thread, from which the workers are started."""
        return self.fs.loop

    def close(self) -> None:
        """Release the filesystem's threads."""
        self.fs.close()


CLIENTS = {"pyathena-sync": Sync, "pyathena-aio": Aio}
