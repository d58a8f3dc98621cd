"""What each command does. The only place that joins run, records and console."""

from __future__ import annotations

import json
import secrets
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import boto3
import msgspec
import typer

from harness import (
    compare,
    cost,
    decide,
    decisions,
    history,
    manifest,
    paths,
    plan,
    records,
    selftest,
    suites,
    summary,
    units,
)
from harness.console import Progress
from harness.errors import BenchError, UnknownNameError
from harness.lab import coupling, dependencies, doctor, environments, host, probe, versions
from harness.lab.environments import InstalledClient
from harness.lab.lab import NO_LINK, Lab, Target, open_lab
from harness.lab.versions import Version
from harness.model import (
    Ceilings,
    Decision,
    Filters,
    Finding,
    Level,
    Link,
    Phase,
    Run,
    RunSet,
    Suite,
    Trial,
    client_name,
)
from harness.output import err, out
from harness.report import terminal, view, write_report
from harness.report.build import build
from harness.report.verdicts import MAIN_METRICS, comparison_sections, decision_sections
from harness.run import GARBAGE_LIMIT_BYTES, Bench, execute, measure_ceilings, measure_known, scaled_rate

FLOOR = "floor"
TRACED_BLOCKS = 2
"""Measured blocks whose trials' requests are kept one by one; more would say the same again."""


def run(
    *,
    suite: str,
    profile: str | None,
    client: list[str] | None,
    scenario: list[str] | None,
    size: list[str] | None,
    blocks: int | None,
    link: str | None,
    control: str | None,
    with_versions: list[str] | None,
    until_decided: str | None,
    seed: int | None,
    tls: bool,
    bucket: str | None,
    prefix: str,
    endpoint_url: str | None,
    region: str | None,
    yes: bool,
    list_only: bool,
    as_json: bool,
    results: Path,
    envs: Path,
) -> None:
    target = _target(bucket, prefix, endpoint_url, region, link)
    filters = Filters(
        tuple(client or ()),
        tuple(scenario or ()),
        tuple(size or ()),
        blocks,
        link,
        control,
        tuple(map(versions.absolute, with_versions or ())),
    )
    wanted, other_versions = _suite(suite, profile, filters, target, envs)
    decision = None if until_decided is None else _decision(until_decided)
    chosen_seed = secrets.randbelow(2**31) if seed is None else seed
    trials = plan.trials(wanted, chosen_seed)
    if list_only:
        _print_plan(wanted, trials, as_json)
        return
    if target is not None:
        _confirm(target, trials, yes)
    run_id = manifest.new_run_id(wanted.name, wanted.profile.name)
    fitness = doctor.examine()
    for line in doctor.headlines(fitness):
        err.print(line, markup=False)
    with host.exclusive(f"run {run_id}"):
        clients = _prepare(envs, wanted, other_versions)
        with open_lab(target, run_id, tls=tls, tell=tell) as lab:
            ceilings = _ceilings(lab, chosen_seed, clients)
            effective = _effective_links(wanted, ceilings)
            described = manifest.make(
                run_id, _command_line(chosen_seed), wanted, suite, trials, chosen_seed, filters, clients, lab.info, effective, ceilings,
                fitness, decision, tls=lab.tls,
            )  # fmt: skip
            with _bench(described, lab, clients, trials) as bench, records.create(results, described) as writer:
                _measure(bench, trials, writer, described)
                _extend(bench, records.find(results, run_id), wanted, writer)
    _finish(records.find(results, run_id), as_json)


