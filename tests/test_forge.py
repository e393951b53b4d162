"""Files of a public forge are valid, and the commands in them exist."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

import coulomb

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))


def require_command(line):
    """Fails unless a command of a workflow is a target of the Makefile, a file here, or a command of any shell."""
    words = shlex.split(line, comments=True)
    if words[0] == "make":
        assert set(words[1:]) <= TARGETS, line
    elif words[0] == "sh":
        assert (ROOT / words[1]).is_file(), line
    elif "/" in words[0]:
        assert (ROOT / words[0]).stat().st_mode & 0o100, line
    else:
        assert words[0] in ("test", "mkdir", "cp"), line


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_commands_that_exist(path):
    content = yaml.safe_load(path.read_text())
    assert content["permissions"] == {"contents": "read"}
    for job in content["jobs"].values():
        assert job["runs-on"] == "ubuntu-latest" and job["steps"]
        for step in job["steps"]:
            assert set(step) <= {"uses", "with", "run"} and ("run" in step) != ("uses" in step)
            if "run" in step:
                require_command(step["run"])


def test_all_that_is_there_is_checked():
    assert [path.stem for path in WORKFLOWS] == ["docs", "release", "tests"]
    with pytest.raises(AssertionError):
        require_command("make everything")
    with pytest.raises(AssertionError):
        require_command("sh tests/missing.sh")


def test_the_tests_of_a_forge_are_those_of_a_fresh_machine():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]
    assert {"run": ".ci/run"} in jobs["everything"]["steps"]


@pytest.mark.parametrize("name", ["error", "request"])
def test_forms_have_a_question(name):
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml").read_text())
    assert {"name", "description", "body"} <= set(form)
    assert all(each["attributes"]["label"] for each in form["body"])


def test_the_site_of_read_the_docs_is_made_by_the_makefile():
    commands = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text())["build"]["commands"]
    for line in commands:
        require_command(line)


def test_the_citation_has_the_version_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == coulomb.__version__ and citation["license"] == "Apache-2.0"


def test_the_lowest_versions_that_are_tried_are_those_that_are_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [lines for name, lines in project["optional-dependencies"].items() if name not in ("dev", "docs")]
    declared = {re.sub(r"\[\w+\]|,.*", "", line).replace(">=", "==") for line in sum(extras, project["dependencies"])}
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    assert {line for line in lines if not line.startswith("#")} == declared
