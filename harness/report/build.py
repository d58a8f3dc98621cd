"""A run's records into the view model: which sections there are, and what each cell says."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from harness import control, prices, units
from harness import summary as summaries
from harness.model import Case, ClientInfo, Link, Phase, Run, RunSet
from harness.operations import OPERATIONS, Kind
from harness.report.curves import curve_sections
from harness.report.observations import observation_sections
from harness.report.view import (
    NOTHING,
    OF_TRIALS,
    AbsentCell,
    Cell,
    FailedCell,
    Figure,
    Note,
    Panel,
    Point,
    RatioCell,
    Row,
    Section,
    SpreadCell,
    Table,
    TextCell,
    UnsupportedCell,
    View,
    plain,
    plain_lines,
    show,
    usual_n,
)
from harness.summary import METRIC, Metric, Result, Summary, summarise
from harness.units import Scale
from harness.validity import store_bound

VERDICT_BLOCKS = 6
LOG_LINES = 10


def build(run_set: RunSet) -> View:
    summary = summarise(run_set)
    bound = store_bound(summary)
    sections = (
        _overview(summary),
        *observation_sections(summary),
        *curve_sections(run_set, summary),
        _throughput_section(summary, bound),
        *_bound_sections(summary, bound),
        *_disturbed_sections(summary),
        *_control_sections(run_set),
        _terminal_cost(summary),
        *_cost_sections(summary),
        *_failure_sections(summary),
        *_unsupported_sections(summary),
        *_exit_sections(summary),
        _figure_section(summary),
        *_surroundings(summary.run),
        _method(summary.run),
        _repeat(summary.run),
    )
    title = plain(f"{summary.run.suite_title}: {_client_names(summary.run)}")
    return View(title, summary, tuple(section for section in sections if section.says_something))


def _client_names(run: Run) -> str:
    names = [client.name for client in run.clients if client.role == "client"] or [c.name for c in run.clients]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _overview(summary: Summary) -> Section:
    run = summary.run
    blocks = f"{_counted(run.profile.measured_blocks, 'measured block')}, {run.profile.warmup_blocks} for warm-up"
    host = f"{run.host.cpu_model}, {_counted(run.host.cpu_count, 'core')}, {units.size(run.host.memory_bytes)}"
    paragraphs = [
        f"Run {run.id}: suite {run.suite}, profile {run.profile.name}, {blocks}, baseline {run.baseline}.",
        f"Link {link_words(run)}.",
        f"Host {host}.",
    ]
    if summary.record_count < run.trial_count:
        state = f"{summary.record_count} of {run.trial_count} trials are recorded"
        paragraphs.append(f"Incomplete: {state}; `bench resume {run.id}` goes on.")
    if not summary.has_baseline:
        paragraphs.append(f"The baseline, {run.baseline}, took no part, so there are no ratios.")
    return Section("What this is", paragraphs=tuple(map(plain, paragraphs)))


def _counted(count: int, noun: str) -> str:
    return f"{units.count(count)} {noun}{'' if count == 1 else 's'}"


def link_words(run: Run) -> str:
    """Describe the run's links, the default first."""
    return "; ".join(map(_link_words, run.links))


def _link_words(link: Link) -> str:
    parts = [f"{link.delay_ms} ms before each answer"] if link.delay_ms else []
    parts += [f"{link.copy_delay_ms} ms for server-side copies"] if link.copy_delay_ms else []
    if link.stream_rate_bytes_per_s is not None:
        parts.append(f"{units.rate(link.stream_rate_bytes_per_s)} per stream" + (" (scaled)" if link.scaled else ""))
    parts += [f"{link.abort_percent} % of requests answered 503 SlowDown"] if link.abort_percent else []
    return f"{link.name}: {', '.join(parts) or 'no delay, no limit'}"


# --- throughput ------------------------------------------------------------------------------------------------------


def _throughput_section(summary: Summary, bound: Collection[Case]) -> Section:
    table = throughput_table(summary, summary.run.cases, bound)
    return Section("Throughput", tables=(table,) if table.rows else ())


