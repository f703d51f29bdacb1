"""Makes guard.pyz: this package as one zip application, to be run by the base interpreter outside any virtual environment.

    python3 -I -S guard.pyz restore PLAN    bring production back by hand
    python3 -I -S guard.pyz look PLAN       only look

Reads the package's own files. Starting the guard lives in ``audition.run.guarding``.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

_MAIN = "import sys\nfrom audition.wayback.guard import main\nsys.exit(main(sys.argv[1:]))\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def build() -> bytes:
    """The zip application. The same sources always give the same bytes. Raises OSError when the sources cannot be read."""
    entries = {"__main__.py": _MAIN.encode(), "audition/__init__.py": b""}
    for file in sorted(Path(__file__).parent.glob("*.py")):
        entries[f"audition/wayback/{file.name}"] = file.read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
