#!/usr/bin/env python3
"""Prints the Debian packages whose code is in ctxconf-static, as SPDX 2.3, and copies their licences.

usage: sbom.py BUILD_DIR VERSION DEBIAN_ARCH LICENCES_DIR
"""

import datetime
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

BUILD, VERSION, ARCH, LICENCES = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4])
# Their code is in headers, which no list of the linker names.
HEADERS = ("libboost1.81-dev", "libcli11-dev", "libfmt-dev", "libvalijson-dev", "nlohmann-json3-dev")


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def linked_files():
    """The archives and start files that the linker took, by its own list: "(/usr/lib/x.a)y.o" of GNU ld, "/lib/x.a(y.o)"
    of lld."""
    command = output("ninja", "-C", BUILD, "-t", "commands", "-s", "bin/ctxconf-static").splitlines()[-1]
    command = command.replace("-o bin/ctxconf-static", "-o /dev/null -Wl,--trace")
    said = subprocess.run(command, shell=True, cwd=BUILD, capture_output=True, text=True, check=True)
    return sorted({os.path.realpath(path) for path in re.findall(r"^\(?((?:/usr)?/lib/[^\s()]+\.[ao])", said.stdout, re.M)})


def package_of(path):
    for name in (path, path.removeprefix("/usr")):
        done = subprocess.run(["dpkg", "--search", name], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.split(":")[0]
    sys.exit(f"sbom.py: no package has {path}")


def quoted(word):
    return urllib.parse.quote(word, safe=".-_~:")


def described(package):
    # One line for each architecture of which it is installed, in one version.
    version, source, homepage, arch = output(
        "dpkg-query", "--show", "--showformat=${Version}\t${source:Package}\t${Homepage}\t${Architecture}\n",
        package).splitlines()[0].split("\t")
    if arch != "all":
        arch = ARCH
    return {
        "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", package),
        "name": package,
        "versionInfo": version,
        "sourceInfo": f"built from the Debian source package {source}",
        "homepage": homepage or "NOASSERTION",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "licenseComments": f"see licenses/{package}",
        "copyrightText": "NOASSERTION",
        "externalRefs": [{
            "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
            "referenceLocator": f"pkg:deb/debian/{quoted(package)}@{quoted(version)}?arch={arch}&distro=debian-12"}],
    }


packages = sorted({package_of(path) for path in linked_files()} | set(HEADERS))
if not any(one.startswith("libc6-dev") for one in packages):
    sys.exit("sbom.py: the linker's list of files is not understood")
LICENCES.mkdir(parents=True, exist_ok=True)
for one in packages:
    shutil.copyfile(f"/usr/share/doc/{one}/copyright", LICENCES / one)
made = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
parts = [described(one) for one in packages]
digest = hashlib.sha256(json.dumps([VERSION, ARCH, parts]).encode()).hexdigest()
print(json.dumps({
    "spdxVersion": "SPDX-2.3",
    "dataLicense": "CC0-1.0",
    "SPDXID": "SPDXRef-DOCUMENT",
    "name": f"ctxconf-{VERSION}",
    "documentNamespace": f"https://spdx.org/spdxdocs/ctxconf-{VERSION}-{digest}",
    "creationInfo": {"created": made.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: scripts/sbom.py"]},
    "packages": [{
        "SPDXID": "SPDXRef-ctxconf", "name": "ctxconf", "versionInfo": VERSION, "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False, "licenseConcluded": "NOASSERTION", "licenseDeclared": "Apache-2.0",
        "copyrightText": "NOASSERTION"}, *parts],
    "relationships": [
        {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-ctxconf"},
        *({"spdxElementId": "SPDXRef-ctxconf", "relationshipType": "CONTAINS" if p["name"] in HEADERS else "STATIC_LINK",
           "relatedSpdxElement": p["SPDXID"]} for p in parts)],
}, indent=2))
