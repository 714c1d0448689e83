"""Compare all systems on held-out users and write the tables and the report: ``python evaluate.py --help``."""

from ropg.cli import run


def main() -> None:
    """Parse the command line and evaluate."""

    def command(config):  # type: ignore[no-untyped-def]
        from rspg.comparison import evaluate

        return evaluate(config)

    run(command)


if __name__ == "__main__":
    main()
