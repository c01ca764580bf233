"""Rebuild tables from finished runs: ``python scripts/make_tables.py [experiment=lodo] [data=real] [debug=tiny]``."""

from toolshift.settings.launch import Launch, launch


def main(request: Launch) -> int:
    """Heavy packages are imported only after the command line was accepted."""
    from toolshift.experiment.rebuild import rebuild

    return rebuild(request)


if __name__ == "__main__":
    launch(main, config="train")
