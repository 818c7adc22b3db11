#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The list of what is in a release, as SPDX 2.3 in JSON, on stdout: sbom.py VERSION FOLDER

Files of the folder are listed with their checksums. Of each wheel, the libraries inside are those of
reveille/licences, with the licence file of each; their versions are those of the Debian packages that
scripts/wheel unpacked, where it ran here.
"""
import hashlib
import json
import pathlib
import re
import sys
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parents[1]
LICENCES = {"jansson": "MIT", "zstd": "BSD-3-Clause", "lz4": "BSD-2-Clause", "deflate": "MIT", "uring": "MIT",
            "tomlplusplus": "MIT", "uthash": "BSD-1-Clause", "uplot": "MIT"}  # fmt: skip
# SPDX wants a time; the archive must not change with it.
CREATED = "1970-01-01T00:00:00Z"


def identifier(text):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.]+", "-", text)


def debian_versions(wheel):
    """Library: version, of the packages that the wheel was built with."""
    folder = SOURCE / "build" / ("wheel-aarch64" if "aarch64" in wheel else "wheel")
    found = {}
    for package in folder.glob("debian.apt/cache/archives/*.deb"):
        name, version, _ = package.name.split("_")
        found[re.sub(r"^lib|-dev$", "", name)] = version.replace("%3a", ":").replace("%2b", "+")
    return found


def libraries(wheel):
    """What a wheel has inside besides this project."""
    with zipfile.ZipFile(wheel) as opened:
        names = [re.fullmatch(r".*/licences/(?:lib)?([\w.-]+)", name) for name in opened.namelist()]
    versions = debian_versions(wheel.name)
    for name in sorted({match[1].removesuffix(".txt") for match in names if match}):
        yield name, versions.get(name, "NOASSERTION"), LICENCES.get(name.lower(), "NOASSERTION")


def package(name, version, licence, **more):
    return {"SPDXID": identifier(f"{name}-{version}"), "name": name, "versionInfo": version, "licenseConcluded": licence,
            "licenseDeclared": licence, "copyrightText": "NOASSERTION", "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False, **more}  # fmt: skip


def main():
    version, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    own = package("reveille", version, "MIT")
    packages, relations = {own["SPDXID"]: own}, [("SPDXRef-DOCUMENT", "DESCRIBES", own["SPDXID"])]
    for file in sorted([*folder.glob("*.tar.gz"), *folder.glob("*.whl")]):
        checksum = {"algorithm": "SHA256", "checksumValue": hashlib.sha256(file.read_bytes()).hexdigest()}
        made = package(file.name, version, "MIT", packageFileName=file.name, checksums=[checksum])
        packages[made["SPDXID"]] = made
        relations.append((own["SPDXID"], "CONTAINS", made["SPDXID"]))
        for inside in libraries(file) if file.suffix == ".whl" else ():
            library = package(*inside)
            packages[library["SPDXID"]] = library
            relations.append((made["SPDXID"], "CONTAINS", library["SPDXID"]))
    names = ("spdxElementId", "relationshipType", "relatedSpdxElement")
    json.dump({"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"reveille-{version}",
               "documentNamespace": f"https://spdx.org/spdxdocs/reveille-{version}",
               "creationInfo": {"created": CREATED, "creators": ["Tool: scripts/sbom.py"]},
               "packages": list(packages.values()),
               "relationships": [dict(zip(names, each)) for each in relations]}, sys.stdout, indent=1)  # fmt: skip
    print()


main()
