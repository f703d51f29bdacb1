"""What keeps the house in order beyond linters: pure rooms touch nothing, the way back needs nothing, the tools' own promises."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "audition"
PURE_ROOMS = ("spike", "swap", "judge", "faults", "units.py", "errors.py")
# The edges of pure rooms: modules that read the user's file, or one that is shipped beside them, and hand its text on.
# Everything else in these rooms gets text.
READERS = {"spike/parse.py", "spike/examples.py", "spike/reference.py", "judge/load.py", "faults/signature.py"}
# Calls that reach a file, a terminal or a clock without an import that the import contract would see.
FUNCTIONS = {"open", "input", "print"}
METHODS = {"exists", "is_dir", "is_file", "mkdir", "now", "open", "read_bytes", "read_text", "today", "unlink", "utcnow"}
METHODS |= {"write_bytes", "write_text"}


def effects(code: str) -> list[str]:
    """The calls in `code` that reach outside, as `line N: name`."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
                found.append(f"line {node.lineno}: {node.func.id}")
            if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
                found.append(f"line {node.lineno}: {node.func.attr}")
    return found


def modules_of(room: str) -> list[Path]:
    path = SOURCE / room
    return [path] if path.suffix else sorted(path.rglob("*.py"))


def test_an_effect_is_found() -> None:
    assert effects("def f(p):\n    p.read_text()\n    print(1)\n    return sorted(p)") == ["line 2: read_text", "line 3: print"]


@pytest.mark.parametrize("room", PURE_ROOMS)
def test_a_pure_room_reaches_nothing_outside(room: str) -> None:
    modules = modules_of(room)
    if not modules:
        pytest.skip(f"the room {room} is not built yet")
    found = {str(path.relative_to(SOURCE)): calls for path in modules if (calls := effects(path.read_text()))}
    assert {name: calls for name, calls in found.items() if name not in READERS} == {}
    stale = {name for name in READERS if name.startswith(f"{room}/")} - set(found)
    assert not stale, "these read no file any more; take them off READERS"


def test_the_way_back_imports_the_standard_library_alone() -> None:
    """Every module of the room is imported by a Python without site-packages; what came along must be Python's own."""
    names = [f"audition.wayback.{path.stem}" for path in modules_of("wayback") if not path.stem.startswith("__")]
    assert names
    code = (
        "import importlib, sys\n"
        f"sys.path.insert(0, {str(SOURCE.parent)!r})\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "tops = {name.partition('.')[0] for name in sys.modules}\n"
        "print(*sorted(tops - sys.stdlib_module_names - {'audition', '__main__'}))\n"
        "print(*sorted(name for name in sys.modules if name.startswith('audition.') and '.wayback' not in name))\n"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n\n", "")


def test_locks_pin_everything_with_hashes_and_name_no_machine() -> None:
    for name in ("runtime.txt", "dev.txt"):
        text = (ROOT / "requirements" / name).read_text()
        blocks = re.split(r"\n(?=[a-z0-9])", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
        assert all("==" in block and "--hash=sha256:" in block for block in blocks if block.strip()), name
        assert not re.search(r"^--|://", text, re.MULTILINE), name


def test_locks_hold_what_the_project_declares() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    runtime = project["project"]["dependencies"] + project["build-system"]["requires"]
    for file, declared in (("runtime.txt", runtime), ("dev.txt", runtime + project["dependency-groups"]["dev"])):
        locked = set(re.findall(r"^([a-z0-9][a-z0-9._-]*)==", (ROOT / "requirements" / file).read_text(), re.MULTILINE))
        wanted = {re.split(r"[<>=!~\[ ;]", item)[0].lower() for item in declared}
        assert wanted <= locked, f"run `make lock`: {file} lacks {sorted(wanted - locked)}"


def test_make_alone_lists_every_target_with_one_line() -> None:
    listed = subprocess.run(["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("rehearse", "test", "check", "lock", "live-env", "docker-env"):
        assert re.search(rf"^  make {target} +\S", listed, re.MULTILINE), target
