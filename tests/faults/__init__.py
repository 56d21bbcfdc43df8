"""The fault campaign: operators and accidents change servers while processes admit requests.

``python -m tests.faults --help`` lists the scenarios; ``nox -s faults`` runs all of them.
"""
