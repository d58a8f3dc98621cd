"""The command line: what can be asked for, how it is called, and how it ends. What is done is in `commands`."""

from __future__ import annotations

import errno
import signal
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from harness import paths
from harness.errors import BenchError, DiskFullError
from harness.output import err

# Each command imports what it needs when it is called: `bench --help` must not wait for an SDK and a statistics library.

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


@app.command()
def run(
    suite: Annotated[
        str, typer.Option("--suite", help="A suite of scenarios/, or the path of a TOML file.")
    ] = "filesystem",
    profile: Annotated[
        str | None,
        typer.Option("--profile", help="How much of it: quick, standard or full.", show_default="the suite's, quick"),
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
            "`none` leaves it out.",
            show_default="the profile's; quick has none",
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
        int | None, typer.Option("--seed", min=0, help="Order of trials and contents.", show_default="random")
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
        str | None, typer.Option("--region", help="Region of --bucket.", show_default="of your AWS settings")
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
    from harness import commands

    commands.run(
        suite=suite,
        profile=profile,
        client=client,
        scenario=scenario,
        size=size,
        blocks=blocks,
        link=link,
        control=control,
        with_versions=with_versions,
        until_decided=until_decided,
        seed=seed,
        tls=tls,
        bucket=bucket,
        prefix=prefix,
        endpoint_url=endpoint_url,
        region=region,
        yes=yes,
        list_only=list_only,
        as_json=as_json,
        results=results,
        envs=envs,
    )


@app.command()
def resume(
    run_name: RunArgument,
    as_json: JsonOption = False,
    results: ResultsOption = paths.RESULTS,
    envs: EnvsOption = paths.ENVS,
) -> None:
    """Finish an interrupted run: no trial twice. Refused when clients, plan, store or host are no longer the same."""
    from harness import commands

    commands.resume(run_name=run_name, as_json=as_json, results=results, envs=envs)


@app.command("doctor")
def run_doctor(as_json: JsonOption = False) -> None:
    """Say whether this host is fit to measure on: what is bad, why it matters, what to do.

    Ends with code 1 when something is bad; a warning is something to know, and to read the figures by.
    """
    from harness import commands

    commands.run_doctor(as_json=as_json)


@app.command("selftest")
def run_selftest(
    links: Annotated[bool, typer.Option("--links/--no-links", help="Measure the links of the suites, too.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Test the harness: a client whose every figure is known, and every link, measured against what is true.

    Takes about two minutes. Ends with code 1 when a figure lies outside of what is allowed.
    """
    from harness import commands

    commands.run_selftest(links=links, as_json=as_json)


@app.command("list")
def list_runs(as_json: JsonOption = False, results: ResultsOption = paths.RESULTS) -> None:
    """List the recorded runs, newest first."""
    from harness import commands

    commands.list_runs(as_json=as_json, results=results)


@app.command()
def show(run_name: RunArgument = "latest", as_json: JsonOption = False, results: ResultsOption = paths.RESULTS) -> None:
    """Print a run's tables: throughput, CPU, memory, threads, failures."""
    from harness import commands

    commands.show(run_name=run_name, as_json=as_json, results=results)


@app.command()
def report(
    run_name: RunArgument = "latest",
    results: ResultsOption = paths.RESULTS,
    reports: Annotated[
        Path, typer.Option("--reports", help="Folder of all reports.", show_default="reports/")
    ] = paths.REPORTS,
) -> None:
    """Write reports/RUN/report.md with its figures."""
    from harness import commands

    commands.report(run_name=run_name, results=results, reports=reports)


@app.command("compare")
def run_compare(
    run_name: Annotated[str, typer.Argument(metavar="RUN", help="A run, or the earlier of two.")] = "latest",
    other_name: Annotated[
        str | None, typer.Argument(metavar="RUN_B", help="The later run: each client is compared with itself.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="Client of RUN to compare with.", show_default="the run's")
    ] = None,
    metric: Annotated[list[str] | None, typer.Option("--metric", help="Only this metric; may be repeated.")] = None,
    as_json: JsonOption = False,
    results: ResultsOption = paths.RESULTS,
) -> None:
    """Compare the clients of one run, or two runs: ratios with their intervals, and what may be said of them."""
    from harness import commands

    commands.run_compare(
        run_name=run_name, other_name=other_name, baseline=baseline, metric=metric, as_json=as_json, results=results
    )


@app.command("decide")
def run_decide(
    run_name: RunArgument = "latest",
    decision: Annotated[
        str | None,
        typer.Option(
            "--decision", help="A decision of scenarios/decisions/, or a TOML file.", show_default="the suite's"
        ),
    ] = None,
    as_json: JsonOption = False,
    results: ResultsOption = paths.RESULTS,
) -> None:
    """Hold expectations against a run: confirmed, refuted, inconclusive or invalid, and what follows."""
    from harness import commands

    commands.run_decide(run_name=run_name, decision=decision, as_json=as_json, results=results)


@app.command("dependencies")
def run_dependencies(
    client: Annotated[list[str] | None, typer.Option("--client", help="Only this client; may be repeated.")] = None,
    as_json: JsonOption = False,
    envs: EnvsOption = paths.ENVS,
) -> None:
    """Show what each client brings along: distributions, sizes, import time, pins, and what it conflicts with.

    Sizes are those of its lock and its environment; whether packages go together is resolved by uv, for real.
    """
    from harness import commands

    commands.run_dependencies(client=client, as_json=as_json, envs=envs)


@app.command("coupling")
def run_coupling(
    package: Annotated[str, typer.Argument(metavar="PACKAGE", help="A client's package, e.g. pyathena.")],
    subpackage: Annotated[str, typer.Argument(metavar="SUBPACKAGE", help="A part of it, e.g. pyathena.filesystem.")],
    as_json: JsonOption = False,
    envs: EnvsOption = paths.ENVS,
) -> None:
    """Show how a subpackage hangs together with the rest: modules, lines, what it imports, who imports it."""
    from harness import commands

    commands.run_coupling(package=package, subpackage=subpackage, as_json=as_json, envs=envs)


@app.command("explain")
def explain_trials(
    run_name: RunArgument,
    case: Annotated[
        str, typer.Argument(metavar="CASE", help="A case's key, its scenario's name, or a pattern that fits one case.")
    ],
    client: Annotated[str, typer.Argument(metavar="CLIENT", help="A client of the run.")],
    as_json: JsonOption = False,
    figure: Annotated[Path | None, typer.Option("--figure", help="Draw the requests into this PNG file.")] = None,
    results: ResultsOption = paths.RESULTS,
) -> None:
    """Say from the link's log what a client did, request by request, and what most likely bounds it."""
    from harness import run_commands

    run_commands.explain_trials(
        run_name=run_name, case=case, client=client, as_json=as_json, figure=figure, results=results
    )


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
    from harness import commands

    commands.history_add(
        run_name=run_name, title=title, decision=decision, remark=remark, results=results, folder=folder
    )


@history_app.command("plot")
def history_plot(
    case: Annotated[str, typer.Argument(metavar="CASE", help="A case's key, e.g. read/64MiB/c8/b8MiB.")],
    metric: Annotated[str, typer.Option("--metric", help="What is drawn.")] = "throughput_bytes_per_s",
    results: ResultsOption = paths.RESULTS,
    folder: Annotated[
        Path, typer.Option("--history", help="Folder of all entries.", show_default="history/")
    ] = paths.HISTORY,
) -> None:
    """Draw a metric of one case across entries and versions, with intervals: history/figures/CASE-METRIC.png."""
    from harness import commands

    commands.history_plot(case=case, metric=metric, results=results, folder=folder)


@history_app.command("check")
def history_check(
    results: ResultsOption = paths.RESULTS,
    folder: Annotated[
        Path, typer.Option("--history", help="Folder of all entries.", show_default="history/")
    ] = paths.HISTORY,
) -> None:
    """Render every entry anew from its records, and fail on any difference."""
    from harness import commands

    commands.history_check(results=results, folder=folder)


@store_app.command("serve")
def store_serve(
    link: Annotated[
        str, typer.Option("--link", help="A link of the filesystem suite; its scaled rate is measured first.")
    ] = "s3",
    tls: Annotated[bool, typer.Option("--tls/--no-tls", help="Speak TLS, as S3 does.")] = True,
) -> None:
    """Run the embedded store and link until Ctrl-C, and print how to use them by hand."""
    from harness import commands

    commands.store_serve(link=link, tls=tls)


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
