"""The project's chores. ``nox`` alone runs what every change must pass: lint, types and tests."""

import os
import shutil
from glob import glob

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types", "tests"]
# An environment left from an earlier run may hold a package that is no longer declared: handy while
# working, but CI must notice.
nox.options.reuse_venv = "no" if os.environ.get("CI") else "yes"

PYPROJECT = nox.project.load_toml("pyproject.toml")

# Each file stays with one worker, which starts the servers that its files talk to. Files are begun
# in the order of their names: else those of few tests come last, and they are the slowest.
# Two workers more than cores: tests wait for servers and processes a quarter of the time or more.
WORKERS = min(4, (os.cpu_count() or 1) + 2)
SIDE_BY_SIDE = [f"-n{WORKERS}", "--dist=loadfile", "--no-loadscope-reorder"]
# Tests start some hundred processes: lockgate and the tests are compiled once, not in each of them.
COMPILED = {"PYTHONDONTWRITEBYTECODE": ""}


def install(session: nox.Session, group: str, *options: str) -> None:
    """Install lockgate with every extra, and one dependency group.

    The group is read here and not by pip, whose ``--group`` is younger than Python 3.11's pip.
    """
    groups = nox.project.dependency_groups(PYPROJECT, group)
    session.install(*options, "-e", ".[all]", *groups)


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
def matrix(session: nox.Session) -> None:
    """Run the tests on every combination of store and I/O mode; arguments go to pytest."""
    install(session, "tests")
    session.run("pytest", "--matrix", *(session.posargs or SIDE_BY_SIDE), env=COMPILED)


# Where a release of a dependency is felt first: each file talks to it, and not to lockgate alone.
AT_THE_EDGE = [
    *("tests/stores/sql/test_contract.py", "tests/stores/redis/test_contract.py"),
    *("tests/stores/sql/test_recalls.py", "tests/stores/redis/test_recalls.py"),
    *("tests/stores/sql/test_engines.py", "tests/stores/sql/test_executor.py"),
    *("tests/stores/sql/test_migrations.py", "tests/stores/redis/transport"),
    *("tests/stores/redis/test_server_settings.py", "tests/stores/redis/test_forks.py"),
    *("tests/test_starlette.py", "tests/test_fastapi.py", "tests/test_flask.py"),
    *("tests/test_metrics.py", "tests/web/operations", "tests/web/test_matched_routes.py"),
    *("tests/sessions", "tests/services/imports/test_imported_keys.py", "tests/cli/test_db.py"),
    *("tests/services/accounts/test_email_addresses.py", "tests/cli/test_keys.py"),
    *("tests/stores/cached", "tests/stores/test_change_logs.py", "tests/test_private_names.py"),
]
# What an old release and a new one of two dependencies tell each other is not about lockgate.
OF_OTHERS = ["-Wdefault::DeprecationWarning", "-Wdefault::PendingDeprecationWarning"]


@nox.session
def lowest(session: nox.Session) -> None:
    """Run the tests at the edge with the lowest versions that pyproject.toml allows."""
    session.install("uv")
    pins = os.path.join(session.create_tmp(), "lowest.txt")
    lowest_of_all = ["--resolution=lowest-direct", "--all-extras", "--group=tests", "--no-header"]
    session.run("uv", "pip", "compile", "-q", *lowest_of_all, "-o", pins, "pyproject.toml")
    session.run("uv", "pip", "install", "-q", "-r", pins, "-e", ".")  # Pip takes minutes.
    run_at_the_edge(session)


@nox.session
def newest(session: nox.Session) -> None:
    """Run the tests at the edge with the newest versions of everything."""
    install(session, "tests", "--upgrade", "--upgrade-strategy=eager")
    run_at_the_edge(session)


@nox.session
def interpreters(session: nox.Session) -> None:
    """Check the source for Python 3.11 to 3.14, and run the tests of ``core`` on CPython 3.14.

    That one comes with the npm package of Pyodide, where there are no sockets, threads or
    processes. Pyright and npm are the slow parts.
    """
    install(session, "types")
    for version in ("3.12", "3.13", "3.14"):
        session.run("pyright", "--pythonversion", version, "src")
    folder = os.path.abspath(session.create_tmp())
    pure = ["--platform=any", "--implementation=py", "--abi=none", "--only-binary=:all:"]
    into = [f"--target={folder}/site", "--python-version=3.14", "--upgrade", *pure]
    needed = ["anyio", "hypothesis", "itsdangerous", "pytest", "starlette"]
    more = ["email-validator", "typing-extensions", "tzdata"]
    session.run("pip", "install", "-q", *into, *needed, *more)
    session.run("pip", "install", "-q", *into, "--no-deps", "sqlalchemy")
    session.run("npm", "install", "--silent", "--prefix", folder, "pyodide@314.0.7", external=True)
    found = f"{folder}/node_modules/pyodide"
    session.run("node", "release/pyodide/run.mjs", found, f"{folder}/site", os.getcwd())


def run_at_the_edge(session: nox.Session) -> None:
    """Run what a release of a dependency may break; arguments go to pytest instead."""
    session.run("pip", "list")
    tests = session.posargs or [*SIDE_BY_SIDE, *AT_THE_EDGE]
    session.run("pytest", *OF_OTHERS, *tests, env=COMPILED)


@nox.session
def coverage(session: nox.Session) -> None:
    """Run the matrix and fail when it covers too little: tracing makes it half as long again."""
    install(session, "tests")
    session.run("pytest", "--cov", "--matrix", *SIDE_BY_SIDE, env=COMPILED)


