"""What the clients work on: objects on the store, files to send, and the truth about both."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.lab.bucket import Bucket
from harness.lab.content import digest_of_file, write_file
from harness.lab.link import WARM_UP
from harness.lab.process import Answer
from harness.model import Case, Failed, FailureKind, Objects, Trial
from harness.operations import OPERATIONS, Kind, Leaves, Operation, Source

COPIES = 2
"""Sets of the same shape, served in turn, so that no two clients in a row are served the same keys."""


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
        return f"{self._bucket.prefix}/{self._name}/{WARM_UP}"

    def prepare(self, cases: Iterable[Case], tell: Callable[[str], None]) -> None:
        """Make the contents of every shape that `cases` need, and put on the store what is read from there."""
        self._bucket.put(self.warm_up_key, b"bench warm-up\n")
        by_shape: dict[Objects, set[Operation]] = {}
        for case in cases:
            by_shape.setdefault(case.objects, set()).add(OPERATIONS[case.operation])
        for objects, operations in by_shape.items():
            tell(f"contents {objects.count} x {objects.size_bytes >> 10} KiB, {COPIES} sets")
            for copy in range(COPIES):
                self._sets[objects, copy] = self._make_set(objects, copy, operations)

    def _make_set(self, objects: Objects, copy: int, operations: set[Operation]) -> ObjectSet:
        name = f"{objects.count}x{objects.size_bytes}/{copy}"
        folder = self._folder / name
        folder.mkdir(parents=True)
        numbers = range(objects.count)
        paths = tuple(folder / f"{number:05d}" for number in numbers)
        prefix = f"{self._bucket.prefix}/{self._name}/{name}"
        keys = tuple(f"{prefix}/{path.name}" for path in paths)
        if all(each.kind is Kind.KNOWN for each in operations):
            return ObjectSet(objects, keys, paths, (), prefix + "/")
        for path in paths:
            write_file(path, f"{self._seed}/{name}/{path.name}", objects.size_bytes)
        digests = tuple(digest_of_file(path) for path in paths)
        if any(each.reads for each in operations):
            self._bucket.upload_many(paths, keys)
        if not any(each.writes for each in operations):
            shutil.rmtree(folder)
        return ObjectSet(objects, keys, paths, digests, prefix + "/")

    def lay_out(self, trial: Trial) -> Task:
        """Make room for one trial, and objects of its own for what removes them."""
        case, operation = trial.case, OPERATIONS[trial.case.operation]
        source = self._sets[case.objects, trial.sequence % COPIES]
        prefix = f"{self._bucket.prefix}/{self._name}/trial-{trial.sequence}"
        folder = self._folder / f"trial-{trial.sequence}"
        folder.mkdir()
        own_keys = tuple(f"{prefix}/{path.name}" for path in source.paths)
        if operation.source is Source.OWN_OBJECTS:
            self._bucket.copy_many(source.keys, own_keys)
        local = tuple(folder / path.name for path in source.paths) if operation.leaves is Leaves.FILES else source.paths
        return Task(
            source=source,
            prefix=prefix,
            folder=folder,
            keys=source.keys if operation.source is Source.OBJECTS else own_keys,
            targets=own_keys,
            paths=local,
            payload_paths=source.paths if operation.source is Source.MEMORY else (),
        )

    def verify(self, trial: Trial, task: Task, answer: Answer) -> Failed | None:
        """Compare what the operation left or returned with the truth; None when every byte is as it must be."""
        problem = self._problem(OPERATIONS[trial.case.operation].leaves, task, answer)
        return Failed(FailureKind.WRONG_BYTES, problem, "") if problem else None

    def _problem(self, leaves: Leaves, task: Task, answer: Answer) -> str | None:
        truth, result = task.source, answer.result
        match leaves:
            case Leaves.NOTHING:
                return None
            case Leaves.BYTES:
                return _differs(list(truth.digests), result.digests or [], "objects returned")
            case Leaves.FILES:
                return _files_problem(task)
            case Leaves.OBJECTS:
                return self._stored_problem(task)
            case Leaves.ABSENCE:
                left = self._bucket.sizes(task.prefix + "/")
                return f"{len(left)} objects are still there" if left else None
            case Leaves.NAMES:
                return _differs(sorted(truth.keys), sorted(result.names or []), "names")
            case Leaves.SIZES:
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
        if OPERATIONS[trial.case.operation].touches_store:
            self._bucket.remove(task.prefix + "/")


def _files_problem(task: Task) -> str | None:
    found = sorted(path for path in task.folder.rglob("*") if path.is_file())
    if found != sorted(task.paths):
        return f"{len(found)} local files where {len(task.paths)} were asked for"
    return _differs(list(task.source.digests), [digest_of_file(path) for path in task.paths], "files")


def _differs(expected: list[object] | list[str] | list[int], found: object, what: str) -> str | None:
    if found == expected:
        return None
    pairs = zip(expected, found, strict=False) if isinstance(found, list) else ()
    wrong = sum(1 for one, other in pairs if one != other)
    count = len(found) if isinstance(found, list) else 0
    return f"{what}: {count} of {len(expected)} came back, {wrong} of them wrong"
