"""Fetch public releases: ``python scripts/download_data.py dataset=NAME|all [dry_run=true] [data.root=PATH]``."""

import sys

from toolshift.experiment.download import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
