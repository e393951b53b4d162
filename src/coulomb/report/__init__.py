"""Run folders told as self-contained pages: ``build_report(run)`` one, ``build_comparison(runs)`` several side by side."""

from coulomb.report.build import build_report
from coulomb.report.compare import build_comparison

__all__ = ["build_comparison", "build_report"]
