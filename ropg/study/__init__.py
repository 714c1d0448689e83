"""A study: many variants of training on several data sets, run, compared in pairs and written down as a page.

    plan        what is compared: a YAML file names data sets, variants and seeds
    running     every run as a command of its own; what is finished is not run again
    outcomes    what a finished run says of every held-out query
    comparing   differences with intervals, paired tests, Holm's correction, the curve over training queries
    plots       the page's pictures
    page        the page's tables, put between their marks

``python -m ropg.study full --data DIR`` does all of it.
"""
