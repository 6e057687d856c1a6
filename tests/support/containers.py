"""A real container engine for tests: podman and runc behind Docker's API, without a registry.

Everything of it lies in one folder, and nothing of the machine's own engine is touched.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

IMAGE = "localhost/wick-sandbox:latest"
CONFIGURATION = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
netns = "none"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
exit_command_delay = 3600
"""
"""Two processes of each command wait so long before they clear up, and would all do it at once."""
NEEDED = ("podman", "runc", "busybox")
KEEPER = """
"$@" </dev/null & service=$!
read -r _
kill $service; wait $service; pkill -KILL -f "[c]onmon .*$0"; rm -rf "$0"
"""
"""Keeps the engine for as long as its own input is open: until the tests end, or are killed."""
INSTALL = "apt-get install podman runc fuse-overlayfs uidmap busybox-static"


class CannotStart(Exception):
    """Why there is no engine here."""


class ContainerEngine:
    """An engine with one image, made of busybox alone."""

    def __init__(self, folder: Path) -> None:
        missing = [name for name in NEEDED if shutil.which(name) is None]
        if missing:
            raise CannotStart(f"{', '.join(missing)} not installed ({INSTALL})")
        if os.geteuid() != 0:
            raise CannotStart("starting an engine needs root")
        self.folder = folder
        (folder / "containers.conf").write_text(CONFIGURATION)
        self._run_root = tempfile.mkdtemp(prefix="wk-")  # podman takes at most 50 characters
        self.host = f"unix://{folder}/docker.sock"
        self._podman = [
            *("podman", "--storage-driver=vfs"),
            *("--root", f"{folder}/storage", "--runroot", self._run_root),
        ]
        self._environment = {**os.environ, "CONTAINERS_CONF": f"{folder}/containers.conf"}
        self._import_image()
        log = (folder / "log").open("wb")
        service = [*self._podman, "system", "service", "--time=0", self.host]
        with log:
            self._keeper = subprocess.Popen(
                ["sh", "-c", KEEPER, self._run_root, *service],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=folder,  # where a container that has no memory left notes it
                env=self._environment,
                start_new_session=True,
            )
        self._wait(folder / "docker.sock")

    def close(self) -> None:
        """End the engine with all its containers."""
        self._run("rm", "--all", "--force", "--time=0")
        with self._keeper:  # which closes its input, and waits
            pass

    def _import_image(self) -> None:
        root = self.folder / "rootfs"
        for name in ("bin", "tmp", "workspace", "etc"):
            (root / name).mkdir(parents=True)
        (root / "tmp").chmod(0o1777)
        busybox = root / "bin" / "busybox"
        shutil.copy(str(shutil.which("busybox")), busybox)
        listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
        for tool in set(listed.stdout.split()) - {"busybox"}:
            (root / "bin" / tool).symlink_to("busybox")
        archive = self.folder / "rootfs.tar"
        subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
        done = self._run("import", "-q", "--change", "ENV PATH=/bin", str(archive), IMAGE)
        if done.returncode:
            raise CannotStart(f"podman cannot make an image: {done.stderr.strip()[-300:]}")

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._podman, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=self._environment,
            timeout=60,
            check=False,
        )

    def _wait(self, path: Path) -> None:
        until = time.monotonic() + 60
        with socket.socket(socket.AF_UNIX) as asked:
            while asked.connect_ex(str(path)):  # it is there before anyone listens
                if time.monotonic() > until:
                    raise CannotStart((self.folder / "log").read_text()[-300:])
                time.sleep(0.02)
