"""Speed and memory against the straightforward way of research code: ``make bench``, or one of them alone.

    python -m benchmarks                    all of them, a table and JSON
    python -m benchmarks bm25 dense         some

Each module has ``run(pairs) -> Outcome``. Both ways run in the same process, turn by turn, on the same input, after it
was checked that they give the same result; what counts is the median of the pairs' ratios. Absolute times say little
on a shared machine.
"""
