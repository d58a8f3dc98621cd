"""Every noun of the harness, in the order of the flow: suite, case, trial, measurement, outcome, record, run."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import TypeAlias

import msgspec

SCHEMA_VERSION = 1
"""Version of everything written under results/; raised when a reader of the old form would misread the new."""


class Noun(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Immutable, and strict when read back: an unknown field is an error, never dropped.

    The garbage collector leaves them alone, for none can be part of a cycle: it would look through all records of a large
    run again and again while they are read.
    """


CONTROL = "control"
"""Version in the label of a client that takes part a second time: e.g. `s3fs@control`."""


def client_name(label: str) -> str:
    """Return the client of a label: `s3fs` of `s3fs@control` or `s3fs@2026.8.0`."""
    return label.partition("@")[0]


def digest_of(value: object) -> str:
    """Return 16 hex digits that name the content of `value`, independent of the order of its keys."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:16]


# --- what is measured ------------------------------------------------------------------------------------------------


class Objects(Noun, frozen=True):
    """How many objects of which size one operation handles."""

    count: int
    size_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.count * self.size_bytes


class Link(Noun, frozen=True):
    """What stands between client and store; `stream_rate_bytes_per_s` None means unlimited."""

    name: str
    delay_ms: int = 0
    """Added before each request is forwarded, so that the first byte of its answer is that much later."""
    copy_delay_ms: int = 0
    """In place of `delay_ms` for requests that carry x-amz-copy-source: a server-side copy passes no rate limit."""
    stream_rate_bytes_per_s: int | None = None
    """Per stream, downloads and uploads alike."""
    scaled: bool = False
    """The rate was, or is to be, derived from the ceiling of the embedded store."""
    abort_percent: int = 0
    """Of the requests, at random, are answered 503 SlowDown in place of reaching the store."""


class Settings(Noun, frozen=True, omit_defaults=True):
    """What every client is told, in words of its own."""

    concurrency: int
    """Workers of one object's transfer, and objects in flight of a batch."""
    block_bytes: int | None
    """Part and range size; None leaves the client's own default."""
    pool_size: int | None = None
    """Connections; None is as many as the concurrency, or the SDKs' default where that is more."""
    retry_mode: str | None = None
    """`legacy`, `standard` or `adaptive`; None is the same for every client and case: see `harness.run`."""
    retry_attempts: int | None = None
    """In total, the first included; None as for the mode."""
    timeout_s: int | None = None
    """To connect, and to wait for the next bytes; None leaves the client's own default."""
    watch_loop: bool = False
    """A ticker on the client's event loop measures its lag; it takes some CPU, so it isn't on everywhere."""


class Case(Noun, frozen=True, omit_defaults=True):
    """One thing to measure. Two runs may be compared on a case only when its digest agrees."""

    scenario: str
    operation: str
    objects: Objects
    settings: Settings
    link: str
    blocks: int | None = None
    """Measured in so many blocks and never warmed up, where each is dear; None is as many as the profile says."""

    @property
    def key(self) -> str:
        """Readable identity, e.g. `read/64MiB/c8/b8MiB`."""
        size = _compact_bytes(self.objects.size_bytes)
        shape = size if self.objects.count == 1 else f"{self.objects.count}x{size}"
        block = "default" if self.settings.block_bytes is None else _compact_bytes(self.settings.block_bytes)
        return "/".join((self.scenario, shape, f"c{self.settings.concurrency}", f"b{block}", *_extras(self.settings)))

    @property
    def digest(self) -> str:
        return digest_of(self)


def _extras(settings: Settings) -> list[str]:
    """Return the parts of a key that only some cases have."""
    named = (
        ("p", settings.pool_size),
        ("", settings.retry_mode),
        ("a", settings.retry_attempts),
        ("t", settings.timeout_s),
    )
    return [f"{letter}{value}" for letter, value in named if value is not None]


def _compact_bytes(byte_count: int) -> str:
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if byte_count >= factor and byte_count % factor == 0:
            return f"{byte_count // factor}{unit}"
    return f"{byte_count}B"


class Scenario(Noun, frozen=True):
    """One row of a suite file, with its values for the profile that was chosen."""

    name: str
    title: str
    operation: str
    cases: tuple[Case, ...]
    clients: tuple[str, ...] = ()
    """Alone these take part; empty for all of the suite."""