def _bound_sections(summary: Summary, bound: Mapping[Case, str]) -> Iterator[Section]:
    if bound:
        why = "In these cases the store is what is measured, not the clients; nothing can be decided by them."
        lines = (f"{summary.label(case)}: {reason}." for case, reason in bound.items())
        yield Section("Store-bound", paragraphs=(why, *map(plain, lines)))


def _disturbed_sections(summary: Summary) -> Iterator[Section]:
    if summary.disturbed:
        run = summary.run
        left_out = sum(block >= run.profile.warmup_blocks for _, block in summary.disturbed)
        why = (
            "Disturbed while they ran, and left out by the run's rules, for all clients alike and whatever they measured: "
            f"{_counted(left_out, 'measured block')}."
        )
        lines = (
            f"{summary.label(case)}, block {block}: {reason}." for (case, block), reason in summary.disturbed.items()
        )
        yield Section("Disturbed blocks", paragraphs=(why, *map(plain, lines)))


def _control_sections(run_set: RunSet) -> Iterator[Section]:
    """Tell what the client that took part twice shows of the session's noise."""
    found = control.find(run_set)
    if found is None:
        return
    noise = ", ".join(f"{figure} {share:.1%}" for figure, share in found.noise.items())
    words = {
        "ok": "no figure differs by more than chance",
        "failed": f"{', '.join(ratio.figure for ratio in found.missed)} of one and the same client differ by more than chance",
        "inconclusive": f"{_counted(found.block_count, 'block')} are too few to say",
    }
    columns = tuple(control.FIGURES)
    whole = Row("all cases together", _ratio_cells(found.pooled, columns), n=found.block_count)
    rows = [
        Row(plain(case.key), _ratio_cells(ratios, columns), n=ratios[0].interval.n)
        for case, ratios in found.by_case.items()
    ]
    caption = (
        f"{found.label} over {found.client}: the same client twice, so 1 is the truth. Geometric mean of the blocks' ratios "
        f"with its 95 % interval, for all cases together one that 95 % of sound sessions pass in every figure."
    )
    table = Table("Control", plain(caption), "case", columns, (whole, *rows), stacked=True)
    verdict = f"Control {found.verdict}: {words[found.verdict]}. In the median of the cases, a difference is seen from {noise} on."
    yield Section("Control", paragraphs=(plain(verdict),), tables=(table,))


def _ratio_cells(ratios: Sequence[control.Ratio], columns: Sequence[str]) -> tuple[Cell, ...]:
    known = {ratio.figure: ratio.interval for ratio in ratios}
    return tuple(RatioCell(known[name]) if name in known else AbsentCell(NOTHING) for name in columns)


def throughput_table(summary: Summary, cases: Sequence[Case], bound: Collection[Case] = ()) -> Table:
    timed = [case for case in cases if OPERATIONS[case.operation].kind is not Kind.FINDING]
    rows = [row for case in timed for row in _throughput_rows(summary, case, case in bound)]
    caption = f"{OF_TRIALS} More is better. "
    if summary.has_baseline:
        caption += f"The ratio to {summary.run.baseline}, e.g. 2.3x, is a ratio of medians, no interval; "
        caption += f"no verdict below {VERDICT_BLOCKS} blocks. "
    if any(client.role == "null" for client in summary.clients):
        caption += "The null client moves nothing: its wall time is shown."
    return Table("Throughput", plain(caption), "case", _columns(summary), tuple(rows), stacked=True)


def _columns(summary: Summary) -> tuple[str, ...]:
    return tuple(plain(client.name) for client in summary.clients)


def _throughput_rows(summary: Summary, case: Case, is_bound: bool) -> Iterator[Row]:
    primary = summary.throughput(case)
    row = _primary_row(summary, case, primary or METRIC["throughput_bytes_per_s"])
    yield replace(row, remarks=("store-bound",) if is_bound else ())
    objects = METRIC["throughput_objects_per_s"]
    if primary is not objects and summary.has(case, objects):
        yield _row(summary, case, objects)