@nox.session
def campaigns(session: nox.Session) -> None:
    """Run the long searches that the tests leave out, and take the stores for longer walks."""
    install(session, "tests")
    session.run("pytest", "-m", "campaign", *session.posargs)
    if not session.posargs:
        walks = ["-m", "", "--hypothesis-profile=nightly", "-k", "test_lockstep", "tests/stores"]
        session.run("pytest", *walks, *SIDE_BY_SIDE)


# What threads share: caches, breakers, batches, counts and background tasks.
SHARED_BY_THREADS = [
    *("tests/core/test_bounded_dict.py", "tests/stores/memory", "tests/stores/resilience"),
    *("tests/stores/runtime/test_batching.py", "tests/stores/runtime/test_per_loop.py"),
    *("tests/test_verified_key_cache.py", "tests/services/usage/test_recorder.py"),
    "tests/services/limits/test_anonymous_limits.py",
    "tests/services/reservations/test_shielded.py",
    # They suspend servers, which all threads share.
    *(f"--ignore=tests/stores/resilience/test_{name}.py" for name in ("store", "outages")),
    # Hypothesis parses functions in it, which CPython 3.11 fails to do in two threads at once.
    "-knot test_lockstep",
]


@nox.session
def parallel(session: nox.Session) -> None:
    """Run each test of what threads share in four threads at once; arguments go to pytest."""
    install(session, "tests", "pytest-run-parallel>=0.10")
    tests = session.posargs or SHARED_BY_THREADS
    session.run("pytest", "-prun-parallel", "--parallel-threads=4", *tests, env=COMPILED)


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
def streams(session: nox.Session) -> None:
    """Kill processes that hold units for 10,000 streams; arguments go after ``--``."""
    install(session, "tests")
    session.run("python", "-m", "tests.streams", *session.posargs)


@nox.session
def starts(session: nox.Session) -> None:
    """Start fleets over and over and count refused first requests; arguments go after ``--``."""
    install(session, "tests")
    session.run("python", "-m", "tests.starts", *session.posargs, env=COMPILED)


@nox.session
def model(session: nox.Session) -> None:
    """Check the protocol of quota leases and its mutants with Spin; needs gcc, and apt's lists."""
    session.run("python", "-m", "tests.model", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation site in ``build/site``, with warnings as errors."""
    install(session, "docs")
    # Without leftovers: a page that is gone must not stay on the site.
    shutil.rmtree("build/site", ignore_errors=True)
    session.run("sphinx-build", "-qW", "--keep-going", "-c", "docs", ".", "build/site")


@nox.session
def build(session: nox.Session) -> None:
    """Build the sdist and the wheel in ``dist``, twice, and check their bytes and contents."""
    groups = nox.project.dependency_groups(PYPROJECT, "release")
    session.install(*groups, *PYPROJECT["build-system"]["requires"])
    session.run("python", "-m", "release.distributions", "dist")
    session.run("twine", "check", "--strict", *glob("dist/*"))


@nox.session
def wheel(session: nox.Session) -> None:
    """Install the wheel of ``dist`` with each extra alone, and import what the extra offers."""
    session.install("uv")
    (found,) = glob(os.path.abspath("dist/*.whl")) or session.error("run `nox -s build` first")
    script = os.path.abspath("release/imports.py")
    for extra in session.posargs or ["", *PYPROJECT["project"]["optional-dependencies"]]:
        clean = os.path.join(session.create_tmp(), f"with-{extra or 'nothing'}")
        python = os.path.join(clean, "bin", "python")
        named = f"lockgate[{extra}]" if extra else "lockgate"
        session.run("uv", "venv", "-q", "--clear", "--python", f"{session.bin}/python", clean)
        session.run("uv", "pip", "install", "-q", "--python", python, f"{named} @ {found}")
        session.run(python, "-I", script, extra, external=True)


@nox.session
def interface(session: nox.Session) -> None:
    """Compare the public interface with the last tag's; another commit is named after ``--``."""
    session.install(*nox.project.dependency_groups(PYPROJECT, "release"))
    session.run("python", "-m", "release.interface", *session.posargs)


@nox.session
def changelog(session: nox.Session) -> None:
    """Print the next section of the changelog; ``-- 0.2.0`` writes it and removes the fragments."""
    session.install(*nox.project.dependency_groups(PYPROJECT, "release"))
    of = ["--version", *session.posargs] if session.posargs else ["--draft", "--version=next"]
    session.run("towncrier", "build", "--yes", *of)


@nox.session
def forge(session: nox.Session) -> None:
    """Check the workflows, the forms of issues and the hooks of commits, without the network."""
    session.install(*nox.project.dependency_groups(PYPROJECT, "release"))
    session.run("zizmor", "--offline", "--quiet", "--persona=pedantic", ".github")
    check = "check-jsonschema", "--builtin-schema"
    session.run(*check, "vendor.github-workflows", *glob(".github/workflows/*.yml"))
    session.run(*check, "vendor.dependabot", ".github/dependabot.yml")
    session.run(*check, "vendor.github-issue-config", ".github/ISSUE_TEMPLATE/config.yml")
    forms = {*glob(".github/ISSUE_TEMPLATE/*.yml")} - {".github/ISSUE_TEMPLATE/config.yml"}
    session.run(*check, "vendor.github-issue-forms", *sorted(forms))
    session.run("pre-commit", "validate-config")


@nox.session
def bench(session: nox.Session) -> None:
    """Measure lockgate beside its peers."""
    install(session, "bench")
    session.run("python", "-m", "benchmarks", *session.posargs)
