"""A run that never trained leaves nothing behind, so that the corrected command can use the same folder."""

import errno

import pytest
from PIL import Image

import coulomb
from coulomb.errors import InputError
from coulomb.models.saving import write_atomically


@pytest.mark.parametrize(
    "wrong",
    [
        {"view_options": {"hues": 0}},
        {"batch_size": 5000},
        {"max_corrupt": 0.0},
        {"method": "moco", "method_options": {"queue_size": -1}},
        {"accelerator": "gpu"},
        {"sampler": "square_root", "labels": "none"},
    ],
    ids=str,
)
@pytest.mark.parametrize("existing", [False, True], ids=["new folder", "empty folder"])
def test_a_failed_start_leaves_nothing(digit_tree, tmp_path, quick, wrong, existing, monkeypatch):
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    data = digit_tree
    if "max_corrupt" in wrong:
        data = tmp_path / "data"
        data.mkdir()
        for number in range(12):
            Image.new("L", (20, 20), number).save(data / f"{number}.png")
        (data / "0.png").write_bytes(b"no picture")
    out = tmp_path / "runs" / "new"
    if existing:
        out.mkdir(parents=True)
    with pytest.raises(InputError):
        coulomb.train(data, out=out, progress=False, **quick | wrong)
    assert out.exists() == existing and not list(out.glob("*"))
    assert (tmp_path / "runs").exists() == existing


def test_an_error_in_the_first_update_leaves_nothing(digit_tree, tmp_path, quick, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("coulomb.training.module.ContrastiveTraining.checked_loss", fail)
    with pytest.raises(ZeroDivisionError):
        coulomb.train(digit_tree, out=tmp_path / "run", progress=False, **quick)
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_no_run_has_another_remedy_than_resuming(tmp_path, quick, digit_tree):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes").write_text("kept")
    with pytest.raises(InputError, match="choose another folder, or remove it"):
        coulomb.train(digit_tree, out=tmp_path / "run", progress=False, **quick)


def test_two_images_are_refused_with_a_remedy_that_works(tmp_path, quick):
    folder = tmp_path / "two"
    folder.mkdir()
    for number in range(2):
        Image.effect_noise((20, 20), 100 + number).save(folder / f"{number}.png")
    with pytest.raises(InputError, match=r"1 training image; .* or pass the held-out ones as test"):
        coulomb.train(folder, out=tmp_path / "run", progress=False, **quick)
    options = quick | {"batch_size": 2, "epochs": 1}
    run = coulomb.train(folder, test=folder, out=tmp_path / "run", progress=False, **options)
    assert run.report.exists()


def test_data_must_be_given():
    for begin in (coulomb.train, coulomb.train_seeds):
        with pytest.raises(InputError, match=r"data: missing; give .*'digits'"):
            begin()


def test_a_full_disk_names_the_file(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InputError, match=r"data\.json: cannot be written \(No space left on device\)"):
        write_atomically(tmp_path / "data.json", b"{}")
    assert not list(tmp_path.iterdir())


def test_nothing_is_printed_without_progress(digit_tree, tmp_path, quick, capfd):
    coulomb.train(digit_tree, out=tmp_path / "run", progress=False, **quick | {"epochs": 1})
    assert capfd.readouterr() == ("", "")
