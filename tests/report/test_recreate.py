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
