"""`audition setup` as plain functions: the systemd units that bring production back at boot and at the deadline.

Shown for review first, installed only on yes, and never while a run is unfinished: a ``systemctl daemon-reload`` can detach GPUs
from running containers.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import audition
from audition.errors import Refused
from audition.run.status import status
from audition.wayback.lock import state_root

SERVICE, DEADLINE, TIMER = "audition-recover.service", "audition-deadline.service", "audition-deadline.timer"
WITHOUT = (
    "There is no systemd here, so no unit is installed.\n"
    "What is lost: after a reboot or a power failure in the middle of a spike nobody brings production back by itself,\n"
    "and when both the runner and its guard die, nobody watches the restore deadline.\n"
    "What remains: the runner, the guard, and `audition recover`, which you (or your own boot script) have to call:\n"
    "    AUDITION_STATE={root} {command}"
)


@dataclass(frozen=True)
class Setup:
    """What would be installed. ``folder``: where; ``units``: text by file name; ``user``: units of the user, not of the system;
    ``warnings``: what the units point to and may be gone at boot."""

    folder: Path
    units: dict[str, str]
    user: bool
    command: str
    warnings: tuple[str, ...] = ()


def systemd_runs() -> bool:
    """Whether systemd is the init of this machine and can be asked."""
    return os.path.isdir("/run/systemd/system") and shutil.which("systemctl") is not None


def plan_setup(*, environ: Mapping[str, str] | None = None, python: str = sys.executable, package: Path | None = None) -> Setup:
    """The units for this user, interpreter and state root. ``package``: the folder of the package that the interpreter runs."""
    environ = os.environ if environ is None else environ
    user = os.geteuid() != 0
    folder = Path.home() / ".config/systemd/user" if user else Path("/etc/systemd/system")
    command = f"{_quoted(python)} -m audition recover"
    lines = [f'Environment="AUDITION_STATE={_escaped(str(state_root()))}"']
    lines += [
        f'Environment="{name}={_escaped(_search_path(environ[name]) if name == "PATH" else environ[name])}"'
        for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "HOME", "PATH")
        if name in environ
    ]
    target = "default.target" if user else "multi-user.target"
    after = "" if user else "After=network.target docker.service nvidia-persistenced.service\nWants=docker.service\n"
    service = (
        "[Unit]\nDescription=Bring production back after an interrupted audition run\n{after}\n"
        "[Service]\nType=oneshot\nKillMode=process\nTimeoutStartSec=infinity\n{env}\nExecStart={command}\n{install}"
    )
    install = f"\n[Install]\nWantedBy={target}\n"
    units = {
        SERVICE: service.format(after=after, env="\n".join(lines), command=command, install=install),
        DEADLINE: service.format(after="", env="\n".join(lines), command=f"{command} --force-deadline", install=""),
        TIMER: (
            "[Unit]\nDescription=Watch the restore deadline of audition runs\n\n"
            f"[Timer]\nOnBootSec=2min\nOnUnitInactiveSec=1min\nAccuracySec=5s\nUnit={DEADLINE}\n\n[Install]\nWantedBy=timers.target\n"
        ),
    }
    package = Path(audition.__file__).parent if package is None else package
    return Setup(folder, units, user, command, tuple(_doubts(Path(python), package, state_root(), user=user)))


def _search_path(text: str) -> str:
    """PATH with every absolute folder once, in order. Relative ones would mean other folders at boot."""
    return os.pathsep.join(dict.fromkeys(part for part in text.split(os.pathsep) if os.path.isabs(part)))


def _doubts(python: Path, package: Path, root: Path, *, user: bool) -> Iterator[str]:
    """What may be gone when the units run: a temporary folder, for units of the system a home folder, a working tree.

    A unit of a user lies in the home folder itself, so that a home folder is no doubt of its own there. /root is taken as mounted.
    """
    temporary = {Path(name) for name in ("/tmp", "/var/tmp", "/dev/shm", "/run", tempfile.gettempdir())}
    homes = set() if user else {Path("/home"), Path.home()} - {Path("/"), Path("/root")}
    advice = "install audition where it stays, e.g. in a virtual environment under /opt, and run `audition setup` from there"
    for what, path in (("interpreter", python), ("package", package), ("state", root)):
        places = (path.absolute(), path.resolve())
        shown = str(path) if path.absolute() == path.resolve() else f"{path} ({path.resolve()})"
        keep = "set AUDITION_STATE to a folder that stays" if what == "state" else advice
        if any(place.is_relative_to(folder) for place in places for folder in temporary):
            yield f"the {what} {shown} lies in a temporary folder, which may be empty after a reboot: {keep}"
        elif any(place.is_relative_to(folder) for place in places for folder in homes):
            yield f"the {what} {shown} lies in a home folder, which may not be mounted yet at boot: {keep}"
    tree = next((folder for folder in package.resolve().parents if (folder / ".git").exists()), None)
    if tree is not None:
        yield f"the package {package} lies in the working tree {tree}: the units would run what is checked out at boot; {advice}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"' if any(letter in text for letter in ' "\\%') else text


def setup_text(setup: Setup) -> str:
    """The units with their places, for review."""
    shown = [f"# {setup.folder / name}\n{text}" for name, text in setup.units.items()]
    commands = [f"# then:\n{' '.join(words)}" for words in _commands(setup)]
    return "\n".join([*shown, *commands])


def _commands(setup: Setup) -> list[list[str]]:
    systemctl = ["systemctl", *(["--user"] if setup.user else [])]
    return [[*systemctl, "daemon-reload"], [*systemctl, "enable", SERVICE], [*systemctl, "enable", "--now", TIMER]]


def install(setup: Setup, *, root: Path | None = None) -> list[str]:
    """Write the units and enable them; returns what was done. Raises Refused while a run is unfinished or when systemd refuses."""
    unfinished = status(root=root).runs
    if unfinished:
        raise Refused(
            "The units are not installed while a run is unfinished.",
            seen=f"run {unfinished[0].run_id}: {unfinished[0].why}",
            production=unfinished[0].production,
            next_step="audition recover",
        )
    done = []
    setup.folder.mkdir(parents=True, exist_ok=True)
    for name, text in setup.units.items():
        (setup.folder / name).write_text(text, encoding="utf-8")
        done.append(f"wrote {setup.folder / name}")
    for words in _commands(setup):
        ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        if ran.returncode != 0:
            raise Refused(
                f"`{' '.join(words)}` failed.",
                seen=(ran.stderr or ran.stdout).strip(),
                production="untouched",
                next_step="put the cause right and run `audition setup` again",
            )
        done.append(f"ran {' '.join(words)}")
    if setup.user:
        done.append("for units of a user to run at boot: loginctl enable-linger")
    return done


def setup(*, say: Callable[[str], None], confirm: Callable[[str], bool], root: Path | None = None) -> int:
    """Show the units, ask, install. Returns the exit code: 0, also without systemd and on no. Raises Refused."""
    planned = plan_setup()
    warnings = [f"warning: {text}" for text in planned.warnings]
    if not systemd_runs():
        say("\n".join([WITHOUT.format(root=shlex.quote(str(state_root())), command=planned.command), *warnings]))
        return 0
    say("\n".join([setup_text(planned), *warnings]))
    if not confirm("Install these units?"):
        say("Nothing was installed.")
        return 0
    for line in install(planned, root=root):
        say(line)
    return 0
