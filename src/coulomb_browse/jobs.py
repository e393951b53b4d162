"""Answers that take longer than a click: computed in a thread one after the other, with progress, and kept for next time."""

import json
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from coulomb.ground.errors import InputError

log = logging.getLogger("coulomb")

MOST_KEPT = 32  # answers in memory; the oldest is forgotten
Say = Callable[[float | None, str], None]  # share done (None: unknown) and what is being done


@dataclass
class Job:
    """One answer: ``state`` is waiting, running, done or failed."""

    state: str = "waiting"
    share: float | None = None
    note: str = ""
    answer: Any = None
    since: float = field(default_factory=time.monotonic)
    late: bool = False  # nobody waits for it any more

    def status(self) -> dict[str, Any]:
        """Returns the status for the page, with the answer if it is ready."""
        told: dict[str, Any] = {"state": self.state, "share": self.share, "note": self.note}
        return told | ({"answer": self.answer} if self.state == "done" else {})


class Jobs:
    """Runs jobs by name and options; the same job is not computed twice.

    Args:
        work: name → function(options, say) that returns an answer for JSON.
        limit: seconds after which a job that has no answer counts as failed. One that is being computed runs to its end; one
            that still waits is left out.
    """

    def __init__(self, work: dict[str, Callable[[dict[str, Any], Say], Any]], limit: float | None = None) -> None:
        self._work, self._jobs, self._limit = work, dict[str, Job](), limit
        self._queue: queue.SimpleQueue[tuple[Job, Callable[[], Any]]] = queue.SimpleQueue()
        self._guard = threading.Lock()
        threading.Thread(target=self._run, name="coulomb-jobs", daemon=True).start()

    def status(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        """Starts a job unless it has been started, and returns its status. A failed job starts again.

        Raises:
            InputError: there is no such job.
        """
        if name not in self._work:
            raise InputError(f"job={name!r}: is not one of {', '.join(self._work)}")
        key = name + json.dumps(options, sort_keys=True)
        with self._guard:
            job = self._jobs.get(key)
            if job is None:
                job = self._jobs[key] = Job()
                made = job

                def say(share: float | None, note: str) -> None:
                    made.share, made.note = share, note

                self._queue.put((job, lambda: self._work[name](options, say)))
                done = [other for other, kept in self._jobs.items() if kept.state in ("done", "failed")]
                for other in done[: max(0, len(self._jobs) - MOST_KEPT)]:
                    del self._jobs[other]
            elif job.state == "failed":
                del self._jobs[key]  # the reason is reported once; the next request starts the job again
            elif self._limit is not None and job.state != "done" and time.monotonic() - job.since > self._limit:
                del self._jobs[key]
                job.late = True
                told = f"no answer after {self._limit:g} seconds ({job.note or 'other answers come first'}); try again"
                return {"state": "failed", "share": None, "note": told}
            return job.status()

    def _run(self) -> None:
        while True:
            job, compute = self._queue.get()
            if job.late:
                continue
            job.state = "running"
            try:
                job.answer = compute()
                job.state = "done"
            except InputError as error:
                job.note, job.state = str(error), "failed"
            except Exception as error:
                log.exception("browse: a job failed")
                job.note, job.state = f"{type(error).__name__}: {error}", "failed"
