"""What a run has to say: one view model, one renderer a format."""

from __future__ import annotations

from pathlib import Path

from harness.model import RunSet
from harness.report import build, markdown


def write_report(run_set: RunSet, folder: Path) -> Path:
    """Write report.md and its figures into `folder`, over those of an earlier time; return the path of report.md."""
    # Imported here: no other command should wait for matplotlib.
    from harness.report import figures

    built = build.build(run_set)
    folder.mkdir(parents=True, exist_ok=True)
    for section in built.sections:
        for figure in section.figures:
            figures.write(figure, folder / markdown.FIGURES_FOLDER)
    path = folder / "report.md"
    path.write_text(markdown.render(built), encoding="utf-8")
    return path
