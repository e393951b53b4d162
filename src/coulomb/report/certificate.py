"""The page of a certificate: what holds for a loss, and the smallest example of each failure."""

from pathlib import Path

from coulomb.ground.version import __version__
from coulomb.laws import FAILS, HOLDS, Certificate
from coulomb.laws.finding import figures, summary
from coulomb.report.pages.page import ChartList, check_target, render_page, write_page

TONES = {HOLDS: "good", FAILS: "bad"}


def write_certificate(certificate: Certificate, out: Path | str) -> Path:
    """Writes the page and returns its path.

    Raises:
        InputError: ``out`` is a folder, or its folder does not exist.
    """
    return write_page(check_target(out), render_certificate(certificate))


def render_certificate(certificate: Certificate) -> str:
    """Returns the page as text."""
    rows = [(one, figures(one), TONES.get(one.outcome, "")) for one in certificate.findings]
    module, _, name = certificate.loss.rpartition(":")
    content = {
        "name": name,
        "module": module,
        "certificate": certificate,
        "rows": rows,
        "summary": summary(certificate.findings),
        "version": __version__,
    }
    return render_page("coulomb.report", "certificate.html", content, charts=ChartList(), styles=("certificate.css",))
