"""Gain of a method's part over 20 world seeds, where it may learn something and where not:
``python scripts/null_worlds.py experiment=null_worlds [data.sample_seed=N] [debug=tiny]``."""

from toolshift.settings.launch import Launch, launch


def main(request: Launch) -> int:
    """Heavy packages are imported only after the command line was accepted."""
    from toolshift.experiment.nulls import null_worlds

    return null_worlds(request)


if __name__ == "__main__":
    launch(main, config="train")