def _primary_row(summary: Summary, case: Case, metric: Metric) -> Row:
    """Return the row that also tells ratios and failures, and has something to say even of the null client."""
    row = _row(summary, case, metric)
    pairs = zip(summary.clients, row.cells, strict=True)
    cells = tuple(_primary_cell(summary, case, client, cell) for client, cell in pairs)
    with_ratio = any(isinstance(cell, SpreadCell) and cell.ratio is not None for cell in cells)
    return replace(row, cells=cells, n=usual_n(cells), ratio_to=plain(summary.run.baseline) if with_ratio else "")


def _primary_cell(summary: Summary, case: Case, client: ClientInfo, cell: Cell) -> Cell:
    result = summary.results[case, client.name]
    if client.role == "null":
        return _cell(result, METRIC["wall_ns"], client)
    if not isinstance(cell, SpreadCell):
        return cell
    ratio = None if client.name == summary.run.baseline else summary.ratio(case, client.name)
    return replace(cell, ratio=ratio, failed=result.failed)


def _row(summary: Summary, case: Case, metric: Metric) -> Row:
    scale = _common_scale(summary, case, metric)
    cells = tuple(_cell(summary.results[case, client.name], metric, client) for client in summary.clients)
    return Row(plain(summary.label(case)), cells, metric.unit, scale, plain(case.scenario), n=usual_n(cells))


def _common_scale(summary: Summary, case: Case, metric: Metric) -> Scale | None:
    # The null client is orders of magnitude away: in a scale of the others its time would be a row of zeros.
    compared = [client.name for client in summary.clients if client.role != "null"]
    spreads = (summary.results[case, name].spreads.get(metric.name) for name in compared)
    medians = [spread.median for spread in spreads if spread]
    return units.scale_of(metric.unit, max(medians)) if medians else None


def _cell(result: Result, metric: Metric, client: ClientInfo, scale: Scale | None = None) -> Cell:
    spread = result.spreads.get(metric.name)
    if spread is not None:
        own = units.scale_of(metric.unit, spread.median) if client.role == "null" else scale
        return SpreadCell(spread, metric.unit, own)
    if result.unsupported is not None:
        return UnsupportedCell(plain(result.unsupported))
    if result.failed:
        return FailedCell(result.failed)
    if result.excluded and not result.measured:
        return AbsentCell(f"disturbed ({result.excluded})")
    is_told = client.role == "null" or result.measured or result.observed or not result.planned
    return AbsentCell(NOTHING if is_told else "not run")


# --- cost ------------------------------------------------------------------------------------------------------------


def _cpu(summary: Summary, case: Case) -> Metric:
    # Of many objects, most of the cost is each object's own, whatever its size.
    return METRIC["cpu_ns_per_object" if summary.has(case, METRIC["cpu_ns_per_object"]) else "cpu_ns_per_gib"]


def _terminal_cost(summary: Summary) -> Section:
    timed = [case for case in summary.run.cases if OPERATIONS[case.operation].kind is not Kind.FINDING]
    rows = [row for case in timed for row in _cost_rows(summary, case)]
    caption = f"{OF_TRIALS} Less is better."
    table = Table("CPU, memory, threads", caption, "client", ("CPU", "peak RSS", "threads"), tuple(rows))
    return Section("Cost", place="terminal", tables=(table,) if rows else ())


def _cost_rows(summary: Summary, case: Case) -> Iterator[Row]:
    metrics = (_cpu(summary, case), METRIC["rss_peak_bytes"], METRIC["threads_peak"])
    scales = [_common_scale(summary, case, metric) for metric in metrics]
    cells = {
        client.name: tuple(
            _cell(summary.results[case, client.name], metric, client, scale)
            for metric, scale in zip(metrics, scales, strict=True)
        )
        for client in summary.clients
        if summary.results[case, client.name].planned
    }
    n = usual_n(cell for row in cells.values() for cell in row)
    group = plain(summary.label(case)) + (f", n={n}" if n else "")
    for name, row in cells.items():
        own = usual_n(row)
        yield Row(plain(name) + (f", n={own}" if own not in {None, n} else ""), row, group=group, n=own)


