"""``python -m ropg.store <command>``: inspect, merge, prune, verify, forget."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="python -m ropg.store", description="Look after a store of generations."
    )
    commands = top.add_subparsers(dest="command", required=True)

    def command(name: str, help: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=help, description=help)
        made.add_argument("--store", default="stores", metavar="DIR", help="store.dir (default: stores)")
        return made

    def changes(made: argparse.ArgumentParser) -> None:
        made.add_argument(
            "--yes", action="store_true", help="do it; without, only what would be done is printed"
        )

    one = command("inspect", "what a store holds, from which LLM, in which files; or one answer by its key")
    one.add_argument("key", nargs="?", metavar="KEY", help="a key or its first digits")
    one.add_argument("--json", action="store_true", help="as JSON")
    one = command("merge", "bring other stores, or the files of this one, into one file")
    one.add_argument("others", nargs="*", metavar="OTHER", help="a store, or an SQLite file of one")
    one.add_argument("--into", metavar="DIR", help="the target (default: --store)")
    one.add_argument("--delete-sources", action="store_true", help="delete each source once it is taken over")
    one = command("prune", "remove the rows that meet all conditions given")
    one.add_argument(
        "--llm", action="append", default=[], metavar="HASH", help="first digits of a hash of inspect's"
    )
    one.add_argument("--older-than", type=float, metavar="DAYS", help="generations made before that")
    one.add_argument(
        "--unused", action="store_true", help="in no table; answers of evaluations and selectors are in none"
    )
    one.add_argument("--unowned", action="store_true", help="of which no user is recorded")
    changes(one)
    command("verify", "check every row and table; status 1 where something is wrong")
    one = command("forget", "delete all that concerns one user")
    one.add_argument(
        "user", metavar="USER", help="the user's id (the example's id, where the data names no users)"
    )
    one.add_argument("--runs", metavar="DIR", help="also in the run folders below DIR (run.root)")
    one.add_argument("--examples", nargs="+", default=[], metavar="ID", help="ids of the user's examples")
    changes(one)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command; the exit status."""
    arguments = parser().parse_args(argv)
    from ropg.feedback.database import StoreError

    try:
        return _run(arguments)
    except (StoreError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("error: interrupted; the same command again finishes it", file=sys.stderr)
        return 130
    return 1


def _run(a: argparse.Namespace) -> int:
    if a.command == "inspect":
        return _inspect(a)
    if a.command == "merge":
        from ropg.store.merging import merge

        done = merge(a.into or a.store, a.others, delete_sources=a.delete_sources, tell=print)
        print(
            f"{done.target}: {done.generations} generations and {done.likelihoods} likelihoods taken over from "
            f"{done.files} files; {done.tables} tables copied, {done.other_tables} others of the same name left"
        )
        if done.differing:
            print(
                f"{done.differing} keys had other texts or values in a later file; the first by name was kept"
            )
        return 0
    if a.command == "prune":
        from ropg.store.pruning import prune

        gone = prune(
            a.store,
            llm=a.llm,
            older_than=a.older_than,
            unused=a.unused,
            unowned=a.unowned,
            yes=a.yes,
            tell=print,
        )
        verb = "removed" if a.yes else "would remove"
        print(f"{verb} {gone.generations} generations and {gone.likelihoods} likelihoods")
        for path in gone.tables:
            print(f"{verb} {path} (it refers to them)")
        return _dry(a.yes)
    if a.command == "verify":
        return _verify(a)
    from ropg.store.forgetting import forget, report

    found = forget(a.store, a.user, runs=a.runs, examples=a.examples, yes=a.yes)
    print(report(found, a.user, a.yes))
    return _dry(a.yes)


def _dry(yes: bool) -> int:
    if not yes:
        print("nothing was changed; add --yes to do it")
    return 0


def _inspect(a: argparse.Namespace) -> int:
    from ropg.store.files import shown
    from ropg.store.inspection import inspect, report, text_of

    told = text_of(a.store, a.key) if a.key else inspect(a.store)
    if a.json:
        print(json.dumps(told, indent=2))
    elif a.key:
        for name, value in told.items():
            print(f"{name}: {shown(str(value))}")
    else:
        print(report(told))
    return 0


def _verify(a: argparse.Namespace) -> int:
    from ropg.store.verification import verify

    done = verify(a.store)
    for found in done.findings:
        print(f"{found.file}: {found.what}; {found.remedy}")
    for note in done.notes:
        print(f"note: {note}")
    print(f"{done.rows} rows and {done.tables} tables looked at: {len(done.findings)} findings")
    return 1 if done.findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