def resume(*, run_name: str, as_json: bool, results: Path, envs: Path) -> None:
    folder = records.find(results, run_name)
    read = records.read(folder)
    described = read.run
    target = _recorded_target(described)
    wanted, other_versions = _suite(described.suite_file, described.profile.name, described.filters, target, envs)
    trials = plan.trials(wanted, described.seed)
    done = {record.trial.sequence for record in read.records}
    left = [trial for trial in trials if trial.sequence not in done]
    if not left and not _extension(read, wanted):
        err.print(f"run {described.id} is complete: {len(done)} of {described.trial_count} trials are recorded")
        _finish(folder, as_json)
        return
    with host.exclusive(f"resumed run {described.id}"):
        clients = _prepare(envs, wanted, other_versions)
        with open_lab(target, described.id, tls=described.tls, tell=tell) as lab:
            manifest.refuse_if_changed(described, trials, clients, lab.info)
            with _bench(described, lab, clients, trials) as bench, records.reopen(folder) as writer:
                _measure(bench, left, writer, described)
                _extend(bench, folder, wanted, writer)
    _finish(folder, as_json)


def run_doctor(*, as_json: bool) -> None:
    findings = doctor.examine()
    if as_json:
        sys.stdout.write(json.dumps(msgspec.to_builtins(findings), indent=2) + "\n")
    else:
        rows = [(each.name, each.level, each.fact, _advice(each)) for each in findings]
        terminal.render_table("This host", ("what", "", "fact", "why it matters, and what to do"), rows, out)
    if doctor.worst(findings) == Level.BAD:
        raise typer.Exit(1)


def run_selftest(*, links: bool, as_json: bool) -> None:
    suite = suites.load(suites.find(paths.SCENARIOS, "selftest"), None)
    with host.exclusive("selftest"):
        clients = environments.prepare(paths.ENVS, (*suite.clients, FLOOR), tell)
        with open_lab(None, "selftest", tls=True, tell=tell) as lab:
            progress = Progress(err, len(plan.trials(suite, 0)), 0)
            measured = []
            with progress.shown():
                for record in measure_known(lab, suite, 0, clients):
                    measured.append(record)
                    progress.advance(record)
            counted = [record for record in measured if record.trial.phase is Phase.MEASURED]
            checks = selftest.check_known(counted, "known", "null")
            if links:
                tell("the links, each against its settings")
                checks += [
                    each
                    for figures in probe.measure(lab, _all_links(lab, clients))
                    for each in selftest.check_link(figures)
                ]
    _show_checks(checks, selftest.failures(measured), as_json)


def list_runs(*, as_json: bool, results: Path) -> None:
    runs = records.list_runs(results)
    if as_json:
        sys.stdout.write(
            json.dumps([{"id": run.id, "created_at": run.created_at, "suite": run.suite} for run in runs]) + "\n"
        )
    elif not runs:
        err.print(f"no runs in {results} yet; `bench run` makes one")
    for each in runs if not as_json else ():
        clients = ", ".join(info.name for info in each.clients)
        out.print(
            f"{each.id}  {each.trial_count} trials, {len(each.cases)} cases, {_link_names(each)}: {clients}",
            soft_wrap=True,
        )


def show(*, run_name: str, as_json: bool, results: Path) -> None:
    _show(records.find(results, run_name), as_json)


def report(*, run_name: str, results: Path, reports: Path) -> None:
    read = records.read(records.find(results, run_name))
    out.print(str(write_report(read, reports / read.run.id)), soft_wrap=True)


def run_compare(
    *,
    run_name: str,
    other_name: str | None,
    baseline: str | None,
    metric: list[str] | None,
    as_json: bool,
    results: Path,
) -> None:
    then = records.read(records.find(results, run_name))
    if other_name is None:
        compared = compare.compare_clients(then, baseline)
        title = f"Run {then.run.id}: clients over {compared.baseline}"
    else:
        if baseline is not None:
            raise BenchError("--baseline is for the clients of one run", "Two runs are compared client by client.")
        now = records.read(records.find(results, other_name))
        compared, title = compare.compare_runs(then, now), f"Run {now.run.id} over run {then.run.id}"
    for name in metric or ():
        if name not in summary.METRIC:
            raise UnknownNameError("metric", name, list(summary.METRIC))
    if as_json:
        sys.stdout.write(json.dumps(compare.as_data(compared)) + "\n")
    else:
        terminal.render_sections(title, comparison_sections(compared, metric or MAIN_METRICS), out)