_COSTS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("Wall time", ("wall_ns",), "Of the timed window. Less is better."),
    (
        "CPU",
        ("cpu_ns_per_gib", "cpu_ns_per_object"),
        (
            "User and system time of the client's process, for each GiB that was moved and for each of many objects. "
            "Less is better."
        ),
    ),
    ("Peak memory", ("rss_peak_bytes",), "Most resident memory in the timed window. Less is better."),
    (
        "Memory increase",
        ("rss_increase_bytes",),
        "Peak resident memory less what was resident right before the window. Less is better.",
    ),
    ("Threads", ("threads_peak",), "Most threads of the client's process in the window. Less is better."),
    ("Requests", ("requests_total",), "What a client really sent in the window, as the link saw it."),
    (
        "List price",
        ("list_price_usd_per_million",),
        f"Of the requests of one such operation, times a million. {prices.DATED}. Less is better.",
    ),
    ("Connections", ("connection_count",), "Connections that carried them."),
    ("Requests in flight", ("in_flight_peak",), "Most at one time, as the link saw it."),
    (
        "First byte",
        ("first_byte_median_us",),
        "From the end of a request to the first byte of its answer: each trial's median.",
    ),
    (
        "Event loop",
        ("loop_lag_p99_us", "loop_lag_max_us"),
        (
            "How late a ticker on the client's event loop woke up, each trial's 99th percentile and largest: how long "
            "something else kept the loop. Less is better."
        ),
    ),
    ("The harness itself", ("harness_cpu_ns",), "CPU that the harness's own process used while the window was open."),
)


def _cost_sections(summary: Summary) -> Iterator[Section]:
    for title, names, caption in _COSTS:
        rows = [
            _row(summary, case, METRIC[name])
            for case in summary.run.cases
            for name in names
            if summary.has(case, METRIC[name])
        ]
        if rows:
            full = f"{OF_TRIALS} {caption}"
            table = Table(title, full, "case", _columns(summary), tuple(rows), stacked=True)
            yield Section(title, place="document", tables=(table,))


# --- what did not go well --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Cause:
    client: str
    case: str
    kind: str
    reason: str


def _failure_sections(summary: Summary) -> Iterator[Section]:
    found: dict[_Cause, list[summaries.Failure]] = {}
    for case, client, result in _results(summary):
        for failure in result.failures:
            cause = _Cause(client.name, summary.label(case), failure.kind, failure.reason)
            found.setdefault(cause, []).append(failure)
    if not found:
        return
    rows = [Row(plain(cause.client), _failure_cells(cause, failures)) for cause, failures in found.items()]
    table = Table(
        "Failures",
        "A failed trial is no throughput. It is counted by kind, and left out of every median and spread.",
        "client",
        ("case", "kind", "measured", "warm-up", "reason"),
        tuple(rows),
    )
    notes = [_log_note(cause, failures[0]) for cause, failures in found.items() if failures[0].log.strip()]
    yield Section("Failures", tables=(table,), notes=tuple(notes))


def _failure_cells(cause: _Cause, failures: Sequence[summaries.Failure]) -> tuple[Cell, ...]:
    measured = sum(failure.phase is Phase.MEASURED for failure in failures)
    words = (cause.case, cause.kind, str(measured), str(len(failures) - measured), cause.reason)
    return tuple(TextCell(plain(word)) for word in words)


def _log_note(cause: _Cause, failure: summaries.Failure) -> Note:
    lines = plain_lines(failure.log).strip("\n").splitlines()
    place = f"{cause.client} on {cause.case}, {failure.phase} block {failure.block}, trial {failure.trial}"
    return Note(plain(f"{place}: last lines of its log"), "\n".join(lines[-LOG_LINES:]))


