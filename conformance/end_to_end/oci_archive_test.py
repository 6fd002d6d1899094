#!/usr/bin/env python3
"""Checks the container images that scripts/oci_archive.py writes: by what the OCI image specification demands, and with
skopeo if it is there.

usage: oci_archive_test.py PROGRAM                  a static program that exits with 2: ctxconf-trampoline
       oci_archive_test.py --release ARCHIVE...     checks the archives of a release instead
"""

import gzip
import hashlib
import io
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = SOURCE / "scripts/oci_archive.py"
PROGRAM, *ARCHIVES = sys.argv[1:]
del sys.argv[1:]
DEADLINE_S = 120
EPOCH = 1700000000
CREATED = "2023-11-14T22:13:20Z"
ARCHITECTURES = {"x86_64": {"architecture": "amd64", "os": "linux"},
                 "aarch64": {"architecture": "arm64", "os": "linux", "variant": "v8"}}
TYPE = "application/vnd.oci.image."
LABELS = {
    "org.opencontainers.image.created": CREATED,
    "org.opencontainers.image.description": "conformance suite for OpenTelemetry context sharing",
    "org.opencontainers.image.licenses": "Apache-2.0",
    "org.opencontainers.image.revision": "0123abc",
    "org.opencontainers.image.title": "ctxconf",
    "org.opencontainers.image.version": "1.2.3",
}


def call(*words, **options):
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S,
                          check=False, **options)


def write_archive(out, *folders, epoch=EPOCH):
    return call(sys.executable, SCRIPT, out, "1.2.3", "0123abc", *folders,
                env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)})


def make_tree(folder, umask=0o022):
    before = os.umask(umask)
    try:
        for name in ("bin", "lib/cmake/ctxconf", "libexec/ctxconf", "licenses"):
            (folder / name).mkdir(parents=True)
        for name in ("LICENSE", "README.md", "lib/cmake/ctxconf/ctxconfConfig.cmake", "licenses/libc6-dev"):
            (folder / name).write_text(name)
        for name in ("bin/ctxconf", "libexec/ctxconf/ctxconf-trampoline"):
            shutil.copyfile(PROGRAM, folder / name)
            (folder / name).chmod(0o777 & ~umask)
    finally:
        os.umask(before)
    return folder


class Image:
    """Of one platform."""

    def __init__(self, manifest, config, layer):
        self.manifest, self.config = manifest, config
        with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
            self.entries = tar.getmembers()
            self.files = {entry.name: tar.extractfile(entry).read() for entry in self.entries if entry.isfile()}

    def platform(self):
        return {name: self.config[name] for name in ("architecture", "os", "variant") if name in self.config}


class Checks(unittest.TestCase):
    maxDiff = None

    def folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return pathlib.Path(folder.name)

    def blob(self, descriptor, media_type):
        self.assertEqual(descriptor["mediaType"], TYPE + media_type)
        self.assertLessEqual(set(descriptor), {"mediaType", "digest", "size", "platform", "annotations"})
        name = descriptor["digest"].replace(":", "/")
        self.unread.discard("blobs/" + name)
        data = self.contents["blobs/" + name]
        self.assertEqual(len(data), descriptor["size"])
        self.assertEqual("sha256/" + hashlib.sha256(data).hexdigest(), name)
        return data

    def document(self, descriptor, media_type):
        found = json.loads(self.blob(descriptor, media_type))
        self.assertEqual((found["schemaVersion"], found["mediaType"]), (2, TYPE + media_type))
        return found

    def image(self, descriptor):
        manifest = self.document(descriptor, "manifest.v1+json")
        self.assertEqual(set(manifest), {"schemaVersion", "mediaType", "config", "layers", "annotations"})
        config = json.loads(self.blob(manifest["config"], "config.v1+json"))
        packed, = (self.blob(layer, "layer.v1.tar+gzip") for layer in manifest["layers"])
        # No name and no time.
        self.assertEqual(packed[:8], b"\x1f\x8b\x08\0\0\0\0\0")
        layer = gzip.decompress(packed)
        self.assertEqual(config["rootfs"], {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]})
        self.assertEqual(len([one for one in config["history"] if not one.get("empty_layer")]), 1)
        image = Image(manifest, config, layer)
        self.assertEqual(image.platform(), descriptor["platform"])
        self.assertIn(image.platform(), ARCHITECTURES.values())
        self.assertEqual(manifest["annotations"], config["config"]["Labels"])
        return image

    def images(self, path):
        """All images of an archive, which has no other file."""
        with tarfile.open(path) as tar:
            self.assertEqual([one.name for one in tar.getmembers() if one.isdir()], ["blobs", "blobs/sha256"])
            self.contents = {one.name: tar.extractfile(one).read() for one in tar.getmembers() if not one.isdir()}
        self.unread = set(self.contents) - {"oci-layout", "index.json", "manifest.json"}
        self.assertEqual(json.loads(self.contents["oci-layout"]), {"imageLayoutVersion": "1.0.0"})
        index = json.loads(self.contents["index.json"])
        self.assertEqual((index["schemaVersion"], index["mediaType"]), (2, TYPE + "index.v1+json"))
        top, = index["manifests"]
        name = top["annotations"]["org.opencontainers.image.ref.name"]
        self.assertRegex(name, r"^ctxconf:[\w.-]+$")
        self.assertEqual(top["annotations"], {"org.opencontainers.image.ref.name": name,
                                              "io.containerd.image.name": "docker.io/library/" + name})
        if top["mediaType"] == TYPE + "index.v1+json":
            images = [self.image(one) for one in self.document(top, "index.v1+json")["manifests"]]
            self.assertNotIn("manifest.json", self.contents)
        else:
            images = [self.image(top)]
            parts = images[0].manifest
            config, *layers = ("blobs/" + one["digest"].replace(":", "/") for one in (parts["config"], *parts["layers"]))
            self.assertEqual(json.loads(self.contents["manifest.json"]), [{
                "Config": config, "RepoTags": [name], "Layers": layers}])
        self.assertEqual(self.unread, set())
        return images