def run_decide(*, run_name: str, decision: str | None, as_json: bool, results: Path) -> None:
    read = records.read(records.find(results, run_name))
    decided = [decide.decide(read, each) for each in _decisions_for(read.run, decision)]
    if as_json:
        sys.stdout.write(json.dumps([decide.as_data(each) for each in decided]) + "\n")
        return
    for each in decided:
        title = f"{each.decision.name}, held against run {each.run}"
        terminal.render_sections(title, decision_sections(each), out)


def run_dependencies(*, client: list[str] | None, as_json: bool, envs: Path) -> None:
    known = environments.discover(envs)
    wanted = client or [name for name, each in known.items() if each.declaration.clients[name].role == "client"]
    prepared = environments.prepare(envs, wanted, tell)
    distinct = {each.environment.name: each.environment for each in prepared.values()}
    # Imports are timed, so nothing else may be measured meanwhile.
    with host.exclusive("dependencies"):
        found = dependencies.examine(distinct.values(), tell)
    if as_json:
        sys.stdout.write(json.dumps(msgspec.to_builtins(found), indent=2) + "\n")
        return
    terminal.render_table("What each client brings along", dependencies.HEADERS, dependencies.rows(found), out)
    terminal.render_table("Narrow pins", dependencies.PIN_HEADERS, dependencies.pin_rows(found), out)
    terminal.render_table("Together", dependencies.TOGETHER_HEADERS, dependencies.together_rows(found), out)


def run_coupling(*, package: str, subpackage: str, as_json: bool, envs: Path) -> None:
    known = environments.discover(envs)
    takers = [name for name, each in known.items() if each.declaration.package.replace("-", "_") == package]
    for each in environments.prepare(envs, takers[:1], tell).values():
        tell(f"imports of {package} {each.info.version}")
    found = coupling.examine(known.values(), package, subpackage)
    if as_json:
        sys.stdout.write(json.dumps(msgspec.to_builtins(found), indent=2) + "\n")
        return
    title = f"{subpackage} in {package} {found.version}"
    terminal.render_table(title, coupling.HEADERS, coupling.rows(found), out)


def history_add(*, run_name: str, title: str, decision: str | None, remark: str, results: Path, folder: Path) -> None:
    read = records.read(records.find(results, run_name))
    chosen = read.run.decision if decision is None else _decision(decision)
    out.print(str(history.add(read, title, folder, chosen, remark)), soft_wrap=True)


def history_plot(*, case: str, metric: str, results: Path, folder: Path) -> None:
    # Imported here: no other command should wait for matplotlib.
    from harness.report import figures

    chosen = summary.METRIC.get(decisions.SHORT.get(metric, metric))
    if chosen is None:
        raise UnknownNameError("metric", metric, [*decisions.SHORT, *summary.METRIC])
    lines = history.trace(case, chosen, folder, results)
    rows = [
        (
            f"{line.client} {line.version}",
            line.date,
            units.quantity(line.interval.estimate, chosen.unit),
            f"{units.quantity(line.interval.low, chosen.unit)} to {units.quantity(line.interval.high, chosen.unit)}",
            f"{line.interval.n}" if line.is_exact else f"{line.interval.n}, least to most",
            line.surroundings,
        )
        for line in lines
    ]
    terminal.render_table(case, ("client", "entry", "median", "95 % interval", "n", "surroundings"), rows, out)
    out.print(str(figures.write(history.figure(case, chosen, lines), folder / "figures")), soft_wrap=True)


def history_check(*, results: Path, folder: Path) -> None:
    differences = history.check(folder, results)
    for difference in differences:
        err.print(difference, markup=False)
    if differences:
        raise typer.Exit(1)
    out.print("every entry is what its records say")


