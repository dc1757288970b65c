"""Graph functions over more edges than memory is meant for: iterations of Spark, each of which ends in a checkpoint.

A checkpoint keeps rows where they were computed, on disk where memory is short, and cuts what they were computed from.
That of the round before is let go of.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from freshline.compute.ranks import DAMPING, MIXED, MOST_RANK_ROUNDS, Mixing, RankChange, remaining_error

SOURCE, TARGET, NODE = "source", "target", "node"
# So many rounds of edges are followed from few nodes before all components are computed.
MOST_LEVELS = 8


def checkpoint(rows: DataFrame) -> DataFrame:
    """The rows, computed, without what they were computed from."""
    return rows.localCheckpoint(eager=True)


def let_go(rows: DataFrame | None) -> None:
    """Free the rows of a checkpoint; reading it afterwards fails."""
    if rows is not None:
        rows._jdf.queryExecution().analyzed().rdd().unpersist(False)


def nodes_of(edges: DataFrame) -> DataFrame:
    """All nodes, each once."""
    return edges.select(F.col(SOURCE).alias(NODE)).unionAll(edges.select(F.col(TARGET).alias(NODE))).distinct()


def components(edges: DataFrame) -> DataFrame:
    """`node` and `component`, the least node of it.

    Edges are turned into stars by two steps in turn, of which each keeps components: the greater neighbours of a node
    are connected with its least neighbour, then the lesser ones are. At the end each node is connected with the least
    one of its component only. The number of rounds grows with the logarithm of the number of nodes.
    """
    distinct = edges.where(F.col(SOURCE) != F.col(TARGET)).select(
        F.greatest(SOURCE, TARGET).alias(SOURCE), F.least(SOURCE, TARGET).alias(TARGET)
    )
    stars = checkpoint(distinct.distinct())
    known = _mark(stars)
    while True:
        after = checkpoint(_small_star(_large_star(stars)))
        let_go(stars)
        stars, before, known = after, known, _mark(after)
        if known == before:
            break
    least = nodes_of(edges).join(stars.withColumnRenamed(SOURCE, NODE), NODE, "left")
    return checkpoint(least.select(NODE, F.coalesce(TARGET, NODE).alias("component")))


def _large_star(edges: DataFrame) -> DataFrame:
    """Each greater neighbour of a node, connected with the least of the node and its neighbours."""
    both = edges.unionAll(edges.select(F.col(TARGET).alias(SOURCE), F.col(SOURCE).alias(TARGET)))
    least = both.groupBy(SOURCE).agg(F.min(TARGET).alias("least"))
    joined = both.join(least.select(SOURCE, F.least(SOURCE, "least").alias("least")), SOURCE)
    return joined.where(F.col(TARGET) > F.col(SOURCE)).select(F.col(TARGET).alias(SOURCE), F.col("least").alias(TARGET))


def _small_star(edges: DataFrame) -> DataFrame:
    """Each lesser neighbour of a node, and the node, connected with the least of them; edges go from greater ones."""
    least = edges.groupBy(SOURCE).agg(F.min(TARGET).alias("least"))
    joined = edges.join(least, SOURCE).select(F.col(TARGET).alias(SOURCE), F.col("least").alias(TARGET))
    own = least.select(SOURCE, F.col("least").alias(TARGET))
    return joined.where(F.col(SOURCE) != F.col(TARGET)).unionAll(own).distinct()


def _mark(edges: DataFrame) -> tuple[object, ...]:
    """The count and hashes that distinguish two sets of edges."""
    hashed = F.xxhash64(SOURCE, TARGET)
    totals = edges.select(F.count(F.lit(1)), F.bit_xor(hashed), F.sum(hashed.cast("decimal(20,0)"))).collect()
    return tuple(totals[0])


def ranks(edges: DataFrame, start: DataFrame | None, tolerance: float) -> tuple[DataFrame, int] | None:
    """`node` and `rank`, and after how many rounds; None where they are not right within the tolerance by then.

    `start` has the ranks to begin with, of some nodes.
    """
    sent = checkpoint(
        edges.join(edges.groupBy(SOURCE).agg(F.count(F.lit(1)).alias("out")), SOURCE)
        .groupBy(SOURCE, TARGET)
        .agg((F.count(F.lit(1)) / F.first("out")).alias("share"))
    )
    nodes = nodes_of(edges)
    if start is not None:
        nodes = nodes.join(start.select(NODE, F.col("rank").alias("begin")), NODE, "left")
    first = F.lit(1.0) if start is None else F.coalesce("begin", F.lit(1.0))
    held = state = checkpoint(nodes.select(NODE, first.alias("before")))
    mixing = Mixing()
    for number in range(1, MOST_RANK_ROUNDS + 1):
        given = sent.join(state.select(F.col(NODE).alias(SOURCE), "before"), SOURCE)
        got = given.groupBy(F.col(TARGET).alias(NODE)).agg(F.sum(F.col("before") * F.col("share")).alias("got"))
        rank = F.lit(1.0 - DAMPING) + F.lit(DAMPING) * F.coalesce("got", F.lit(0.0))
        kept = [name for name in state.columns if name != NODE]
        after = checkpoint(
            state.join(got, NODE, "left")
            .select(NODE, *kept, rank.alias("rank"))
            .withColumn("change", F.col("rank") - F.col("before"))
        )
        let_go(held)
        held = after
        step, products = _step(after)
        if remaining_error(step) <= tolerance:
            let_go(sent)
            return after.select(NODE, "rank"), number
        state = _mixed(after, mixing.weights(step.moved, products))
    return None


def _mixed(after: DataFrame, weights: list[float]) -> DataFrame:
    """The start of the next round, and the results and changes of the last rounds: `rank1` is the newest."""
    ranks = ["rank", *(f"rank{place}" for place in range(1, len(weights)))]
    changes = ["change", *(f"change{place}" for place in range(1, len(weights)))]
    mixed = reduce(
        lambda total, part: total + part,
        [F.lit(weight) * F.col(name) for weight, name in zip(weights, ranks, strict=True)],
    )
    # No rank is less than one without edges, so this brings a mixture closer.
    before = F.greatest(mixed, F.lit(1.0 - DAMPING)).alias("before")
    older = [
        F.col(name).alias(f"{kind}{place}")
        for kind, names in (("rank", ranks), ("change", changes))
        for place, name in enumerate(names[: MIXED - 1], start=1)
    ]
    return after.select(NODE, before, *older)


def _step(after: DataFrame) -> tuple[RankChange, list[list[float]]]:
    """How ranks changed in a round, and the products of the changes of each two of the last rounds."""
    names = ("change", *(f"change{place}" for place in range(1, MIXED)))
    changes = [name for name in names if name in after.columns]
    moved = F.abs(F.col("change"))
    pairs = [F.sum(F.col(one) * F.col(other)) for one in changes for other in changes]
    row = after.agg(F.sum(moved), F.max(moved), F.max("rank"), *pairs).collect()[0]
    values = [float(value or 0.0) for value in row]
    products = [values[3 + len(changes) * place :][: len(changes)] for place in range(len(changes))]
    return RankChange(*values[:3]), products


def communities(edges: DataFrame, rounds: int) -> DataFrame:
    """`node` and `community`, as the labels in memory."""
    between = edges.where(F.col(SOURCE) != F.col(TARGET))
    both = checkpoint(
        between.unionAll(between.select(F.col(TARGET).alias(SOURCE), F.col(SOURCE).alias(TARGET)))
        .groupBy(SOURCE, TARGET)
        .agg(F.count(F.lit(1)).alias("times"))
    )
    labels = checkpoint(nodes_of(edges).select(NODE, F.col(NODE).alias("community")))
    for _ in range(rounds):
        heard = both.join(labels.select(F.col(NODE).alias(TARGET), "community"), TARGET)
        counted = heard.groupBy(F.col(SOURCE).alias(NODE), "community").agg(F.sum("times").alias("times"))
        # Of the most frequent ones the least: the order of a struct is that of its parts.
        best = counted.groupBy(NODE).agg(F.min(F.struct((-F.col("times")).alias("times"), "community")).alias("best"))
        after = checkpoint(
            labels.select(NODE, F.col("community").alias("before"))
            .join(best, NODE, "left")
            .select(NODE, F.coalesce("best.community", "before").alias("community"), "before")
        )
        let_go(labels)
        labels = after
        if after.where(F.col("community") != F.col("before")).isEmpty():
            break
    let_go(both)
    return labels.select(NODE, "community")


def within_reach(edges: DataFrame, reached: DataFrame) -> DataFrame:
    """`node` of the components that have one of the nodes of `reached`.

    Edges are followed from these nodes, and where many rounds of it find more and more, all components are computed.
    """
    both = edges.unionAll(edges.select(F.col(TARGET).alias(SOURCE), F.col(SOURCE).alias(TARGET)))
    found = checkpoint(reached.select(NODE).distinct())
    newest: list[DataFrame] = [found]
    for _ in range(MOST_LEVELS):
        beyond = both.join(newest[-1].withColumnRenamed(NODE, SOURCE), SOURCE, "left_semi")
        known = reduce(DataFrame.unionAll, newest)
        news = checkpoint(beyond.select(F.col(TARGET).alias(NODE)).distinct().join(known, NODE, "left_anti"))
        if news.isEmpty():
            return known
        newest.append(news)
    every = components(edges)
    wanted = every.join(reached.select(NODE).distinct(), NODE, "left_semi").select("component").distinct()
    return every.join(wanted, "component", "left_semi").select(NODE)
