"""The measurement harness: what meets whom, where, and what came of it."""

__version__ = "0.1.0"
