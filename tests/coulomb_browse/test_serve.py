"""The command: one address, stopped by Ctrl-C, wrong input in one sentence."""

import http.client
import json
import os
import signal
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

import forked
from coulomb.ground.errors import InputError
from coulomb_browse.serve import listen, require_server


@pytest.fixture
def started(small):
    """Starts the command; returns the process and its address."""
    processes = []

    def start(*options):
        command = [sys.executable, "-m", "coulomb", "browse", str(small), "--no-open", "--json", *options]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return processes[-1], json.loads(processes[-1].stdout.readline())["address"]

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def get(address, path=None, **headers):
    parts = urlsplit(address)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=20)
    connection.request("GET", path or f"{parts.path}?{parts.query}", headers=headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def test_the_command_serves_the_page_until_it_is_interrupted(started):
    process, address = started()
    parts = urlsplit(address)
    assert parts.hostname == "127.0.0.1"
    assert len(parts.query) >= len("token=") + 32
    answer, page = get(address)
    assert answer.status == 200
    assert b"<!DOCTYPE html>" in page
    cookie = answer.getheader("set-cookie").split(";")[0]
    answer, content = get(address, "/start", Cookie=cookie)
    assert json.loads(content)["images"] == 300
    assert get(address, "/start")[0].status == 403
    assert get(address, "/start", Cookie=cookie, Host="evil.example")[0].status == 421
    assert answer.getheader("server") is None
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "Traceback" not in errors


@pytest.mark.slow
def test_two_commands_cannot_have_the_same_index_open(started, small):
    _, address = started()
    second = forked.coulomb("browse", small, "--no-open", cwd=small.parent)
    assert second.returncode == 2
    assert "another coulomb browse has this index open" in second.stderr
    assert len(second.stderr.strip().splitlines()) == 2  # how many images, and the error
    assert get(address)[0].status == 200


def test_ports_that_cannot_be_used_are_named():
    with listen(0) as taken:
        port = taken.getsockname()[1]
        assert taken.getsockname()[0] == "127.0.0.1"
        with pytest.raises(InputError, match=f"port={port}: cannot be used"):
            listen(port)
    with pytest.raises(InputError, match="port=99999"):
        listen(99999)
    if os.geteuid():
        with pytest.raises(InputError, match="port=1: cannot be used"):
            listen(1)


def test_a_missing_package_is_one_sentence(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs starlette and uvicorn; pip install 'coulomb\[train,browse\]'"):
        require_server()
