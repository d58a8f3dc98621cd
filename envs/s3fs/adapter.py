"""s3fs, by its public synchronous methods."""

from __future__ import annotations

from typing import Any

from s3fs import S3FileSystem


def paths(bucket: str, keys: list[str]) -> list[str]:
    """Return the filesystem's paths of some keys."""
    return [f"{bucket}/{key}" for key in keys]


class S3fs:
    """One S3FileSystem."""

    OPERATIONS = {
        "read": "fs.open(path, 'rb').read()",
        "write": "fs.open(path, 'wb'), write(1 MiB) until all is written, close",
        "copy": "fs.copy(path, path); one request up to 5 GiB, then parts of its own 50 MiB",
        "put_file": "fs.put_file(file, path, chunksize=...)",
        "get_file": "fs.get_file(path, file, chunksize=...)",
        "cat": "fs.cat(paths, batch_size=...)",
        "pipe": "fs.pipe({path: data}, batch_size=...)",
        "put": "fs.put(files, paths, batch_size=...)",
        "get": "fs.get(paths, files, batch_size=...)",
        "copy_many": "fs.copy(paths, paths, batch_size=...)",
        "rm": "fs.rm(paths)",
        "find": "fs.find(prefix)",
        "info": "fs.info(path) in the harness's pool of threads",
    }

    EVENT_LOOP = True

    def __init__(self, connection: Any) -> None:
        config: dict[str, Any] = {
            "max_pool_connections": connection.pool_size,
            "retries": {"mode": connection.retry_mode, "total_max_attempts": connection.retry_attempts},
        }
        self.timeout_s = connection.timeout_s
        if self.timeout_s is not None:
            config |= {"connect_timeout": self.timeout_s, "read_timeout": self.timeout_s}
        endpoint = {}
        if connection.endpoint_url is not None:
            config["s3"] = {"addressing_style": "path"}
            endpoint = {"endpoint_url": connection.endpoint_url}
        self.fs = S3FileSystem(
            client_kwargs={"region_name": connection.region},
            max_concurrency=connection.concurrency,
            default_block_size=connection.block_bytes,
            config_kwargs=config,
            # A listing or lookup that was answered from a cache would not be one.
            use_listings_cache=False,
            skip_instance_cache=True,
            **endpoint,
        )
        self.chunk = {} if connection.block_bytes is None else {"chunksize": connection.block_bytes}
        self.batch = {"batch_size": connection.concurrency}

    def applied(self) -> dict[str, Any]:
        """Read the settings back from the filesystem and its client, which exists since the warm-up."""
        config = self.fs.s3.meta.config
        return {
            "concurrency": self.fs.max_concurrency,
            "block_bytes": self.fs.default_block_size,
            "pool_size": config.max_pool_connections,
            "retry_mode": config.retries["mode"],
            "retry_attempts": config.retries["total_max_attempts"],
            "timeout_s": None if self.timeout_s is None else config.read_timeout,
        }

    def event_loop(self) -> Any:
        """Return the loop of fsspec's own thread, on which every call runs."""
        return self.fs.loop

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
        self.fs.copy(f"{job.bucket}/{job.keys[0]}", f"{job.bucket}/{job.targets[0]}")

    def put_file(self, job: Any) -> None:
        """Upload one file."""
        self.fs.put_file(job.paths[0], f"{job.bucket}/{job.keys[0]}", **self.chunk)

    def get_file(self, job: Any) -> None:
        """Download one object to a file."""
        self.fs.get_file(f"{job.bucket}/{job.keys[0]}", job.paths[0], **self.chunk)

    def cat(self, job: Any) -> Any:
        """Read many objects."""
        return self.fs.cat(paths(job.bucket, job.keys), **self.batch)

    def pipe(self, job: Any) -> Any:
        """Write many objects from memory."""
        return self.fs.pipe(dict(zip(paths(job.bucket, job.keys), job.payloads, strict=True)), **self.batch)

    def put(self, job: Any) -> Any:
        """Upload many files."""
        return self.fs.put(job.paths, paths(job.bucket, job.keys), **self.batch)

    def get(self, job: Any) -> Any:
        """Download many objects to files."""
        return self.fs.get(paths(job.bucket, job.keys), job.paths, **self.batch)

    def copy_many(self, job: Any) -> Any:
        """Copy many objects within the store."""
        return self.fs.copy(paths(job.bucket, job.keys), paths(job.bucket, job.targets), **self.batch)

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
        """Leave the session to the interpreter's exit, as the filesystem's users do."""


CLIENTS = {"s3fs": S3fs}
