"""Rank, collect feedback, train, and report on held-out users: ``python train.py --help``."""

from ropg.cli import run


def main() -> None:
    """Parse the command line and run the pipeline."""

    def command(config):  # type: ignore[no-untyped-def]
        from rspg.pipeline import train

        return train(config)

    run(command)


if __name__ == "__main__":
    main()
