"""A third-party package adds commands, methods and encoders; every command runs in a real process."""

import json
import os
import subprocess
import sys
from functools import partial

import pytest

import forked

PACKAGE = {
    "__init__.py": "",
    "commands.py": '''
import typer

from coulomb.ground.errors import InputError


def greet(name: str, times: int = 1) -> None:
    """Greet somebody.

    As often as wanted."""
    if times > 3:
        raise InputError(f"times={times}: must be at most 3")
    print(" ".join(["hello", name] * times))


tools = typer.Typer(help="Several tools.")


@tools.command()
def hammer() -> None:
    """Hit."""
    print("bang")


@tools.command()
def saw() -> None:
    """Cut."""


number = 3
''',
    "broken.py": "import no_such_package_anywhere\n\n\ndef smash() -> None:\n    pass\n",
    "training.py": '''
import os
import signal

import torch
from torch import nn

from coulomb.losses import NTXentLoss


class Direct(nn.Module):
    """NT-Xent; the environment can interrupt it."""

    def __init__(self, tower, *, weight: float = 1.0):
        super().__init__()
        self.tower, self.weight, self.loss, self.steps = tower, weight, NTXentLoss(0.5), 0

    def forward(self, views, labels, train_row):
        self.steps += 1
        if self.steps == int(os.environ.get("STOP_AT", 0)):
            os.kill(os.getpid(), signal.SIGINT)
        return self.weight * self.loss(*views.split(self.tower(views["image"])))


class Tiny(nn.Module):
    def __init__(self, channels, image_size):
        super().__init__()
        self.linear = nn.Linear(channels * image_size**2, 12)
        self.register_buffer("twice", torch.tensor(2.0), persistent=False)

    def forward(self, images):
        return self.linear(images.flatten(1)) * self.twice


def nothing():
    return 3
''',
}
ENTRY_POINTS = """
[coulomb.commands]
greet = {0}.commands:greet
tools = {0}.commands:tools
train = {0}.commands:greet
number = {0}.commands:number
smash = {0}.broken:smash

[coulomb.methods]
direct = {0}.training:Direct
moco = {0}.training:Direct

[coulomb.encoders]
tiny = {0}.training:Tiny
nothing = {0}.training:nothing
"""


def write_package(folder, name, entry_points):
    for file, text in PACKAGE.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / file).write_text(text)
    info = folder / f"{name}_dist-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-dist\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(entry_points.format(name))
    return folder


@pytest.fixture(scope="module")
def third(tmp_path_factory):
    return write_package(tmp_path_factory.mktemp("site"), "third", ENTRY_POINTS)


def coulomb(*arguments, packages=(), cwd, **environment):
    path = os.pathsep.join([*map(str, packages), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-X", "importtime", "-m", "coulomb", *map(str, arguments)]
    run = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=240,
        env=os.environ | environment | {"PYTHONPATH": path},
    )
    lines = run.stderr.splitlines()
    imported = {line.rsplit("|", 1)[1].strip() for line in lines if line.startswith("import time:")}
    said = [line for line in lines if not line.startswith("import time:")]
    return run.returncode, run.stdout, said, imported


def test_help_lists_them_without_importing_them(third, tmp_path):
    code, shown, said, imported = coulomb("--help", packages=[third], cwd=tmp_path)
    text = " ".join(shown.replace("│", " ").split())
    assert code == 0 and "greet Greet somebody." in text and "tools Several tools." in text and "As often" not in text
    assert " lab Reproduce" in text and " browse Show" in text
    assert not {name for name in imported if name.startswith(("third", "torch", "coulomb_lab", "coulomb_browse"))}
    (line,) = said  # the name that is taken
    assert line.startswith("coulomb: warning:") and "'train'" in line and "third-dist 1.5" in line


def test_a_function_is_a_command_and_a_typer_a_group(third, tmp_path):
    code, said, _, imported = coulomb("greet", "you", "--times", 2, packages=[third], cwd=tmp_path)
    assert code == 0 and said == "hello you hello you\n" and "torch" not in imported
    code, _, said, _ = coulomb("greet", "you", "--times", 4, packages=[third], cwd=tmp_path)
    assert code == 2 and said == ["coulomb: error: times=4: must be at most 3"]
    code, said, _, _ = coulomb("tools", "hammer", packages=[third], cwd=tmp_path)
    assert code == 0 and said == "bang\n"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("smash", ["'smash'", "third-dist 1.5", "no_such_package_anywhere"]),
        ("number", ["'number'", "third-dist 1.5", "int"]),
        ("gret", ["Did you mean 'greet'"]),
    ],
)
def test_what_cannot_run_is_one_line(third, tmp_path, command, words):
    code, _, said, _ = coulomb(command, packages=[third], cwd=tmp_path)
    errors = [line for line in said if "'train'" not in line]  # help and errors name what is taken
    assert code == 2 and len(errors) == 1 and errors[0].startswith("coulomb: error:")
    assert all(word in errors[0] for word in words), errors