def store_serve(*, link: str, tls: bool) -> None:
    suite = plan.narrow(suites.load(suites.find(paths.SCENARIOS, "filesystem"), None), Filters(link=link), ())
    with host.exclusive("store serve"):
        clients = environments.prepare(paths.ENVS, [FLOOR], tell)
        with open_lab(None, "by-hand", tls=tls, tell=tell) as lab:
            effective, *_ = _effective_links(suite, _ceilings(lab, 0, clients))
            with lab.link(effective) as server:
                assert server is not None
                variables = {"AWS_ENDPOINT_URL": server.endpoint_url(effective.name)} | {
                    name: value for name, value in lab.client_environment(server).items() if name.startswith(("AWS_ACC", "AWS_SEC", "AWS_REG", "AWS_CA", "SSL"))
                }  # fmt: skip
                for name, value in variables.items():
                    out.print(f"export {name}={shlex.quote(value)}", soft_wrap=True)
                err.print(f"bucket {lab.info.bucket!r} is there; the store and its data end with Ctrl-C")
                while True:
                    lab.check(server)
                    time.sleep(0.5)


def tell(step: str) -> None:
    err.print(f"[dim]preparing:[/dim] {step}")


def _advice(finding: Finding) -> str:
    return f"{finding.why[:1].upper()}{finding.why[1:]}. {finding.advice}" if finding.advice else ""


def _all_links(lab: Lab, clients: Mapping[str, InstalledClient]) -> list[Link]:
    """Return every link of every suite once, a scaled one with the rate that fits this host."""
    ceilings = _ceilings(lab, 0, clients)
    found: dict[str, Link] = {}
    for path in sorted(paths.SCENARIOS.glob("*.toml")):
        loaded = suites.load(path, None)
        for link in loaded.links:
            named = msgspec.structs.replace(loaded, default_link=link.name)
            found.setdefault(link.name, _effective_links(named, ceilings)[0])
    return list(found.values())


def _show_checks(checks: Sequence[selftest.Check], failed: Sequence[str], as_json: bool) -> None:
    if as_json:
        document = {"checks": [msgspec.to_builtins(check) | {"ok": check.ok} for check in checks], "failures": failed}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        terminal.render_table("What is known, and what was measured", selftest.HEADERS, selftest.rows(checks), out)
        for each in failed:
            err.print(f"failed: {each}", markup=False)
    if failed or not all(check.ok for check in checks):
        raise typer.Exit(1)


def _decisions_for(run: Run, named: str | None) -> list[Decision]:
    """Return the decision that was named, else the one that the run declared, else all of its suite."""
    if named is not None:
        return [_decision(named)]
    if run.decision is not None:
        return [run.decision]
    found = [decisions.load(path) for path in decisions.of_suite(paths.DECISIONS, run.suite)]
    if not found:
        raise BenchError(f"no decision is about the suite {run.suite}", "Name a file: --decision FILE.")
    return found


def _suite(
    name: str, profile: str | None, filters: Filters, target: Target | None, envs: Path
) -> tuple[Suite, dict[str, Version]]:
    """Return the suite narrowed to what was asked for, and the labels in it that run another version."""
    path = Path(name) if name.endswith(".toml") else suites.find(paths.SCENARIOS, name)
    loaded = suites.load(path, profile)
    if target is not None:
        # Nothing of ours stands before a store that isn't ours, and the cases must say so.
        loaded = msgspec.structs.replace(loaded, links=(NO_LINK,))
        filters = msgspec.structs.replace(filters, link=NO_LINK.name)
    known = environments.discover(envs)
    narrowed = plan.narrow(loaded, filters, tuple(known))
    named = [name for name in narrowed.clients if name in known]
    other_versions = versions.of_clients(known, named, filters.versions)
    return plan.with_labels(narrowed, tuple(other_versions)), other_versions


def _prepare(envs: Path, suite: Suite, other_versions: Mapping[str, Version]) -> dict[str, InstalledClient]:
    known, derived = environments.discover(envs), {}
    for label, version in other_versions.items():
        tell(f"another version: {label}")
        derived[label] = versions.derive(known[client_name(label)], version)
    return environments.prepare(envs, suite.clients, tell, derived)


