"""Failed checks of the contract are shown with their values, as in a test file."""

import pytest

pytest.register_assert_rewrite("contract.checks")
