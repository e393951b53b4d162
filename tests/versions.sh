#!/bin/sh
# Runs the tests of the core with the oldest and the newest supported torch: sh tests/versions.sh [VERSION …]
# One environment per version in .versions/, which is kept; without versions, those below. Other packages are those of
# constraints.txt. Other tests, or arguments of pytest: TESTS="tests/losses -x" sh tests/versions.sh 2.6.0
set -e
cd "$(dirname "$0")/.."
versions=${*:-"2.6.0 2.13.0"}
tests=${TESTS:-"tests/losses tests/similarity tests/negatives tests/methods tests/models -m 'not slow'"}
failed=
for version in $versions; do
    folder=.versions/torch-$version
    if [ ! -f "$folder/stamp" ]; then
        "${PYTHON:-python3}" -m venv "$folder"
        grep -v '^torch==' constraints.txt > "$folder/constraints.txt"
        echo "torch==$version" >> "$folder/constraints.txt"
        "$folder/bin/python" -m pip --disable-pip-version-check install -q -c "$folder/constraints.txt" torch
        "$folder/bin/python" -m pip --disable-pip-version-check install -q -c "$folder/constraints.txt" -e '.[train,dev]'
        touch "$folder/stamp"
    fi
    "$folder/bin/python" -c 'import sys, torch; print(f"torch {torch.__version__}, Python {sys.version.split()[0]}")'
    eval "OMP_NUM_THREADS=1 '$folder/bin/python' -m pytest -n auto --maxprocesses 8 --dist worksteal $tests" || failed="$failed $version"
done
[ -z "$failed" ] || { echo "failed with torch$failed" >&2; exit 1; }