def _target(
    bucket: str | None, prefix: str, endpoint_url: str | None, region: str | None, link: str | None
) -> Target | None:
    if bucket is None:
        if prefix or endpoint_url or region:
            raise BenchError(
                "--prefix, --endpoint-url and --region belong to a store of yours", "Name its bucket too: --bucket."
            )
        return None
    if link is not None:
        raise BenchError(
            "--link stands before the embedded store only", "Leave it out: your store is measured as it is."
        )
    if endpoint_url is not None and not endpoint_url.startswith(("http://", "https://")):
        raise BenchError(f"--endpoint-url {endpoint_url!r} is no http:// or https:// address")
    found = region or boto3.Session().region_name
    if not found:
        raise BenchError("the bucket's region is not known", "Give it with --region, or set AWS_REGION.")
    return Target(bucket, prefix.strip("/"), endpoint_url, found)


def _recorded_target(run: Run) -> Target | None:
    if run.store.kind == "embedded":
        return None
    prefix = run.store.prefix.removesuffix(run.id).strip("/")
    endpoint = None if run.store.endpoint == "Amazon S3" else run.store.endpoint
    return Target(run.store.bucket, prefix, endpoint, run.store.region)


def _confirm(target: Target, trials: Sequence[Trial], yes: bool) -> None:
    """Say what the run will ask of somebody's store, and ask."""
    expected = cost.estimate(trials)
    err.print(
        f"On bucket {target.bucket!r} at {target.endpoint_url or 'Amazon S3'} this run sends about "
        f"{expected.write_requests:,} write and {expected.read_requests:,} read requests, moves about "
        f"{expected.moved_bytes / 2**30:,.1f} GiB, and costs about {expected.usd:.2f} USD in requests at S3's list price; "
        "transfer out of the bucket's region is not counted. It works below a prefix of its own, and removes it.",
        markup=False,
    )
    if yes:
        return
    if not sys.stdin.isatty():
        raise BenchError("a store that isn't ours is used only when you agree", "Give --yes where nobody can be asked.")
    typer.confirm("Go on?", abort=True, err=True)


def _ceilings(lab: Lab, seed: int, clients: Mapping[str, InstalledClient]) -> Ceilings | None:
    """Measure what the embedded store can give at most; nobody asks that of a store that isn't ours."""
    if lab.embedded_store is None:
        return None
    tell("what the store gives at most")
    floor = clients.get(FLOOR) or environments.prepare(paths.ENVS, [FLOOR], tell)[FLOOR]
    found = measure_ceilings(lab, floor, seed)
    tell(
        f"it gives {units.rate(found.download_bytes_per_s)} down, {units.rate(found.upload_bytes_per_s)} up, "
        f"{found.gets_per_s} GET/s, {found.puts_per_s} PUT/s"
    )
    return found


def _effective_links(suite: Suite, ceilings: Ceilings | None) -> tuple[Link, ...]:
    """Return the default link, then others that cases name, as they will stand: a scaled one takes its rate from the store's ceiling."""
    if ceilings is None:
        return (NO_LINK,)
    by_name = {link.name: link for link in suite.links}
    names = dict.fromkeys((suite.default_link, *(case.link for case in suite.cases)))
    return tuple(_scaled(by_name[name], ceilings) for name in names)


def _scaled(link: Link, ceilings: Ceilings) -> Link:
    if not link.scaled:
        return link
    rate = scaled_rate(ceilings)
    tell(f"so the link {link.name} gives {units.rate(rate)} a stream")
    return msgspec.structs.replace(link, stream_rate_bytes_per_s=rate)


@contextmanager
def _bench(run: Run, lab: Lab, clients: Mapping[str, InstalledClient], trials: Sequence[Trial]) -> Iterator[Bench]:
    cases = list(dict.fromkeys(trial.case for trial in trials))
    shapes = {case.objects for case in cases}
    # Two sets of each shape on the store and on disk, what one trial writes, and removed objects not yet reclaimed.
    largest_bytes = max(each.total_bytes for each in shapes)
    garbage_bytes = min(GARBAGE_LIMIT_BYTES, sum(trial.case.objects.total_bytes for trial in trials))
    needed_bytes = sum(4 * each.total_bytes for each in shapes) + 2 * largest_bytes + 2 * garbage_bytes
    host.require_room(lab.session.folder, needed_bytes, "the run's data")
    with lab.dataset("data", run.seed) as dataset, lab.link(*run.links) as server:
        dataset.prepare(cases, tell)
        yield Bench(
            run.id, lab, server, dataset, clients, traced_before_block=run.profile.warmup_blocks + TRACED_BLOCKS
        )


