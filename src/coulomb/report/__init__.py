"""A run folder told as one self-contained page: ``build_report(run)`` writes ``report.html``."""

from coulomb.report.build import build_report

__all__ = ["build_report"]
