"""What every engine promises, whatever runs its server. Parametrised over ``factories.FACTORIES``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.checks import *  # noqa: F403 - every test of the contract, run here with the bench below
from contract.factories import FACTORIES, Bench


@pytest.fixture(params=sorted(FACTORIES))
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = FACTORIES[request.param](tmp_path)
    yield made
    made.clean()
