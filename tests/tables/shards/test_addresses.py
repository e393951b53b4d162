import pytest

from coulomb.ground.errors import InputError
from coulomb.tables.shards.addresses import expand, expand_braces, names_shards, short_names
from coulomb.tables.shards.remote import scheme


def test_braces_are_ranges_with_leading_zeros_or_lists():
    assert expand_braces("a-{0008..0010}.tar") == ["a-0008.tar", "a-0009.tar", "a-0010.tar"]
    assert expand_braces("{x,y}/{1..2}.tar") == ["x/1.tar", "x/2.tar", "y/1.tar", "y/2.tar"]
    assert expand_braces("plain.tar") == ["plain.tar"]


@pytest.mark.parametrize(
    "text", ["{3..1}.tar", "{}.tar", "{a}.tar", "{0..1.tar", "0..1}.tar", "{0..99999999}.tar", "{0..999}{0..999}.tar"]
)
def test_wrong_braces_are_refused_in_one_sentence(text):
    with pytest.raises(InputError, match="data="):
        expand_braces(text)


def test_a_pattern_is_expanded_in_natural_order(tmp_path):
    for number in (10, 9, 1):
        (tmp_path / f"s{number}.tar").touch()
    assert [each.rsplit("/", 1)[1] for each in expand(f"{tmp_path}/s*.tar")] == ["s1.tar", "s9.tar", "s10.tar"]
    with pytest.raises(InputError, match="no file matches"):
        expand(f"{tmp_path}/none*.tar")
    with pytest.raises(InputError, match="cannot be listed"):
        expand("https://host/s*.tar")
    with pytest.raises(InputError, match="twice"):
        expand(f"{tmp_path}/{{s1,s1}}.tar")


def test_which_texts_name_shards():
    assert names_shards("https://host/a.parquet") and names_shards("a-{0..3}.parquet") and names_shards("a*.tar")
    assert not names_shards("user/name") and not names_shards("data/train-*.parquet") and not names_shards("digits")
    assert scheme("S3://bucket/x") == "s3" and scheme("a/b") is None and scheme("zip::https://x") is None


def test_short_names_are_unique_and_without_shared_folders():
    assert short_names(["/d/a/0.tar", "/d/a/1.tar"]) == ["0.tar", "1.tar"]
    assert short_names(["/d/a/0.tar", "/d/b/0.tar"]) == ["a/0.tar", "b/0.tar"]
    assert short_names(["https://h/x/0.tar?key=1"]) == ["0.tar"]
