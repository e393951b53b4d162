"""Reports: ``build_report`` makes a self-contained page of a run folder, ``build_comparison`` one of several."""

from coulomb.report.build import build_report
from coulomb.report.compare import build_comparison

__all__ = ["build_comparison", "build_report"]
