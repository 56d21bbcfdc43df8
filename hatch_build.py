"""Write the software bill of materials that each wheel carries (PEP 770, CycloneDX 1.7).

A wheel of lockgate has no code of others in it, so the bill lists the packages that an installer
adds: each is external, with the versions that lockgate accepts. It has no time and no serial
number, which keeps two builds of the same sources equal.
"""

import json
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.requirements import Requirement

NAME = "lockgate.cdx.json"


class BillOfMaterials(BuildHookInterface):
    """Add the bill to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the bill into the output folder, and name it to the builder."""
        file = Path(self.directory) / NAME
        file.parent.mkdir(parents=True, exist_ok=True)
        content = bill(self.metadata.core, self.metadata.version)
        file.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
        build_data["sbom_files"].append(str(file))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the bill from the output folder: the wheel has it."""
        (Path(self.directory) / NAME).unlink()


def bill(core: Any, version: str) -> dict[str, Any]:
    """Return the bill of a version, from the project's metadata, as JSON's types."""
    this = f"pkg:pypi/{core.name}@{version}"
    extras = core.optional_dependencies.values()
    components: dict[str, dict[str, Any]] = {}
    for scope, lists in (("required", [core.dependencies]), ("optional", extras)):
        for requirement in (Requirement(text) for texts in lists for text in texts):
            package = f"pkg:pypi/{requirement.name.lower()}"
            if requirement.name != core.name:
                components.setdefault(package, external(requirement, package, scope))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.7.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.7",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": this,
                "name": core.name,
                "version": version,
                "purl": this,
                "description": core.description,
                "licenses": [{"license": {"id": core.license_expression}}],
                "externalReferences": [{"type": "vcs", "url": core.urls["Source"]}],
            },
        },
        "components": list(components.values()),
        "dependencies": [
            {"ref": this, "dependsOn": sorted(components)},
            *({"ref": package} for package in sorted(components)),
        ],
    }


def external(requirement: Requirement, package: str, scope: str) -> dict[str, Any]:
    """Return the component of a package that an installer adds."""
    accepted = "|".join(sorted(str(specifier) for specifier in requirement.specifier))
    return {
        "type": "library",
        "bom-ref": package,
        "name": requirement.name,
        "purl": package,
        "scope": scope,
        "isExternal": True,
        "versionRange": f"vers:pypi/{accepted}",
    }
