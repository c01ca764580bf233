"""Why a candidate got its score: ``python scripts/explain.py run=HASH task=ID [capability=PART] [format=json]``.

Reads a finished run of TACT: requirements, endpoints, evidence, matching, both corrections with their gates, and the
source evidence of one pair. ``--help`` shows all keys.
"""

import sys

from toolshift.experiment.explain import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
