#!/bin/sh
# Runs the tests of the core with other versions: sh tests/versions.sh [VERSION of torch | newest | lowest …]
# VERSION: this torch, other packages as in constraints.txt. newest: the newest of everything. lowest: the lowest of everything
# that pyproject.toml allows, as in constraints-lowest.txt; a training, a search, pairs and exports instead of the tests.
# One environment for each in .versions/, which is kept. Another Python: PYTHON=python3.13. Other tests, or arguments of pytest:
# TESTS="tests/losses -x" sh tests/versions.sh 2.6.0
set -e
cd "$(dirname "$0")/.."
versions=${*:-"2.6.0 2.13.0"}
python=${PYTHON:-python3}
tests=${TESTS:-"tests/losses tests/similarity tests/negatives tests/methods tests/models tests/laws tests/integrations -m 'not slow'"}
failed=
for version in $versions; do
    folder=.versions/$version-py$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if [ ! -f "$folder/stamp" ]; then
        "$python" -m venv "$folder"
        pip="$folder/bin/python -m pip --disable-pip-version-check install -q"
        case $version in
        newest) $pip --upgrade -e '.[train,dev]' ;;
        lowest)
            $pip -c constraints-lowest.txt torch
            $pip -c constraints-lowest.txt -e '.[train,hf,timm,lora,faiss,heic,browse,s3]' tokenizers
            $pip -c constraints-lowest.txt --no-deps wordllama  # its package needs numpy 2; of it, only the weights are read
            ;;
        *)
            grep -v '^torch==' constraints.txt > "$folder/constraints.txt"
            echo "torch==$version" >> "$folder/constraints.txt"
            $pip -c "$folder/constraints.txt" torch
            $pip -c "$folder/constraints.txt" -e '.[train,dev]'
            ;;
        esac
        touch "$folder/stamp"
    fi
    "$folder/bin/python" -c 'import sys, torch; print(f"torch {torch.__version__}, Python {sys.version.split()[0]}")'
    if [ "$version" = lowest ]; then
        "$folder/bin/python" tests/walk.py || failed="$failed $version"
    else
        eval "OMP_NUM_THREADS=1 '$folder/bin/python' -m pytest -n auto --maxprocesses 8 --dist worksteal $tests" || failed="$failed $version"
    fi
done
[ -z "$failed" ] || { echo "failed with$failed" >&2; exit 1; }
