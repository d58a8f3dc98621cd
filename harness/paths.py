"""Where things are in a checkout: the one place that knows."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVS = ROOT / "envs"
SCENARIOS = ROOT / "scenarios"
RESULTS = ROOT / "results"
REPORTS = ROOT / "reports"
HISTORY = ROOT / "history"
WORKER = ROOT / "harness" / "worker"
DECISIONS = SCENARIOS / "decisions"
