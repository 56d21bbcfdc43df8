"""Keys, ids and plans for checks, the same in every run."""

from collections.abc import Sequence
from random import Random
from typing import Final
from uuid import UUID

from ..core.accounts import AccountDraft
from ..core.api_keys import KeyDetails, KeyDraft
from ..core.digests import Peppers
from ..core.key_format import BASE62, KeyFormat, NewKey, Token
from ..core.plans import Plan, PlanBook
from ..core.row_seals import sealed_account_draft, sealed_draft
from ..core.sliding_window import Window
from .clock import START

NOW: Final = START

HOSTILE: Final = (
    "{org}",
    "a}b{c",
    "nul\0nul",
    "nul",
    "line\nline\r\n",
    "' OR 1=1 --",
    "%s%(x)s{0}",
    "*?[a-z]",
    "a:b",
    "a::b",
    " ",
    "Org",
    "org",
    "org ",
    "o" * 128,
    "o" * 127 + "p",
    "\U0001f511" * 128,
    "\U0001f511" * 127 + "x",
    "\u00e9",
    "e\u0301",
    "\u202e",
    "..",
    "/",
    "lone \ud800 surrogate",
    "lone \udfff surrogate",
    "two \ud83d\ude00 surrogates",
    "two \U0001f600 surrogates",
)
"""Valid ids that are hard for stores: all different, some nearly alike (D36)."""

SEPARATED: Final = (
    *(f"a{mark}b" for mark in "-_:/\\|.,;+= !\"#$%&'()*<>?@[]^`{}~"),
    *("%41", "%42", "B", "&#67;", "C", "=44", "D", "./p", "p", "p/./q", "p/q", "p/"),
    *("plumless", "buckeroo", "costarring", "liquid", "hetairas", "mentioner", "Aa", "BB"),
)
"""Texts that only a mark, an escape or a hash of more than 32 bits tells apart.

Many are alike to the one before, with which some checks compare each. The words at the end have the
same CRC-32, FNV-1a, DJB2 or Java hash code in pairs.
"""
ALIKE_TO_PEOPLE: Final = (
    *("\uff41", "A", "a", "a ", " a", "\u3000a", "a\u00a0", "\u00e1", "a\u0301"),
    *("ss", "\u00df", "\u1e9e", "fi", "\ufb01", "K", "\u212a", "i", "\u0131", "\u0130", "I"),
    *("0", "00", "-0", "0.0", "0e1", "0x0", "\u0660", "1", "01", "+1", "1.0", "1e0", "\uff11"),
    *("true", "True", "1_0", "10", "null", "NULL", "None", "nan", "NaN", "1,0", "1;0", "1|0"),
    *("%", "_", "*", "?", "a%", "a*", "ab", "[ab]", "\\", "\\\\", "\\x61", "\\u0061", "\\n"),
    *("'", "''", '"', "&", "&amp;", "%20", "+", "{}", "[]", "$1", "{a}", "a//b", "--", "a_", "a:"),
    *("a\U0001f511", "a\U0001f513", "o" * 63 + "p", "o" * 63 + "q"),
    *SEPARATED,
)
"""Texts of printable characters that are equal where a database compares loosely or cuts them."""
LONGEST: Final = ("o" * 99 + "p", "o" * 99 + "q", "\U0001f511" * 99 + "p", "\U0001f511" * 99 + "q")
"""The longest texts that people may enter, such as the name of a key: alike but for their ends."""
ALIKE: Final = (
    *ALIKE_TO_PEOPLE,
    *(
        "a\0",
        "\0a",
        "a\t",
        "\ta",
        "a\n",
        "a\r\n",
        "a\x1fb",
        "a\x1f",
        "a\u200b",
        "\ufeffa",
        "a\u00ad",
    ),
    *("a\ud800", "a\udfff", "a?", "a\ufffd", "a\ud83d\ude00", "a\U0001f600"),
)
"""The same with characters that only ids may have: controls and lone surrogates."""

NARROW: Final = Plan("narrow", rpm=3, rph=5, rpd=7, concurrent=1)
EXACT: Final = Plan("exact", rpm=10, rph=100, rpd=500, concurrent=2, resolution=None)
COARSE: Final = Plan("coarse", rpm=200, rph=300, rpd=None, concurrent=3, resolution=1)
OPEN: Final = Plan("open", rpm=None, rph=None, rpd=None, concurrent=None)
PLANS: Final = PlanBook([NARROW, EXACT, COARSE, OPEN], default="narrow")
"""The plan book of the checks, with the default plan *narrow*."""


def minute(limit: int | None) -> tuple[Window, ...]:
    """Return the windows of a plan with a limit per minute only."""
    return Plan("minute", rpm=limit, rph=None, rpd=None, concurrent=None).windows


def book(limit: int | None) -> PlanBook:
    """Return a book with one plan, which has a limit per minute only."""
    plan = Plan("minute", rpm=limit, rph=None, rpd=None, concurrent=None)
    return PlanBook([plan], custom=(), default="minute")


class Factory:
    """Generates keys and drafts, the same for the same seed.

    Args:
        seed: selects the sequence of keys.
        peppers: digest the keys and seal their rows.
    """

    def __init__(self, seed: int = 0, peppers: Sequence[bytes] = ()) -> None:
        self._random = Random(seed)  # noqa: S311 - these keys open nothing
        self.format: Final = KeyFormat("acme", peppers=Peppers(peppers), draw=self._draw)

    def key(self) -> NewKey:
        """Return another key."""
        return self.format.generate()

    def token(self, key: NewKey) -> Token:
        """Return the key as a request presents it."""
        return self.format.read([b"Bearer " + key.text.encode()])

    def draft(
        self,
        organization: str = "org_1",
        *,
        key: NewKey | None = None,
        name: str = "a key",
        scopes: tuple[str, ...] = ("*",),
        lifetime: int | None = None,
        at: int = NOW,
        details: KeyDetails | None = None,
    ) -> KeyDraft:
        """Return a draft of a key, by default a new one, with a lifetime after an instant."""
        key = key or self.key()
        digest = self.format.digest(key)
        draft = KeyDraft(
            id=str(UUID(int=self._random.getrandbits(128), version=4)),
            handle=key.handle,
            organization=organization,
            name=name,
            prefix=key.prefix,
            scopes=scopes,
            scheme=digest.scheme,
            digest=digest.value,
            seal=None,
            expires_at=None if lifetime is None else at + lifetime,
            details=details,
        )
        return sealed_draft(draft, self.format.peppers)

    def account(
        self,
        organization: str = "org_1",
        *,
        email: str = "ada@example.com",
        company: str | None = None,
        agent: str = "an agent",
    ) -> AccountDraft:
        """Return a draft of an account with a new dashboard token."""
        token = self.key()
        digest = self.format.digest(token)
        draft = AccountDraft(organization, agent, email, company, token.handle, *digest)
        return sealed_account_draft(draft, self.format.peppers)

    def _draw(self, length: int) -> str:
        return "".join(self._random.choices(BASE62, k=length))