class OciArchiveTest(Checks):
    def setUp(self):
        self.scratch = self.folder()
        self.tree = make_tree(self.scratch / "tree")
        self.archive = self.scratch / "image.oci.tar"

    def write(self, *folders, **options):
        done = write_archive(self.archive, *folders or [f"x86_64={self.tree}"], **options)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        return self.archive.read_bytes()

    def test_the_image(self):
        self.write()
        image, = self.images(self.archive)
        self.assertEqual(image.config, {
            "created": CREATED, "architecture": "amd64", "os": "linux",
            "config": {"User": "65532:65532", "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "Entrypoint": ["/bin/ctxconf"],
                       "Cmd": ["doctor"], "WorkingDir": "/tmp", "Labels": LABELS},
            "rootfs": image.config["rootfs"],
            "history": [{"created": CREATED, "created_by": "scripts/oci_archive.py"}]})
        self.assertEqual({one.name: one.mode for one in image.entries}, {
            "LICENSE": 0o644, "bin": 0o755, "bin/ctxconf": 0o755, "libexec": 0o755, "libexec/ctxconf": 0o755,
            "libexec/ctxconf/ctxconf-trampoline": 0o755, "licenses": 0o755, "licenses/libc6-dev": 0o644, "tmp": 0o1777})
        names = [one.name for one in image.entries]
        self.assertEqual(names, sorted(names))
        for one in image.entries:
            self.assertEqual((one.uid, one.gid, one.uname, one.gname, one.mtime), (0, 0, "", "", EPOCH), one.name)
            self.assertEqual(one.isdir(), one.name not in image.files)
        for name, data in image.files.items():
            self.assertEqual(data, (self.tree / name).read_bytes(), name)

    def test_an_index_of_two(self):
        (self.tree / "licenses/other").write_text("other")
        self.write(f"x86_64={self.tree}", f"aarch64={make_tree(self.scratch / 'arm')}")
        first, second = self.images(self.archive)
        self.assertEqual([first.platform(), second.platform()], list(ARCHITECTURES.values()))
        self.assertIn("licenses/other", first.files)
        self.assertNotIn("licenses/other", second.files)

    def test_the_same_bytes_each_time(self):
        first = self.write()
        self.assertEqual(self.write(), first)
        elsewhere = self.folder() / "another name"
        elsewhere.mkdir()
        make_tree(elsewhere / "tree", umask=0o077)
        for path in elsewhere.rglob("*"):
            os.utime(path, (1, 1))
        self.assertEqual(self.write(f"x86_64={elsewhere / 'tree'}"), first)
        self.assertNotEqual(self.write(epoch=EPOCH + 1), first)

    def test_what_cannot_be_packed(self):
        absent = self.scratch / "absent"
        done = write_archive(self.archive, f"x86_64={absent}")
        self.assertEqual((done.returncode, done.stderr), (1, f"oci_archive.py: {absent} has no bin/ctxconf\n"))
        done = write_archive(self.archive, f"x86_64={self.tree}", epoch="soon")
        self.assertEqual((done.returncode, done.stderr), (1, "oci_archive.py: SOURCE_DATE_EPOCH is not a number\n"))
        link = self.tree / "libexec/link"
        link.symlink_to("/etc/passwd")
        done = write_archive(self.archive, f"x86_64={self.tree}")
        self.assertEqual((done.returncode, done.stderr), (1, f"oci_archive.py: {link} is neither a file nor a folder\n"))
        for words in ([], [f"vax={self.tree}"]):
            done = write_archive(self.archive, *words)
            self.assertEqual((done.returncode, done.stderr.split(" ")[0]), (2, "usage:"))
        self.assertFalse(self.archive.exists())

    @unittest.skipUnless(os.geteuid() == 0, "chroot needs root")
    def test_the_program_runs_in_the_image(self):
        self.write()
        root = self.folder()
        image, = self.images(self.archive)
        for name, data in image.files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
        (root / "bin/ctxconf").chmod(0o755)
        done = call("chroot", root, *image.config["config"]["Entrypoint"])
        self.assertEqual(done.returncode, 2, done.stderr)

    @unittest.skipUnless(shutil.which("skopeo"), "skopeo is not installed")
    def test_skopeo_reads_it(self):
        self.write()
        image, = self.images(self.archive)
        done = call("skopeo", "inspect", f"oci-archive:{self.archive}")
        self.assertEqual(done.returncode, 0, done.stderr)
        said = json.loads(done.stdout)
        self.assertEqual((said["Architecture"], said["Os"], said["Labels"]), ("amd64", "linux", LABELS))
        self.assertEqual(said["Layers"], [one["digest"] for one in image.manifest["layers"]])

    @unittest.skipUnless(shutil.which("skopeo"), "skopeo is not installed")
    def test_skopeo_copies_it_and_changes_nothing(self):
        self.write(f"x86_64={self.tree}", f"aarch64={make_tree(self.scratch / 'arm')}")
        copy = self.scratch / "copy.tar"
        done = call("skopeo", "copy", "--all", f"oci-archive:{self.archive}", f"oci-archive:{copy}:ctxconf:1.2.3",
                    env={**os.environ, "TMPDIR": str(self.scratch)})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(*({line for line in call("tar", "--list", "--file", path).stdout.splitlines()
                            if line.startswith("blobs/sha256/")} for path in (self.archive, copy)))

    @unittest.skipUnless(shutil.which("umoci") and os.geteuid() == 0, "needs umoci and root")
    def test_umoci_unpacks_it(self):
        self.write()
        layout = self.folder()
        with tarfile.open(self.archive) as tar:
            tar.extractall(layout)
        bundle = self.scratch / "bundle"
        done = call("umoci", "unpack", "--image", f"{layout}:ctxconf:1.2.3", bundle)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((bundle / "rootfs/tmp").stat().st_mode & 0o7777, 0o1777)
        self.assertEqual(call("chroot", bundle / "rootfs", "/bin/ctxconf").returncode, 2)


