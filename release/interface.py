"""Compare the public interface with that of an earlier commit.

    python -m release.interface [COMMIT]

Public are the names on the page of the Python reference, as it promises. Without an argument they
are compared with the last tag; before the first tag there is nothing to compare with. ``nox -s
interface`` runs it.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import griffe

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "python.md"
_NAMED = re.compile(r"^\.\. auto(?:class|function|data|module):: ([\w.]+)", re.MULTILINE)


def last_tag() -> str | None:
    """Return the newest tag before this commit; None: there is none yet."""
    command = ["git", "describe", "--tags", "--abbrev=0", "--match=v*"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    return done.stdout.strip() or None


def public(package: griffe.Object) -> Iterator[str]:
    """Yield the full names of a package's objects that the reference lists."""
    for name in _NAMED.findall(PAGE.read_text()):
        with suppress(KeyError):  # The other commit has no such name.
            yield package[name.removeprefix("lockgate.")].canonical_path


def breaks(reference: str) -> Iterator[str]:
    """Yield a line for each change since a commit that may break a caller of a public name."""
    old = griffe.load_git(
        "lockgate", ref=reference, repo=ROOT, search_paths=["src"], resolve_aliases=True
    )
    new = griffe.load("lockgate", search_paths=[str(ROOT / "src")], resolve_aliases=True)
    assert isinstance(old, griffe.Object)
    assert isinstance(new, griffe.Object)
    listed = {*public(old), *public(new)}
    inside = tuple(f"{name}." for name in listed)
    for change in griffe.find_breaking_changes(old, new):
        path = change.obj.canonical_path
        if path in listed or path.startswith(inside):
            yield change.explain(griffe.ExplanationStyle.ONE_LINE)


def main(reference: str | None) -> int:
    """Print the changes; return 1 if there is one."""
    if reference is None:
        print("There is no tag yet: name a commit to compare with, such as HEAD~20.")
        return 0
    found = sorted({*breaks(reference)})
    print(*found, f"{len(found)} changes since {reference} may break callers.", sep="\n")
    return min(1, len(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if sys.argv[1:] else last_tag()))
