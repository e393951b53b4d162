"""`coulomb verify`: exit code, table, JSON and page."""

import json

import pytest

from forked import coulomb

LOSSES = """
import torch

class Right(torch.nn.Module):
    def __init__(self, temperature=0.2):
        super().__init__()
        self.temperature = temperature

    def forward(self, z0, z1):
        z0, z1 = (torch.nn.functional.normalize(z, dim=1) for z in (z0, z1))
        return torch.nn.functional.cross_entropy(z0 @ z1.T / self.temperature, torch.arange(len(z0)))

class Detached(Right):
    def forward(self, z0, z1):
        return super().forward(z0, z1.detach())

def loop(z0, z1):
    z0, z1 = (torch.nn.functional.normalize(z, dim=1) for z in (z0, z1))
    losses = []
    for i in range(len(z0)):
        scores = torch.stack([z0[i] @ z1[j] / 0.2 for j in range(len(z1))])
        losses.append(torch.logsumexp(scores, 0) - scores[i])
    return torch.stack(losses)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.py").write_text(LOSSES)
    return tmp_path


def test_a_loss_that_obeys_the_laws_ends_with_0(folder):
    found = coulomb(
        "verify", "mine.py:Right", "--laws", "gradient,order,formula", "--formula", "mine.py:loop", cwd=folder
    )
    assert found.returncode == 0, found.stderr
    assert "called as loss(z0 [N, D], z1 [N, D]), inferred" in found.stdout
    assert "laws: 3 hold, 0 do not hold" in found.stdout


def test_a_loss_that_does_not_ends_with_1_and_shows_the_cause_in_every_form(folder):
    found = coulomb("verify", "mine.py:Detached", "--laws", "gradient,order", "--out", "page.html", cwd=folder)
    assert found.returncode == 1, found.stderr
    cause = "no gradient reaches z1"
    assert cause in found.stdout and "page.html" in found.stderr
    page = (folder / "page.html").read_text()
    assert cause in page and "does not hold" in page and "mine.py" in page and "Detached" in page
    as_json = coulomb("verify", "mine.py:Detached", "--laws", "gradient", "--json", cwd=folder)
    (finding,) = json.loads(as_json.stdout)["findings"]
    assert as_json.returncode == 1 and cause in finding["cause"] and finding["example"]


def test_options_and_calls_are_passed_on(folder):
    given = (
        "--option",
        "temperature=0.5",
        "--call",
        "(z0, z1)",
        "--laws",
        "formula,order",
        "--formula",
        "mine.py:loop",
    )
    found = coulomb("verify", "mine.py:Right", *given, cwd=folder)
    assert found.returncode == 1  # the formula has 0.2
    assert "as given" in found.stdout and "another temperature" in found.stdout


def test_a_module_by_its_import_path_is_loaded(folder):
    found = coulomb("verify", "coulomb.losses:NTXentLoss", "--laws", "gradient,temperature", cwd=folder)
    assert found.returncode == 0, found.stdout + found.stderr
