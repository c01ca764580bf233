"""NTILC's tool loop on one request: ``python scripts/agent.py query="..." tools=FILE [executor=...] [llm.model=...]``.

Plans, finds a tool for each intent, writes its arguments and calls it; by default nothing is really called (a dry run).
``--help`` shows all keys; docs/agents.md explains them.
"""

import sys

from toolshift.experiment.agent import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