class Profile(Noun, frozen=True):
    name: str
    measured_blocks: int
    warmup_blocks: int
    control: str | None = None
    """Client that takes part twice: what separates it from itself is this session's noise."""


class Suite(Noun, frozen=True):
    """A suite file read for one profile."""

    name: str
    title: str
    profile: Profile
    clients: tuple[str, ...]
    baseline: str
    scenarios: tuple[Scenario, ...]
    links: tuple[Link, ...]
    default_link: str

    @property
    def cases(self) -> tuple[Case, ...]:
        return tuple(case for scenario in self.scenarios for case in scenario.cases)

    def clients_of(self, case: Case) -> tuple[str, ...]:
        """Return the labels that take part in a case, in the suite's order."""
        alone = next(each.clients for each in self.scenarios if case in each.cases)
        return tuple(label for label in self.clients if not alone or client_name(label) in alone)


class Phase(StrEnum):
    WARMUP = "warmup"
    MEASURED = "measured"


class Trial(Noun, frozen=True):
    """One client, one case, once."""

    sequence: int
    """Place in the realised order of the whole run, from 0."""
    block: int
    position: int
    """Place among the clients of this block and case, from 0."""
    phase: Phase
    client: str
    """Label: a client's name, with `@` and a version where it takes part more than once."""
    case: Case


# --- what was measured -----------------------------------------------------------------------------------------------


class FirstByte(Noun, frozen=True):
    """First-byte latency: from the end of a request to the first byte of its answer, as the link saw it."""

    request_count: int
    min_us: int
    median_us: int
    max_us: int


class Requests(Noun, frozen=True, omit_defaults=True):
    """What a client really sent in the timed window, from the link's access log."""

    by_method_and_status: dict[str, int]
    """E.g. {"GET 206": 8}; status 0 is a request that the client gave up before an answer."""
    received_bytes: int
    """Request bodies, as the link received them from the client."""
    sent_bytes: int
    """Response bodies, as the link sent them to the client."""
    connection_count: int
    in_flight_peak: int
    first_byte: FirstByte | None
    by_price: dict[str, int] | None = None
    """By class of their list price (`harness.prices`); None in records from before they were told apart."""

    @property
    def total(self) -> int:
        return sum(self.by_method_and_status.values())


class LoopLag(Noun, frozen=True):
    """How late a ticker on the client's event loop woke up in the window: who blocks the loop, and for how long."""

    tick_count: int
    period_us: int
    """What the ticker sleeps between two ticks; what it slept beyond that is the lag."""
    p99_us: int
    max_us: int


class Measurement(Noun, frozen=True, omit_defaults=True):
    """Raw figures of one timed window. What could not be measured is None, never 0."""

    wall_ns: int
    cpu_user_ns: int
    cpu_system_ns: int
    byte_count: int
    object_count: int
    rss_base_bytes: int
    """Resident memory right before the window."""
    rss_peak_bytes: int
    """Most resident memory in the window."""
    threads_base: int
    threads_peak: int
    harness_cpu_ns: int
    """CPU that the harness's own process used while the window was open."""
    requests: Requests | None
    """None where no link stands between client and store."""
    loop_lag: LoopLag | None = None
    """None for a client without an event loop within reach, and where the case doesn't ask."""

    @property
    def cpu_ns(self) -> int:
        return self.cpu_user_ns + self.cpu_system_ns


class FailureKind(StrEnum):
    RAISED = "raised"
    TIMEOUT = "timeout"
    KILLED = "killed"
    NO_ANSWER = "no-answer"
    NONSENSE = "nonsense"
    WRONG_BYTES = "wrong-bytes"
    SETTINGS = "settings-ignored"


class Measured(Noun, frozen=True, tag="measured"):
    measurement: Measurement
    applied: dict[str, int | str | None]
    """Settings read back from the client after its construction."""
    exit_code: int
    """Of the client's process; a client may abort at interpreter exit with its work done."""


class Failed(Noun, frozen=True, tag="failed"):
    kind: FailureKind
    reason: str
    log: str
    """Last lines that the client's process printed."""


class Unsupported(Noun, frozen=True, tag="unsupported"):
    reason: str


