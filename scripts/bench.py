"""Speed and memory figures beside their targets: ``python scripts/bench.py [data=real data.root=PATH] [debug=tiny]``.

``debug=tiny`` is a quick look. The experiment (default: lodo) is run first where it is not finished yet.
"""

from toolshift.settings.launch import Launch, launch


def main(request: Launch) -> int:
    """Heavy packages are imported only after the command line was accepted."""
    from toolshift.experiment.bench import bench

    return bench(request)


if __name__ == "__main__":
    launch(main, config="train")
