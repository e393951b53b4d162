"""A run of every method loses power in mid-epoch, goes on, and repeats the whole one bit for bit; without processes."""

import pytest

import coulomb
from coulomb.errors import InputError
from coulomb.methods import METHODS
from run_cases import comparable, stopped_at

MORE = {
    "moco": [{"symmetric": True, "queue_size": 20}],
    "paco": [{"queue_size": 20}, {"generalized": True, "queue_size": 20}],
    "instdisc": [{"full": True}, {"full": False, "noise_samples": 16, "normalizer": "ema"}],
}
CASES = [(name, own) for name in METHODS for own in MORE.get(name, [{}])]


@pytest.mark.parametrize(("name", "own"), CASES, ids=str)
def test_every_method_resumes_bit_identically(digit_tree, tmp_path, quick, name, own):
    options = quick | {"method": name, "method_options": own, "knn_every": 2, "workers": 0}
    whole = coulomb.train(digit_tree, out=tmp_path / "whole", evaluate=False, progress=False, **options)
    stopped_at(11, digit_tree, tmp_path / "run", **options)  # the last checkpoint is of step 8
    run = coulomb.train(resume_from=tmp_path / "run", evaluate=False, progress=False)
    assert comparable(run.path) == comparable(whole.path)
    assert (run.path / "encoder.safetensors").read_bytes() == (whole.path / "encoder.safetensors").read_bytes()


def test_a_mapped_bank_goes_back_to_the_checkpoint(digit_tree, tmp_path, quick):
    found = []
    for name in ("whole", "cut"):
        own = {"full": True, "bank_path": str(tmp_path / f"{name}.bank")}
        options = quick | {"method": "instdisc", "method_options": own, "workers": 0, "checkpoint_every": 4}
        if name == "whole":
            coulomb.train(digit_tree, out=tmp_path / name, evaluate=False, progress=False, **options)
        else:
            stopped_at(11, digit_tree, tmp_path / name, **options)
            with pytest.raises(InputError, match=r"bank_path=.* outside the run folder.*--option bank_path="):
                coulomb.train(resume_from=tmp_path / name, evaluate=False, progress=False)
            named = {"bank_path": own["bank_path"]}
            coulomb.train(resume_from=tmp_path / name, method_options=named, evaluate=False, progress=False)
        found.append((comparable(tmp_path / name), (tmp_path / f"{name}.bank").read_bytes()))
    assert found[0] == found[1]