def _unsupported_sections(summary: Summary) -> Iterator[Section]:
    found: dict[tuple[str, str], list[str]] = {}
    for case, client, result in _results(summary):
        if result.unsupported is not None:
            found.setdefault((client.name, result.unsupported), []).append(summary.label(case))
    if found:
        rows = [
            Row(plain(client), (TextCell(plain(reason)), TextCell(plain(", ".join(cases)))))
            for (client, reason), cases in found.items()
        ]
        caption = "Not offered by the client, hence not measured. This is no failure."
        table = Table("Unsupported", caption, "client", ("reason", "cases"), tuple(rows))
        yield Section("Unsupported", tables=(table,))


def _exit_sections(summary: Summary) -> Iterator[Section]:
    lines = [
        f"{client.name} on {summary.label(case)}: {_counted(count, 'measured trial')} left with exit code {code}."
        for case, client, result in _results(summary)
        for code, count in result.exit_codes.items()
    ]
    if lines:
        why = "Their work was done and verified, so they count; but a process that ends like this is worth knowing of."
        yield Section("Exit codes", paragraphs=(why, *map(plain, lines)))


def _results(summary: Summary) -> Iterator[tuple[Case, ClientInfo, Result]]:
    for case in summary.run.cases:
        for client in summary.run.clients:
            yield case, client, summary.results[case, client.name]


# --- figures ---------------------------------------------------------------------------------------------------------


WHISKERS = "Points are medians, whiskers reach from the least to the most of the n measured trials."


def _figure_section(summary: Summary) -> Section:
    operations = dict.fromkeys(case.operation for case in summary.run.cases)
    figures = (_figure(summary, operation) for operation in operations)
    drawn = tuple(figure for figure in figures if figure.rows)
    return Section("Figures", place="document", paragraphs=(WHISKERS,) if drawn else (), figures=drawn)


def _figure(summary: Summary, operation: str) -> Figure:
    cases = [case for case in summary.run.cases if case.operation == operation and summary.throughput(case)]
    rows = [(plain(summary.label(case)), tuple(_panels(summary, case))) for case in cases]
    return Figure(_slug(operation), plain(operation), WHISKERS, tuple(rows))


def _panels(summary: Summary, case: Case) -> Iterator[Panel]:
    throughput = summary.throughput(case)
    assert throughput is not None
    for title, metric in (
        ("Throughput", throughput),
        ("CPU", _cpu(summary, case)),
        ("Peak RSS", METRIC["rss_peak_bytes"]),
    ):
        points = tuple(_point(summary.results[case, client.name], metric, client) for client in summary.clients)
        highest = max((point.spread.median for point in points if point.spread), default=0)
        scale = units.scale_of(metric.unit, highest)
        better = "more" if metric.better == "up" else "less"
        yield Panel(f"{title}, {scale.label} ({better} is better)", scale, points)


def _point(result: Result, metric: Metric, client: ClientInfo) -> Point:
    cell = _cell(result, metric, client)
    if isinstance(cell, SpreadCell):
        return Point(plain(client.name), cell.spread, "")
    return Point(plain(client.name), None, "moves nothing" if client.role == "null" else show(cell, Row("", ())).value)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "operation"


# --- where, who, how -------------------------------------------------------------------------------------------------


def _facts(title: str, facts: Iterable[tuple[str, str]]) -> Table:
    rows = tuple(Row(plain(name), (TextCell(plain(text)),)) for name, text in facts if text)
    return Table(title, "", "", ("",), rows)


def _surroundings(run: Run) -> Iterator[Section]:
    yield Section("Host, store and link", place="document", tables=(_facts("Host, store and link", _where(run)),))
    yield Section("Clients", place="document", tables=tuple(_client_tables(run)))