class ReleaseTest(Checks):
    def test_the_archives(self):
        self.assertNotEqual(ARCHIVES, [])
        for path in ARCHIVES:
            with self.subTest(path):
                images = self.images(path)
                # The name ends with the processor if there is one.
                named = [one for name, one in ARCHITECTURES.items() if path.endswith(f"-{name}.oci.tar")]
                self.assertEqual([one.platform() for one in images], named or list(ARCHITECTURES.values()))
                for image in images:
                    self.assertIn("bin/ctxconf", image.files)
                    self.assertIn("libexec/ctxconf/ctxconf-trampoline", image.files)
                    # e_machine of the ELF header
                    machine = int.from_bytes(image.files["bin/ctxconf"][18:20], "little")
                    self.assertEqual(machine, {"amd64": 62, "arm64": 183}[image.platform()["architecture"]])
                    if image.platform() == ARCHITECTURES.get(platform.machine()):
                        self.run_it(image)

    def run_it(self, image):
        program = self.folder() / "ctxconf"
        program.write_bytes(image.files["bin/ctxconf"])
        program.chmod(0o755)
        done = call(program, "--version")
        version = image.config["config"]["Labels"]["org.opencontainers.image.version"]
        self.assertEqual((done.returncode, done.stdout.split()[:2]), (0, ["ctxconf", version.partition("-")[0]]))


if __name__ == "__main__":
    unittest.main(defaultTest="ReleaseTest" if PROGRAM == "--release" else "OciArchiveTest")
