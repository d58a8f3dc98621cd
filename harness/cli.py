"""The command line: parse, call, print, exit. The only place that joins run, records and console."""

from __future__ import annotations

import errno
import json
import secrets
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import boto3
import msgspec
import typer
from rich.console import Console
from typer.exceptions import TyperException

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
from harness.errors import BenchError, DiskFullError, UnknownNameError
from harness.lab import doctor, environments, host, probe, versions
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
from harness.report import terminal, view, write_report
from harness.report.build import build
from harness.report.verdicts import MAIN_METRICS, comparison_sections, decision_sections
from harness.run import GARBAGE_LIMIT_BYTES, Bench, execute, measure_ceilings, measure_known, scaled_rate

FLOOR = "floor"
INTERRUPTED_EXIT_CODE = 130

app = typer.Typer(
    help="Measure Python S3 clients side by side, record every trial, and read the comparison.\n\n"
    "Start with `bench run`: it needs nothing but this checkout.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
history_app = typer.Typer(
    help="Entries that outlive a run: one Markdown page each, derived from its records.", no_args_is_help=True
)
store_app = typer.Typer(help="The embedded store, by hand.", no_args_is_help=True)
app.add_typer(history_app, name="history")
app.add_typer(store_app, name="store")

out = Console(soft_wrap=False, highlight=False)
# Messages hold commands to copy, so no line is broken but by the terminal itself.
err = Console(stderr=True, highlight=False, soft_wrap=True)

JsonOption = Annotated[bool, typer.Option("--json", help="Print the same numbers as JSON, for scripts.")]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's id, the beginning of one, a folder, or `latest`.")
]
ResultsOption = Annotated[
    Path, typer.Option("--results", help="Folder of all runs.", show_default="results/ of this checkout")
]


EnvsOption = Annotated[
    Path, typer.Option("--envs", help="Folder of the clients.", show_default="envs/ of this checkout")
]


def tell(step: str) -> None:
    err.print(f"[dim]preparing:[/dim] {step}")


