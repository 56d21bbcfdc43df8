"""The project's chores. ``nox`` alone runs what every change must pass: lint, types and tests."""

import os

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types", "tests"]
# An environment left from an earlier run may hold a package that is no longer declared: handy while
# working, but CI must notice.
nox.options.reuse_venv = "no" if os.environ.get("CI") else "yes"

PYPROJECT = nox.project.load_toml("pyproject.toml")

# Each file stays with one worker, which starts the servers that its files talk to. Files are begun
# in the order of their names: else those of few tests come last, and they are the slowest.
# One worker more than cores: tests that stop servers mostly wait.
WORKERS = min(4, (os.cpu_count() or 1) + 1)
SIDE_BY_SIDE = [f"-n{WORKERS}", "--dist=loadfile", "--no-loadscope-reorder"]
# Tests start some hundred processes: lockgate and the tests are compiled once, not in each of them.
COMPILED = {"PYTHONDONTWRITEBYTECODE": ""}


def install(session: nox.Session, group: str) -> None:
    """Install lockgate with every extra, and one dependency group.

    The group is read here and not by pip, whose ``--group`` is younger than Python 3.11's pip.
    """
    session.install("-e", ".[all]", *nox.project.dependency_groups(PYPROJECT, group))


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and formatting."""
    session.install(*nox.project.dependency_groups(PYPROJECT, "lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session
def types(session: nox.Session) -> None:
    """Check types with mypy and with pyright."""
    install(session, "types")
    session.run("mypy")
    # Otherwise each run asks the network whether a newer pyright than the pinned one exists.
    session.run("pyright", env={"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"})


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests; arguments go to pytest."""
    install(session, "tests")
    session.run("pytest", *(session.posargs or SIDE_BY_SIDE), env=COMPILED)


@nox.session
def coverage(session: nox.Session) -> None:
    """Run the tests and fail when they cover too little: tracing makes them half as long again."""
    install(session, "tests")
    session.run("pytest", "--cov", *SIDE_BY_SIDE, env=COMPILED)


@nox.session
def campaigns(session: nox.Session) -> None:
    """Run the long searches that the tests leave out, and take the stores for longer walks."""
    install(session, "tests")
    session.run("pytest", "-m", "campaign", *session.posargs)
    if not session.posargs:
        walks = ["-m", "", "--hypothesis-profile=nightly", "-k", "test_lockstep", "tests/stores"]
        session.run("pytest", *walks, *SIDE_BY_SIDE)


@nox.session
def attack(session: nox.Session) -> None:
    """Attack guarded applications under every server; arguments go after ``--``."""
    install(session, "tests")
    session.run("python", "-m", "tests.attack.campaign", *session.posargs)


@nox.session
def faults(session: nox.Session) -> None:
    """Change servers under load and print what each change cost; arguments go after ``--``."""
    install(session, "tests")
    session.run("python", "-m", "tests.faults", *session.posargs)


@nox.session
def starts(session: nox.Session) -> None:
    """Start fleets over and over and count refused first requests; arguments go after ``--``."""
    install(session, "tests")
    session.run("python", "-m", "tests.starts", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure lockgate beside its peers."""
    install(session, "bench")
    session.run("python", "-m", "benchmarks", *session.posargs)
