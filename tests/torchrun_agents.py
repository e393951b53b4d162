"""Agents of torchrun on loopback addresses, each standing for a machine."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

from torch.distributed.run import __file__ as torchrun

PATIENCE = 240  # seconds; a limit against waiting forever, also on a busy machine


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


class Agents:
    """One agent per machine: the k-th has the address 127.0.0.k and writes to ``said.k``.

    Args:
        folder: for the output.
        command: arguments of ``coulomb``.
        machines: number of agents.
        least: machines with which the job goes on.
        processes: of each machine.
        restarts: of the processes after a failure.
    """

    def __init__(self, folder, command, *, machines=1, least=None, processes=2, restarts=0):
        port, self.said = free_port(), [folder / f"said.{k}" for k in range(1, machines + 1)]
        self.agents = []
        for k, said in enumerate(self.said, start=1):
            meet = f"is_host={int(k == 1)},last_call_timeout=2,join_timeout={PATIENCE},timeout={PATIENCE}"
            meet += ",keep_alive_interval=1,keep_alive_max_attempt=3"
            arguments = [
                *("--nnodes", f"{least or machines}:{machines}", "--nproc-per-node", processes),
                *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", port),
                *("--rdzv-conf", meet, "--local-addr", f"127.0.0.{k}", "--max-restarts", restarts, "-m", "coulomb"),
            ]
            with said.open("w") as output:
                self.agents.append(
                    subprocess.Popen(
                        [sys.executable, torchrun, *map(str, arguments), *map(str, command)],
                        stdout=output,
                        stderr=output,
                        env=os.environ | {"OMP_NUM_THREADS": "1"},
                        start_new_session=True,
                    )
                )

    def processes(self, machine):
        """Returns the process ids of a machine, by rank."""
        agent = self.agents[machine - 1].pid
        listed = subprocess.run(["pgrep", "-P", str(agent)], capture_output=True, text=True, check=True).stdout
        return [int(each) for each in listed.split()]

    def wait(self):
        """Returns the exit codes of all agents, and what the processes said, without what torch and its agents say."""
        codes = [agent.wait(PATIENCE) for agent in self.agents]
        return codes, [self.lines(k) for k in range(1, len(codes) + 1)]

    def lines(self, machine):
        """Returns what coulomb said on a machine."""
        lines = self.said[machine - 1].read_text(errors="replace").splitlines()
        return [line for line in lines if line.startswith(("coulomb: ", "run folder: ", "report: "))]

    def until(self, condition):
        """Waits until a condition holds."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            running = any(agent.poll() is None for agent in self.agents)
            assert running and time.monotonic() < deadline, [said.read_text() for said in self.said]
            time.sleep(0.02)

    def kill(self, machine, *, agent=False):
        """Kills the last process of a machine; with ``agent``, all its processes and the agent itself."""
        victims = self.processes(machine)
        for each in [self.agents[machine - 1].pid, *victims] if agent else victims[-1:]:
            os.kill(each, signal.SIGKILL)

    def end(self):
        """Ends everything that still runs."""
        for agent in self.agents:
            if agent.poll() is None:
                with suppress(ProcessLookupError):
                    for each in subprocess.run(
                        ["pgrep", "-P", str(agent.pid)], capture_output=True, text=True, check=False
                    ).stdout.split():
                        os.kill(int(each), signal.SIGKILL)
                agent.kill()
            agent.wait()
