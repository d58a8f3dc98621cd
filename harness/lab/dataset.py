"""What the clients work on: objects on the store, files to send, and the truth about both."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.lab.bucket import Bucket
from harness.lab.content import digest_of_file, write_file
from harness.lab.process import Answer
from harness.model import Case, Failed, FailureKind, Objects, Trial

COPIES = 2
"""Sets of the same shape, served in turn, so that no two clients in a row are served the same keys."""

READS = frozenset({"read", "get_file", "cat", "get", "copy", "copy_many", "find", "info"})
"""Operations that work on objects which are on the store beforehand."""
WRITES = frozenset({"write", "put_file", "pipe", "put"})
FROM_MEMORY = frozenset({"write", "pipe"})
TO_FILES = frozenset({"get_file", "get"})
TO_STORE = WRITES | {"copy", "copy_many"}
KNOWN = frozenset({"allocate", "hold_threads", "burn_cpu", "pause"})
"""Operations of the known client, which leave the store alone."""
MOVES_NOTHING = KNOWN | {"rm", "find", "info"}
"""Operations that move no contents: their unit is the object."""


@dataclass(frozen=True)
class ObjectSet:
    """Objects of one shape: their keys on the store, the local files of the same contents, and the checksums."""

    objects: Objects
    keys: tuple[str, ...]
    paths: tuple[Path, ...]
    digests: tuple[str, ...]
    prefix: str


@dataclass(frozen=True)
class Task:
    """What one trial works on, where it may write, and what must be there afterwards."""

    source: ObjectSet
    prefix: str
    """Below it, and nowhere else on the store, the trial writes."""
    folder: Path
    """In it, and nowhere else on disk, the trial writes."""
    keys: tuple[str, ...]
    targets: tuple[str, ...]
    paths: tuple[Path, ...]
    payload_paths: tuple[Path, ...]


class Dataset:
    """All object sets of a run, and the hands that lay them out and clear them away."""

    def __init__(self, bucket: Bucket, folder: Path, seed: int) -> None:
        self._bucket = bucket
        self._folder = folder
        self._seed = seed
        self._name = folder.name
        folder.mkdir()
        self._sets: dict[tuple[Objects, int], ObjectSet] = {}

    @property
    def warm_up_key(self) -> str:
        return f"{self._bucket.prefix}/{self._name}/warm-up"

    def prepare(self, cases: Iterable[Case], tell: Callable[[str], None]) -> None:
        """Make the contents of every shape that `cases` need, and put on the store what is read from there."""
        self._bucket.put(self.warm_up_key, b"bench warm-up\n")
        by_shape: dict[Objects, set[str]] = {}
        for case in cases:
            by_shape.setdefault(case.objects, set()).add(case.operation)
        for objects, operations in by_shape.items():
            tell(f"contents {objects.count} x {objects.size_bytes >> 10} KiB, {COPIES} sets")
            for copy in range(COPIES):
                self._sets[objects, copy] = self._make_set(objects, copy, operations)

    def _make_set(self, objects: Objects, copy: int, operations: set[str]) -> ObjectSet:
        name = f"{objects.count}x{objects.size_bytes}/{copy}"
        folder = self._folder / name
        folder.mkdir(parents=True)
        numbers = range(objects.count)
        paths = tuple(folder / f"{number:05d}" for number in numbers)
        prefix = f"{self._bucket.prefix}/{self._name}/{name}"
        keys = tuple(f"{prefix}/{path.name}" for path in paths)
        if operations <= KNOWN:
            return ObjectSet(objects, keys, paths, (), prefix + "/")
        for path in paths:
            write_file(path, f"{self._seed}/{name}/{path.name}", objects.size_bytes)
        digests = tuple(digest_of_file(path) for path in paths)
        if operations & READS or "rm" in operations:
            self._bucket.upload_many(paths, keys)
        if not operations & WRITES:
            shutil.rmtree(folder)
        return ObjectSet(objects, keys, paths, digests, prefix + "/")

    def lay_out(self, trial: Trial) -> Task:
        """Make room for one trial, and for `rm` the objects that it removes."""
        case = trial.case
        source = self._sets[case.objects, trial.sequence % COPIES]
        prefix = f"{self._bucket.prefix}/{self._name}/trial-{trial.sequence}"
        folder = self._folder / f"trial-{trial.sequence}"
        folder.mkdir()
        own_keys = tuple(f"{prefix}/{path.name}" for path in source.paths)
        if case.operation == "rm":
            self._bucket.copy_many(source.keys, own_keys)
        local = tuple(folder / path.name for path in source.paths) if case.operation in TO_FILES else source.paths
        return Task(
            source=source,
            prefix=prefix,
            folder=folder,
            keys=own_keys if case.operation in WRITES | {"rm"} else source.keys,
            targets=own_keys,
            paths=local,
            payload_paths=source.paths if case.operation in FROM_MEMORY else (),
        )

    def verify(self, trial: Trial, task: Task, answer: Answer) -> Failed | None:
        """Compare what the operation left or returned with the truth; None when every byte is as it must be."""
        problem = self._problem(trial.case.operation, task, answer)
        return Failed(FailureKind.WRONG_BYTES, problem, "") if problem else None

    def _problem(self, operation: str, task: Task, answer: Answer) -> str | None:
        truth, result = task.source, answer.result
        if operation in KNOWN:
            return None
        if operation in ("read", "cat"):
            return _differs(list(truth.digests), result.digests or [], "objects returned")
        if operation in TO_FILES:
            found = sorted(path for path in task.folder.rglob("*") if path.is_file())
            if found != sorted(task.paths):
                return f"{len(found)} local files where {len(task.paths)} were asked for"
            return _differs(list(truth.digests), [digest_of_file(path) for path in task.paths], "files")
        if operation in TO_STORE:
            return self._stored_problem(task)
        if operation == "rm":
            left = self._bucket.sizes(task.prefix + "/")
            return f"{len(left)} objects are still there" if left else None
        if operation == "find":
            return _differs(sorted(truth.keys), sorted(result.names or []), "names")
        return _differs([truth.objects.size_bytes] * truth.objects.count, result.sizes or [], "sizes")

    def _stored_problem(self, task: Task) -> str | None:
        stored = self._bucket.sizes(task.prefix + "/")
        if sorted(stored) != sorted(task.targets):
            return f"{len(stored)} objects on the store where {len(task.targets)} were to be written"
        expected = [task.source.objects.size_bytes] * len(task.targets)
        return _differs(expected, [stored[key] for key in task.targets], "object lengths") or _differs(
            list(task.source.digests), self._bucket.digests(task.targets), "objects stored"
        )

    def remove(self) -> None:
        """Remove everything that this dataset put on the store and on disk."""
        self._bucket.remove(f"{self._bucket.prefix}/{self._name}/")
        shutil.rmtree(self._folder, ignore_errors=True)

    def clear(self, trial: Trial, task: Task) -> None:
        """Remove what the trial wrote, finished or not."""
        shutil.rmtree(task.folder, ignore_errors=True)
        if trial.case.operation in TO_STORE | {"rm"}:
            self._bucket.remove(task.prefix + "/")


def _differs(expected: list[object] | list[str] | list[int], found: object, what: str) -> str | None:
    if found == expected:
        return None
    pairs = zip(expected, found, strict=False) if isinstance(found, list) else ()
    wrong = sum(1 for one, other in pairs if one != other)
    count = len(found) if isinstance(found, list) else 0
    return f"{what}: {count} of {len(expected)} came back, {wrong} of them wrong"