def test_a_name_in_two_packages_is_refused(third, tmp_path):
    other = write_package(tmp_path / "site", "other", "[coulomb.commands]\ngreet = {0}.commands:greet\n")
    code, shown, _, _ = coulomb("--help", packages=[third, other], cwd=tmp_path)
    assert code == 0 and "greet" in shown
    code, said, errors, _ = coulomb("greet", "you", packages=[third, other], cwd=tmp_path)
    assert code == 2 and not said and "third-dist" in errors[-1] and "other-dist" in errors[-1]


SMALL = ("--epochs", 1, "--batch-size", 256, "--embedding-dim", 8, "--workers", 0, "--quiet")


def find_first(folder):
    sys.path.insert(0, folder)


@pytest.fixture
def installed(third, tmp_path):
    """Runs a command, in a forked process, where the package is installed."""
    return lambda *arguments: forked.coulomb(*arguments, cwd=tmp_path, before=partial(find_first, str(third)))


LOADED = """
import json, coulomb, numpy, torch
run = coulomb.load("run")
features = run.encode(numpy.zeros((2, 8, 8, 1), numpy.uint8))
again = coulomb.train("digits", method="direct", encoder="tiny", epochs=1, batch_size=256, image_size=8, out="again",
                      workers=0, progress=False, evaluate=False)
print(json.dumps([list(features.shape), again.encoder.name, again.encoder.backbone.linear.out_features]))
"""


@pytest.mark.slow
def test_a_method_and_an_encoder_train_resume_load_and_evaluate(third, tmp_path, installed):
    run = ("train", "digits", "--method", "direct", "--encoder", "tiny", "--image-size", 8, "--option", "weight=0.5")
    options = ("--out", "run", "--no-evaluate", *SMALL)
    code, _, said, _ = coulomb(*run, *options, packages=[third], cwd=tmp_path, STOP_AT="3")
    assert code == 130, said
    missing = forked.coulomb("train", "--resume", "run", "--quiet", cwd=tmp_path)
    assert missing.returncode == 2 and "'direct'" in missing.stderr
    resumed = installed("train", "--resume", "run", "--no-evaluate", "--quiet")
    assert resumed.returncode == 0, resumed.stderr
    path = os.pathsep.join([str(third), os.environ.get("PYTHONPATH", "")])
    script = subprocess.run(
        [sys.executable, "-c", LOADED],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert script.returncode == 0, script.stderr
    assert json.loads(script.stdout.splitlines()[-1]) == [[2, 12], "tiny", 12]
    evaluated = installed("evaluate", "run", "--json")
    assert evaluated.returncode == 0, evaluated.stderr
    assert json.loads(evaluated.stdout)["trained"]["knn"] > 0.3 and "random_init" in json.loads(evaluated.stdout)


@pytest.mark.slow
def test_a_method_of_coulomb_stays_its_own(installed):
    checked = installed("check", "digits", "--method", "moco", "--option", "queue_size=256", "--encoder", "convnet")
    warned = [line for line in checked.stderr.splitlines() if "'moco'" in line]
    assert checked.returncode == 0 and len(warned) == 1 and "third-dist 1.5" in warned[0], checked.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--method", "dirct"), ["'dirct'", "did you mean 'direct'"]),
        (("--encoder", "tinny"), ["'tinny'", "did you mean 'tiny'"]),
        (("--encoder", "nothing"), ["'nothing'", "third-dist 1.5", "int"]),
        (("--encoder", "tiny", "--encoder-width", 8), ["width=8", "tiny"]),
    ],
)
def test_unknown_names_and_wrong_encoders_are_refused(installed, arguments, words):
    refused = installed("train", "digits", *arguments, *SMALL)
    said = refused.stderr.splitlines()
    assert refused.returncode == 2 and all(word in said[-1] for word in words), said
