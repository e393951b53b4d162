"""`save_pretrained`, `push_to_hub` and `from_pretrained`, the methods of encoders by the conventions of huggingface_hub."""

import inspect

import huggingface_hub
import pytest
import torch

import coulomb
from coulomb.ground.errors import InputError
from export_cases import fake_hub, pair, photo, published, run, texts

WORDS = ["a red flower", "two old houses"]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    return fake_hub(tmp_path / "huggingface", monkeypatch)


def of_kind(kind, folder):
    """An encoder, its public class, and cells for it."""
    if kind == "image":
        return published("resnet10", width=8), coulomb.ImageEncoder, photo(40, 30)
    if kind == "run":
        return run(folder, "convnet", width=8), coulomb.Run, photo(40, 30)
    if kind == "text":
        return coulomb.TextEncoder(texts(), "mine"), coulomb.TextEncoder, WORDS
    return pair(folder, {"image": "convnet", "caption": texts()}), coulomb.PairRun, WORDS


def require_same(again, encoder, cells):
    features = [torch.nn.functional.normalize(each.encode(cells), dim=1) for each in (again, encoder)]
    torch.testing.assert_close(*features, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["image", "run", "text", "pair"])
def test_what_is_saved_is_opened_by_its_class(tmp_path, kind):
    encoder, public, cells = of_kind(kind, tmp_path / "run")
    (tmp_path / "empty").mkdir()
    assert encoder.save_pretrained(tmp_path / "empty") is None
    again = public.from_pretrained(tmp_path / "empty")
    assert isinstance(again, public)
    require_same(again, encoder, cells)
    assert (tmp_path / "empty" / "README.md").is_file()
    encoder.save_pretrained(str(tmp_path / "new" / "folder"))
    require_same(coulomb.load(tmp_path / "new" / "folder"), encoder, cells)


@pytest.mark.parametrize("kind", ["run", "text", "pair"])
def test_what_is_pushed_is_opened_by_its_name_and_revision(tmp_path, hub, kind):
    encoder, public, cells = of_kind(kind, tmp_path / "run")
    assert encoder.push_to_hub("me/mine", private=True, token="secret") == "https://hub/commit/1"
    assert hub.calls[0] == ("HfApi", {"token": "secret"}) and hub.calls[1][1]["private"] is True
    require_same(public.from_pretrained("me/mine"), encoder, cells)
    assert encoder.push_to_hub("me/mine", branch="next", create_pr=True, commit_message="Mine") == "https://hub/pr/1"
    assert next(options for name, options in hub.calls if name == "create_branch")["branch"] == "next"
    assert hub.calls[-1][1]["commit_message"] == "Mine"
    (hub.path / "me" / "mine" / "README.md").unlink()
    found = public.from_pretrained("hf:me/mine", revision="next", cache_dir="elsewhere", force_download=True)
    require_same(found, encoder, cells)
    assert hub.calls[-1][0] == "snapshot_download"
    assert hub.calls[-1][1] == {
        "allow_patterns": hub.calls[-1][1]["allow_patterns"],
        "revision": "next",
        "cache_dir": "elsewhere",
        "force_download": True,
    }


@pytest.mark.parametrize("kind", ["run", "text"])
def test_a_copy_is_opened_without_a_connection(tmp_path, hub, kind):
    encoder, public, cells = of_kind(kind, tmp_path / "run")
    encoder.push_to_hub("me/mine")
    public.from_pretrained("me/mine")
    hub.reached = False
    require_same(public.from_pretrained("me/mine", local_files_only=True), encoder, cells)
    with pytest.raises(InputError, match=r"hf:me/other.*was not reached \(LocalEntryNotFoundError: no connection\)"):
        public.from_pretrained("me/other", local_files_only=True)


def test_save_pretrained_uploads_the_same_folder(tmp_path, hub):
    encoder = coulomb.TextEncoder(texts(), "mine")
    address = encoder.save_pretrained(tmp_path / "mine", repo_id="me/mine", push_to_hub=True, private=True)
    assert address == "https://hub/commit/1"
    assert hub.calls[-1][1]["folder_path"] == str(tmp_path / "mine")
    require_same(coulomb.TextEncoder.from_pretrained("me/mine"), encoder, WORDS)


def test_arguments_are_those_of_the_mixin():
    """Positions and names agree, so that code for a model of the hub takes an encoder; what only the mixin has is left out."""
    left_out = {"config", "model_card_kwargs", "allow_patterns", "ignore_patterns", "delete_patterns"}
    for name in ("save_pretrained", "push_to_hub", "from_pretrained"):
        theirs = inspect.signature(getattr(huggingface_hub.ModelHubMixin, name)).parameters.values()
        ours = inspect.signature(getattr(coulomb.ImageEncoder, name)).parameters.values()
        kept = {
            (each.name, each.kind) for each in theirs if each.name not in left_out and each.kind is not each.VAR_KEYWORD
        }
        assert kept == {(each.name, each.kind) for each in ours if each.kind is not each.VAR_KEYWORD}, name


def test_wrong_input_is_one_sentence(tmp_path, hub):
    encoder = coulomb.TextEncoder(texts(), "mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("kept")
    with pytest.raises(InputError, match=r"save_directory='.*full': is not empty; choose another folder"):
        encoder.save_pretrained(tmp_path / "full")
    assert [each.name for each in (tmp_path / "full").iterdir()] == ["mine.txt"]
    with pytest.raises(InputError, match=r"private: is for push_to_hub=True"):
        encoder.save_pretrained(tmp_path / "new", private=True)
    encoder.save_pretrained(tmp_path / "new")
    with pytest.raises(InputError, match=r"its class is TextEncoder, not ImageEncoder; open it with coulomb.load"):
        coulomb.ImageEncoder.from_pretrained(tmp_path / "new")
    with pytest.raises(InputError, match=r"revision='next': is for a repository of the hub"):
        coulomb.TextEncoder.from_pretrained(tmp_path / "new", revision="next")
    (hub.path / "me" / "vit").mkdir(parents=True)
    (hub.path / "me" / "vit" / "config.json").write_text('{"model_type": "vit"}')
    with pytest.raises(InputError, match=r"'me/vit': was not written by coulomb; .* give hf:me/vit@weights"):
        coulomb.ImageEncoder.from_pretrained("me/vit")
