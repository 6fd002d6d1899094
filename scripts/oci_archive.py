#!/usr/bin/env python3
"""Writes a container image of a release as an OCI archive: a tar file of an OCI image layout.

usage: oci_archive.py ARCHIVE VERSION REVISION PROCESSOR=FOLDER...

PROCESSOR is x86_64 or aarch64, and FOLDER is what the release's tarball for it has. With several processors, the archive
has an image for each, and an index of them. All times are SOURCE_DATE_EPOCH: the same folders give the same bytes.
"""

import datetime
import gzip
import hashlib
import io
import json
import os
import pathlib
import sys
import tarfile

PLATFORMS = {
    "x86_64": {"architecture": "amd64", "os": "linux"},
    "aarch64": {"architecture": "arm64", "os": "linux", "variant": "v8"},
}
PROGRAM = "bin/ctxconf"
# What else of the folder is in the image; the CMake package and README.md are for people and compilers.
CONTENTS = ("LICENSE", "bin", "libexec", "licenses")
CONFIG = "application/vnd.oci.image.config.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
REFERENCE = "org.opencontainers.image.ref.name"
# containerd and podman take this name first. Kubernetes asks containerd for an image by the name with the registry.
FULL_NAME = "io.containerd.image.name"


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def path_of(descriptor):
    return "blobs/" + descriptor["digest"].replace(":", "/")


def add(tar, name, mode, data=None):
    """Adds a file that root owns. Without data it is a folder."""
    entry = tarfile.TarInfo(name)
    entry.mode, entry.mtime = mode, EPOCH
    if data is None:
        entry.type = tarfile.DIRTYPE
    else:
        entry.size = len(data)
    tar.addfile(entry, None if data is None else io.BytesIO(data))


def written(fill):
    """The bytes of a tar file."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        fill(tar)
    return out.getvalue()


def fill_root(tar, folder):
    """The root file system. The umask of who unpacked the folder does not matter."""
    paths = [path for path in sorted(folder.rglob("*")) if path.relative_to(folder).parts[0] in CONTENTS]
    for path in paths:
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            sys.exit(f"oci_archive.py: {path} is neither a file nor a folder")
        if path.is_dir():
            add(tar, name, 0o755)
        else:
            add(tar, name, 0o755 if path.stat().st_mode & 0o100 else 0o644, path.read_bytes())
    add(tar, "tmp", 0o1777)


class Archive:
    def __init__(self, version, revision):
        self.name = f"ctxconf:{version}"
        self.created = datetime.datetime.fromtimestamp(EPOCH, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.labels = {
            "org.opencontainers.image.created": self.created,
            "org.opencontainers.image.description": "conformance suite for OpenTelemetry context sharing",
            "org.opencontainers.image.licenses": "Apache-2.0",
            "org.opencontainers.image.revision": revision,
            "org.opencontainers.image.title": "ctxconf",
            "org.opencontainers.image.version": version,
        }
        self.files = {"oci-layout": json.dumps({"imageLayoutVersion": "1.0.0"}).encode()}

    def blob(self, media_type, content):
        """Adds bytes, or JSON; returns the descriptor."""
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        descriptor = {"mediaType": media_type, "digest": digest(data), "size": len(data)}
        self.files[path_of(descriptor)] = data
        return descriptor

    def image(self, processor, folder):
        if not (folder / PROGRAM).is_file():
            sys.exit(f"oci_archive.py: {folder} has no {PROGRAM}")
        layer = written(lambda tar: fill_root(tar, folder))
        config = self.blob(CONFIG, {
            "created": self.created,
            **PLATFORMS[processor],
            "config": {
                # As in docker/Dockerfile.
                "User": "65532:65532",
                "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"],
                "Entrypoint": ["/" + PROGRAM],
                "Cmd": ["doctor"],
                "WorkingDir": "/tmp",
                "Labels": self.labels,
            },
            "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
            "history": [{"created": self.created, "created_by": "scripts/oci_archive.py"}],
        })
        layers = [self.blob(LAYER, gzip.compress(layer, mtime=0))]
        manifest = self.blob(MANIFEST, {
            "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers, "annotations": self.labels})
        # For `docker load`: Docker 20.10 does not read index.json. This form has no platforms.
        self.docker = {"Config": path_of(config), "RepoTags": [self.name], "Layers": [path_of(one) for one in layers]}
        return {**manifest, "platform": PLATFORMS[processor]}

    def bytes_of(self, images):
        if len(images) > 1:
            images = [self.blob(INDEX, {
                "schemaVersion": 2, "mediaType": INDEX, "manifests": images, "annotations": self.labels})]
        else:
            self.files["manifest.json"] = json.dumps([self.docker]).encode()
        images[0]["annotations"] = {REFERENCE: self.name, FULL_NAME: "docker.io/library/" + self.name}
        self.files["index.json"] = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": images}).encode()
        return written(self.fill)

    def fill(self, tar):
        for folder in ("blobs", "blobs/sha256"):
            add(tar, folder, 0o755)
        for name, data in sorted(self.files.items()):
            add(tar, name, 0o644, data)


if len(sys.argv) < 5 or any(word.partition("=")[0] not in PLATFORMS for word in sys.argv[4:]):
    print(__doc__.split("\n\n")[1], file=sys.stderr)
    sys.exit(2)
if not os.environ.get("SOURCE_DATE_EPOCH", "").isdecimal():
    sys.exit("oci_archive.py: SOURCE_DATE_EPOCH is not a number")
EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
archive = Archive(*sys.argv[2:4])
parts = [word.partition("=") for word in sys.argv[4:]]
pathlib.Path(sys.argv[1]).write_bytes(archive.bytes_of([archive.image(name, pathlib.Path(path)) for name, _, path in parts]))
