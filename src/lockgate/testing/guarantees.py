"""The guarantees of the store contract, and the error that names a broken one."""

from collections.abc import Iterable, Mapping
from typing import Final

GUARANTEES: Final[Mapping[str, str]] = {
    # Windows
    "W1": "In no span of a window's length, however placed, is more than its limit admitted.",
    "W2": "A call is refused only if, with its cost, some window would hold more than its limit.",
    "W3": "Calls that overlap answer as if made one after the other, in an order that fits real "
    "time; a call whose reply is lost takes effect once or not at all.",
    "W4": "What remains falls by exactly the cost of what is admitted, and is never negative.",
    "W5": "Looking changes nothing.",
    "W6": "Whoever waits as long as told, without a competitor, is admitted; sooner, refused.",
    "W7": "A refused call costs nothing, in any window.",
    "W8": "Calls for one organization never touch another, whatever their ids contain.",
    "W9": "All windows of a call are charged together, or none is.",
    "W10": "State is bounded, and an organization idle for two windows leaves nothing behind.",
    "W11": "A clock that steps back never admits more, and locks out for at most the window.",
    "W12": "Where the store is shared, its own clock decides and no caller's; where a call brings "
    "its own time, that one does.",
    "W13": "A change of plan holds from the next call on and keeps what is counted.",
    "W14": "The same calls at the same times get the same answers from every store.",
    # Slots
    "L1": "Never are more leases live than the limit.",
    "L2": "A slot is refused only if that many leases are live.",
    "L3": "A lease that nobody renews is over at its deadline.",
    "L4": "Only a live lease can be renewed, and only by its owner: none comes back to life.",
    "L5": "Releasing frees only the caller's own lease, however late, and twice is like once.",
    "L6": "Acquiring again for the same job gives back the lease that it has.",
    # Holds
    "H1": "Held units are counted in full in every window until they are settled or past their "
    "deadline; used units are counted from then on.",
    "H2": "A hold that is neither settled nor renewed is used in full at its deadline.",
    "H3": "A hold is taken once and settled once, with the units that were used.",
    "H4": "Units that were held and not used are free at once.",
    "H5": "A lease is granted with an admission by the plan's windows alone, of at most one unit "
    "in fifty of each limit and half of its holder's share; a refusal beside leases holds until "
    "the first of them ends.",
    # Promises
    "P1": "No window has more than its limit, whatever is promised.",
    "P2": "A refusal that promises units names a whole second; a call of its key that returns then "
    "or within a second and a half is admitted whatever others do; a promise serves one call.",
    "P3": "A call is refused only if its cost does not fit beside all that is promised; reading "
    "says what is left.",
    "P4": "An organization has at most 256 promises, of together at most its smallest limit, and "
    "a key no more than are left; each is gone a second and a half after its second.",
    # Keys
    "K1": "A key is accepted if and only if its digest matches a row neither revoked nor expired, "
    "whose seal, where keys are made with peppers, is that of its fields, and whose allow-list, "
    "where it has one, has the client's address.",
    "K3": "Revoked is for good: no call, no order and no race makes a revoked key good again.",
    "K4": "Once a revocation is answered, no admission that starts later lets the key in; no "
    "admission that one step makes has a later instant than the end of its key.",
    "K5": "What was read before a revocation and kept since then lets nobody in.",
    "K6": "Another organization's key looks exactly like no key.",
    "K7": "The usage of a key is what was admitted with it or added to it, and the time of its "
    "last use never goes back; usage over time is what was added to it.",
    "K8": "Never has an organization more live keys than its cap, whoever inserts at once.",
    "K9": "A digest and the seal of its row are replaced only while both still are the old ones, "
    "and nothing else with them.",
    "K10": "A handle that no key has gets the answer of a wrong secret after the same work, one "
    "comparison of digests.",
    # Accounts
    "R1": "An account and the first key of its organization are kept together or not at all.",
    "R3": "An account is claimed once and for ever, with one winner however many claim at once.",
    # The gate
    "G4": "Every call ends: it returns or raises, whatever other callers do.",
    # Of the record of decisions
    "D3": "A handle is taken once, whichever the organization and the state of its key.",
    "D4": "The first revocation sets the time, which no later one changes; revoked is told before "
    "expired.",
    "D5": "A change to keys, plans or sessions ends what processes remember: when the verb that "
    "made it returns, the change counter has grown and `local_version` is another object, where "
    "the store has them.",
    "D10": "Keys are listed newest first and then by id, whichever their state; live ones by when "
    "they end and by id, the last first; in pages that miss none and repeat none.",
    "D14": "Accounts are found by exactly their token, e-mail or user, page by page: unclaimed "
    "ones the oldest first, claimed ones the latest claim first, then by organization.",
    "D15": "A claim, the end of its sessions and a new digest change that of an account, and "
    "nothing else.",
    "D46": "An account goes with its keys if it is unclaimed, on no plan and unused for so long, "
    "in one step, and only then; the handles of its keys stay taken.",
    "D25": "An organization's plan and limits are kept as they were put.",
    "D43": "A live key is updated or rotated in one step, if it still is as its caller read it; "
    "the change holds from the next admission on, and one successor replaces a key.",
    "D44": "A change to keys, plans or accounts and its one record in the change log are kept "
    "together or not at all, with one instant; the records of exactly one organization are "
    "numbered in the order of their instants, and read newest first.",
    "D45": "Keys that ended long enough ago are removed with their usage, no others, each once; "
    "their handles stay taken.",
}
"""The guarantees by id, as docs and failures name them."""


class Broken(AssertionError):
    """A store broke a guarantee of the contract.

    Attributes:
        sentence: the id of the guarantee, a key of :data:`GUARANTEES`.
        said: the store's behaviour, and the expected one.
        trace: the calls that led to it, one per line, the failing one last.
    """

    def __init__(self, sentence: str, said: str, trace: Iterable[str] = ()) -> None:
        self.sentence = sentence
        self.said = said
        self.trace = tuple(trace)
        super().__init__(sentence, said, self.trace)

    def __str__(self) -> str:
        lines = "\n".join(f"  {line}" for line in folded(self.trace))
        shown = f"\n\n{lines}\n" if lines else ""
        return f"{self.sentence} is broken. {GUARANTEES[self.sentence]}\n{shown}\n{self.said}"


def folded(lines: Iterable[str]) -> list[str]:
    """Replace repeated lines by one with their number."""
    runs: list[tuple[str, int]] = []
    for line in lines:
        if runs and runs[-1][0] == line:
            runs[-1] = (line, runs[-1][1] + 1)
        else:
            runs.append((line, 1))
    return [line if times == 1 else f"{line}  # {times} times" for line, times in runs]
