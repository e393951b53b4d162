"""What somebody does first with an installed coulomb, at a small scale: BIN/python tests/walk.py [FOLDER]

Runs each command from a new FOLDER, and ends with code 1 at the first that fails. Needs no test package and no source of
coulomb but the README beside it; what needs a package of an extra that is not installed is named as skipped.
"""

import importlib.util
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from importlib.metadata import version
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
COULOMB = Path(sys.executable).with_name("coulomb")
WORDS = "zero one two three four five six seven eight nine".split()


def step(*command, needs=()):
    """Runs one command, with its last line of output and its time; ends the walk if it fails."""
    shown = " ".join(map(str, command))
    if missing := [name for name in needs if " " in name or importlib.util.find_spec(name) is None]:
        print(f"$ coulomb {shown}\n  skipped: needs {', '.join(missing)}")
        return
    began = time.monotonic()
    done = subprocess.run([COULOMB, *map(str, command)], capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.strip()] or [""]
    print(f"$ coulomb {shown}\n  {lines[-1][:140]}  [{time.monotonic() - began:.0f} s]", flush=True)
    if done.returncode:
        sys.exit(f"code {done.returncode}: {done.stderr[-2000:]}")


def script(name, *arguments):
    """Runs a script that an export wrote, which uses no coulomb."""
    if Path(name).exists():
        done = subprocess.run([sys.executable, name, *arguments], capture_output=True, text=True, check=True)
        print(f"$ python {name} {' '.join(arguments)}\n  {done.stdout.splitlines()[0][:140]}", flush=True)


def old_torch():
    """Returns ["torch 2.9"] if the installed one is older."""
    return ["torch 2.9"] if tuple(map(int, version("torch").split(".")[:2])) < (2, 9) else []


def browse(index):
    """Asks the local page of an index for itself, and stops it."""
    if missing := [name for name in ("starlette", "uvicorn") if importlib.util.find_spec(name) is None]:
        print(f"$ coulomb browse {index}\n  skipped: needs {', '.join(missing)}")
        return
    page = subprocess.Popen([COULOMB, "browse", index, "--no-open", "--json"], stdout=subprocess.PIPE, text=True)
    try:
        address = next(iter(json.loads(page.stdout.readline()).values()))
        with urllib.request.urlopen(address, timeout=60) as answer:
            title = re.search("<title>(.*?)</title>", answer.read().decode())[1]
            print(f"$ coulomb browse {index} --no-open\n  {answer.status}: {title}", flush=True)
    finally:
        page.send_signal(signal.SIGINT)
        page.wait(60)


def draw_digits(count):
    """Writes photos/LABEL/NUMBER.png and pairs.csv, an image and its caption in each row."""
    from PIL import Image
    from sklearn.datasets import load_digits

    digits, rows = load_digits(), ["image,caption"]
    for number in range(count):
        path = Path("photos", WORDS[digits.target[number]], f"{number}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((digits.images[number] * 15.9).astype("uint8")).resize((32, 32)).save(path)
        rows.append(f"{path},a handwritten {WORDS[digits.target[number]]}")
    Path("pairs.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def main(folder):
    """The walk."""
    import os

    snippet = re.search("```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)[1]
    os.chdir(folder)
    exec(compile(snippet, "README.md", "exec"), {})
    print("the README's losses: computed, with gradients")
    if importlib.util.find_spec("lightning") is None:
        print("the rest: skipped, needs coulomb[train]")
        return
    draw_digits(200)
    step("version")
    step("train", "digits", "--out", "runs/digits", "--epochs", 3, "--quiet")
    step("evaluate", "runs/digits")
    step("index", "photos", "--out", "photos.index")
    step("index", "photos", "--encoder", "runs/digits", "--out", "own.index")
    step("search", "photos.index", next(Path("photos/three").iterdir()), "--top", 3)
    few = "--epochs", 2, "--batch-size", 50, "--quiet"
    step(
        "train",
        "pairs.csv",
        "--columns",
        "image,caption",
        "--out",
        "runs/pairs",
        *few,
        needs=["tokenizers", "wordllama"],
    )
    onnx = ["onnx", "onnxruntime", "onnxscript", *old_torch()]
    step("export", "runs/digits", "--to", "onnx", "--out", "digits.onnx", needs=onnx)
    script("digits.py", "photos/three/3.png")
    texts = ["tokenizers", "wordllama"]
    step("export", "runs/pairs", "--to", "onnx", "--out", "pairs-onnx", needs=[*onnx, *texts])
    step("export", "runs/pairs", "--to", "hub", "--out", "pairs-hub", needs=[*texts, "transformers"])
    step("export", "runs/digits", "--to", "hub", "--out", "hub")
    step("export", "photos.index", "--to", "faiss", "--out", "photos.faiss", needs=["faiss"])
    step("export", "photos.index", "--to", "csv", "--out", "photos.csv")
    step("lab")
    step("lab", "alignment-uniformity", "--epochs", 1, "--seeds", 1)
    step("lab", "explore", "--out", "explore.html")
    browse("photos.index")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(folder)
