"""The demo's jobs: a timelapse holds a slot of its organization until it ends or is cancelled."""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from threading import Event, Lock, Thread
from time import monotonic
from typing import Final, NamedTuple
from uuid import uuid4

from ..errors import NotFound, SlotLost, StoreUnavailable
from ..principal import Principal
from ..services.reservations.slots import ConcurrencySlots
from ..sync import run

LEASE: Final = 5.0
"""Seconds after which the slots of a killed demo expire."""
_BEAT: Final = LEASE / 3
_JITTER: Final = 0.1
"""Seconds by which the clocks of store and demo may drift during a job."""
_JOBS_AT_MOST: Final = 1000
"""Jobs stored per organization; the oldest are dropped."""


class Job(NamedTuple):
    """A started job, which only waits for its end."""

    id: str
    kind: str
    ends_at: float

    def shown(self, status: str) -> dict[str, object]:
        """Return the job as shown to callers."""
        return {"id": self.id, "kind": self.kind, "status": status}


class Jobs:
    """The jobs of a demo, by organization.

    Only this process has renders. A timelapse has a slot with its id in the store, so any demo on
    that store can show and cancel it. Its lease is renewed in the background, finally to the end of
    the job, so it needs no release.
    """

    def __init__(self, slots: ConcurrencySlots) -> None:
        self._slots = slots
        self._jobs: dict[str, dict[str, Job]] = {}
        self._owners: dict[tuple[str, Job], str] = {}
        self._lock = Lock()
        self._over = Event()
        self._keeper: asyncio.Task[None] | Thread | None = None

    async def start(self, principal: Principal, kind: str, seconds: float) -> dict[str, object]:
        """Start a job.

        Raises:
            ConcurrentLimitExceeded: it is a timelapse, and every slot is taken.
        """
        organization = principal.organization
        job = Job(str(uuid4()), kind, monotonic() + seconds)
        if kind == "timelapse":
            lease = await self._slots.acquire(principal, job.id, seconds=_span(seconds))
            self._keep(organization, job, lease.owner)
        with self._lock:
            jobs = self._jobs.setdefault(organization, {})
            if len(jobs) >= _JOBS_AT_MOST:
                del jobs[next(iter(jobs))]
            jobs[job.id] = job
        return job.shown("running")

    async def list(self, organization: str) -> list[dict[str, object]]:
        """Return the organization's jobs, newest first."""
        running = [lease.job for lease in await self._slots.held(organization)]
        with self._lock:
            known = {**self._jobs.get(organization, {})}
        elsewhere = [Job(id, "timelapse", 0) for id in running if id not in known]
        shown = [(job, _status(job, running)) for job in [*elsewhere, *known.values()]]
        return [job.shown(status) for job, status in reversed(shown) if status]

    async def find(self, organization: str, id: str) -> dict[str, object]:
        """Return a job of the organization.

        Raises:
            NotFound: it has no such job.
        """
        for job in await self.list(organization):
            if job["id"] == id:
                return job
        raise NotFound

    async def cancel(self, organization: str, id: str) -> dict[str, object]:
        """Cancel a job of the organization, wherever it runs.

        Raises:
            NotFound: it has no such job.
        """
        job = await self.find(organization, id)
        with self._lock:
            self._jobs.get(organization, {}).pop(id, None)
        await self._slots.cancel(organization, id)
        return {**job, "status": "cancelled"}

    async def stop(self) -> None:
        """End the jobs that hold slots within a second; the remaining leases expire."""
        self._over.set()
        if isinstance(self._keeper, Thread):
            self._keeper.join(1)
        elif self._keeper is not None:
            self._keeper.cancel()
        until = monotonic() + 1
        for (organization, job), owner in [*self._owners.items()]:
            if monotonic() > until:
                break
            with suppress(StoreUnavailable):
                await self._slots.release(organization, job.id, owner)

    def _keep(self, organization: str, job: Job, owner: str) -> None:
        with self._lock:
            self._owners[organization, job] = owner
            if self._keeper is None:
                self._keeper = self._keeping()

    def _keeping(self) -> asyncio.Task[None] | Thread:
        """Renew leases by a task under ASGI, by a thread under WSGI."""
        try:
            return asyncio.get_running_loop().create_task(self._renew_and_sleep())
        except RuntimeError:
            thread = Thread(target=self._renew_and_wait, name="lockgate-demo-jobs", daemon=True)
            thread.start()
            return thread

    async def _renew_and_sleep(self) -> None:
        while True:
            await asyncio.sleep(_BEAT)
            await self._renew()

    def _renew_and_wait(self) -> None:
        while not self._over.wait(_BEAT):
            run(self._renew())

    async def _renew(self) -> None:
        with self._lock:
            owners = [*self._owners.items()]
        for held, owner in owners:
            organization, job = held
            left = job.ends_at - monotonic()
            if left > 0:
                try:
                    await self._slots.renew(organization, job.id, owner, seconds=_span(left))
                    continue
                except StoreUnavailable:
                    continue
                except SlotLost:
                    pass  # The job was cancelled.
            with self._lock:
                del self._owners[held]


def _span(left: float) -> float:
    return max(min(LEASE, left), 0.001)


def _status(job: Job, running: Collection[str]) -> str | None:
    """Return the status of a job; None if it lost its slot."""
    if job.id in running:
        return "running"
    left = job.ends_at - monotonic()
    if job.kind == "timelapse" and left > _JITTER:
        return None
    return "completed" if left <= 0 or job.kind == "timelapse" else "running"
