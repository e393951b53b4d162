"""`coulomb lab doctor`: does the doctor find every sickness, and none where there is none?"""

import argparse
import logging
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from coulomb.data import open_source
from coulomb.data.views import OwnViews
from coulomb.doctor import RULES
from coulomb.errors import InputError, NonFiniteError
from coulomb.evaluation.assess import assess
from coulomb.evaluation.examine import examine
from coulomb.lab.sick import CASES, SMALL, Case, plain
from coulomb.methods.options import OWN, load_own_method
from coulomb.randomness import numpy_generator
from coulomb.runs.folder import RunFolder, write_json
from coulomb.runs.objects import Objects
from coulomb.training.launch import start

log = logging.getLogger("coulomb")

PHOTOS_USED = 1_875
START, END = "<!-- confusion table: python -m coulomb.lab.doctor -->", "<!-- end of the confusion table -->"


def images_of(data: str) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of the built-in digits, or of 1,875 photos drawn from ``data``: 1,500 to train on.

    Raises:
        InputError: ``data`` has no labels, or its images differ in size.
    """
    source = open_source(data)
    if source.labels is None:
        raise InputError(f"data={data!r}: it has no labels; the cases of shuffled labels need them")
    chosen = numpy_generator(0, "photos").permutation(len(source))[:PHOTOS_USED]
    if data == "digits":
        chosen = np.arange(len(source))
    images = [np.asarray(source.image(int(index))) for index in chosen]
    if len({image.shape for image in images}) > 1:
        raise InputError(
            f"data={data!r}: the images differ in size; give photos of one size such as CIFAR-10's 32 pixels"
        )
    stacked = np.stack(images)
    grey = stacked.ndim == 4 and stacked.shape[-1] == 1
    return stacked[..., 0] if grey else stacked, np.asarray(source.labels)[chosen]


def run_case(case: Case, folder: Path, seed: int = 0, photos: str | None = None) -> dict[str, Any]:
    """Train a case unless it is trained already, and diagnose it; returns the content of its ``doctor.json``."""
    run, objects = RunFolder(folder / case.name), Objects(method=load_own_method(case.method))
    prepared, data = None, case.data or (plain if case.photos else None)
    named: dict[str, Any] = {}
    if data is not None:
        images, labels = images_of(photos if case.photos and photos else "digits")
        named = data(folder / "data" / case.name, images, labels)
    if case.views is not None:
        size, channels = (images.shape[1], 3) if case.photos else (16, 1)
        objects.views = OwnViews(case.views, size=size, channels=channels)
    if not run.environment.exists():
        options = SMALL | case.options | {"out": str(run.path), "seed": seed}
        if case.method is not None:
            options["method"] = OWN + case.method.__name__
        options |= named
        with suppress(NonFiniteError):
            _, prepared = start(options, objects, progress=False)
        if case.evaluate:
            assess(run, prepared, objects, progress=False)
    return examine(run, prepared, objects, progress=False)


def perform(folder: Path, only: tuple[str, ...] = (), seed: int = 0, photos: str | None = None) -> dict[str, Any]:
    """All cases: ``rows`` [{"case", "expected", "sick", "warnings", "found"}]; by case ``missed`` (no verdict that says
    sick), ``wrong`` (sick, but not of what was expected), ``alarms``, and ``skipped`` for want of photos.

    ``found``: of a sick run, whether its verdict is among those given; of a healthy one, whether there is none that says sick.
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
    """`perform`, with the result in ``folder/confusion.json``.

    Raises:
        InputError: ``only`` names no case.
    """
    if unknown := set(only) - {case.name for case in CASES}:
        raise InputError(f"only={sorted(unknown)[0]!r}: no such case; there are {', '.join(c.name for c in CASES)}")
    result = perform(folder, only, seed, photos)
    write_json(folder / "confusion.json", result)
    return result


def table(result: dict[str, Any]) -> str:
    """The confusion table in Markdown: a row a run, a column a verdict that any run got."""
    given = {name for row in result["rows"] for name in row["sick"] + row["warnings"]}
    expected = {row["expected"] for row in result["rows"]}
    columns = [rule.name for rule in RULES if rule.name in given | expected]
    numbers = {name: str(number) for number, name in enumerate(columns, 1)}
    lines = ["| run | made sick by design | " + " | ".join(numbers.values()) + " |"]
    lines.append("|---|---|" + "---|" * len(columns))
    for row in result["rows"]:
        marks = [
            "**●**" if c in row["sick"] and c == row["expected"] else "●" if c in row["sick"] else "" for c in columns
        ]
        marks = ["○" if c in row["warnings"] else mark for c, mark in zip(columns, marks, strict=True)]
        lines.append(f"| {row['case']} | {row['expected'] or 'healthy'} | " + " | ".join(marks) + " |")
    named = ", ".join(f"{number} {name}" for name, number in numbers.items())
    sick, healthy = ([r for r in result["rows"] if bool(r["expected"]) is kind] for kind in (True, False))
    told = (
        f"{sum(r['found'] for r in sick)} of {len(sick)} sicknesses found, {len(result['missed'])} missed, "
        f"{len(result['wrong'])} with a wrong cause; {len(result['alarms'])} false alarms in {len(healthy)} healthy runs."
    )
    if result["skipped"]:
        told += f" {len(result['skipped'])} runs were skipped: they need photos (--data)."
    key = f"● sick, ○ warning; **●** the verdict that the run was made for. Columns: {named}."
    return "\n".join([told, "", *lines, "", key])


def write_table(result: dict[str, Any], page: Path) -> None:
    """Put the table between its marks in a Markdown page.

    Raises:
        InputError: the page has no such marks.
    """
    text = page.read_text(encoding="utf-8")
    before, found, rest = text.partition(START)
    if not found or END not in rest:
        raise InputError(f"{page}: no place for the table; it needs the lines {START!r} and {END!r}")
    after = rest.partition(END)[2]
    page.write_text(f"{before}{START}\n\n{table(result)}\n\n{END}{after}", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Run the suite; 0 if every sickness was found and no healthy run was called sick."""
    parser = argparse.ArgumentParser(prog="python -m coulomb.lab.doctor", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/lab/doctor"), help="folder for runs and results")
    parser.add_argument("--only", action="append", default=[], help="only this case; may be repeated")
    parser.add_argument("--data", help="labelled photos of one size, such as CIFAR-10, for the runs on photos")
    parser.add_argument("--seed", type=int, default=0, help="of every random draw")
    parser.add_argument("--page", type=Path, help="Markdown page whose table is to be replaced")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    result = suite(given.out, tuple(given.only), given.seed, given.data)
    sys.stdout.write(table(result) + "\n")
    if given.page is not None:
        write_table(result, given.page)
    return 1 if result["missed"] or result["wrong"] or result["alarms"] else 0


if __name__ == "__main__":
    sys.exit(main())
