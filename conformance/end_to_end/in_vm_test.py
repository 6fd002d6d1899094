#!/usr/bin/env python3
"""What scripts/in-vm prepares for a virtual machine; none is started.

usage: in_vm_test.py SOURCE_DIR [unittest arguments]
"""

import os
import pathlib
import select
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import script_module

SCRIPT = pathlib.Path(sys.argv.pop(1)) / "scripts/in-vm"

in_vm = script_module.load(SCRIPT)


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
        self.assertEqual(done.stdout, "|".join(["-c", 'cd "$0" || exit 125; exec "$@"', "/a b", *words, ""]))
        subprocess.run(["sh", "-n"], input=script, text=True, check=True)

    def test_a_changed_configuration_is_another_kernel(self):
        machine = in_vm.MACHINES["aarch64"]
        for name in ("all", "arm64"):
            (self.folder / name).write_text("CONFIG_PCI=y\n")
        with unittest.mock.patch.object(in_vm, "configuration", lambda m: [self.folder / "all", self.folder / m.debian]):
            first = in_vm.cached("names", machine)
            self.assertEqual(in_vm.cached("names", machine), first)
            (self.folder / "arm64").write_text("CONFIG_PCI=y\nCONFIG_SMP=y\n")
            self.assertNotEqual(in_vm.cached("names", machine), first)

    def test_options_that_linux_does_not_accept(self):
        accepted = 'CONFIG_PCI=y\nCONFIG_SMP=y\n# CONFIG_VSX is not set\nCONFIG_NAME="a b"\n'
        self.assertEqual(in_vm.lost_options('# CONFIG_ABSENT=y\nCONFIG_SMP=y\n\nCONFIG_NAME="a b"\n', accepted), [])
        self.assertEqual(in_vm.lost_options("CONFIG_PC=y\nCONFIG_PCI=y\nCONFIG_VSX=y\n", accepted), ["CONFIG_PC=y", "CONFIG_VSX=y"])

    def test_what_is_missing_is_named_together(self):
        (self.folder / "there").touch()
        in_vm.needs({"sh": "dash", str(self.folder / "there"): "there"})
        with self.assertRaisesRegex(in_vm.Problem, "install --no-install-recommends b-package c-package$"):
            in_vm.needs({"/absent/c.h": "c-package", "no-such-command": "b-package", "no-such-either": "b-package", "sh": "dash"})

    def test_what_a_step_starts_ends_with_it(self):
        self.assertEqual(in_vm.checked(["echo", "said"]), "said\n")
        with self.assertRaisesRegex(in_vm.Problem, "sh exited with 3: why$"):
            in_vm.checked(["sh", "-c", "echo why >&2; exit 3"])
        read, write = os.pipe()
        self.addCleanup(os.close, read)
        with self.assertRaisesRegex(in_vm.Problem, "sh took more than 1 s"):
            in_vm.checked(["sh", "-c", "sleep 600 & wait"], seconds=1, pass_fds=[write])
        os.close(write)
        self.assertEqual(select.select([read], [], [], 60)[0], [read], "sleep still has the pipe")

    def test_wrong_words_are_usage(self):
        for words in ([], ["--"], ["--kernel", "2.6", "true"], ["--arch", "vax", "true"], ["--timeout", "soon", "true"]):
            done = subprocess.run([SCRIPT, *words], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 125, words)
            self.assertIn("usage: in-vm", done.stderr)


class WithMachines(unittest.TestCase):
    """With programs in PATH that stand for QEMU."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for kernel in ("debian-6.12-amd64", in_vm.cached("names", in_vm.MACHINES["x86_64"]).name):
            (self.folder / "kernels" / kernel / "modules").mkdir(parents=True)
            for name in ("vmlinuz", "busybox"):
                (self.folder / "kernels" / kernel / name).touch()
        (self.folder / "tmp").mkdir()

    def qemu(self, body):
        path = self.folder / "bin/qemu-system-x86_64"
        path.parent.mkdir(exist_ok=True)
        # The log of the kernel is the file of its first serial line.
        path.write_text(f'#!/bin/sh\nfor w; do case $w in file:*) log=${{w#file:}};; esac; done\n{body}\n')
        path.chmod(0o755)

    def start(self, *options, command=("true",)):
        code = (f"import pathlib, sys; sys.path.append({str(pathlib.Path(__file__).parent)!r}); import script_module\n"
                f"v = script_module.load({str(SCRIPT)!r})\n"
                f"v.KERNELS = pathlib.Path({str(self.folder / 'kernels')!r})\n"
                "v.shutil.which = lambda name: name\n"
                "sys.exit(v.main())\n")
        return subprocess.Popen(
            [sys.executable, "-c", code, "--arch", "x86_64", *options, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env={"PATH": f"{self.folder}/bin:/usr/bin:/bin", "TMPDIR": str(self.folder / "tmp")})

    def run_it(self, *options, **how):
        process = self.start(*options, **how)
        out, err = process.communicate(timeout=60)
        self.assertEqual(list((self.folder / "tmp").iterdir()), [])
        return process.returncode, out, err

    def test_exits_as_the_command_does(self):
        self.qemu("echo said; echo 'status: 7' > \"$log\"")
        self.assertEqual(self.run_it(), (7, "said\n", ""))

    def test_the_kernel_that_is_asked_for(self):
        self.qemu('echo "status: 0" > "$log"; while [ "$1" != -kernel ]; do shift; done; echo "$2"')
        self.assertRegex(self.run_it()[1], r"/debian-6\.12-amd64/vmlinuz$")
        self.assertRegex(self.run_it("--kernel", "names")[1], r"/names-amd64-[0-9a-f]{12}/vmlinuz$")

    def test_the_command_may_follow_two_dashes(self):
        # The initramfs is not compressed, so that it shows the words of the command.
        self.qemu('echo "status: 0" > "$log"; while [ "$1" != -initrd ]; do shift; done; grep -a "chroot /host" "$2"')
        for before in ([], ["--"]):
            with self.subTest(before):
                _, out, _ = self.run_it(command=[*before, "env", "--", "A=b", "true"])
                self.assertIn(" env -- A=b true </dev/null", out)
                self.assertNotIn("-- env", out)

    def test_a_machine_that_ends_early(self):
        self.qemu("echo 'no root' > \"$log\"")
        code, _, err = self.run_it()
        self.assertEqual(code, 125)
        self.assertIn("the machine ended before the command:\nno root", err)
        self.qemu("exit 3")
        self.assertEqual(self.run_it()[0], 125)

    def test_the_time_is_limited(self):
        self.qemu("exec sleep 60")
        code, _, err = self.run_it("--timeout", "1")
        self.assertEqual(code, 124)
        self.assertIn("time is up", err)

    def test_a_signal_ends_the_machine(self):
        self.qemu("echo begun; exec sleep 600")
        process = self.start()
        self.assertEqual(process.stdout.readline(), "begun\n")
        process.terminate()
        # The end of its output: the machine has ended as well.
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + 15)
        self.assertEqual(list((self.folder / "tmp").iterdir()), [])

    def test_what_is_no_folder(self):
        self.qemu("exit 0")
        for option in ("--root", "--out"):
            code, _, err = self.run_it(option, str(self.folder / "absent"))
            self.assertEqual(code, 125)
            self.assertIn("not a folder", err)


if __name__ == "__main__":
    unittest.main()
