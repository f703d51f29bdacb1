"""Write the lock files of this folder from pyproject.toml, with pip-tools. Run by `make lock`.

`runtime.txt` holds what `audition` imports plus the build backend; `dev.txt` holds that and the `dev` dependency group.
Both carry hashes and neither names a package index, an option or a path, so that they mean the same on every machine.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
HEADER = "# Written by `make lock` from pyproject.toml; do not edit.\n"
FIXED = ["--generate-hashes", "--allow-unsafe", "--strip-extras", "--no-header", "--quiet"]
SILENT = ["--no-emit-index-url", "--no-emit-find-links", "--no-emit-trusted-host", "--no-emit-options"]


def compile_lock(name: str, requirements: list[str], *, upgrade: bool) -> None:
    """Resolve `requirements` and replace lock file `name`; raises CalledProcessError when they cannot be resolved."""
    target = HERE / name
    pins = ["--upgrade"] if upgrade else []
    command = [sys.executable, "-m", "piptools", "compile", *FIXED, *SILENT, *pins, "--output-file", str(target), "-"]
    subprocess.run(command, check=True, cwd=ROOT, input="\n".join(requirements), text=True)
    text = target.read_text().removeprefix(HEADER).replace("-r -", "pyproject.toml")
    if found := re.search(r"^(--|.*(?:://|/home/|/opt/|/tmp/)).*", text, re.MULTILINE):
        raise SystemExit(f"{target}: this line belongs to one machine and must not be locked: {found.group(0)}")
    target.write_text(HEADER + text)
    print(f"{target.relative_to(ROOT)}: {len(re.findall('^[a-z0-9].*==', text, re.MULTILINE))} packages")


def main() -> None:
    """Write both lock files; `--upgrade` takes the newest releases instead of keeping what is locked."""
    upgrade = "--upgrade" in sys.argv[1:]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    runtime = project["project"]["dependencies"] + project["build-system"]["requires"]
    compile_lock("runtime.txt", runtime, upgrade=upgrade)
    locked = re.findall(r"^[a-z0-9][^ ]*==[^ ]+", (HERE / "runtime.txt").read_text(), re.MULTILINE)
    compile_lock("dev.txt", [*locked, *project["dependency-groups"]["dev"]], upgrade=upgrade)


if __name__ == "__main__":
    main()