@app.command()
def run(
    suite: Annotated[
        str, typer.Option("--suite", help="A suite of scenarios/, or the path of a TOML file.")
    ] = "filesystem",
    profile: Annotated[
        str | None,
        typer.Option("--profile", help="How much of it: quick, standard or full. [default: the suite's, quick]"),
    ] = None,
    client: Annotated[list[str] | None, typer.Option("--client", help="Only this client; may be repeated.")] = None,
    scenario: Annotated[
        list[str] | None, typer.Option("--scenario", help="Only this scenario; may be repeated.")
    ] = None,
    size: Annotated[
        list[str] | None, typer.Option("--size", help='Only this shape, e.g. "64MiB" or "1000x1MiB".')
    ] = None,
    blocks: Annotated[
        int | None, typer.Option("--blocks", min=1, help="Measured blocks, in place of the profile's.")
    ] = None,
    link: Annotated[
        str | None, typer.Option("--link", help="Another link of the suite, in place of its default.")
    ] = None,
    control: Annotated[
        str | None,
        typer.Option(
            "--control",
            metavar="CLIENT",
            help="Have this client take part twice: what separates it from itself is the session's noise. "
            "`none` leaves it out. [default: the profile's; quick has none]",
        ),
    ] = None,
    with_versions: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="VERSION",
            help="Run another version of a client beside the locked one: 'pyathena==4.2.0', "
            "'pyathena @ git+https://host/project@COMMIT' or the path of a checkout; may be repeated.",
        ),
    ] = None,
    until_decided: Annotated[
        str | None,
        typer.Option(
            "--until-decided",
            metavar="DECISION",
            help="Once all blocks are measured, measure as many again of the cases that this decision leaves undecided: "
            "declared before the first trial, once, and paid for by wider intervals.",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Order of trials and contents. [default: random]")
    ] = None,
    tls: Annotated[bool, typer.Option("--tls/--no-tls", help="Speak TLS to the embedded store, as S3 does.")] = True,
    bucket: Annotated[
        str | None, typer.Option("--bucket", help="Measure against this bucket, not the embedded store.")
    ] = None,
    prefix: Annotated[str, typer.Option("--prefix", help="Below which the run makes a prefix of its own.")] = "",
    endpoint_url: Annotated[
        str | None, typer.Option("--endpoint-url", help="S3-compatible endpoint of --bucket.")
    ] = None,
    region: Annotated[
        str | None, typer.Option("--region", help="Region of --bucket. [default: of your AWS settings]")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask before using a store that isn't ours.")] = False,
    list_only: Annotated[bool, typer.Option("--list", help="Print what would run, and stop.")] = False,
    as_json: JsonOption = False,
    results: ResultsOption = paths.RESULTS,
    envs: EnvsOption = paths.ENVS,
) -> None:
    """Measure: every client on every case, interleaved in blocks, each trial a fresh process.

    On the embedded store nothing needs to be set up. With --bucket it runs against any S3-compatible store, touches
    nothing but a prefix of its own, and removes it.

    Examples:

        bench run --scenario read --client s3fs --client pyathena-aio --blocks 8

        bench run --profile full --bucket my-bucket --region eu-central-1
    """
    target = _target(bucket, prefix, endpoint_url, region, link)
    filters = Filters(
        tuple(client or ()), tuple(scenario or ()), tuple(size or ()), blocks, link, control, tuple(with_versions or ())
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
            effective = _effective_link(wanted, ceilings)
            described = manifest.make(
                run_id, _command_line(chosen_seed), wanted, suite, trials, chosen_seed, filters, clients, lab.info, effective, ceilings,
                fitness, decision, tls=lab.tls,
            )  # fmt: skip
            with _bench(described, lab, clients, trials) as bench, records.create(results, described) as writer:
                _measure(bench, trials, writer, described)
                _extend(bench, records.find(results, run_id), wanted, writer)
    _finish(records.find(results, run_id), as_json)


@app.command()
def resume(
    run_name: RunArgument,
    as_json: JsonOption = False,
    results: ResultsOption = paths.RESULTS,
    envs: EnvsOption = paths.ENVS,
) -> None:
    """Finish an interrupted run: no trial twice. Refused when clients, plan, store or host are no longer the same."""
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


@app.command("doctor")
def run_doctor(as_json: JsonOption = False) -> None:
    """Say whether this host is fit to measure on: what is bad, why it matters, what to do.

    Ends with code 1 when something is bad; a warning is something to know, and to read the figures by.
    """
    findings = doctor.examine()
    if as_json:
        sys.stdout.write(json.dumps(msgspec.to_builtins(findings), indent=2) + "\n")
    else:
        rows = [(each.name, each.level, each.fact, _advice(each)) for each in findings]
        terminal.render_table("This host", ("what", "", "fact", "why it matters, and what to do"), rows, out)
    if doctor.worst(findings) == Level.BAD:
        raise typer.Exit(1)


def _advice(finding: Finding) -> str:
    return f"{finding.why[:1].upper()}{finding.why[1:]}. {finding.advice}" if finding.advice else ""


@app.command("selftest")
def run_selftest(
    links: Annotated[bool, typer.Option("--links/--no-links", help="Measure the links of the suites, too.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Test the harness: a client whose every figure is known, and every link, measured against what is true.

    Takes about two minutes. Ends with code 1 when a figure lies outside of what is allowed.
    """
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


def _all_links(lab: Lab, clients: Mapping[str, InstalledClient]) -> list[Link]:
    """Return every link of every suite once, a scaled one with the rate that fits this host."""
    ceilings = _ceilings(lab, 0, clients)
    found: dict[str, Link] = {}
    for path in sorted(paths.SCENARIOS.glob("*.toml")):
        loaded = suites.load(path, None)
        for link in loaded.links:
            named = msgspec.structs.replace(loaded, default_link=link.name)
            found.setdefault(link.name, _effective_link(named, ceilings))
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


@app.command("list")
def list_runs(as_json: JsonOption = False, results: ResultsOption = paths.RESULTS) -> None:
    """List the recorded runs, newest first."""
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
            f"{each.id}  {each.trial_count} trials, {len(each.cases)} cases, link {each.link.name}: {clients}",
            soft_wrap=True,
        )


@app.command()
def show(run_name: RunArgument = "latest", as_json: JsonOption = False, results: ResultsOption = paths.RESULTS) -> None:
    """Print a run's tables: throughput, CPU, memory, threads, failures."""
    _show(records.find(results, run_name), as_json)


@app.command()
def report(
    run_name: RunArgument = "latest",
    results: ResultsOption = paths.RESULTS,
    reports: Annotated[
        Path, typer.Option("--reports", help="Folder of all reports.", show_default="reports/")
    ] = paths.REPORTS,
) -> None:
    """Write reports/RUN/report.md with its figures."""
    read = records.read(records.find(results, run_name))
    out.print(str(write_report(read, reports / read.run.id)), soft_wrap=True)


@app.command("compare")
def run_compare(
    run_name: Annotated[str, typer.Argument(metavar="RUN", help="A run, or the earlier of two.")] = "latest",
    other_name: Annotated[
        str | None, typer.Argument(metavar="[RUN_B]", help="The later run: each client is compared with itself.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="Client of RUN to compare with. [default: the run's]")
    ] = None,
    metric: Annotated[list[str] | None, typer.Option("--metric", help="Only this metric; may be repeated.")] = None,
    as_json: JsonOption = False,
    results: ResultsOption = paths.RESULTS,
) -> None:
    """Compare the clients of one run, or two runs: ratios with their intervals, and what may be said of them."""
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


@app.command("decide")
def run_decide(
    run_name: RunArgument = "latest",
    decision: Annotated[
        str | None,
        typer.Option("--decision", help="A decision of scenarios/decisions/, or a TOML file. [default: the suite's]"),
    ] = None,
    as_json: JsonOption = False,
    results: ResultsOption = paths.RESULTS,
) -> None:
    """Hold expectations against a run: confirmed, refuted, inconclusive or invalid, and what follows."""
    read = records.read(records.find(results, run_name))
    decided = [decide.decide(read, each) for each in _decisions_for(read.run, decision)]
    if as_json:
        sys.stdout.write(json.dumps([decide.as_data(each) for each in decided]) + "\n")
        return
    for each in decided:
        title = f"{each.decision.name}, held against run {each.run}"
        terminal.render_sections(title, decision_sections(each), out)


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


@history_app.command("add")
def history_add(
    run_name: RunArgument,
    title: Annotated[str, typer.Option("--title", help="What the entry is about, in one line.")],
    decision: Annotated[
        str | None, typer.Option("--decision", help="Hold this decision against the run, and keep its verdicts.")
    ] = None,
    remark: Annotated[str, typer.Option("--remark", help="What was not expected, in your own words.")] = "",
    results: ResultsOption = paths.RESULTS,
    folder: Annotated[
        Path, typer.Option("--history", help="Folder of all entries.", show_default="history/")
    ] = paths.HISTORY,
) -> None:
    """Write history/DATE-TITLE.md from a run's records, and the index."""
    read = records.read(records.find(results, run_name))
    chosen = read.run.decision if decision is None else _decision(decision)
    out.print(str(history.add(read, title, folder, chosen, remark)), soft_wrap=True)


@history_app.command("check")
def history_check(
    results: ResultsOption = paths.RESULTS,
    folder: Annotated[
        Path, typer.Option("--history", help="Folder of all entries.", show_default="history/")
    ] = paths.HISTORY,
) -> None:
    """Render every entry anew from its records, and fail on any difference."""
    differences = history.check(folder, results)
    for difference in differences:
        err.print(difference, markup=False)
    if differences:
        raise typer.Exit(1)
    out.print("every entry is what its records say")


@store_app.command("serve")
def store_serve(
    link: Annotated[
        str, typer.Option("--link", help="A link of the filesystem suite; its scaled rate is measured first.")
    ] = "s3",
    tls: Annotated[bool, typer.Option("--tls/--no-tls", help="Speak TLS, as S3 does.")] = True,
) -> None:
    """Run the embedded store and link until Ctrl-C, and print how to use them by hand."""
    suite = plan.narrow(suites.load(suites.find(paths.SCENARIOS, "filesystem"), None), Filters(link=link), ())
    with host.exclusive("store serve"):
        clients = environments.prepare(paths.ENVS, [FLOOR], tell)
        with open_lab(None, "by-hand", tls=tls, tell=tell) as lab:
            effective = _effective_link(suite, _ceilings(lab, 0, clients))
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


def _effective_link(suite: Suite, ceilings: Ceilings | None) -> Link:
    """Return the link as it will stand: a scaled one takes its rate from the store's ceiling."""
    if ceilings is None:
        return NO_LINK
    link = next(each for each in suite.links if each.name == suite.default_link)
    if not link.scaled:
        return link
    rate = scaled_rate(ceilings.download_bytes_per_s)
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
    with lab.dataset("data", run.seed) as dataset, lab.link(run.link) as server:
        dataset.prepare(cases, tell)
        yield Bench(run.id, lab, server, run.link, dataset, clients)


def _measure(bench: Bench, trials: Sequence[Trial], writer: records.RecordWriter, run: Run) -> None:
    err.print(f"run {run.id}: {len(trials)} trials, link {run.link.name}, seed {run.seed}")
    progress = Progress(err, run.trial_count, run.trial_count - len(trials))
    try:
        with progress.shown():
            for record in execute(bench, trials):
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


def _print_plan(suite: Suite, trials: Sequence[Trial], as_json: bool) -> None:
    if as_json:
        cases = [{"case": case.key, "operation": case.operation, "digest": case.digest} for case in suite.cases]
        sys.stdout.write(json.dumps({"clients": suite.clients, "cases": cases, "trials": len(trials)}) + "\n")
        return
    for each in suite.scenarios:
        out.print(f"{each.name}: {each.title}", markup=False)
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


def _fail(error: BenchError) -> NoReturn:
    err.print(f"bench: {error}", style="red", markup=False)
    if error.hint:
        err.print(error.hint, markup=False)
    sys.exit(error.exit_code)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line; every error that a user can mend ends here, in one sentence."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        code = app(standalone_mode=False)
    except TyperException as error:
        error.show()  # type: ignore[attr-defined]
        sys.exit(BenchError.exit_code)
    except BenchError as error:
        _fail(error)
    except typer.Abort:
        err.print("stopped; nothing was run")
        sys.exit(INTERRUPTED_EXIT_CODE)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED_EXIT_CODE)
    except typer.Exit as exit_:
        sys.exit(exit_.exit_code)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _fail(
            DiskFullError(
                "no space is left on the disk", "Free some room; `bench resume` goes on with what was recorded."
            )
        )
    sys.exit(code)
