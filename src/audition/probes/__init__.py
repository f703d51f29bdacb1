"""Pass/fail checks of what a server answers. Each gives evidence; one that cannot be judged says why.

What must not live here: speed, and what a failed check means for the verdict.
"""

from audition.probes.greedy import reference_answers
from audition.probes.runner import run_probes

__all__ = ["reference_answers", "run_probes"]
