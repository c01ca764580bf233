"""Run an experiment: ``python scripts/train.py experiment=lodo [data=real data.root=PATH] [model=...] [-m ...]``."""

from toolshift.settings.launch import Launch, launch


def main(request: Launch) -> int:
    """Heavy packages are imported only after the command line was accepted."""
    if request.settings.study.target:
        from toolshift.experiment.study import run_study

        return run_study(request)
    if request.settings.multiverse.choices:
        from toolshift.experiment.multiverse import multiverse

        return multiverse(request)
    from toolshift.experiment.main import train

    return train(request)


if __name__ == "__main__":
    launch(main, config="train")