class Observed(Noun, frozen=True, tag="observed", omit_defaults=True):
    """The answer to a question that isn't how fast: what a client did, with what shows it."""

    answer: str
    """In a few words, from a short list of the operation's, e.g. `mixed`; equal answers are counted together."""
    good: bool | None
    """Whether a user can live with it; None for a fact that is neither good nor bad."""
    evidence: str
    """One line: what was seen."""
    facts: dict[str, int | float | str | None] = {}
    """The same for machines, units last."""
    measurement: Measurement | None = None
    """Of the window, where the operation came to an end in it."""
    applied: dict[str, int | str | None] = {}


Outcome: TypeAlias = Measured | Observed | Failed | Unsupported


class SentRequest(Noun, frozen=True, array_like=True):
    """One request of a trace. Times in microseconds from the opening of the window."""

    start_us: int
    first_byte_us: int | None
    """Of the answer, as it left the link."""
    end_us: int
    method: str
    what: str
    """Of the request, e.g. `object`, `part`, `list`, `uploads`, as its query says; never a key."""
    status: int
    """0 where the client gave up before an answer."""
    connection: int
    """Numbered from 0 in the order of first use."""
    received_bytes: int
    sent_bytes: int
    range: str
    """As the client asked for it; empty where it asked for none."""


class Trace(Noun, frozen=True):
    """What one trial sent, request by request, as the link saw it."""

    schema: int
    sequence: int
    """Of the trial."""
    wall_us: int | None
    """Length of the window; None where it never closed."""
    requests: tuple[SentRequest, ...]


class Conditions(Noun, frozen=True):
    """What the processors did in one observed span; of all processes, not of one.

    Counters come in ticks of 10 ms and several are summed: busy_ns and steal_ns of one span may each be off by some 20 ms,
    so a share says something only of the sum over a second or more.
    """

    wall_ns: int
    cpu_total_ns: int
    """Capacity: the span times the processors that are online."""
    busy_ns: int
    """Used by any process: ours and all others; counted as `ours_ns` is, interrupts in or out of both."""
    steal_ns: int
    """Wanted by this machine, and given to another one by the hypervisor. Always 0 where it doesn't tell."""
    ours_ns: int
    """Used by the trial's process, the store, the link and the harness."""
    load_1min: float
    """Processes that ran or wanted to, on average over the minute before the end of the span."""

    @property
    def foreign_ns(self) -> int:
        """Used by processes that aren't ours; never below 0, where the ticks alone would put it."""
        return max(0, self.busy_ns - self.ours_ns)


class Rules(Noun, frozen=True):
    """When a block of one case is dropped, declared before the run. Shares are of the processors' time, from 0 to 1."""

    max_steal_share: float = 0.05
    max_foreign_share: float = 0.10
    min_span_ns: int = 10**9
    """Wall time of all trials of the block together, below which nothing is judged.

    An end of a span misplaces about a tick: 7 ms of busy_ns a trial at one sigma. In 1 s on 2 processors, 8 trials' worth
    is 1 % of the capacity and 30 trials' worth 2 %; in a tenth of that span it would reach the 10 % that are allowed.
    """


class Record(Noun, frozen=True):
    """One line of records.jsonl."""

    schema: int
    run: str
    trial: Trial
    client_version: str
    lock_digest: str
    started_at: str
    """UTC, ISO 8601; for reading, never for arithmetic."""
    outcome: Outcome
    conditions: Conditions | None = None
    """None where the system doesn't say, and for a trial without a window."""


# --- where and by whom -----------------------------------------------------------------------------------------------


class ClientInfo(Noun, frozen=True):
    """A client as it was found installed."""

    name: str
    """Label; unique in a run."""
    title: str
    environment: str
    role: str
    """`client`, or of the instrument itself: `floor` does the least work, `null` does none and moves nothing,
    `control` is a client's second label."""
    version: str
    python: str
    packages: dict[str, str]
    lock_digest: str
    adapter_digest: str
    operations: dict[str, str]
    """Operation to the call that it times, in the client's own words."""
    requirement: str = ""
    """What was asked for in place of the locked version: a requirement, or the path of a checkout."""


class Host(Noun, frozen=True):
    name: str
    system: str
    kernel: str
    machine: str
    cpu_model: str
    cpu_count: int
    memory_bytes: int
    python: str


class Level(StrEnum):
    OK = "ok"
    UNKNOWN = "unknown"
    WARN = "warn"
    BAD = "bad"


class Finding(Noun, frozen=True):
    name: str
    level: Level
    fact: str
    """What was found, with its units."""
    value: int | float | str | None
    """The same for machines: the number or word that the level was chosen by."""
    why: str
    """Why it matters."""
    advice: str
    """What to do; empty when nothing is amiss."""


