"""run.json: made before the first trial, and held against the present when a run is resumed."""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Mapping, Sequence

from harness import __version__, plan
from harness.errors import ResumeRefusedError
from harness.lab import environments, host
from harness.lab.environments import InstalledClient
from harness.lab.link import limits_uploads
from harness.model import (
    SCHEMA_VERSION,
    Ceilings,
    Decision,
    Filters,
    Finding,
    Link,
    Rules,
    Run,
    StoreInfo,
    Suite,
    Trial,
)


def new_run_id(suite: str, profile: str) -> str:
    """Return a name that sorts by time and that two hosts will not both choose."""
    now = datetime.datetime.now(datetime.UTC)
    return f"{now:%Y%m%d-%H%M%S}-{suite}-{profile}-{secrets.token_hex(2)}"


def make(
    run_id: str,
    command: str,
    suite: Suite,
    suite_file: str,
    trials: Sequence[Trial],
    seed: int,
    filters: Filters,
    clients: Mapping[str, InstalledClient],
    store: StoreInfo,
    links: Sequence[Link],
    ceilings: Ceilings | None,
    fitness: tuple[Finding, ...],
    decision: Decision | None,
    *,
    tls: bool,
) -> Run:
    return Run(
        schema=SCHEMA_VERSION,
        id=run_id,
        created_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        command=command,
        bench_version=__version__,
        bench_commit=host.commit(),
        suite=suite.name,
        suite_file=suite_file,
        suite_title=suite.title,
        profile=suite.profile,
        baseline=suite.baseline,
        seed=seed,
        filters=filters,
        tls=tls,
        link=links[0],
        more_links=tuple(links[1:]),
        ceiling_bytes_per_s=ceilings.download_bytes_per_s if ceilings else None,
        upload_rate_limited=links[0].stream_rate_bytes_per_s is not None and limits_uploads(),
        store=store,
        host=host.inspect(),
        clients=tuple(client.info for client in clients.values()),
        cases=suite.cases,
        trial_count=len(trials),
        plan_digest=plan.digest(trials),
        ceilings=ceilings,
        rules=Rules(),
        fitness=fitness,
        decision=decision,
    )


def refuse_if_changed(
    run: Run, trials: Sequence[Trial], clients: Mapping[str, InstalledClient], store: StoreInfo
) -> None:
    """Raise ResumeRefusedError that names every difference between the run's beginning and now."""
    changed = host.differences(run.host, host.inspect())
    changed += environments.differences({c.name: c for c in run.clients}, {n: c.info for n, c in clients.items()})
    if plan.digest(trials) != run.plan_digest:
        changed.append("plan: the suite file, or the way a plan is made, yields other trials now")
    if store.versions != run.store.versions or store.settings != run.store.settings:
        changed.append(f"store: {run.store.versions} then, {store.versions} now")
    if changed:
        raise ResumeRefusedError(
            f"run {run.id} can't be resumed, for its trials would not be alike: {'; '.join(changed)}",
            "Restore what changed, or start a new run. What was measured stays readable: `bench show`.",
        )