def _measure(bench: Bench, trials: Sequence[Trial], writer: records.RecordWriter, run: Run) -> None:
    err.print(f"run {run.id}: {len(trials)} trials, {_link_names(run)}, seed {run.seed}")
    progress = Progress(err, run.trial_count, run.trial_count - len(trials))
    try:
        with progress.shown():
            for record in execute(replace(bench, keep_trace=writer.append_trace), trials):
                writer.append(record)
                progress.advance(record)
    except (KeyboardInterrupt, BenchError):
        err.print(
            f"stopped: {progress.done} of {run.trial_count} trials are recorded; go on with `bench resume {run.id}`"
        )
        raise


def _extension(read: RunSet, suite: Suite) -> list[Trial]:
    """Return the trials of the extension that are not recorded yet: none of a run that declared no decision."""
    run = read.run
    if run.decision is None:
        return []
    # The first look sees the declared blocks alone, so that a resumed run extends the same cases.
    first = RunSet(run, tuple(record for record in read.records if record.trial.sequence < run.trial_count))
    undecided = decide.decide(first, run.decision).undecided_cases
    done = {record.trial.sequence for record in read.records}
    planned = plan.extension(suite, run.seed, undecided, run.trial_count)
    return [trial for trial in planned if trial.sequence not in done]


def _extend(bench: Bench, folder: Path, suite: Suite, writer: records.RecordWriter) -> None:
    read = records.read(folder)
    left = _extension(read, suite)
    if left:
        cases = dict.fromkeys(trial.case.key for trial in left)
        err.print(f"undecided yet, hence extended as declared: {', '.join(cases)}", markup=False)
        _measure(bench, left, writer, msgspec.structs.replace(read.run, trial_count=len(read.records) + len(left)))


def _decision(name: str) -> Decision:
    path = Path(name) if name.endswith(".toml") else decisions.find(paths.DECISIONS, name)
    return decisions.load(path)


def _finish(folder: Path, as_json: bool) -> None:
    _show(folder, as_json)
    err.print(f"records: {folder}\nmore: `bench report {folder.name}`, `bench show {folder.name} --json`", markup=False)


def _show(folder: Path, as_json: bool) -> None:
    built = build(records.read(folder))
    if as_json:
        sys.stdout.write(view.to_json(built) + "\n")
    else:
        terminal.render(built, out)


def _link_names(run: Run) -> str:
    names = ", ".join(link.name for link in run.links)
    return f"links {names}" if run.more_links else f"link {names}"


def _print_plan(suite: Suite, trials: Sequence[Trial], as_json: bool) -> None:
    if as_json:
        cases = [{"case": case.key, "operation": case.operation, "digest": case.digest} for case in suite.cases]
        sys.stdout.write(json.dumps({"clients": suite.clients, "cases": cases, "trials": len(trials)}) + "\n")
        return
    for each in suite.scenarios:
        alone = f" ({', '.join(each.clients)})" if each.clients else ""
        out.print(f"{each.name}: {each.title}{alone}", markup=False)
        for case in each.cases:
            out.print(f"  {case.key}")
    blocks = f"{suite.profile.measured_blocks} measured and {suite.profile.warmup_blocks} warm-up blocks"
    out.print(
        f"{len(suite.cases)} cases, {len(suite.clients)} clients ({', '.join(suite.clients)}), {blocks}: {len(trials)} trials"
    )


def _command_line(seed: int) -> str:
    """Return the command that repeats this run; a seed that was drawn is written into it."""
    words = ["bench", *sys.argv[1:]]
    return shlex.join(words if "--seed" in words else [*words, "--seed", str(seed)])
