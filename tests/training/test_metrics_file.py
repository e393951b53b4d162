from coulomb.training.metrics_file import append, drop_after, read_metrics


def test_a_line_cut_short_by_a_kill_is_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    append(path, {"step": 1, "loss": 0.1 + 0.2})
    append(path, {"step": 2, "loss": 1 / 3})
    with path.open("a") as file:
        file.write('{"step": 3, "lo')
    assert read_metrics(path) == [{"step": 1, "loss": 0.1 + 0.2}, {"step": 2, "loss": 1 / 3}]


def test_lines_after_the_checkpoint_are_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for step in range(5):
        append(path, {"step": step})
    drop_after(path, 2)
    assert [line["step"] for line in read_metrics(path)] == [0, 1, 2]


def test_no_file_yet(tmp_path):
    assert read_metrics(tmp_path / "metrics.jsonl") == []
