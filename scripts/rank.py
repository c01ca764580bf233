"""Which of your own tools for a request: ``python scripts/rank.py tools=PATH query="..." [run=HASH] [explain=true]``.

Ranks with a finished run's fit, or with Semantic Cosine where none is given. ``--help`` shows all keys.
"""

import sys

from toolshift.experiment.rank import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
