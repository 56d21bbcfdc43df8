"""Build the sdist and the wheel, and check them: ``python -m release.distributions dist``.

Both are built in the work tree, and again from a copy of the tracked files in another folder, by
another umask and time zone: every byte has to be the same. Then their contents are compared with
the tracked files, so that neither a test nor a cache is in them, and no script or template is
missing. ``nox -s build`` runs it.
"""

import email
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path, PurePosixPath

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).parents[1]
BESIDE = ["CHANGELOG.md", "LICENSE", "README.md", "SECURITY.md", "hatch_build.py", "pyproject.toml"]
ADDED = {".gitignore", "PKG-INFO"}
"""What the build backend adds to an sdist."""
NEEDED = {
    "lockgate/py.typed",
    "lockgate/stores/redis/scripts/admit.lua",
    "lockgate/dashboard/templates/base.html",
    "lockgate/dashboard/static/dashboard.css",
    "pytest_lockgate.py",
}
"""Files that are tracked as long as this list is right."""


def git(*arguments: str) -> list[str]:
    """Return the lines that a git command prints."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def tracked(*paths: str) -> list[str]:
    """Return the tracked files below some paths that have not been deleted."""
    return [name for name in git("ls-files", *paths) if (ROOT / name).exists()]


def build(tree: Path, out: Path, *options: str, umask: int = 0o022, zone: str = "UTC") -> None:
    """Build a source tree by the build backend that is installed."""
    epoch = git("log", "-1", "--format=%ct")[0]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch, "TZ": zone}
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), *options]
    subprocess.run([*command, str(tree)], check=True, env=environment, umask=umask)


def build_twice(out: Path, scratch: Path) -> None:
    """Build into an empty folder; raise AssertionError if a second build has other bytes."""
    build(ROOT, out)
    copy = scratch / "copy"
    for name in tracked():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)  # With the time of the copy.
    build(copy, scratch / "again", umask=0o077, zone="Pacific/Auckland")
    # An installation from the repository builds the wheel without the sdist.
    build(copy, scratch / "direct", "--wheel")
    for folder in ("again", "direct"):
        for file in (scratch / folder).iterdir():
            same = file.read_bytes() == (out / file.name).read_bytes()
            assert same, f"{file.name} has other bytes in another folder, or at another time"


def check_wheel(file: Path) -> None:
    """Compare the contents of a wheel with the tracked files, and validate its bill."""
    version = file.name.split("-")[1]
    about = f"lockgate-{version}.dist-info"
    names = ["METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"]
    written = {f"{about}/{name}" for name in [*names, "sboms/lockgate.cdx.json"]}
    sources = {str(PurePosixPath(name).relative_to("src")) for name in tracked("src")}
    assert sources >= NEEDED
    with zipfile.ZipFile(file) as wheel:
        compare(file.name, set(wheel.namelist()), sources | written)
        bill = wheel.read(f"{about}/sboms/lockgate.cdx.json").decode()
        metadata = email.message_from_bytes(wheel.read(f"{about}/METADATA"))
    assert not (wrong := JsonStrictValidator(SchemaVersion.V1_7).validate_str(bill)), wrong
    assert json.loads(bill)["metadata"]["component"]["version"] == version == metadata["Version"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    urls = dict(line.split(", ") for line in metadata.get_all("Project-URL", []))
    assert urls == project["urls"]


def check_sdist(file: Path) -> None:
    """Compare the contents of an sdist with the tracked files."""
    folder = file.name.removesuffix(".tar.gz")
    with tarfile.open(file) as sdist:
        names = {member.name.removeprefix(f"{folder}/") for member in sdist if member.isfile()}
    compare(file.name, names, {*tracked("src"), *BESIDE, *ADDED})


def compare(what: str, found: set[str], expected: set[str]) -> None:
    """Raise AssertionError for a file too many and for a missing one."""
    assert not (more := sorted(found - expected)), f"{what} has {more}"
    assert not (missing := sorted(expected - found)), f"{what} lacks {missing}"


def main(out: Path) -> None:
    """Build into a folder, which is emptied first, and check the results."""
    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        build_twice(out, Path(scratch))
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    check_wheel(wheel)
    check_sdist(sdist)
    print(f"{wheel} and {sdist}: the same bytes twice, and exactly the tracked files")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
