#!/usr/bin/env python3
"""Compares the core's statistics with SciPy's.

Reads what crates/core/examples/correlations.rs writes: r and p of each type (scipy.stats.pearsonr), significance by
Benjamini-Hochberg (scipy.stats.false_discovery_control), costs (scipy.optimize.nnls). Says where they differ, and fails then.
"""

import json
import math
import sys
import warnings

import numpy
from scipy import optimize, stats

TOLERANCE = 1e-9  # absolute, and relative to the value
ALPHA = 0.05
MIN_INTERVALS = 10
OWN_VARIATION = 1e-4
TABLES = 1000


def close(ours, theirs):
    return math.isclose(ours, theirs, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def check(table):
    """Yields what differs in a table."""
    figure = numpy.array(table["figure"], dtype=float)
    known = numpy.isfinite(figure)
    y = figure[known]
    counts = [numpy.array(column, dtype=float)[known] for column in table["counts"]]
    p, tried = [], []
    for k, (x, ours) in enumerate(zip(counts, table["pearson"], strict=True)):
        if len(y) < 3 or numpy.ptp(x) == 0 or numpy.ptp(y) == 0:
            if ours is not None:
                yield f"type {k}: {ours}, not enough data expected"
            continue
        if ours is None:
            yield f"type {k}: nothing, a correlation expected"
            continue
        theirs = stats.pearsonr(x, y)
        if not close(ours[0], theirs.statistic) or not close(ours[1], theirs.pvalue) or ours[2] != len(y):
            yield f"type {k}: {ours}, SciPy {theirs.statistic} {theirs.pvalue} {len(y)}"
        if len(y) >= MIN_INTERVALS:
            p.append(theirs.pvalue)
            tried.append((k, theirs.statistic))
    significant = [False] * len(counts)
    if p:
        for (k, r), q in zip(tried, stats.false_discovery_control(p), strict=True):
            significant[k] = bool(r > 0 and q <= ALPHA)
    if significant != table["significant"]:
        yield f"significant: {table['significant']}, SciPy {significant}"

    # With all types in the model; fewer take part where there are few intervals.
    if tried and len(tried) <= len(figure) // 4:
        centred = numpy.array([counts[k] - counts[k].mean() for k, _ in tried]).T
        costs, _ = optimize.nnls(centred, y - y.mean())
        # What the other types leave unexplained of each type's variation.
        own = 1 / numpy.diag(numpy.linalg.pinv(numpy.corrcoef(centred.T).reshape(len(tried), -1)))
        for (k, _), theirs, own_variation in zip(tried, costs, own, strict=True):
            ours = table["costs"][k]
            if ours is None and own_variation < 1.001 * OWN_VARIATION:
                continue
            # Relative to the largest: a small one is a difference of large ones.
            if ours is None or abs(ours - theirs) > 1e-8 * max(1.0, costs.max()):
                yield f"cost of type {k}: {ours}, SciPy {theirs}"


def main():
    # SciPy warns of columns that hardly vary.
    warnings.simplefilter("ignore")
    tables = [json.loads(line) for line in sys.stdin]
    correlations = sum(found is not None for table in tables for found in table["pearson"])
    costs = sum(cost is not None for table in tables for cost in table["costs"])
    differences = [f"table {i}, {what}" for i, table in enumerate(tables) for what in check(table)]
    print(f"{len(tables)} tables, {correlations} correlations, {costs} costs, {len(differences)} differences")
    print("\n".join(differences[:20]))
    if len(tables) != TABLES or correlations < TABLES or costs < TABLES:
        sys.exit("too few tables were compared")
    sys.exit(bool(differences))


main()
