"""Lists the benchmarks: ``python -m benchmarks``."""

import ast
from pathlib import Path


def listing() -> list[str]:
    """Returns a line per benchmark, a file of this folder with a function ``main``: how to run it and what it measures."""
    lines = []
    paths = sorted(Path(__file__).parent.glob("[!_]*.py"))
    width = max(len(path.stem) for path in paths) + 2
    for path in paths:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name == "main":
                summary = (ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ")
                lines.append(f"python -m benchmarks.{path.stem:{width}}{summary}")
    return lines


if __name__ == "__main__":
    print(
        "Each compares a part of coulomb with alternatives, interleaved; --help lists its options.",
        *listing(),
        sep="\n",
    )
