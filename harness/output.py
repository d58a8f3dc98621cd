"""The two streams of the command line: results on the one, all else on the other."""

from __future__ import annotations

from rich.console import Console

out = Console(soft_wrap=False, highlight=False)
# Messages hold commands to copy, so no line is broken but by the terminal itself.
err = Console(stderr=True, highlight=False, soft_wrap=True)
