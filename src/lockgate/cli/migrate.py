"""``lockgate migrate``: what replaces the limits of another limiter in a project."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from .limit_rates import Translation, anonymous_plan_of, plan_of, translate
from .limiter_uses import Project
from .output import json_option, plain, print_json


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@json_option
def migrate(path: Path, *, as_json: bool) -> None:
    """List the limits in PATH of slowapi, Flask-Limiter, fastapi-limiter and DRF throttles.

    For each it prints the plan, named limit or budget of lockgate that replaces it, and what
    differs. The code is read and not run. Exit code 1 where a limit has no replacement.
    """
    project = Project(path)
    translations = translate(list(project.uses()))
    replaced = sum(one.replacement is not None for one in translations)
    if as_json:
        print_json(_document(project, translations, replaced))
    else:
        _print(project, translations, replaced)
    if replaced < len(translations):
        click.get_current_context().exit(1)


def _document(
    project: Project, translations: Sequence[Translation], replaced: int
) -> dict[str, Any]:
    uses = [one.use for one in translations]
    return {
        "found": len(uses),
        "replaced": replaced,
        "plan": plan_of(uses),
        "anonymous": anonymous_plan_of(uses),
        "uses": [
            {
                "file": one.use.path,
                "line": one.use.line,
                "library": one.use.library,
                "code": one.use.source,
                "replacement": one.replacement,
                "differs": list(one.differs),
            }
            for one in translations
        ],
        "unreadable": project.unreadable,
    }


def _print(project: Project, translations: Sequence[Translation], replaced: int) -> None:
    for one in translations:
        print(plain(f"{one.use.path}:{one.use.line}: {one.use.library}: {one.use.source}"))
        if one.replacement is None:
            print(plain(f"    no replacement: {'; '.join(one.differs)}"))
            continue
        print(plain(f"    {one.replacement}"))
        for difference in one.differs:
            print(plain(f"    - {difference}"))
    for path in project.unreadable:
        print(plain(f"{path}: cannot be parsed"))
    if not translations:
        print("No limit was found.")
        return
    if not plan_of([one.use for one in translations]):
        print("No default limit was found: give the plan what the whole service may do.")
    print(f"{replaced} of {len(translations)} limits have a replacement.")
