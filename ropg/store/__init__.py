"""The generation store as a thing one owns: inspect, merge, prune, verify it, and forget a user.

``python -m ropg.store --help``; every command is a function of the module of its name. A command that
writes holds the locks of all writers of the store and is refused while one of them is at work.
"""
