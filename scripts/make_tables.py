"""Rebuild tables from finished runs: ``python scripts/make_tables.py [experiment=lodo] [data=real] [debug=tiny]``.

``python scripts/make_tables.py paper`` lists what every table of ``conf/tables`` still lacks, with the commands that
make it and their cost, and rebuilds them all. Neither starts a run or loads a model.
"""

import sys

from toolshift.settings.launch import Launch, launch


def main(request: Launch) -> int:
    """Heavy packages are imported only after the command line was accepted."""
    from toolshift.experiment.rebuild import rebuild

    return rebuild(request)


def paper(request: Launch) -> int:
    """Every table, and what is missing."""
    from toolshift.experiment.paper import paper

    return paper(request)


if __name__ == "__main__":
    # A word of its own, since it is no key of a run's configuration.
    whole = sys.argv[1:2] == ["paper"]
    if whole:
        del sys.argv[1]
    launch(paper if whole else main, config="train")
