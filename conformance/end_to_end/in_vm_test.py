#!/usr/bin/env python3
"""What scripts/in-vm prepares for a virtual machine; none is started.

usage: in_vm_test.py SOURCE_DIR [unittest arguments]
"""

import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(sys.argv.pop(1)) / "scripts/in-vm"


def load():
    loader = importlib.machinery.SourceFileLoader("in_vm", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("in_vm", loader))
    loader.exec_module(module)
    return module


in_vm = load()


def files_of(archive):
    """name -> (mode, contents) of a cpio archive of format newc."""
    out = {}
    at = 0
    while True:
        assert archive[at:at + 6] == b"070701"
        mode, size, name_size = (int(archive[at + 6 + 8 * i:at + 14 + 8 * i], 16) for i in (1, 6, 11))
        name = archive[at + 110:at + 110 + name_size - 1].decode()
        at += (110 + name_size + 3) // 4 * 4
        if name == "TRAILER!!!":
            return out
        out[name] = (mode, archive[at:at + size])
        at += (size + 3) // 4 * 4


class InVm(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_modules_are_loaded_after_what_they_need(self):
        (self.folder / "modules.dep").write_text(
            "kernel/fs/9p/9p.ko.xz: kernel/net/9p/9pnet.ko.xz kernel/fs/netfs/netfs.ko.xz\n"
            "kernel/net/9p/9pnet_virtio.ko.xz: kernel/net/9p/9pnet.ko.xz\n"
            "kernel/net/9p/9pnet.ko.xz:\n"
            "kernel/fs/netfs/netfs.ko.xz:\n"
            "kernel/net/ipv6/ipv6.ko.xz:\n")
        self.assertEqual(in_vm.modules_in(self.folder), [
            "kernel/net/9p/9pnet.ko.xz", "kernel/net/9p/9pnet_virtio.ko.xz", "kernel/fs/netfs/netfs.ko.xz",
            "kernel/fs/9p/9p.ko.xz"])

    def test_the_initramfs_has_its_files_whole(self):
        (self.folder / "modules").mkdir()
        (self.folder / "modules/00-a.ko").write_bytes(b"odd")
        (self.folder / "busybox").write_bytes(b"\x7fELF" * 5)
        files = files_of(in_vm.initramfs(self.folder, "#!/bin/busybox sh\n"))
        self.assertEqual(files["bin/busybox"], (0o100755, b"\x7fELF" * 5))
        self.assertEqual(files["modules/00-a.ko"], (0o100755, b"odd"))
        self.assertEqual(files["init"], (0o100755, b"#!/bin/busybox sh\n"))
        self.assertEqual(files["host"][0], 0o040755)

    def test_the_words_of_the_command_stay_apart(self):
        words = ["echo", "a  b", "it's", "$HOME", "\n", ""]
        script = in_vm.init_script(in_vm.MACHINES["aarch64"], "/a b", words)
        line = next(part for part in script.split("  $b ") if part.startswith("chroot"))
        quoted = line.partition("/dev/shm/busybox sh ")[2].partition(" </dev/null")[0]
        done = subprocess.run(["sh", "-c", f"printf '%s|' {quoted}"], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "|".join(["-c", 'cd "$0" && exec "$@"', "/a b", *words, ""]))
        subprocess.run(["sh", "-n"], input=script, text=True, check=True)

    def test_wrong_words_are_usage(self):
        for words in ([], ["--kernel", "2.6", "true"], ["--arch", "vax", "true"], ["--timeout", "soon", "true"]):
            done = subprocess.run([SCRIPT, *words], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn("usage: in-vm", done.stderr)


if __name__ == "__main__":
    unittest.main()
