"""``python -m audition`` is the ``audition`` command."""

from audition.cli import main

main()
