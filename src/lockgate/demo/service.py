"""The demo's generation service: framework-free handlers, as a table."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Literal, NamedTuple
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field

from ..core.access_rule import PUBLIC, Rule
from ..core.limits import Limit
from ..gate import Gate
from ..principal import Principal
from ..web.bodies import read_body, written
from ..web.operations.openapi import describe
from ..web.operations.operation import Reply
from ..web.request import RequestView
from .jobs import Jobs
from .sign_in import PAGES, PATH, SIGN_OUT, SUBMIT, SignIn

EXPORTS: Final = Limit("exports", "10/minute")
"""The limit of exports, beside the limits of an organization's plan."""
TOKENS: Final = Limit("tokens", "1000/minute;20000/day")
"""The budget of completions: each holds tokens, and settles those that it used at its end."""


class Visit(NamedTuple):
    """A request to the service, after the gate."""

    principal: Principal | None
    request: RequestView
    params: Mapping[str, str]
    body: bytes

    @property
    def caller(self) -> Principal:
        """The authenticated caller; only for routes that need a key."""
        assert self.principal is not None, "no route that is public asks who is calling"
        return self.principal


def sent(value: Any) -> tuple[bytes, Mapping[str, str]]:
    """Return the body and headers of an answer: a page unchanged, any other value as JSON."""
    if isinstance(value, Reply):
        return value.body, {name.decode(): text.decode() for name, text in value.headers}
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


class NewCompletion(BaseModel):
    """The body of a request for a completion."""

    model_config = ConfigDict(extra="forbid", strict=True)

    prompt: str = "Say hello to the world"
    max_tokens: int = Field(default=1000, ge=1, le=1000)


class Service:
    """A pretended image generation service behind a real gate.

    Args:
        gate: the gate that admits or refuses each request.
        sign_in: signs the owners of the demo's organizations in.
    """

    def __init__(self, gate: Gate, sign_in: SignIn) -> None:
        self.gate: Final = gate
        self.sign_in: Final = sign_in
        self.jobs: Final = Jobs(gate.slots)
        at = gate.prefix
        self.operations: Final = (
            Operation("GET", "/health", PUBLIC, self.health, "Health"),
            Operation("GET", "/capabilities", PUBLIC, self.capabilities, "Capabilities"),
            Operation("GET", "/openapi.json", PUBLIC, self.openapi, "This description"),
            Operation("GET", PATH, PUBLIC, self.show_sign_in, None),
            Operation("POST", SUBMIT, PUBLIC, self.begin_session, None),
            Operation("GET", SIGN_OUT, PUBLIC, self.end_session, None),
            Operation("GET", PAGES, PUBLIC, self.open_pages, None),
            Operation("GET", f"{at}/models", Rule("models:read"), self.models, "List models"),
            Operation("POST", f"{at}/images", Rule("models:write"), self.made, "Generate an image"),
            Operation(
                *("POST", f"{at}/completions", Rule("models:write")),
                *(self.complete, "Complete a prompt"),
            ),
            Operation("GET", f"{at}/jobs", Rule("jobs:read"), self.list_jobs, "List jobs"),
            Operation("POST", f"{at}/jobs", Rule("jobs:write"), self.start_job, "Start a job"),
            Operation(
                "GET", f"{at}/jobs/{{id}}", Rule("jobs:read"), self.show_job, "Inspect a job"
            ),
            Operation(
                "DELETE", f"{at}/jobs/{{id}}", Rule("jobs:write"), self.cancel_job, "Cancel a job"
            ),
            Operation("POST", f"{at}/uploads", Rule("upload:write"), self.made, "Upload a file"),
            Operation(
                *("POST", f"{at}/exports", Rule("jobs:read", limits=[EXPORTS])),
                *(self.made, "Export all jobs"),
            ),
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

    async def show_sign_in(self, visit: Visit) -> tuple[int, Any]:
        """Show the page to which registration sends owners."""
        return _page(self.sign_in.page(visit.request))

    async def begin_session(self, visit: Visit) -> tuple[int, Any]:
        """Sign an owner in."""
        return _page(await self.sign_in.sign_in(visit.request, visit.body))

    async def end_session(self, _: Visit) -> tuple[int, Any]:
        """Sign an owner out."""
        return _page(self.sign_in.sign_out())

    async def open_pages(self, _: Visit) -> tuple[int, Any]:
        """Lead to the dashboard: under ASGI its mount begins behind a slash."""
        return _page(self.sign_in.first_page())

    async def models(self, _: Visit) -> tuple[int, Any]:
        """List the models."""
        return 200, {"data": [{"id": "acme-image-1"}, {"id": "acme-image-1-fast"}]}

    async def made(self, _: Visit) -> tuple[int, Any]:
        """Pretend to have generated an image."""
        return 201, {"id": str(uuid4())}

    async def complete(self, visit: Visit) -> tuple[int, Any]:
        """Pretend to complete a prompt: hold the most tokens, and settle those that were used."""
        body = visit.body
        wanted = read_body(body, NewCompletion, self.gate) if body else NewCompletion()
        hold = await self.gate.holds.take(visit.caller, {TOKENS: wanted.max_tokens})
        words = wanted.prompt.upper().split()[: wanted.max_tokens]
        await self.gate.holds.settle(hold.id, len(words))
        return 200, {"text": " ".join(words), "usage": {"tokens": len(words)}}

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


def _page(reply: Reply) -> tuple[int, Any]:
    return reply.status, reply
