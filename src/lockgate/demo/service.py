"""The demo's generation service: framework-free handlers, as a table."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Literal, NamedTuple
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field

from ..core.access_rule import PUBLIC, Rule
from ..gate import Gate
from ..principal import Principal
from ..web.bodies import read_body, written
from ..web.operations.openapi import describe
from . import dashboard
from .jobs import Jobs


class Visit(NamedTuple):
    """A request to the service, after the gate."""

    principal: Principal | None
    params: Mapping[str, str]
    body: bytes

    @property
    def caller(self) -> Principal:
        """The authenticated caller; only for routes that need a key."""
        assert self.principal is not None, "no route that is public asks who is calling"
        return self.principal


def sent(value: Any) -> tuple[bytes, Mapping[str, str]]:
    """Return the body and headers of an answer: a page unchanged, any other value as JSON."""
    if isinstance(value, dashboard.Page):
        return value
    return written(value), {"content-type": "application/json"}


class Operation(NamedTuple):
    """One route of the service."""

    method: str
    path: str
    rule: Rule
    handler: Callable[[Visit], Coroutine[Any, Any, tuple[int, Any]]]
    summary: str | None
    """The summary in the service's description; None for a page, which it leaves out."""


class NewJob(BaseModel):
    """The body of a request for a job."""

    model_config = ConfigDict(extra="forbid", strict=True)

    kind: Literal["render", "timelapse"] = "render"
    seconds: float = Field(default=1.0, ge=0, le=3600)


class Service:
    """A pretended image generation service behind a real gate."""

    def __init__(self, gate: Gate) -> None:
        self.gate: Final = gate
        self.jobs: Final = Jobs(gate.slots)
        at = gate.prefix
        self._dashboard = dashboard.dashboard(at)
        self.operations: Final = (
            Operation("GET", "/health", PUBLIC, self.health, "Health"),
            Operation("GET", "/capabilities", PUBLIC, self.capabilities, "Capabilities"),
            Operation("GET", "/openapi.json", PUBLIC, self.openapi, "This description"),
            Operation("GET", dashboard.PATH, PUBLIC, self.dashboard, None),
            Operation("GET", f"{at}/models", Rule("models:read"), self.models, "List models"),
            Operation("POST", f"{at}/images", Rule("models:write"), self.made, "Generate an image"),
            Operation("GET", f"{at}/jobs", Rule("jobs:read"), self.list_jobs, "List jobs"),
            Operation("POST", f"{at}/jobs", Rule("jobs:write"), self.start_job, "Start a job"),
            Operation(
                "GET", f"{at}/jobs/{{id}}", Rule("jobs:read"), self.show_job, "Inspect a job"
            ),
            Operation(
                "DELETE", f"{at}/jobs/{{id}}", Rule("jobs:write"), self.cancel_job, "Cancel a job"
            ),
            Operation("POST", f"{at}/uploads", Rule("upload:write"), self.made, "Upload a file"),
            *(
                operation
                for area in ("catalog", "studio", "library")
                for operation in (
                    Operation("GET", f"{at}/{area}", Rule("jobs:read"), self.empty, f"Read {area}"),
                    Operation(
                        "POST", f"{at}/{area}", Rule("jobs:write"), self.made, f"Write {area}"
                    ),
                )
            ),
            Operation(
                "GET", f"{at}/account", Rule("account:read"), self.account, "Read the account"
            ),
        )

    @property
    def by_path(self) -> dict[str, dict[str, Operation]]:
        """The operations by path, then by method."""
        by_path: dict[str, dict[str, Operation]] = {}
        for operation in self.operations:
            by_path.setdefault(operation.path, {})[operation.method] = operation
        return by_path

    @property
    def rules(self) -> dict[str, Rule]:
        """The access rule of each operation, for the gate's middleware."""
        return {f"{o.method} {o.path}": o.rule for o in self.operations}

    async def health(self, _: Visit) -> tuple[int, Any]:
        """Report that the service is up."""
        return 200, {"status": "ok"}

    async def capabilities(self, _: Visit) -> tuple[int, Any]:
        """List the scopes of the service."""
        scopes = sorted(self.gate.catalogue.scopes)
        return 200, {"plans": self.gate.plans.names, "scopes": scopes}

    async def openapi(self, _: Visit) -> tuple[int, Any]:
        """Describe every operation, lockgate's own included."""
        own = [(o.method, o.path, o.rule, o.summary) for o in self.operations if o.summary]
        return 200, describe(self.gate, "lockgate demo", own)

    async def dashboard(self, _: Visit) -> tuple[int, Any]:
        """Show the page to which registration sends owners."""
        return 200, self._dashboard

    async def models(self, _: Visit) -> tuple[int, Any]:
        """List the models."""
        return 200, {"data": [{"id": "acme-image-1"}, {"id": "acme-image-1-fast"}]}

    async def made(self, _: Visit) -> tuple[int, Any]:
        """Pretend to have generated an image."""
        return 201, {"id": str(uuid4())}

    async def empty(self, _: Visit) -> tuple[int, Any]:
        """Return an empty list."""
        return 200, {"data": []}

    async def account(self, visit: Visit) -> tuple[int, Any]:
        """Describe the caller's organization."""
        plan = await self.gate.organizations.plan(visit.caller.organization)
        return 200, {"organizationId": visit.caller.organization, "plan": plan.name}

    async def list_jobs(self, visit: Visit) -> tuple[int, Any]:
        """List the organization's jobs, newest first."""
        return 200, {"data": await self.jobs.list(visit.caller.organization)}

    async def start_job(self, visit: Visit) -> tuple[int, Any]:
        """Start a job; a timelapse takes a slot."""
        wanted = read_body(visit.body, NewJob, self.gate) if visit.body else NewJob()
        return 202, await self.jobs.start(visit.caller, wanted.kind, wanted.seconds)

    async def show_job(self, visit: Visit) -> tuple[int, Any]:
        """Show a job of the organization."""
        return 200, await self.jobs.find(visit.caller.organization, visit.params["id"])

    async def cancel_job(self, visit: Visit) -> tuple[int, Any]:
        """Cancel a job of the organization."""
        return 200, await self.jobs.cancel(visit.caller.organization, visit.params["id"])

    async def close(self) -> None:
        """End running jobs, and close the store."""
        await self.jobs.stop()
        await self.gate.close()