class StoreInfo(Noun, frozen=True):
    kind: str
    """`embedded`, or `endpoint` for a store that isn't ours."""
    endpoint: str
    region: str
    bucket: str
    prefix: str
    versions: dict[str, str]
    settings: dict[str, str]


class Ceilings(Noun, frozen=True):
    """The most that the embedded store and an unlimited link deliver on this host, to the client that does least."""

    download_bytes_per_s: int
    upload_bytes_per_s: int
    gets_per_s: int
    """Of small objects, one request each."""
    puts_per_s: int


class Filters(Noun, frozen=True):
    """What narrowed the run; resuming must narrow it the same way."""

    clients: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    blocks: int | None = None
    link: str | None = None
    control: str | None = None
    """In place of the profile's; `none` leaves it out."""
    versions: tuple[str, ...] = ()
    """Other versions of clients beside the locked ones, as `--with` names them."""


class Expectation(Noun, frozen=True, omit_defaults=True):
    """What somebody expects of two clients: a ratio of one metric, held against a threshold."""

    name: str
    title: str
    cases: tuple[str, ...]
    """Patterns of case keys, e.g. `read/*MiB/c8/b8MiB`; empty where the metric is of the clients, not of cases."""
    metric: str
    numerator: str
    denominator: str
    rule: str
    """`at-least`, `at-most` or `same-within`."""
    threshold: float
    """A ratio, or for `same-within` the margin: 0.1 is from 1/1.1 to 1.1."""
    published: str
    """What others saw, in words, to stand beside ours."""
    against: str = ""
    """Pattern of the case that the denominator is measured on; empty for the same case as the numerator."""


class Criterion(Noun, frozen=True):
    """A condition over expectations, and what follows when it holds."""

    name: str
    title: str
    any_of: tuple[str, ...]
    """Names of expectations, or of criteria above this one: one that is confirmed is enough."""
    all_of: tuple[str, ...]
    """All of them must be confirmed."""
    recommendation: str
    """Empty for a criterion that only serves others."""


class Requirement(Noun, frozen=True):
    """What no client may do, whatever else speaks for it."""

    name: str
    title: str
    cases: tuple[str, ...]
    """Patterns of case keys."""
    broken_by: tuple[str, ...]
    """Answers that break it; empty for every answer that is not good."""


class Decision(Noun, frozen=True, omit_defaults=True):
    """A decision file: expectations, criteria over them in the order in which they count, and what follows otherwise."""

    name: str
    question: str
    suite: str
    expectations: tuple[Expectation, ...]
    criteria: tuple[Criterion, ...]
    otherwise: str
    requirements: tuple[Requirement, ...] = ()


class Run(Noun, frozen=True):
    """run.json: what a reader needs to interpret or repeat a run."""

    schema: int
    id: str
    created_at: str
    command: str
    bench_version: str
    bench_commit: str
    suite: str
    suite_file: str
    """As it was named, below scenarios/ or by a path; resuming reads it again."""
    suite_title: str
    profile: Profile
    baseline: str
    seed: int
    filters: Filters
    tls: bool
    link: Link
    ceiling_bytes_per_s: int | None
    """Most that the embedded store delivered through an unlimited link, from which a scaled link takes its rate;
    the same as the download of `ceilings`, which early runs lack."""
    upload_rate_limited: bool
    """False where the system offers no pacing of uploads (anything but Linux)."""
    store: StoreInfo
    host: Host
    clients: tuple[ClientInfo, ...]
    cases: tuple[Case, ...]
    trial_count: int
    plan_digest: str
    ceilings: Ceilings | None = None
    """None on a store that isn't ours."""
    rules: Rules | None = None
    """None in runs before there were any."""
    fitness: tuple[Finding, ...] = ()
    """What `bench doctor` said of the host right before the run."""
    decision: Decision | None = None
    """Declared before the first trial: once its blocks are measured, the cases that it leaves undecided get as many again."""
    more_links: tuple[Link, ...] = ()
    """Beside `link`, those that cases name."""

    @property
    def links(self) -> tuple[Link, ...]:
        return (self.link, *self.more_links)


class RunSet(Noun, frozen=True):
    """A run and its records, as read back."""

    run: Run
    records: tuple[Record, ...]
    traces: dict[int, Trace] = {}
    """By sequence of the trial; of some trials only, and of none in runs before there were any."""
