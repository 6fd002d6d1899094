#!/usr/bin/env python3
"""Checks that the contents of the runner image are complete, and that there is nothing else.

usage: runner_test.py SOURCE_DIR BIN_DIR
"""

import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

SOURCE, BIN = (pathlib.Path(p).resolve() for p in sys.argv[1:3])
del sys.argv[1:3]


@unittest.skipUnless(shutil.which("dpkg"), "the image is made of Debian packages")
class RunnerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.holder.cleanup)
        cls.root = pathlib.Path(cls.holder.name, "runner")
        subprocess.run([SOURCE / "docker/collect-runner", BIN, cls.root, cls.root.parent / "check"],
                       cwd=SOURCE, check=True, timeout=60)
        cls.linker, = cls.root.glob("lib*/ld-linux*")

    def in_root(self, *args):
        """Its own linker and libraries, without chroot, which needs root."""
        paths = [self.root / "usr/lib/ctxconf", *self.root.glob("lib/*-linux-gnu")]
        done = subprocess.run([self.linker, "--inhibit-cache", "--library-path",
                               ":".join(map(str, paths)), *args], capture_output=True, text=True,
                              env={}, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_each_library_comes_from_the_image(self):
        for program in (self.root / "usr/bin/ctxconf", self.root.parent / "check/usr/bin/writer_ref"):
            found = re.findall(r"=> (/\S+)", self.in_root("--list", program))
            self.assertGreater(len(found), 4)
            for library in found:
                self.assertTrue(library.startswith(str(self.root)), library)

    def test_it_runs(self):
        self.assertRegex(self.in_root(self.root / "usr/bin/ctxconf", "--version"), r"^ctxconf \d")

    def test_the_trampoline_is_where_ctxconf_looks(self):
        path = self.root / "usr/bin/../libexec/ctxconf/ctxconf-trampoline"
        self.assertTrue(os.access(path, os.X_OK))

    def test_nothing_else_is_in_it(self):
        files = {str(p.relative_to(self.root)) for p in self.root.rglob("*")
                 if not p.is_dir() and "share/doc" not in str(p)}
        rest = {f for f in files if not re.search(r"\.so(\.\d+)*$", f)}
        self.assertEqual(rest, {"usr/bin/ctxconf", "usr/libexec/ctxconf/ctxconf-trampoline",
                                "etc/passwd", "etc/group"})
        self.assertEqual(stat.S_IMODE((self.root / "tmp").stat().st_mode), 0o1777)
        for link in (p for p in self.root.rglob("*") if p.is_symlink()):
            self.assertFalse(os.readlink(link).startswith("/"), link)
            self.assertTrue(link.exists(), link)

    def test_every_library_comes_with_its_licence(self):
        packages = [p for p in (self.root / "usr/share/doc").iterdir() if p.name != "ctxconf"]
        self.assertGreater(len(packages), 4)
        for package in packages:
            self.assertTrue((package / "copyright").is_file(), package)
        self.assertTrue((self.root / "usr/share/doc/ctxconf/LICENSE").is_file())

    def test_the_user_is_the_one_of_the_dockerfile(self):
        text = (SOURCE / "docker/Dockerfile").read_text()
        user = re.search(r"^USER (\d+:\d+)$", text, re.M).group(1)
        self.assertIn(f"ctxconf:x:{user}::", (self.root / "etc/passwd").read_text())


if __name__ == "__main__":
    unittest.main()
