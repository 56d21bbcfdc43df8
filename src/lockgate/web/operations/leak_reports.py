"""The operation that takes reports of leaked keys from a secret scanner, such as GitHub's."""

from hashlib import sha256
from typing import Annotated, Final, Literal, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, RootModel

from ...core.access_rule import Rule
from ...core.changes import Actor
from ...core.rate_limit_headers import rate_limit_exceeded
from ...errors import ReportNotAccepted
from ...gate import Gate
from ...services.leaks.leak_reports import REPORTS_AT_MOST, LeakedKeys, ReportedToken
from ..bodies import read_body
from ..request import RequestView, address_of
from .operation import Call, Endpoint
from .schemas import fail

REPORT_LIMIT: Final = 512 * 1024
"""The most bytes of a report: 500 for each of 1,000 tokens."""
_SIGNER: Final = b"github-public-key-identifier"
_SIGNATURE: Final = b"github-public-key-signature"


def _written(text: str) -> str:
    """Return a text that UTF-8 can hold: a lone surrogate becomes ``?``."""
    return text.encode("utf-8", "replace").decode()


_Text = Annotated[str, AfterValidator(_written)]


class LeakReport(BaseModel):
    """A token that was found in public. Further fields are ignored: senders add some."""

    model_config = ConfigDict(strict=True)

    token: _Text = Field(repr=False, description="The text that looks like a key.")
    type: _Text = Field(description="The sender's name for the pattern.")
    url: _Text | None = Field(default=None, description="Where it was found.")
    source: _Text | None = Field(default=None, description="The kind of place, such as `commit`.")


def _counted(values: object) -> object:
    """Return a list that is not too long, before each item is read."""
    too_many = isinstance(values, list) and len(cast(list[object], values)) > REPORTS_AT_MOST
    fail([f"Report at most {REPORTS_AT_MOST:,} tokens at a time."] if too_many else [])
    return values  # pyright: ignore[reportUnknownVariableType] - of any type


class LeakReportList(RootModel[Annotated[list[LeakReport], BeforeValidator(_counted)]]):
    """The body of a report."""


class LeakLabel(BaseModel):
    """Whether a token is a key of this service. The token is shown by its hash only (K2)."""

    token_hash: str = Field(description="SHA-256 of the token, in hexadecimal.")
    token_type: str
    label: Literal["true_positive", "false_positive"]


class LeakLabelList(RootModel[list[LeakLabel]]):
    """The answer to a report, in its order."""


def refuse_unsigned(gate: Gate, caller: RequestView) -> None:
    """Refuse a sender before its body is read (D24).

    Raises:
        RateLimitExceeded: its address has spent its budget of failures.
        ReportNotAccepted: the report names no signer, or has no signature.
    """
    failures = gate.failures
    reading = failures.refuses(address_of(gate, caller))
    if reading is not None:
        raise rate_limit_exceeded(failures.plan.windows, reading)
    _signed_by(gate, caller)


async def take_leak_report(call: Call) -> LeakLabelList:
    """Take a report, and say which of its tokens are keys of this service."""
    gate, caller = call.gate, call.caller
    signer, signature = _signed_by(gate, caller)
    leaks = _leaks(gate)
    try:
        await leaks.verify(signer, signature, call.body)
    except ReportNotAccepted:
        gate.failures.charge(address_of(gate, caller))
        raise
    reports = read_body(call.body, LeakReportList, gate).root
    tokens = [ReportedToken(r.token, r.url or "", r.source or "") for r in reports]
    digest = sha256(call.body).digest()
    sender = Actor("scanner", signer.decode("ascii"), address_of(gate, caller))
    labels = await leaks.take(digest, tokens, sender, caller.pause)
    return LeakLabelList(
        [
            LeakLabel(
                token_hash=sha256(report.token.encode()).hexdigest(),
                token_type=report.type,
                label="true_positive" if is_key else "false_positive",
            )
            for report, is_key in zip(reports, labels, strict=True)
        ]
    )


def _signed_by(gate: Gate, caller: RequestView) -> tuple[bytes, bytes]:
    """Return the identifier of the signer's key, and the signature.

    Raises:
        ReportNotAccepted: one of them is missing, or there are two.
    """
    signers, signatures = caller.header(_SIGNER), caller.header(_SIGNATURE)
    if len(signers) != 1 or len(signatures) != 1:
        gate.failures.charge(address_of(gate, caller))
        raise ReportNotAccepted
    return signers[0], signatures[0]


def _leaks(gate: Gate) -> LeakedKeys:
    assert gate.leaks is not None, "the operation is there only where reports are taken"
    return gate.leaks


LEAK_REPORTS: Final = (
    Endpoint(
        "POST",
        "/leak-reports",
        Rule(public=True, own=True),
        take_leak_report,
        "Report leaked API keys",
        LeakLabelList,
        request=LeakReportList,
        body_limit=REPORT_LIMIT,
        before_body=refuse_unsigned,
        tells="leak_report_refused",
    ),
)
