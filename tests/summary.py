"""The end of a test run: what was skipped and why, and every rendezvous of processes that was tried again."""

from collections import Counter

import pytest

RENDEZVOUS = "rendezvous failed:"  # lines of the output that begin so are repeated at the end


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter):
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    # By name: a module that is skipped as a whole is reported by every worker of xdist.
    skipped = {r.nodeid: r.longrepr[2].removeprefix("Skipped: ") for r in terminalreporter.stats.get("skipped", [])}
    counts = sorted(Counter(skipped.values()).items(), key=lambda item: (-item[1], item[0]))
    reasons = "; ".join(f"{number} × {reason}" for reason, number in counts)
    terminalreporter.write_line(f"skipped tests: {len(skipped)}" + (f" ({reasons})" if reasons else ""))
    retries = {
        (report.nodeid, line)
        for report in reports
        for line in getattr(report, "capstdout", "").splitlines()
        if line.startswith(RENDEZVOUS)
    }
    for test, line in sorted(retries):
        terminalreporter.write_line(f"{test}: {line}")