def _where(run: Run) -> Iterator[tuple[str, str]]:
    host, store = run.host, run.store
    yield "Host", f"{host.name}: {host.cpu_model}, {_counted(host.cpu_count, 'core')}, {units.size(host.memory_bytes)}"
    yield "System", f"{host.system} {host.kernel} on {host.machine}, Python {host.python} for the harness"
    yield "Store", f"{store.kind}, {store.endpoint}, region {store.region}, bucket {store.bucket}"
    yield "Versions", _pairs(store.versions)
    yield "Store settings", _pairs(store.settings)
    yield "Link", link_words(run)
    yield "Ceiling", _ceiling(run)
    yield "Uploads", _uploads(run)
    yield "TLS", "yes" if run.tls else "no"
    yield "Harness", f"bench {run.bench_version}, commit {run.bench_commit}"


def _ceiling(run: Run) -> str:
    if run.ceilings is not None:
        return (
            f"{units.rate(run.ceilings.download_bytes_per_s)} down, {units.rate(run.ceilings.upload_bytes_per_s)} up, "
            f"{units.count(run.ceilings.gets_per_s)} GET/s and {units.count(run.ceilings.puts_per_s)} PUT/s "
            "are the most that the store gave through an unlimited link"
        )
    if run.ceiling_bytes_per_s is None:
        return "not measured: the link takes no rate from it"
    return f"{units.rate(run.ceiling_bytes_per_s)} is the most that the store gave through an unlimited link"


def _uploads(run: Run) -> str:
    if run.link.stream_rate_bytes_per_s is None:
        return ""
    return "limited like downloads" if run.upload_rate_limited else "not limited: this system paces no uploads"


def _pairs(pairs: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in pairs.items())


def _client_tables(run: Run) -> Iterator[Table]:
    texts: tuple[tuple[str, Callable[[ClientInfo], str]], ...] = (
        ("version", lambda client: client.version or NOTHING),
        ("botocore", lambda client: client.packages.get("botocore", NOTHING)),
        ("Python", lambda client: client.python),
        ("role", lambda client: client.role),
        ("what it is", lambda client: client.title),
    )
    rows = [Row(plain(c.name), tuple(TextCell(plain(of(c))) for _, of in texts)) for c in run.clients]
    yield Table("Clients", "", "client", tuple(title for title, _ in texts), tuple(rows))
    operations = dict.fromkeys(case.operation for case in run.cases)
    calls = [
        Row(plain(name), tuple(TextCell(plain(client.operations.get(name, NOTHING))) for client in run.clients))
        for name in operations
    ]
    columns = tuple(plain(client.name) for client in run.clients)
    yield Table("What is timed", "The call of each client that the window holds.", "operation", columns, tuple(calls))


def _method(run: Run) -> Section:
    blocks, warm_up = run.profile.measured_blocks, run.profile.warmup_blocks
    return Section(
        "Method",
        place="document",
        paragraphs=(
            (
                "Each trial is one fresh process of the client's own environment, so memory, threads and connections never "
                "reach the next."
            ),
            (
                "The timed window holds the operation and nothing else. Import, construction and one small request come before "
                "it; content is verified after it, outside the window."
            ),
            (
                "Order: randomised blocks. A block holds every client once on every case, the clients of a case next to each "
                "other in time, and which one starts changes with the block."
            ),
            (
                f"This run has {_counted(blocks, 'measured block')} and {warm_up} for warm-up. Warm-up is recorded and left out "
                "of every number here."
            ),
            f"A ratio is one of medians. It has no interval, and below {VERDICT_BLOCKS} blocks nothing is decided by it.",
        ),
    )


def _repeat(run: Run) -> Section:
    locks = {client.environment: client.lock_digest for client in run.clients}
    facts = _facts(
        "What must be the same",
        (
            ("Seed", str(run.seed)),
            ("Harness", f"bench {run.bench_version}, commit {run.bench_commit}"),
            ("Plan", f"{run.plan_digest}, {_counted(run.trial_count, 'trial')}"),
            ("Locks", _pairs(locks)),
            ("Adapters", _pairs({client.name: client.adapter_digest for client in run.clients})),
        ),
    )
    note = Note("The command that was given, with the seed that was used:", plain(run.command))
    return Section("How to repeat this run", place="document", notes=(note,), tables=(facts,))
