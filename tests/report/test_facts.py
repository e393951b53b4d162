import shlex

from coulomb.report.facts import command_line


def test_options_of_views_and_of_the_method_keep_their_flags():
    config = {
        "data": "my images",
        "view_options": {"flip": 0},
        "method_options": {"top_k": 20},
        "resume": False,
        "root": None,
    }
    expected = "coulomb train 'my images' --view flip=0 --option top_k=20 --no-resume"
    assert command_line(config) == expected
    assert command_line({}) == ""


def test_long_commands_go_over_several_lines():
    lines = command_line({f"option_{i}": i for i in range(20)}).split(" \\\n  ")
    assert len(lines) > 2
    assert max(map(len, lines)) <= 100


def test_command_line_quotes_what_a_shell_would_run():
    config = {"data": "my photos; rm -rf ~", "epochs": 3, "test": None, "flag": False, "view_options": {"flip": "$(x)"}}
    expected = "coulomb train 'my photos; rm -rf ~' --epochs 3 --no-flag --view 'flip=$(x)'"
    assert command_line(config) == expected
    long = command_line({"data": "x", **{f"option_{i}": "y" * 20 for i in range(9)}})
    assert max(map(len, long.splitlines())) <= 100
    assert shlex.split(long.replace("\\\n", " ")) == [
        "coulomb",
        "train",
        "x",
        *(w for i in range(9) for w in (f"--option-{i}", "y" * 20)),
    ]
    assert command_line({}) == ""


def test_options_of_the_method_without_a_value_are_left_out():
    """`--option matryoshka=None` is the word None."""
    assert command_line({"data": "x", "method_options": {"matryoshka": None, "queue_size": 0}}) == (
        "coulomb train x --option queue_size=0"
    )
