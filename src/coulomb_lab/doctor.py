"""`coulomb lab doctor`: does the doctor find every known problem, and none in healthy runs?"""

import argparse
import logging
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from coulomb.evaluation.assess import assess
from coulomb.evaluation.doctor import RULES
from coulomb.evaluation.examine import examine
from coulomb.ground.errors import InputError, NonFiniteError
from coulomb.ground.files import write_json
from coulomb.ground.randomness import numpy_generator
from coulomb.kinds.image.views import OwnViews
from coulomb.tables import open_source
from coulomb.training.launch import start
from coulomb.training.plan.resolve import reopen
from coulomb.training.record.folder import RunFolder
from coulomb_lab.sick import CASES, SMALL, Case, plain

log = logging.getLogger("coulomb")

MAX_PHOTOS = 1_875  # 1,500 of them for training
START, END = "<!-- confusion table: python -m coulomb_lab.doctor -->", "<!-- end of the confusion table -->"


def load_images(data: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns images and labels of the built-in digits, or of 1,875 random photos of ``data``.

    Raises:
        InputError: ``data`` has no labels, or its images differ in size.
    """
    source = open_source(data)
    if source.labels is None:
        raise InputError(f"data={data!r}: no labels; the cases with shuffled labels need them")
    chosen = numpy_generator(0, "photos").permutation(len(source))[:MAX_PHOTOS]
    if data == "digits":
        chosen = np.arange(len(source))
    images = [np.asarray(source.image(int(index))) for index in chosen]
    if len({image.shape for image in images}) > 1:
        raise InputError(
            f"data={data!r}: the images differ in size; give photos of one size such as CIFAR-10's 32 pixels"
        )
    stacked = np.stack(images)
    gray = stacked.ndim == 4 and stacked.shape[-1] == 1
    return stacked[..., 0] if gray else stacked, np.asarray(source.labels)[chosen]


def run_case(case: Case, folder: Path, seed: int = 0, photos: str | None = None) -> dict[str, Any]:
    """Trains a case unless it is finished, diagnoses it, and returns the content of its ``doctor.json``."""
    run, plan = RunFolder(folder / case.name), None
    own: dict[str, Any] = {} if case.method is None else {"method": case.method}
    data = case.data or (plain if case.photos else None)
    data_options: dict[str, Any] = {}
    if data is not None:
        images, labels = load_images(photos if case.photos and photos else "digits")
        data_options = data(folder / "data" / case.name, images, labels)
    if case.views is not None:
        size, channels = (images.shape[1], 3) if case.photos else (16, 1)
        own["views"] = OwnViews(case.views, size=size, channels=channels)
    if newly_trained := not run.environment.exists():
        options = SMALL | case.options | {"out": str(run.path), "seed": seed}
        options |= data_options
        if case.from_weights:
            first = RunFolder(folder / "weights")
            if not first.environment.exists():
                start(SMALL | {"out": str(first.path), "seed": seed}, progress=False)
            options |= {"encoder": f"run:{first.path}", "encoder_width": None}
        with suppress(NonFiniteError):
            _, plan = start(options | own, progress=False)
    if plan is None:  # trained earlier, or stopped by NaN
        plan = reopen(run, own, progress=False)
    if newly_trained and case.evaluate:
        assess(run, plan, progress=False)
    return examine(run, plan, progress=False)


def perform_cases(folder: Path, only: tuple[str, ...] = (), seed: int = 0, photos: str | None = None) -> dict[str, Any]:
    """Runs all cases; returns ``rows`` and the names of cases by outcome.

    A row has ``case``, ``expected``, ``sick`` and ``warnings`` (findings by severity), and ``found``: whether the expected
    finding is among ``sick``, or, for a healthy run, whether ``sick`` is empty. The outcomes are ``missed`` (no finding),
    ``wrong`` (another finding than expected), ``alarms`` (findings in healthy runs) and ``skipped`` (no photos).
    """
    rows, skipped = [], []
    for case in CASES:
        if only and case.name not in only:
            continue
        if case.photos and photos is None:
            skipped.append(case.name)
            continue
        log.info("doctor: %s", case.name)
        verdicts = run_case(case, folder, seed, photos)["verdicts"]
        sick = [verdict["name"] for verdict in verdicts if verdict["severity"] == "sick"]
        rows.append(
            {
                "case": case.name,
                "expected": case.expected,
                "sick": sick,
                "warnings": [verdict["name"] for verdict in verdicts if verdict["severity"] != "sick"],
                "found": case.expected in sick if case.expected else not sick,
            }
        )
        log.info("doctor: %s: %s", case.name, ", ".join(sick) or "healthy")
    return {
        "rows": rows,
        "missed": [row["case"] for row in rows if row["expected"] and not row["sick"]],
        "wrong": [row["case"] for row in rows if row["expected"] and row["sick"] and not row["found"]],
        "alarms": [row["case"] for row in rows if not row["expected"] and not row["found"]],
        "skipped": skipped,
    }


def suite(folder: Path, only: tuple[str, ...] = (), seed: int = 0, photos: str | None = None) -> dict[str, Any]:
    """Performs the cases and stores the result in ``folder/confusion.json``.

    Raises:
        InputError: ``only`` names a case that does not exist.
    """
    if unknown := set(only) - {case.name for case in CASES}:
        raise InputError(f"only={sorted(unknown)[0]!r}: no such case; there are {', '.join(c.name for c in CASES)}")
    result = perform_cases(folder, only, seed, photos)
    write_json(folder / "confusion.json", result)
    return result


def table(result: dict[str, Any]) -> str:
    """Returns the confusion table in Markdown: one row per run, one column per finding."""
    given = {name for row in result["rows"] for name in row["sick"] + row["warnings"]}
    expected = {row["expected"] for row in result["rows"]}
    columns = [rule.name for rule in RULES if rule.name in given | expected]
    numbers = {name: str(number) for number, name in enumerate(columns, 1)}
    lines = ["| run | expected finding | " + " | ".join(numbers.values()) + " |"]
    lines.append("|---|---|" + "---|" * len(columns))
    for row in result["rows"]:
        marks = [
            "**●**" if c in row["sick"] and c == row["expected"] else "●" if c in row["sick"] else "" for c in columns
        ]
        marks = ["○" if c in row["warnings"] else mark for c, mark in zip(columns, marks, strict=True)]
        lines.append(f"| {row['case']} | {row['expected'] or 'healthy'} | " + " | ".join(marks) + " |")
    legend = ", ".join(f"{number} {name}" for name, number in numbers.items())
    sick, healthy = ([r for r in result["rows"] if bool(r["expected"]) is kind] for kind in (True, False))
    text = (
        f"{sum(r['found'] for r in sick)} of {len(sick)} problems found, {len(result['missed'])} missed, "
        f"{len(result['wrong'])} with a wrong cause; {len(result['alarms'])} false alarms in {len(healthy)} healthy runs."
    )
    if result["skipped"]:
        text += f" {len(result['skipped'])} runs were skipped: they need photos (--data)."
    key = f"● sick, ○ warning; **●** the expected finding. Columns: {legend}."
    return "\n".join([text, "", *lines, "", key])


def write_table(result: dict[str, Any], page: Path) -> None:
    """Replaces the table between its markers in a Markdown page.

    Raises:
        InputError: the page has no markers.
    """
    text = page.read_text(encoding="utf-8")
    before, marker, rest = text.partition(START)
    if not marker or END not in rest:
        raise InputError(f"{page}: no markers for the table; add the lines {START!r} and {END!r}")
    after = rest.partition(END)[2]
    page.write_text(f"{before}{START}\n\n{table(result)}\n\n{END}{after}", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Runs the suite; returns 0 if every problem was found and no healthy run had findings."""
    parser = argparse.ArgumentParser(prog="python -m coulomb_lab.doctor", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/lab/doctor"), help="folder for runs and results")
    parser.add_argument("--only", action="append", default=[], help="run only this case; may be repeated")
    parser.add_argument("--data", help="labeled photos of equal size, such as CIFAR-10, for the cases on photos")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random draws")
    parser.add_argument("--page", type=Path, help="Markdown page whose table is replaced")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    result = suite(options.out, tuple(options.only), options.seed, options.data)
    sys.stdout.write(table(result) + "\n")
    if options.page is not None:
        write_table(result, options.page)
    return 1 if result["missed"] or result["wrong"] or result["alarms"] else 0


if __name__ == "__main__":
    sys.exit(main())
