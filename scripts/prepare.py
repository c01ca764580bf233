"""Read raw files into records: ``python scripts/prepare.py [dataset=toolbench] [data=real data.root=PATH]``."""

from toolshift.settings.launch import Launch, launch


def main(request: Launch) -> int:
    """Heavy packages are imported only after the command line was accepted."""
    from toolshift.experiment.prepare import prepare

    return prepare(request)


if __name__ == "__main__":
    launch(main, config="train")
