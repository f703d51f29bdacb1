"""Entry point of `python -m audition.simulated`; holds no logic of its own."""

import sys

from audition.simulated.server import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
