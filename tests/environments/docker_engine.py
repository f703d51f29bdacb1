"""A real Docker engine of the tests' own, in a folder under /tmp: killed and restarted at will, gone without a trace.

It never touches an engine that the machine already runs: its socket, data, containerd and configuration lie in its own
folder. Each test process has its own engine, so tests may run in parallel processes. `network_mode: host`,
`network_mode: none` and compose's default network with ports published on loopback all work; `docker run` without a network
has none. Containers cannot reach outside. Limits on memlock or open files and `privileged` may be refused by the machine. The
only image is IMAGE.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from environments.docker.install import COMPOSE, FOLDER, UNAVAILABLE, missing
from environments.docker.install import IMAGE as IMAGE_TAR

IMAGE = "audition/hostpy:1"
START_S = 60.0
STOP_S = 30.0


class EngineFailed(Exception):
    """The engine did not do what was asked; the text holds what it said."""


class DockerEngine:
    """One private engine. `env` is what a docker command needs to talk to it and to nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "dockerd.log"
        configuration = folder / "cfg"
        (configuration / "cli-plugins").mkdir(parents=True)
        (configuration / "cli-plugins" / "docker-compose").symlink_to(COMPOSE.resolve())
        # A unix socket's path holds at most 107 bytes, hence the short folder.
        self.env = {"DOCKER_HOST": f"unix://{folder}/s.sock", "DOCKER_CONFIG": str(configuration)}
        self._daemon: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the running daemon; None while it is dead."""
        return self._daemon.pid if self._daemon is not None and self._daemon.poll() is None else None

    def start(self, *, live_restore: bool = False) -> None:
        """Start the daemon and wait until it answers. Raises EngineFailed with the end of its log."""
        if self.pid is not None:
            return
        self._forget_dead_pids()
        command = ["dockerd", "--host", self.env["DOCKER_HOST"], "--bridge=none"]
        command += ["--data-root", f"{self.folder}/data", "--exec-root", f"{self.folder}/exec"]
        command += ["--pidfile", f"{self.folder}/docker.pid", "--config-file", f"{self.folder}/daemon.json"]
        command += ["--iptables=false", "--ip6tables=false", "--ip-forward=false"]
        (self.folder / "daemon.json").write_text(json.dumps({"live-restore": live_restore}))
        with self.log.open("ab") as log:
            self._daemon = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        deadline = time.monotonic() + START_S
        while self.run("version", check=False).returncode != 0:
            if self.pid is None or time.monotonic() > deadline:
                raise EngineFailed("\n".join(self.log.read_text(errors="replace").splitlines()[-3:]))
            time.sleep(0.1)
        if self.run("image", "inspect", IMAGE, check=False).returncode != 0:
            settings = ["--change", "ENV PATH=/usr/bin:/bin PYTHONUNBUFFERED=1", "--change", 'CMD ["python3"]']
            self.run("import", *settings, str(IMAGE_TAR), IMAGE)

    def run(
        self, *arguments: str, check: bool = True, cwd: Path | None = None, timeout_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run `docker ARGUMENTS` against this engine. Raises EngineFailed on a failure unless `check` is off."""
        done = subprocess.run(
            ["docker", *arguments],
            env={**os.environ, **self.env},
            cwd=cwd,
            timeout=timeout_s,
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        if check and done.returncode != 0:
            raise EngineFailed(f"docker {' '.join(arguments)}: exit code {done.returncode}: {done.stderr.strip()}")
        return done

    def compose(self, *arguments: str, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run `docker compose ARGUMENTS` in folder `cwd`."""
        return self.run("compose", *arguments, cwd=cwd, check=check)

    def inspect(self, name: str) -> dict[str, Any]:
        """What `docker inspect` says of the container `name` (name or id)."""
        [found] = json.loads(self.run("container", "inspect", name).stdout)
        return dict(found)

    def containers(self) -> list[str]:
        """Full ids of all containers, running or not."""
        return self.run("ps", "--all", "--quiet", "--no-trunc").stdout.split()

    def kill(self) -> None:
        """SIGKILL the daemon, as a crash would, and wait until it is dead. Containers live on without it."""
        if self._daemon is not None:
            self._daemon.kill()
            self._daemon.wait(STOP_S)

    def restart(self, *, live_restore: bool = False) -> None:
        """Start the daemon again after `kill`, or stop and start it."""
        self.stop()
        self.start(live_restore=live_restore)

    def stop(self) -> None:
        """Stop the daemon in an orderly way; it stops its containers unless live restore is on."""
        if self._daemon is not None and self._daemon.poll() is None:
            self._daemon.terminate()
            try:
                self._daemon.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def clean(self) -> None:
        """Bring the engine back to how tests expect it: running, without containers, without networks of theirs."""
        self.start()
        if found := self.containers():
            self.run("rm", "--force", "--volumes", *found)
        self.run("network", "prune", "--force")

    def tear_down(self) -> None:
        """Remove containers, processes, mounts and files of this engine. What is not its own is not touched."""
        with contextlib.suppress(EngineFailed, subprocess.TimeoutExpired):
            self.clean()
        self.stop()
        self._kill_the_rest()
        for mount in reversed(self._mounts()):
            subprocess.run(["umount", "--lazy", mount], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def leftovers(self) -> list[str]:
        """What still exists of this engine, in words: processes, mounts, its folder. Empty after `tear_down`."""
        found = [f"process {pid}: {line}" for pid, line in self._processes().items()]
        found += [f"mount {mount}" for mount in self._mounts()]
        return found + ([f"folder {self.folder}"] if self.folder.exists() else [])

    def _forget_dead_pids(self) -> None:
        """A pid file whose process is dead, or a zombie nobody has reaped yet, would keep the next daemon from starting."""
        for file in (self.folder / "docker.pid", self.folder / "exec" / "containerd" / "containerd.pid"):
            with contextlib.suppress(FileNotFoundError, ValueError):
                if not _alive(int(file.read_text())):
                    file.unlink()

    def _processes(self) -> dict[int, str]:
        """Living processes with this engine's folder in their command line: daemon, containerd, shims."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if f"{self.folder}/" in line and _alive(int(entry.name)):
                        found[int(entry.name)] = line.strip()
        return found

    def _kill_the_rest(self) -> None:
        """SIGKILL what an unclean end left: shims and the containers below them, containerd, daemon."""
        deadline = time.monotonic() + STOP_S
        while (left := self._processes()) and time.monotonic() < deadline:
            for pid in [child for parent in left for child in _children(parent)] + list(left):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)

    def _mounts(self) -> list[str]:
        lines = Path("/proc/self/mounts").read_text().splitlines()
        return [line.split()[1] for line in lines if line.split()[1].startswith(f"{self.folder}/")]


def _alive(pid: int) -> bool:
    """Whether `pid` runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def why_not() -> str | None:
    """Why no engine can be started here, as a sentence; None when nothing speaks against it."""
    if reason := missing():
        return reason
    if UNAVAILABLE.exists():
        return UNAVAILABLE.read_text().strip()
    if not (COMPOSE.exists() and IMAGE_TAR.exists()):
        return f"The tests' Docker engine is not set up in {FOLDER.parent.name}/{FOLDER.name}; run `make docker-env`."
    return None


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[DockerEngine]:
    """A private engine for this test process. Skips, with the reason, where none can be started."""
    if reason := why_not():
        pytest.skip(reason)
    engine = DockerEngine(Path(tempfile.mkdtemp(prefix="aud-", dir="/tmp")))
    try:
        engine.start()
    except EngineFailed as failure:
        engine.tear_down()
        pytest.skip(f"dockerd does not start on this machine: {failure}")
    yield engine
    engine.tear_down()
    left = engine.leftovers()
    assert not left, f"the private Docker engine left something behind: {left}"


@pytest.fixture
def docker(docker_engine: DockerEngine) -> Iterator[DockerEngine]:
    """The engine, running and without containers, before and after the test, whatever the test did to it."""
    docker_engine.clean()
    yield docker_engine
    docker_engine.clean()
