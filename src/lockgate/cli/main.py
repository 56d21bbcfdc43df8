"""The command ``lockgate``: its groups, its exit codes, and how it reports errors.

Exit codes: 0 done; 1 a check found something, or the request was refused (no such key, a name that
is too long); 2 the command was called wrongly; 3 the store did not answer; 4 the change was made,
and a step that follows it failed (D52): standard output has the result, standard error what
remains.
"""

import sys
from collections.abc import Sequence
from io import StringIO
from typing import Final

import click

from ..errors import (
    ClaimRefused,
    ConfigurationError,
    InvalidFormat,
    InvalidRequest,
    KeyNotFound,
    NotFound,
    Refusal,
    StoreUnavailable,
)
from ..stores.committed import collecting
from .accounts import claim, create
from .arguments import hidden, refuse_credentials
from .audit import audit
from .db import db
from .demo import demo
from .doctor import doctor
from .explain import explain
from .find import find_keys
from .init import init
from .keys import keys
from .organizations import orgs
from .refused import refused_keys
from .routes import openapi, routes
from .settings import UNAVAILABLE
from .shadow import shadow
from .show import show_key
from .simulate import simulate
from .usage import usage

REFUSED: Final = 1
MISUSED: Final = 2
COMMITTED: Final = 4

_SENTENCES: Final[dict[type[Refusal], str]] = {
    NotFound: "The organization has no such key: see 'lockgate keys list ORGANIZATION', or find it "
    "in all organizations by 'lockgate keys find ID'.",
    InvalidFormat: "This is not the whole text of a key of this gate: paste all of it, in one "
    "line. 'lockgate keys find' takes a part of it.",
    KeyNotFound: "No key in this store has this text: it was mistyped, is gone, or belongs to "
    "another store. 'lockgate keys find' takes its beginning.",
    ClaimRefused: "There is no such account, or another user has claimed it: see 'lockgate audit "
    "ORGANIZATION'.",
}
"""What a person in a shell reads instead of the sentence for a client of HTTP."""

_EXTRAS: Final = {"db": "sql", "fastapi": "demo,fastapi", "flask": "demo,flask", "demo": "demo"}
"""The extras of words among the arguments, the first of them that is there."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="lockgate")
def lockgate() -> None:
    """API keys, scopes and rate limits that really hold."""


for _command in (
    audit,
    db,
    demo,
    doctor,
    explain,
    init,
    keys,
    openapi,
    orgs,
    routes,
    shadow,
    simulate,
):
    lockgate.add_command(_command)
keys.add_command(find_keys)
keys.add_command(refused_keys)
keys.add_command(show_key)
for _command in (create, claim, usage):
    orgs.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    name = " ".join(["lockgate", *(word for word in given[:2] if word in _NAMES)])
    with collecting() as pending:
        code = _run(given, name)
    if not pending:
        return code
    told = f"{name}: The change is made: do not repeat the command. What remains:"
    print(told, *pending.remains, file=sys.stderr)
    return code or COMMITTED


def _run(given: Sequence[str], name: str) -> int:
    """Run the command, report its error, and return its exit code."""

    def tell(message: object) -> None:
        print(f"{name}: {hidden(str(message), given)}", file=sys.stderr)

    try:
        refuse_credentials(given)
        code: object = lockgate.main(given, "lockgate", standalone_mode=False)
    except click.ClickException as problem:
        problem.show(shown := StringIO())
        print(hidden(shown.getvalue(), given), end="", file=sys.stderr)
        return problem.exit_code
    except click.Abort:
        tell("aborted, nothing was changed.")
        return REFUSED
    except ModuleNotFoundError as missing:
        extra = next((extra for word, extra in _EXTRAS.items() if word in given), "cli")
        print(f"{name} needs {missing.name}: pip install 'lockgate[{extra}]'.", file=sys.stderr)
        return MISUSED
    except InvalidRequest as problem:
        for field, message in problem.problems:
            tell(f"{field}: {message}")
        return REFUSED
    except StoreUnavailable:
        tell("The store cannot be used: the lines above say why.")
        return UNAVAILABLE
    except Refusal as problem:
        tell(_SENTENCES.get(type(problem), problem))
        return REFUSED
    except (ConfigurationError, OSError) as problem:
        tell(problem)
        return MISUSED
    return code if isinstance(code, int) else 0


_NAMES: Final = {*lockgate.commands, *keys.commands, *orgs.commands}
