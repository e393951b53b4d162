"""The list of commands and what shells complete need no PyTorch; options of other libraries lead to those of the command."""

import os
import subprocess
import sys

import pytest
import typer.main

from coulomb.cli import main
from coulomb.cli.app import app as own
from coulomb.cli.every import app
from coulomb.cli.overview import COMMANDS, listing, plugin_commands
from coulomb.ground.names_elsewhere import RUN_OPTIONS
from coulomb.training.plan.config import option_names


def error(monkeypatch, capsys, line):
    monkeypatch.setattr(sys, "argv", ["coulomb", *line.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], [], ["--version"], ["trian"]])
def test_the_list_of_commands_does_not_import_torch(arguments):
    script = (
        "import sys\nfrom coulomb.cli import main\n"
        f"sys.argv = ['coulomb', *{arguments!r}]\n"
        "try:\n    main()\nfinally:\n    print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.splitlines()[-1] == "False False", done


def test_the_list_has_all_commands_with_their_help():
    real, shown = (typer.main.get_command(each).commands for each in (app, listing(own)))
    assert [*COMMANDS, *plugin_commands()] == list(shown) == list(real)
    assert {"browse", "lab"} <= set(plugin_commands())
    assert {name: each.get_short_help_str(400) for name, each in shown.items()} == {
        name: each.get_short_help_str(400) for name, each in real.items()
    }


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("train photos --learning-rate 0.1", "No such option: --learning-rate; use --lr"),
        ("train photos --model lite0", "No such option: --model; use --encoder"),
        ("train --dataset photos", "No such option: --dataset; use the argument DATA, without a flag"),
        ("index photos --model lite0", "No such option: --model; use --encoder"),
        ("duplicates photos.index --threshold 0.9", "No such option: --threshold; use --above"),
        ("evaluate run --num-workers 2", "No such option: --num-workers"),
        ("trian photos", "No such command 'trian'. Did you mean 'train'?"),
    ],
)
def test_names_of_other_libraries_lead_to_the_option(monkeypatch, capsys, own_console, line, words):
    assert f"coulomb: error: {words}" in error(monkeypatch, capsys, line)


def test_the_suggested_options_exist():
    flags = {
        flag.lstrip("-").replace("-", "_")
        for command in typer.main.get_command(app).commands.values()
        for parameter in command.params
        for flag in parameter.opts
    }
    assert {here for names in RUN_OPTIONS.values() for here in names} <= flags | {*option_names(), "resume_from"}
    assert not set(RUN_OPTIONS) & set(option_names())


def complete(*words):
    """Returns what a bash proposes for the last word of a line, and whether PyTorch was imported for it."""
    script = (
        "import sys\nfrom coulomb.cli import main\nsys.argv = ['coulomb']\n"
        "try:\n    main()\nfinally:\n    print('torch' in sys.modules)"
    )
    environment = {
        "_COULOMB_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=os.environ | environment, check=False, timeout=120
    )  # fmt: skip
    assert done.stderr == ""
    *proposed, imported = done.stdout.splitlines()
    return [word for word in proposed if word], imported == "True"


def test_commands_and_files_are_completed_without_torch():
    assert complete("coulomb", "exp") == (["export"], False)
    assert complete("coulomb", "train", "pho") == ([], False)  # the shell proposes files


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "proposed"),
    [
        (("coulomb", "train", "photos", "--knn-e"), ["--knn-every"]),
        (("coulomb", "train", "--method", "sims"), ["simsiam"]),
        (("coulomb", "train", "--optimizer", ""), ["sgd", "adamw", "lars", "muon"]),
        (("coulomb", "lab", "--qu"), ["--quick"]),
    ],
)
def test_options_and_their_values_are_completed(words, proposed):
    assert complete(*words) == (proposed, True)


def test_a_bash_completes_with_what_show_completion_prints(tmp_path):
    program = tmp_path / "coulomb"
    program.write_text(f"#!{sys.executable}\nfrom coulomb.cli import main\nmain()\n")
    program.chmod(0o755)
    line = "COMP_WORDS=(coulomb exp); COMP_CWORD=1; _coulomb_completion coulomb; echo ${COMPREPLY[@]}"
    done = subprocess.run(
        ["bash", "-c", f'eval "$(coulomb --show-completion)"; {line}'], capture_output=True, text=True, check=False,
        env=os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}, timeout=120,
    )  # fmt: skip
    assert done.stdout == "export\n", done.stderr
