"""The index: building and opening."""

import coulomb


def test_an_index_of_a_folder_holds_its_images_in_their_order(digit_tree, tmp_path):
    index = coulomb.Index.build(digit_tree, tmp_path / "i", encoder="lite0", image_size=32)
    assert len(index) == len(index.ids) == len(index.features) == 60
    assert index.ids[:2] == ["digit-0/00.png", "digit-0/01.png"]
    assert index.labels[0] == "digit-0"
    assert index.search(ids=["digit-0/00.png"], top=1)[0]["label"] == "digit-0"
